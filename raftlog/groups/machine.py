"""GroupsMachine: the state that the committed records of one `__consumer_offsets` partition give.

The state is a map of independent keys in which the last record of a key wins. A record changes no
key but its own. So a compacted log, which keeps the last record of each key, gives the same state
as the whole log, and a record that comes twice changes nothing.

The digest is the sum of a hash of every entry, modulo 2**128. One record changes one summand, so
the digest is always ready when a marker needs it.

Snapshot: 8 bytes magic and version | u32 groups | entries | u32 floors | entries | u32 offsets
| entries; each sorted by its key, in the layout of `stored`.
"""

import hashlib
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, TypeVar, final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.errors import CorruptData
from raftlog.base.frozen import Frozen
from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.limits import BATCH_BYTES_MAX
from raftlog.groups.records import FloorRecord, GroupRecord, OffsetRecord, ReadRecord, read_record
from raftlog.groups.stored import (
    StoredGroup,
    StoredOffset,
    decode_floor,
    decode_group,
    decode_offset,
    encode_floor,
    encode_group,
    encode_offset,
)
from raftlog.records.batch import CONTROL, TRANSACTIONAL, read_header
from raftlog.records.record import records_of

MAGIC: Final = b"RLGROUP\x01"
"""The first bytes of a snapshot; the last of them is its version."""
DIGEST_BYTES: Final = 16
_MODULUS: Final = 1 << (8 * DIGEST_BYTES)
_COUNT_BYTES: Final = 4
_ENTRY_BYTES_MORE: Final = 3
"""The bytes that an entry takes more in a snapshot than in the digest: a length, less the letter of
its kind, which only the digest has."""
_ENTRY_BYTES_MIN: Final = 12
"""The size of the shortest entry: a floor of a group whose name is empty."""

PartitionKey: TypeAlias = tuple[str, int]
"""Topic and partition."""
_Key = TypeVar("_Key", str, PartitionKey)


class _Held(NamedTuple):
    """The content of a key: the value, its summand of the digest, and its canonical size in
    bytes."""

    value: "StoredGroup | StoredOffset | int"
    mark: int
    size: int


_NO_OFFSETS: Final[Mapping[PartitionKey, _Held]] = MappingProxyType({})


