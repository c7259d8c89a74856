"""Checks deletion by age and by size: deleted records were old, and the promised bytes stay.

The world knows the true time. Suppose the wall clocks of most voters were never off by more than
CLOCKS_APART_MS_MAX, which the product takes for agreement. Then a record that is younger than the
topic's age, by the true time, may not be deleted. The leader's clock may be off by that much, and
the clocks that it agrees with too, so the check allows twice that much.

A marker that retention by size proposes leaves at least `retention_bytes` in the leader's log. The
check counts the committed entries before the marker.
"""

from bisect import bisect_left
from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, final

import attrs

from raftlog.base.ids import METADATA_GROUP, GroupId
from raftlog.base.limits import CLOCKS_APART_MS_MAX
from raftlog.base.units import NANOS_PER_MILLI
from raftlog.partition.replica import PartitionReplica
from raftlog_sim.facts.committed import CommittedFacts
from raftlog_sim.world.clock import WALL_START_MS

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node


@final
@attrs.define(eq=False)
class AgeChecks:
    """Checks new log-start markers. `retention_ms` is the topics' age and `retention_bytes` their
    size; 0 turns a check off, for runs in which other causes delete records too."""

    retention_ms: int = 0
    retention_bytes: int = 0
    _seen: dict[GroupId, int] = attrs.Factory(dict)
    """How many committed log-start markers of each group were checked."""

    def look(
        self, node: "Node", replica: PartitionReplica, committed: CommittedFacts
    ) -> Iterator[tuple[str, str]]:
        """Check the records that newly committed markers delete."""
        if replica.group == METADATA_GROUP or replica.machine is not None:
            return  # trimmed behind its snapshots, however young it is
        seen = self._seen.get(replica.group, 0)
        if not (self.retention_ms or self.retention_bytes) or len(committed.starts) == seen:
            return
        self._seen[replica.group] = len(committed.starts)
        if self.retention_bytes and committed.whole:
            for index, log_start in committed.starts[seen:]:
                yield "kept-by-size", self._too_small(replica, committed, index, log_start)
        if not self.retention_ms:
            return
        if not _most_are_right(node, replica):
            return
        begun = committed.starts[seen - 1][1] if seen else 0
        true_ms = WALL_START_MS + node.world.now // NANOS_PER_MILLI
        young_from = true_ms - self.retention_ms + 2 * CLOCKS_APART_MS_MAX
        first = bisect_left(committed.batches, begun, key=attrgetter("base_offset"))
        for batch in committed.batches[first:]:
            if batch.base_offset >= committed.log_start:
                break
            if batch.latest_ms > young_from:
                age_ms = true_ms - batch.latest_ms
                yield (
                    "kept-by-age",
                    f"the record at offset {batch.base_offset} was deleted {age_ms} ms after its "
                    f"timestamp; {self.retention_ms} ms are promised, and most clocks are right",
                )
        yield "kept-by-age", ""

    def _too_small(
        self, replica: PartitionReplica, committed: CommittedFacts, index: int, log_start: int
    ) -> str:
        begun = committed.log_start_at(index - 1)
        kept = sum(
            size
            for raft_index, base_offset, size in committed.sizes
            if base_offset >= log_start and raft_index < index
        )
        if log_start == begun or kept >= self.retention_bytes:
            return ""
        return (
            f"the log of group {replica.group} begins at {log_start} from entry {index} on: "
            f"{kept} bytes stay, {self.retention_bytes} are promised"
        )


def _most_are_right(node: "Node", replica: PartitionReplica) -> bool:
    voters = replica.membership.all_voters()
    right = [
        voter
        for voter in voters
        if node.world.nodes[voter.node].machine.worst_ms <= CLOCKS_APART_MS_MAX
    ]
    return 2 * len(right) > len(voters)
