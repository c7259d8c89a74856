"""Walks the records of a produced batch as Kafka's broker does, before it is stored.

A broker checks headers only, unless `raftlog.validate.records` is set; then this walk checks each
record of each batch. It costs about 1.5 us a record, and the time to decompress. So it runs off the
loop, `RECORDS_STEP_MAX` records at a time, and batches of other partitions come in between.

The walk refuses a batch unless all of this holds:

* The records decompress. There are as many as the header says, and no byte more.
* Offset deltas count from 0, and lengths stay inside their record.
* Each header has a key, and each timestamp is within the topic's limits.
* Each record has a key, where the topic is compacted by key.
"""

from typing import TYPE_CHECKING, Final, NamedTuple, final

from raftlog.base.binary import Buffer
from raftlog.base.errors import CorruptData
from raftlog.base.limits import BATCH_HEADER_BYTES, RECORD_HEADERS_MAX
from raftlog.records.batch import CODEC_MASK, BatchHeader
from raftlog.records.compression import NONE, expanded

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDS_STEP_MAX: Final = 10_000
"""Records of one step: some 20 ms."""
_VARINT_BYTES_MAX: Final = 10
_ON: Final = "records of a produced batch"


class RecordRules(NamedTuple):
    """A topic's rules for each record: timestamps from `earliest_ms` to `latest_ms`, and a key when
    `keyed`."""

    earliest_ms: int
    latest_ms: int
    keyed: bool


class RecordFault(NamedTuple):
    """The reason to refuse a batch; `timestamp` is True when a timestamp is out of bounds."""

    what: str
    timestamp: bool = False


class _LieError(Exception):
    """A record breaks a rule or contradicts its own lengths and counts."""


@final
class RecordWalk:
    """One walk over the records of a batch, in steps.

    `done` is True when the walk is over. `fault` is None as long as all records were good."""

    __slots__ = (
        "_at",
        "_base_ms",
        "_bytes",
        "_count",
        "_index",
        "_pieces",
        "_rules",
        "done",
        "fault",
    )

    def __init__(self, batch: Buffer, header: BatchHeader, rules: RecordRules) -> None:
        """`header` is the checked header of `batch`. The batch must not change until the walk is
        done."""
        body = memoryview(batch)[BATCH_HEADER_BYTES : header.size]
        codec = header.attributes & CODEC_MASK
        self._pieces: Iterator[bytes]
        if codec == NONE:
            self._pieces = iter((bytes(body),))
        else:
            self._pieces = expanded(codec, body, CorruptData, _ON)
        self._bytes = b""
        self._at = 0
        self._index = 0
        self._count = header.records_count
        self._base_ms = header.base_timestamp
        self._rules = rules
        self.done = False
        self.fault: RecordFault | None = None

    def step(self, records_max: int = RECORDS_STEP_MAX) -> None:
        """Check up to `records_max` more records."""
        assert not self.done, "the walk is over"
        try:
            for _ in range(min(records_max, self._count - self._index)):
                self._look_at_one()
                self._index += 1
            if self._index == self._count:
                self.done = True
                if self._has(1):
                    raise _LieError("bytes follow the last record")
        except _LieError as lie:
            self._refuse(f"record {self._index}: {lie}")
        except CorruptData as error:
            self._refuse(error.what)

    def _refuse(self, what: str, *, timestamp: bool = False) -> None:
        self.done = True
        if self.fault is None:
            self.fault = RecordFault(what, timestamp)

    def _look_at_one(self) -> None:
        self._has(_VARINT_BYTES_MAX)
        size, at = _varint(self._bytes, self._at, len(self._bytes))
        if size < 0 or not self._has(at - self._at + size):
            raise _LieError(f"it says {size} bytes, which are not there")
        data = self._bytes
        # `_has` may have moved the bytes that were read already, so the size is read again.
        size, at = _varint(data, self._at, len(data))
        end = at + size
        delta_ms, at = _varint(data, at + 1, end)
        delta, at = _varint(data, at, end)
        if delta != self._index:
            raise _LieError(f"its offset delta is {delta}")
        key, at = _varint(data, at, end)
        value, at = _varint(data, at + max(key, 0), end)
        headers, at = _varint(data, at + max(value, 0), end)
        if key < -1 or value < -1 or not 0 <= headers <= RECORD_HEADERS_MAX:
            raise _LieError(f"key of {key} bytes, value of {value}, {headers} headers")
        for _ in range(headers):
            name, at = _varint(data, at, end)
            value, at = _varint(data, at + max(name, 0), end)
            if name < 0 or value < -1:
                raise _LieError(f"header with a key of {name} bytes and a value of {value}")
            at += max(value, 0)
        if at != end:
            raise _LieError(f"its fields end {at - end} bytes behind its length")
        self._judge(self._base_ms + delta_ms, has_key=key >= 0)
        self._at = end

    def _judge(self, timestamp_ms: int, *, has_key: bool) -> None:
        earliest, latest, keyed = self._rules
        if not earliest <= timestamp_ms <= latest:
            what = f"record {self._index}: its timestamp {timestamp_ms} is out of bounds"
            self._refuse(what, timestamp=True)
            raise _LieError(what)
        if keyed and not has_key:
            raise _LieError("it has no key, and the topic is compacted by key")

    def _has(self, size: int) -> bool:
        """Whether `size` more bytes follow the walk's position; decompresses as far as needed."""
        left = len(self._bytes) - self._at
        if left >= size:
            return True
        pieces = [self._bytes[self._at :]]
        for piece in self._pieces:
            pieces.append(piece)
            left += len(piece)
            if left >= size:
                break
        self._bytes, self._at = b"".join(pieces), 0
        return left >= size


def walk_records(_: object, walk: RecordWalk) -> RecordWalk:
    """Job: one step of a walk."""
    walk.step()
    return walk


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits that ends at or before `end`, and the place behind it."""
    if at >= end:
        raise _LieError("it is cut short")
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        if at >= end:
            raise _LieError("it is cut short")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
        if shift > 63:
            raise _LieError("a varint is longer than 64 bits")