@final
class GroupsMachine:
    """The applied machine of an offsets partition: groups, committed offsets, generation floors."""

    __slots__ = (
        "_by_topic",
        "_entries",
        "_floors",
        "_groups",
        "_lent",
        "_offsets",
        "_sum",
        "state_bytes",
    )

    def __init__(self) -> None:
        self._groups: dict[str, _Held] = {}
        self._floors: dict[str, _Held] = {}
        self._offsets: dict[str, dict[PartitionKey, _Held]] = {}
        self._by_topic: dict[str, dict[tuple[str, int], None]] = {}
        """Topic -> the groups and partitions with a committed offset in it."""
        self._lent: dict[str, None] = {}
        """Groups whose table of offsets a frozen state may share."""
        self._sum = 0
        self._entries = 0
        self.state_bytes = 0
        """The size of all entries in a snapshot, in bytes; their memory is proportional to it."""

    # --- what it holds ------------------------------------------------------------------------

    def group(self, group_id: str) -> StoredGroup | None:
        """The stored group; None when no record of it is left."""
        held = self._groups.get(group_id)
        if held is None:
            return None
        assert isinstance(held.value, StoredGroup), held
        return held.value

    def group_ids(self) -> list[str]:
        """Ids of all groups that have a record or a committed offset, sorted."""
        return sorted({**self._groups, **self._offsets})

    def all_ids(self) -> list[str]:
        """Ids of all groups with a record, a committed offset or a generation floor, sorted."""
        return sorted({**self._groups, **self._offsets, **self._floors})

    def knows(self, group_id: str) -> bool:
        """Whether the group has a record or a committed offset."""
        return group_id in self._groups or group_id in self._offsets

    def generation_floor(self, group_id: str) -> int:
        """The highest generation that may have been given out; 0 for none."""
        held, stored = self._floors.get(group_id), self.group(group_id)
        floor = 0 if held is None else held.value
        assert isinstance(floor, int), held
        return max(floor, 0 if stored is None else stored.generation)

    def offset(self, group_id: str, topic: str, partition: int) -> StoredOffset | None:
        """The committed offset of a partition."""
        held = self._offsets.get(group_id, _NO_OFFSETS).get((topic, partition))
        if held is None:
            return None
        assert isinstance(held.value, StoredOffset), held
        return held.value

    def offset_keys(self, group_id: str) -> list[PartitionKey]:
        """Topics and partitions with a committed offset of the group, sorted."""
        return sorted(self._offsets.get(group_id, _NO_OFFSETS))

    def topics(self) -> list[str]:
        """Topics with a committed offset of any group, in no particular order."""
        return list(self._by_topic)

    def offsets_of_topic(self, topic: str) -> list[tuple[str, int]]:
        """Groups and partitions with a committed offset in the topic, in no particular order."""
        return list(self._by_topic.get(topic, ()))

    # --- the applied machine --------------------------------------------------------------------

    def apply(self, batch: Buffer, base_offset: Offset, index: RaftIndex) -> None:
        """Apply the records of one committed batch; records that cannot be read are skipped.

        Control batches carry no group records, and transactional batches are not served yet.
        """
        header = read_header(batch)
        assert header.base_offset == base_offset, (header.base_offset, base_offset, index)
        if header.attributes & (CONTROL | TRANSACTIONAL):
            return
        try:
            for record in records_of(batch, CorruptData, "a record of groups"):
                read = read_record(record)
                if read is not None:
                    self._take(read)
        except CorruptData:
            # A producer wrote records that cannot be parsed: brokers store batches without looking
            # inside. All replicas stop reading at the same byte, so their states stay equal.
            return

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        return _snapshot_of(self._groups, self._floors, self._offsets)

    def frozen(self) -> Frozen:
        """The present state, frozen, so that a job can make its bytes.

        The frozen state shares the tables of offsets. `_take_offset` copies a shared table before
        it changes it. Values never change.
        """
        self._lent = dict.fromkeys(self._offsets)
        size = len(MAGIC) + 3 * _COUNT_BYTES + self.state_bytes + self._entries * _ENTRY_BYTES_MORE
        tables = dict(self._groups), dict(self._floors), dict(self._offsets)
        return Frozen(size, partial(_snapshot_of, *tables))

    def restore(self, body: Buffer) -> None:
        """Take the state of a snapshot. Raises CorruptData, with nothing changed, when it is
        none."""
        data = Reader(body, CorruptData, "snapshot of groups")
        if bytes(data.take(len(MAGIC))) != MAGIC:
            raise data.fail("this is no snapshot of groups of a version that is read here")
        fresh = GroupsMachine()
        for _ in range(data.count(_ENTRY_BYTES_MIN, BATCH_BYTES_MAX)):
            fresh._take(GroupRecord(*decode_group(_entry(data))))
        for _ in range(data.count(_ENTRY_BYTES_MIN, BATCH_BYTES_MAX)):
            fresh._take(FloorRecord(*decode_floor(_entry(data))))
        for _ in range(data.count(_ENTRY_BYTES_MIN, BATCH_BYTES_MAX)):
            fresh._take(OffsetRecord(*decode_offset(_entry(data))))
        data.end()
        if fresh.snapshot() != body:
            raise data.fail("the entries are not in their one order and form")
        self._groups, self._floors, self._offsets = fresh._groups, fresh._floors, fresh._offsets
        self._by_topic = fresh._by_topic
        self._sum, self.state_bytes = fresh._sum, fresh.state_bytes
        self._entries, self._lent = fresh._entries, {}

    def digest(self) -> bytes:
        """A digest of the state, 16 bytes; equal states give equal bytes."""
        return self._sum.to_bytes(DIGEST_BYTES, "big")

    # --- one record -----------------------------------------------------------------------------

    def _take(self, read: ReadRecord) -> None:
        """Apply one record: it replaces the earlier value of its key."""
        if isinstance(read, OffsetRecord):
            self._take_offset(read)
        elif isinstance(read, GroupRecord):
            stored = read.stored
            entry = b"" if stored is None else b"g" + encode_group(read.group, stored)
            self._put(self._groups, read.group, stored, entry)
        else:
            floor = read.generation
            entry = b"" if floor is None else b"f" + encode_floor(read.group, floor)
            self._put(self._floors, read.group, floor, entry)

    def _take_offset(self, read: OffsetRecord) -> None:
        key, stored = (read.topic, read.partition), read.stored
        table = self._offsets.get(read.group)
        if table is None:
            if stored is None:
                return
            table = self._offsets[read.group] = {}
        if read.group in self._lent:
            del self._lent[read.group]
            table = self._offsets[read.group] = dict(table)
        entry = b""
        if stored is not None:
            entry = b"o" + encode_offset(read.group, read.topic, read.partition, stored)
        self._put(table, key, stored, entry)
        if not table:
            del self._offsets[read.group]
            self._lent.pop(read.group, None)
        if stored is not None:
            self._by_topic.setdefault(read.topic, {})[read.group, read.partition] = None
            return
        places = self._by_topic.get(read.topic, {})
        places.pop((read.group, read.partition), None)
        if not places:
            self._by_topic.pop(read.topic, None)

    def _put(
        self,
        table: dict[_Key, _Held],
        key: _Key,
        value: StoredGroup | StoredOffset | int | None,
        entry: bytes,
    ) -> None:
        """Set or remove (None) one entry, and keep sum and size in step."""
        old = table.pop(key, None)
        if old is not None:
            self._sum = (self._sum - old.mark) % _MODULUS
            self.state_bytes -= old.size
            self._entries -= 1
        if value is not None:
            mark = int.from_bytes(hashlib.blake2b(entry, digest_size=DIGEST_BYTES).digest(), "big")
            table[key] = _Held(value, mark, len(entry))
            self._sum = (self._sum + mark) % _MODULUS
            self.state_bytes += len(entry)
            self._entries += 1


def _snapshot_of(
    groups: Mapping[str, _Held],
    floors: Mapping[str, _Held],
    offsets: Mapping[str, Mapping[PartitionKey, _Held]],
) -> bytes:
    out = Writer().raw(MAGIC).u32(len(groups))
    for group_id in sorted(groups):
        out.block(_group_bytes(group_id, groups[group_id]))
    out.u32(len(floors))
    for group_id in sorted(floors):
        out.block(_floor_bytes(group_id, floors[group_id]))
    out.u32(sum(map(len, offsets.values())))
    for group_id in sorted(offsets):
        for key in sorted(offsets[group_id]):
            out.block(_offset_bytes(group_id, key, offsets[group_id][key]))
    return out.bytes()


def _entry(data: Reader) -> Reader:
    """A reader of the next entry."""
    return Reader(data.block(BATCH_BYTES_MAX), CorruptData, "snapshot of groups, entry")


def _group_bytes(group_id: str, held: _Held) -> bytes:
    assert isinstance(held.value, StoredGroup), held
    return encode_group(group_id, held.value)


def _floor_bytes(group_id: str, held: _Held) -> bytes:
    assert isinstance(held.value, int), held
    return encode_floor(group_id, held.value)


def _offset_bytes(group_id: str, key: PartitionKey, held: _Held) -> bytes:
    assert isinstance(held.value, StoredOffset), held
    return encode_offset(group_id, *key, held.value)
