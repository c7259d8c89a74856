"""Writes one more record to every partition when all faults are over: the cluster must commit it.

The records are due in a healed core, in the healed cluster, and after each last reboot. They go to
every partition of the workload's topic in which the nodes in question can commit. All nodes
together always can.

The product's client sends each record with acks=all, again and again until one is acknowledged. The
record stands in the history with a value of its own, and each attempt is a process of its own. A
refusal that may pass is retried until the phase is over. One that the client calls final ends the
run at once.
"""

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import GroupId, NodeId
from raftlog.base.units import millis
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.client.core.values import RecordPosition
from raftlog_sim.base.stuck import StuckError
from raftlog_sim.facts.convergence import able_groups, known_groups
from raftlog_sim.facts.targets import group_of
from raftlog_sim.workloads.callers import TOPIC, Caller
from raftlog_sim.workloads.workload import SimWorkload, is_certain

if TYPE_CHECKING:
    from raftlog_sim.world.world import World

LAST_WRITER: Final = 2_500_000
"""The number of the first attempt's process."""
AGAIN_NS: Final = millis(50)
"""The time from a refusal to the next attempt, in nanoseconds."""
GROUPS: Final = "groups"
RECORDS: Final = "records"
NO_MAJORITY: Final = "not asked: no majority"
TOO_FEW: Final = "not asked: fewer than min.insync.replicas"


@final
@attrs.define(eq=False)
class LastWrites:
    """Sends the last records. `begin` asks for them, `done` says whether all are there, `end` stops
    asking. `demanded` counts, by phase: groups that had to elect, records that had to be
    acknowledged and, by reason, partitions of which no record was asked."""

    world: "World"
    workload: SimWorkload
    demanded: dict[str, dict[str, int]] = attrs.Factory(dict)
    sent: int = 0
    acknowledged: int = 0
    unknown: int = 0
    committed: list[int] = attrs.Factory(list)
    """The partitions that have acknowledged a record since `begin`."""
    _phase: str = ""
    _members: tuple[NodeId, ...] = ()
    _round: int = 0
    """The number of the round; answers to earlier rounds say nothing about this one."""
    _client: Caller | None = None
    _able: dict[GroupId, None] = attrs.Factory(dict)
    """The groups counted in this round."""
    _open: dict[int, str] = attrs.Factory(dict)
    """Partitions that have not acknowledged a record yet, with the last refusal."""
    _final: str = ""
    """The refusal that no further attempt can change; "" for none."""

    def begin(self, phase: str, members: Collection[NodeId]) -> None:
        """Ask these nodes for a record in every partition in which they can commit."""
        self._round += 1
        self._phase, self._members = phase, tuple(members)
        self.committed.clear()
        self._able.clear()
        self._client = self.workload.client(f"last-writer/{self._round}")
        for partition in range(self.workload.options.partitions):
            self._open[partition] = "no answer yet"
            self._count(RECORDS)
        self._leave_the_unable()
        for partition in list(self._open):
            self._send(self._round, partition)

    def done(self) -> bool:
        """Whether every partition that can commit has acknowledged a record.

        Raises `StuckError` for a refusal that is final.
        """
        if self._final:
            raise StuckError(self._final)
        if self._open:
            self._leave_the_unable()
        return not self._open

    def end(self) -> None:
        """Send nothing more."""
        self._open.clear()

    def refusals(self) -> str:
        """Returns the partitions that have not acknowledged, with the reasons."""
        return "; ".join(f"partition {each} refused: {why}" for each, why in self._open.items())

    def _leave_the_unable(self) -> None:
        """Leave out the partitions in which the nodes cannot commit any more.

        A core may become unable: a move to the frozen nodes that was asked for before may begin. A
        group that none of these nodes knows, since all have just booted, says nothing yet.
        """
        able = able_groups(self.world, self._members)
        known = known_groups(self.world, self._members)
        for each in sorted(able.keys() - self._able.keys()):
            self._able[each] = None
            self._count(GROUPS)
        for partition in list(self._open):
            group = group_of(self.world, TOPIC, partition)
            if group not in known:
                continue
            if group not in able:
                if len(self.world.running()) == len(self._members) == len(self.world.nodes):
                    raise StuckError(f"partition {partition} has lost the majority of its voters")
                reason = NO_MAJORITY
            elif able[group] < self.workload.options.min_in_sync:
                reason = TOO_FEW
            else:
                continue
            del self._open[partition]
            self._count(RECORDS, -1)
            self._count(reason)

    def _count(self, what: str, more: int = 1) -> None:
        counts = self.demanded.setdefault(self._phase, {GROUPS: 0, RECORDS: 0})
        counts[what] = counts.get(what, 0) + more

    def _send(self, round_number: int, partition: int) -> None:
        if round_number != self._round or partition not in self._open:
            return
        assert self._client is not None, "nothing was begun"
        process = LAST_WRITER + self.sent
        value = f"w{self.sent}"
        self.sent += 1
        then = partial(self._heard, round_number, partition)
        self.workload.send(self._client, process, partition, value, then)

    def _heard(
        self, round_number: int, partition: int, outcome: RecordPosition | RaftlogError
    ) -> None:
        self.acknowledged += isinstance(outcome, RecordPosition)
        self.unknown += not is_certain(outcome)
        if round_number != self._round or partition not in self._open:
            return
        if isinstance(outcome, RecordPosition):
            del self._open[partition]
            self.committed.append(partition)
            return
        self._open[partition] = str(outcome)
        if _may_pass(outcome):
            self.world.after(AGAIN_NS, self._send, round_number, partition)
        else:
            self._final = f"partition {partition} refused a record for good: {outcome}"


def _may_pass(error: RaftlogError) -> bool:
    """Whether another attempt may succeed."""
    if isinstance(error, KafkaError):
        return error.retriable
    return isinstance(error, NotDone | OutcomeUnknown)
