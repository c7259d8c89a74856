"""The checks of the demo on the records that it read: pure functions over rows, keys and offsets.

Each check returns a `Claim`: what is claimed, whether it holds, and the first evidence against it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, final

import attrs

from raftlog.base.amounts import amount


class ReadRecord(NamedTuple):
    """One record as the consumer got it."""

    partition: int
    offset: int
    row: int
    key: bytes | None


class Claim(NamedTuple):
    """One line of the proof."""

    name: str
    says: str
    holds: bool
    evidence: str = ""

    def as_json(self) -> dict[str, object]:
        return {"says": self.says, "holds": self.holds, "evidence": self.evidence}


@final
@attrs.frozen
class DemoFault:
    """One injected fault and its effects.

    Epochs are by partition. The gap is the longest time without an acknowledgement, from the fault
    until all partitions were led again and in sync.
    """

    name: str
    node: int
    epochs_before: Mapping[int, int]
    epochs_after: Mapping[int, int]
    acks_after: int
    unavailable_ms: float

    def moved(self) -> list[int]:
        """The partitions whose leader epoch rose."""
        return sorted(
            partition
            for partition, epoch in self.epochs_after.items()
            if epoch > self.epochs_before.get(partition, -1)
        )


def exactly_once(acknowledged: Iterable[int], read: Sequence[ReadRecord]) -> Claim:
    """Check that every acknowledged row was read exactly once, and no row twice."""
    counts: dict[int, int] = {}
    for record in read:
        counts[record.row] = counts.get(record.row, 0) + 1
    acked = list(acknowledged)
    missing = [row for row in acked if row not in counts]
    doubled = [row for row, count in counts.items() if count > 1]
    evidence = ""
    if missing:
        evidence = (
            f"missing: {amount(len(missing), 'acknowledged row')}, the first is {min(missing)}"
        )
    elif doubled:
        evidence = (
            f"there more than once: {amount(len(doubled), 'row')}, the first is {min(doubled)}"
        )
    return Claim(
        "exactly-once",
        f"each of {amount(len(acked), 'acknowledged record', grouped=True)} is there exactly once",
        not missing and not doubled,
        evidence,
    )


def nothing_invented(sent: int, read: Sequence[ReadRecord]) -> Claim:
    """Check that only rows that were sent were read."""
    strange = [record for record in read if not 0 <= record.row < sent]
    evidence = f"{strange[0]}" if strange else ""
    return Claim(
        "no-phantom",
        f"all {amount(len(read), 'record', grouped=True)} read were sent",
        not strange,
        evidence,
    )


def key_order(read: Sequence[ReadRecord]) -> Claim:
    """Check that rows of one key lie in one partition, in the order in which they were sent."""
    last: dict[bytes, ReadRecord] = {}
    for record in sorted(read, key=_place):
        if record.key is None:
            continue
        before = last.get(record.key)
        wrong = before is not None and (
            before.partition != record.partition or before.row >= record.row
        )
        if wrong:
            says = f"{record.key!r}: {before} before {record}"
            return Claim("key-order", "the order of each key is kept", False, says)
        last[record.key] = record
    return Claim(
        "key-order", f"the order of each of {amount(len(last), 'key', grouped=True)} is kept", True
    )


def _place(record: ReadRecord) -> tuple[int, int]:
    return record.partition, record.offset


def dense(read: Sequence[ReadRecord], ends: Mapping[int, int]) -> Claim:
    """Check that the offsets of each partition are 0, 1, 2, ... up to its end."""
    offsets: dict[int, list[int]] = {partition: [] for partition in ends}
    for record in read:
        offsets.setdefault(record.partition, []).append(record.offset)
    for partition, found in sorted(offsets.items()):
        expected = range(ends.get(partition, 0))
        if sorted(found) != list(expected):
            gaps = sorted(set(expected) - set(found))
            first = f"offset {gaps[0]} is missing" if gaps else f"{amount(len(found), 'record')}"
            says = f"partition {partition}, end {ends.get(partition)}: {first}"
            return Claim("dense", "offsets are dense from 0", False, says)
    return Claim("dense", f"offsets are dense from 0 in {amount(len(offsets), 'partition')}", True)


class ReplicaLog(NamedTuple):
    """The findings in one replica's files, up to the common high watermark."""

    node: int
    partition: int
    chain: str
    content_hash: str


def replicas_equal(logs: Sequence[ReplicaLog], replication: int) -> Claim:
    """Check that all replicas of a partition hold the same bytes, by chain values and hashes."""
    by_partition: dict[int, list[ReplicaLog]] = {}
    for log in logs:
        by_partition.setdefault(log.partition, []).append(log)
    says = f"{len(logs)} replica logs agree by chain and by hash of their bytes"
    for partition, group in sorted(by_partition.items()):
        if len(group) != replication:
            evidence = f"partition {partition} has {amount(len(group), 'replica')}"
            return Claim("replicas-equal", says, False, evidence)
        if len({log[2:] for log in group}) > 1:
            return Claim("replicas-equal", says, False, f"partition {partition}: {group}")
    return Claim("replicas-equal", says, bool(by_partition))


def faults_took_effect(faults: Sequence[DemoFault]) -> Claim:
    """Check that each fault moved a leader epoch, and that acknowledgements went on after it."""
    says = "each fault moved leaders, and acknowledgements went on"
    for fault in faults:
        if not fault.moved():
            return Claim("faults", says, False, f"{fault.name}: no leader epoch moved")
        if fault.acks_after == 0:
            return Claim("faults", says, False, f"{fault.name}: nothing was acknowledged after it")
    return Claim("faults", says, len(faults) > 0, "" if faults else "no fault was injected")
