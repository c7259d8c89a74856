"""Faults of clocks.

Wall clocks are wrong, jump or swing. Monotonic clocks run fast or slow. Timers ring late.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.units import millis
from raftlog.raft.lease import DRIFT_PERMILLE
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.world.node import Node

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis

_LEASE_PERMILLE: Final = DRIFT_PERMILLE * 9 // 20
"""The largest drift, in permille, of runs with leases: with one clock fast and one slow by it,
their difference is within the bound."""


def _jump(nemesis: "SimNemesis", step: Step) -> bool:
    """Set the wall clock wrong by some time, until the step ends."""
    off_ms = int(step.argument("ms")) * (-1 if step.argument("way") == "back" else 1)
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        machine = node.machine
        machine.skew_ms += off_ms
        machine.worst_ms = max(machine.worst_ms, abs(machine.skew_ms) + machine.wave_ms)
        nemesis.later(step, _jump_back, nemesis, node, off_ms)
    return bool(nodes)


def _jump_back(nemesis: "SimNemesis", node: Node, off_ms: int) -> None:
    """Undo a jump, unless healing did so already: the clock would be wrong the other way (wide seed
    1)."""
    if not nemesis.healed:
        node.machine.skew_ms -= off_ms


def _drift(nemesis: "SimNemesis", step: Step) -> bool:
    """Let the monotonic clock run fast or slow."""
    permille = int(step.argument("permille"))
    if nemesis.workload.options.lease:
        permille = min(permille, _LEASE_PERMILLE)
    ppm = 1_000 * permille * (-1 if step.argument("way") == "slow" else 1)
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        _set_drift(node, ppm)
        nemesis.later(step, _set_drift, node, 0)
    return bool(nodes)


def _set_drift(node: Node, ppm: int) -> None:
    """Set the drift: up to four times as fast, down to a fifth."""
    node.machine.drift_ppm = max(-800_000, min(ppm, 3_000_000))
    if node.up:
        node.deliver_nothing()


def _wave(nemesis: "SimNemesis", step: Step) -> bool:
    """Let the wall clock swing ahead and back."""
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        machine = node.machine
        machine.wave_ms = int(step.argument("ms"))
        machine.worst_ms = max(machine.worst_ms, abs(machine.skew_ms) + machine.wave_ms)
        machine.period_ms = max(1, int(step.argument("period_ms")))
        nemesis.later(step, _calm, node)
    return bool(nodes)


def _calm(node: Node) -> None:
    node.machine.wave_ms = 0


def _late_timers(nemesis: "SimNemesis", step: Step) -> bool:
    """Let each timer ring up to some time later than asked."""
    nodes, late_ns = nemesis.nodes(step, "node"), millis(int(step.argument("ms")))
    for node in nodes:
        node.machine.late_ns = late_ns
        nemesis.later(step, _on_time, node)
    return bool(nodes)


def _on_time(node: Node) -> None:
    node.machine.late_ns = 0


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "clock-jump": _jump,
    "clock-drift": _drift,
    "clock-wave": _wave,
    "late-timers": _late_timers,
}


def heal(nemesis: "SimNemesis", node: Node) -> None:
    """Set the clocks of a node right."""
    del nemesis
    node.machine.skew_ms = 0
    _calm(node)
    _on_time(node)
    _set_drift(node, 0)
