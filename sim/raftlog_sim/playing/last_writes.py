"""One record more for every partition, when all faults are over: who has elected and converged must
also commit.

Asked of a healed core, of the healed cluster, and of it after each last reboot: of every partition
of the workload's topic that the nodes in question can commit in, which all nodes together always
can. Each record is sent with acks=all
by the product's client, again and again until one is acknowledged; it stands in the history with a
value of its own, each attempt as a process of its own. What may pass is tried again until the phase
is over; what the client calls final ends the run at once.
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
"""From a refusal to the next attempt."""
GROUPS: Final = "groups"
RECORDS: Final = "records"
NO_MAJORITY: Final = "not asked: no majority"
TOO_FEW: Final = "not asked: fewer than min.insync.replicas"


@final
@attrs.define(eq=False)
class LastWrites:
    """See the module. `begin` asks, `done` says when all is well, `end` asks no more. `demanded`
    counts by phase: groups that had to elect, records that had to be acknowledged, and, by the
    reason, partitions that no record was asked of."""

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
    """Answers to earlier rounds say nothing about this one."""
    _client: Caller | None = None
    _able: dict[GroupId, None] = attrs.Factory(dict)
    """The groups counted in this round."""
    _open: dict[int, str] = attrs.Factory(dict)
    """Partitions that have not acknowledged a record yet, with what was heard last."""
    _final: str = ""
    """What was heard that no attempt will change."""

    def begin(self, phase: str, members: Collection[NodeId]) -> None:
        """Ask these nodes for a record in every partition that they can commit in."""
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
        """Whether every partition that could has acknowledged one. StuckError for a refusal that is
        final."""
        if self._final:
            raise StuckError(self._final)
        if self._open:
            self._leave_the_unable()
        return not self._open

    def end(self) -> None:
        """Send nothing more."""
        self._open.clear()

    def refusals(self) -> str:
        """Who has not acknowledged, and why."""
        return "; ".join(f"partition {each} refused: {why}" for each, why in self._open.items())

    def _leave_the_unable(self) -> None:
        """A core that can commit in a partition may become unable: a move to the frozen that was
        asked for before may begin. Of a group that none of these nodes knows, for all have just
        booted, nothing can be said yet."""
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
    """Whether another attempt may fare better."""
    if isinstance(error, KafkaError):
        return error.retriable
    return isinstance(error, NotDone | OutcomeUnknown)
