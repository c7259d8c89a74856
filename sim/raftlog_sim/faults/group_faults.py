"""Kills a coordinator, or cuts it off, at a moment of a rebalance.

No draw would hit such an instant, so the step waits for the moment:

    joins        members join, and the coordinator waits for others
    generation   all have joined; the record of the generation is not decided
    syncs        the joins are answered; the leader has not said who gets what
    assignment   it has, and that is not decided
    commits      a commit is not decided
    stable       nothing is under way; members only send heartbeats

A coordinator that is cut off keeps its links, and they carry nothing. Members still reach it, and
join, sync and leave while its records stay undecided. When the links carry everything at once, the
records are decided late, by a coordinator that is the same and a group that has moved on.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.units import NANOS_PER_MICRO, millis
from raftlog.groups.live import GroupState, LiveGroup
from raftlog_sim.facts.group_rest import coordinator_of
from raftlog_sim.faults import network_faults
from raftlog_sim.faults.process_faults import kill
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.schedules.schedule import step as make_step

if TYPE_CHECKING:
    from raftlog.broker.groups.coordinators import Coordinated
    from raftlog_sim.faults.nemesis import SimNemesis
    from raftlog_sim.world.node import Node

KILL: Final = "kill-coordinator"
CUT: Final = "cut-coordinator"
_LOOK_NS: Final = 100 * NANOS_PER_MICRO
_PATIENCE_NS: Final = millis(2_500)


def strike_when(nemesis: "SimNemesis", step: Step) -> None:
    """Look for the moment again and again for some seconds."""
    _look(nemesis, step, nemesis.world.now + _PATIENCE_NS)


def _look(nemesis: "SimNemesis", step: Step, until: int) -> None:
    if nemesis.healed:  # the moment did not come in time
        nemesis.in_vain.append(str(step))
        return
    world, group = nemesis.world, f"g{step.argument('group')}"
    found = coordinator_of(world, group)
    if found is not None and _MOMENTS[str(step.argument("when"))](found[1], group):
        node = found[0]
        if not (node.rolled_back or node.suspended) and _strike(nemesis, step, node):
            nemesis.struck(step)
            return
    if world.now < until:
        world.after(_LOOK_NS, _look, nemesis, step, until)
    else:
        nemesis.in_vain.append(str(step))


def _strike(nemesis: "SimNemesis", step: Step, node: "Node") -> bool:
    if step.kind == KILL:
        kill(nemesis, step, node)
        return True
    cut = make_step(step.at_ms, "partition", step.for_ms, side=f"n{node.number}", how="silent")
    return network_faults.STRIKES[cut.kind](nemesis, cut)


def _live(led: "Coordinated", group: str) -> LiveGroup | None:
    return led.coordinator._shared.find(group)


def _joins(led: "Coordinated", group: str) -> bool:
    live = _live(led, group)
    return live is not None and live.state is GroupState.PREPARING and live.joined > 0


def _generation(led: "Coordinated", group: str) -> bool:
    live = _live(led, group)
    if live is None or live.state is not GroupState.COMPLETING:
        return False
    return live.generation_ticket is not None and not live.generation_ticket.is_decided


def _syncs(led: "Coordinated", group: str) -> bool:
    live = _live(led, group)
    if live is None or live.state is not GroupState.COMPLETING:
        return False
    return live.assignment_ticket is None and not _generation(led, group)


def _assignment(led: "Coordinated", group: str) -> bool:
    live = _live(led, group)
    if live is None or live.state is not GroupState.COMPLETING:
        return False
    return live.assignment_ticket is not None and not live.assignment_ticket.is_decided


def _commits(led: "Coordinated", group: str) -> bool:
    return group in led.coordinator._shared.undecided_offsets


def _stable(led: "Coordinated", group: str) -> bool:
    live = _live(led, group)
    stable = live is not None and live.state is GroupState.STABLE
    return stable and not _commits(led, group)


_MOMENTS: Final[dict[str, Callable[["Coordinated", str], bool]]] = {
    "joins": _joins,
    "generation": _generation,
    "syncs": _syncs,
    "assignment": _assignment,
    "commits": _commits,
    "stable": _stable,
}
