"""Rolling upgrades and downgrades, and the raising of the feature level.

Nodes restart into another release while everything else goes on. A downgrade below a feature level
that was asked for is refused here, as operators are told: the cluster refuses such a release for
good. `tests/sim/world/test_releases.py` does it all the same.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.units import Instant, millis
from raftlog.broker.peer_messages import ControllerKind
from raftlog.metadata.commands import RaiseFeatureLevel
from raftlog.metadata.requests import SubmitCommand, encode_body
from raftlog_sim.faults import cluster_faults, process_faults
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.world.node import Node
from raftlog_sim.world.releases import RELEASES, supports

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis

_PATIENCE: Final = millis(3_000)


def _upgrade(nemesis: "SimNemesis", step: Step) -> bool:
    to = int(step.argument("to"))
    nodes = [node for node in nemesis.nodes(step, "node") if node.installed < to < len(RELEASES)]
    return _install(nemesis, step, nodes)


def _downgrade(nemesis: "SimNemesis", step: Step) -> bool:
    to = int(step.argument("to"))
    if to >= len(RELEASES) or not supports(to, nemesis.level_asked):
        return False
    nodes = [node for node in nemesis.nodes(step, "node") if node.installed > to]
    return _install(nemesis, step, nodes)


def _install(nemesis: "SimNemesis", step: Step, nodes: list[Node]) -> bool:
    """Install the release that the node's next start runs."""
    for node in nodes:
        node.installed = int(step.argument("to"))
        nemesis.note(step.kind, node.number)
        if not node.up or node.suspended:
            continue
        if step.argument("how") == "stop":
            cluster_faults.stop(nemesis, step, node)
        else:
            process_faults.kill(nemesis, step, node)
    return bool(nodes)


def _raise_level(nemesis: "SimNemesis", step: Step) -> bool:
    """Ask for a level, whether all nodes support it or not: the controller knows.

    The step waits while a node ran, or is about to run, a release without it. The controller may
    not have heard of that yet.
    """
    level = int(step.argument("level"))
    asker = next(iter(nemesis.world.running()), None)
    nodes = nemesis.world.nodes.values()
    if any(_went_back(node, level) for node in nodes):
        return False
    if asker is None or level > RELEASES[-1].level_max:
        return False
    nemesis.level_asked = max(nemesis.level_asked, level)
    request = SubmitCommand(command=RaiseFeatureLevel(level=level))
    deadline = Instant(asker.live.clock.now(nemesis.world.now) + _PATIENCE)
    asker.broker.context.controller.ask(
        ControllerKind.PROPOSE, encode_body(request), deadline, _nobody_listens
    )
    asker.deliver_nothing("it asked for a feature level")
    nemesis.note("raise-level")
    return True


def _went_back(node: Node, level: int) -> bool:
    able = supports(node.release, level) and supports(node.installed, level)
    return supports(node.highest, level) and not able


def _nobody_listens(answer: Any) -> None:
    del answer


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "upgrade": _upgrade,
    "downgrade": _downgrade,
    "raise-level": _raise_level,
}
