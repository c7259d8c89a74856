"""The goals of groups when the cluster is whole again.

Every group with members settles within a rebalance and a session (I-G3). No record was skipped. A
request for offsets returns the committed ones. All members that leave get their answers.
"""

from collections.abc import Iterator
from typing import Final

from raftlog.base.limits import GROUP_WRITE_PAUSE_MS
from raftlog.base.units import millis
from raftlog_sim.facts.group_rest import left_of_gone_topics, unsettled
from raftlog_sim.playing.goals import Goal
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.workloads.members import Members, patience_ns
from raftlog_sim.workloads.workload import SimWorkload

_SWEPT_NS: Final = millis(2 * GROUP_WRITE_PAUSE_MS)
"""The longest time that a coordinator which knows the topics needs to find offsets of gone ones and
to write again what it could not write."""


def settle(members: Members, workload: SimWorkload, limit_ns: int) -> Iterator[Goal]:
    """Yields the goals, if there were members."""
    if not members.groups:
        return

    def waits() -> str:
        partitions = members.options.partitions
        return unsettled(members.world, members.groups, members.alive, TOPIC, partitions)

    yield Goal(lambda: not waits(), patience_ns(members.options), "groups settled", 1, waits)
    judge = members.invariants.judge
    judge((("group-answered-once", members.checks.owes()),))
    if not workload.shrinks:
        judge((("group-skips-nothing", members.skipped(workload.acknowledged)),))
    yield from audit(members, limit_ns)

    def kept() -> str:
        return left_of_gone_topics(members.world)

    # A coordinator that could not learn which topics are gone pauses before it asks again.
    running = members.world.running()
    pause_ns = max(node.broker.context.config.request_ns for node in running)
    limit = _SWEPT_NS + pause_ns
    yield Goal(lambda: not kept(), limit, "offsets of deleted topics gone", 1, kept)
    members.leave_all()
    yield Goal(members.all_over, limit_ns, "all members have left", 1)


def audit(members: Members, limit_ns: int) -> Iterator[Goal]:
    """Yields the goal that a client asks for every offset of every group."""
    members.audit()
    yield Goal(members.audited, limit_ns, "all offsets told")
