"""Replays the committed log of an offsets partition beside the brokers, and checks what it says.

    machine-agrees          a replica's machine is what the committed records up to where it has
                            applied make of a new one; and what is left of them after
                            compaction makes the same
    group-generations-rise  the records that make generations known name each number once
    group-on-record         a join is answered when its generation is committed, a sync when its
                            assignment is, a commit when its offset is
    group-offsets-live      no broker removes an offset that is younger than retention by the
                            clocks of a majority

The records come from `committed`. A log of which an entry was not in memory is not judged.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, Final, final

import attrs

from raftlog.base.entries import Entry
from raftlog.base.errors import CorruptData
from raftlog.base.ids import NodeId, RaftIndex
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.records import FloorRecord, GroupRecord, OffsetRecord, ReadRecord, read_record
from raftlog.kafka.versions import ApiKey
from raftlog.records.record import records_of

COMPACTED_EVERY: Final = 8
"""How many batches of records pass between two replays of what compaction leaves."""


@final
@attrs.define(eq=False)
class Walls:
    """The highest wall clock that each node has shown, and how long offsets are kept."""

    retention_ms: int = 0
    """How long offsets are kept; 0 leaves clocks aside, and every removal is too early."""
    fleeting: str = "\0"
    """The prefix of the names of topics that a run deletes. Their offsets go with them at any
    age."""
    deleted: dict[str, None] = attrs.Factory(dict)
    """Groups whose deletion was asked for. Their offsets may go at any time."""
    highest_ms: dict[NodeId, int] = attrs.Factory(dict)

    def look(self, node: NodeId, shown_ms: int) -> None:
        """Note what a node's clock shows in this turn."""
        self.highest_ms[node] = max(shown_ms, self.highest_ms.get(node, 0))

    def young(self, commit_ms: int) -> bool:
        """Whether a majority of the nodes never showed a time at which this offset was old."""
        if not self.retention_ms:
            return True
        ages = [shown - commit_ms for shown in self.highest_ms.values()]
        return 2 * sum(age < self.retention_ms for age in ages) > len(ages)


@final
@attrs.define(eq=False)
class GroupLog:
    """One partition of the internal topic. `latest` holds what compaction leaves, by key."""

    walls: Walls
    machine: GroupsMachine = attrs.Factory(GroupsMachine)
    latest: dict[bytes, ReadRecord] = attrs.Factory(dict)
    ends: list[int] = attrs.Factory(lambda: [0])
    digests: list[bytes] = attrs.Factory(lambda: [GroupsMachine().digest()])
    floors: dict[str, int] = attrs.Factory(dict)
    """The highest generation of each group so far."""
    removals: dict[str, int] = attrs.Factory(dict)
    """How often each group was removed, with its generation numbers."""
    batches: int = 0
    given: dict[str, int] = attrs.Factory(dict)
    """The highest generation of each group that a record ever made known."""
    assigned: dict[str, int] = attrs.Factory(dict)
    """The highest generation of each group whose assignment was committed."""
    offsets: dict[tuple[str, str, int], dict[int, None]] = attrs.Factory(dict)
    """Every offset that was ever committed."""
    expired: dict[tuple[str, str, int], dict[int, None]] = attrs.Factory(dict)
    """Offsets that were removed after a majority of the clocks had shown that they were old."""

    def take(self, entry: Entry) -> tuple[tuple[str, str], ...]:
        """Take one more committed batch of records; returns (invariant, error or "") pairs."""
        risen = removed = ""
        for record in records_of(entry.batch, CorruptData, "a record of groups"):
            read = read_record(record)
            if read is None:
                continue
            self._remember(read)
            risen = risen or self._generation(read)
            removed = removed or self._removed(read)
            key = record.key
            assert key is not None, record
            self.latest.pop(key, None)
            if not _is_tombstone(read):
                self.latest[key] = read
        self.machine.apply(entry.batch, entry.base_offset, entry.raft_index)
        self.ends.append(entry.raft_index)
        self.digests.append(self.machine.digest())
        self.batches += 1
        found = [("group-generations-rise", risen), ("group-offsets-live", removed)]
        if self.batches % COMPACTED_EVERY == 0:
            found.append(("machine-agrees", self.compacted()))
        return tuple(found)

    def _remember(self, read: ReadRecord) -> None:
        if isinstance(read, FloorRecord):
            self.given[read.group] = max(self.given.get(read.group, 0), read.generation or 0)
        elif isinstance(read, GroupRecord):
            generation = 0 if read.stored is None else read.stored.generation
            self.given[read.group] = max(self.given.get(read.group, 0), generation)
            self.assigned[read.group] = max(self.assigned.get(read.group, 0), generation)
        elif read.stored is not None:
            place = (read.group, read.topic, read.partition)
            self.offsets.setdefault(place, {})[read.stored.offset] = None

    def digest_at(self, index: RaftIndex) -> bytes:
        """Returns the digest of a machine that applied everything up to `index`."""
        return self.digests[bisect_right(self.ends, index) - 1]

    def compacted(self) -> str:
        """Returns an error when the last record of each key, in mixed order, makes another
        machine."""
        fresh = GroupsMachine()
        for key in sorted(self.latest, key=_mixed):
            fresh._take(self.latest[key])
        if fresh.digest() == self.machine.digest() and fresh.snapshot() == self.machine.snapshot():
            return ""
        return f"after entry {self.ends[-1]} a compacted log makes another machine than the whole"

    def _generation(self, read: ReadRecord) -> str:
        if isinstance(read, FloorRecord):
            if read.generation is None:
                self.floors.pop(read.group, None)
                self.removals[read.group] = self.removals.get(read.group, 0) + 1
                return ""
            before = self.floors.get(read.group, 0)
            self.floors[read.group] = max(before, read.generation)
            if read.generation <= before:
                return f"generation {read.generation} of group {read.group} begins after {before}"
        elif isinstance(read, GroupRecord) and read.stored is not None:
            before = self.floors.get(read.group, 0)
            self.floors[read.group] = max(before, read.stored.generation)
        return ""

    def _removed(self, read: ReadRecord) -> str:
        if not isinstance(read, OffsetRecord) or read.stored is not None:
            return ""
        held = self.machine.offset(read.group, read.topic, read.partition)
        if held is None or read.group in self.walls.deleted:
            return ""
        if not self.walls.young(held.commit_ms):
            place = (read.group, read.topic, read.partition)
            self.expired.setdefault(place, {})[held.offset] = None
            return ""
        if read.topic.startswith(self.walls.fleeting):
            return ""
        return f"the offset {held.offset} of {read.group} for {read.topic} is removed too early"


def off_record(logs: Iterable[GroupLog], key: int, request: Any, body: Any) -> str:
    """Returns a member's answer that no log has on record; "" when it is committed.

    `logs` are all logs that there are.
    """
    logs, group = list(logs), getattr(request, "group_id", "")
    if key == ApiKey.JOIN_GROUP and not body.error_code:
        known = max((log.given.get(group, 0) for log in logs), default=0)
        if body.generation_id > known:
            return (
                f"a join hears of generation {body.generation_id} of {group}, {known} is on record"
            )
    elif key == ApiKey.SYNC_GROUP and not body.error_code:
        known = max((log.assigned.get(group, 0) for log in logs), default=0)
        if request.generation_id > known:
            return f"a sync of {group} in {request.generation_id} is answered, {known} is on record"
    elif key == ApiKey.OFFSET_COMMIT:
        taken = [
            (group, topic.name, each.partition_index)
            for topic in body.topics
            for each in topic.partitions
            if not each.error_code
        ]
        for topic in request.topics:
            for each in topic.partitions:
                place = (group, topic.name, each.partition_index)
                known_here = any(
                    each.committed_offset in log.offsets.get(place, ()) for log in logs
                )
                if place in taken and not known_here:
                    return f"{place} is said to be committed at {each.committed_offset}, and is not"
    return ""


def _is_tombstone(read: ReadRecord) -> bool:
    if isinstance(read, FloorRecord):
        return read.generation is None
    return read.stored is None


def _mixed(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=8).digest()
