"""Faults of processes and machines: kill, power loss, pause, a disk that stalls."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.probes import probe
from raftlog.base.units import millis
from raftlog_sim.facts.targets import group_of
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.world.disk import Keep
from raftlog_sim.world.node import Node

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis

_IN_WRITE_NS: Final = millis(300)
"""How long power waits for a write before it fails."""


def _crash(nemesis: "SimNemesis", step: Step) -> bool:
    stopped = [node for node in nemesis.nodes(step, "node") if node.up]
    for node in stopped:
        kill(nemesis, step, node)
    return bool(stopped)


def kill(nemesis: "SimNemesis", step: Step, node: Node) -> None:
    """Kill a running process; it starts again when the step ends."""
    nemesis.note("kill", node.number)
    node.stop_process()
    restart_later(nemesis, step, node)


def _power(nemesis: "SimNemesis", step: Step) -> bool:
    """Let power fail; a machine whose process is dead loses its unsynced bytes too."""
    struck = nemesis.nodes(step, "node")
    for node in struck:
        _power_fails(nemesis, step, node)
    return bool(struck)


def _power_fails(nemesis: "SimNemesis", step: Step, node: Node) -> None:
    nemesis.note("power-loss", node.number)
    draws = node.world.stream(f"power/{node.number}/{node.world.now}")
    if node.up:
        probe("power-failed-under-a-process")
        if node.disk.has_pending():
            probe("power-failed-before-a-sync")
        node.stop_process()
        restart_later(nemesis, step, node)
    node.disk.crash(Keep(step.argument("keep")), draws)


def _power_in_write(nemesis: "SimNemesis", step: Step) -> bool:
    """Let power fail within about a sync after the next write to any of these machines.

    If bytes are pending now, that write counts.
    """
    nodes = [node for node in nemesis.nodes(step, "node") if node.up]
    if not nodes:
        return False
    world = nodes[0].world
    draws = world.stream(f"power-in-write/{world.now}")
    strike = _Strike(nemesis, step, nodes, draws.below(world.sync_ns + 1))
    if any(node.disk.has_pending() for node in nodes):
        strike.soon()
    else:
        for node in nodes:
            node.disk.on_write = strike.soon
        world.after(_IN_WRITE_NS, strike.now)
    return True


@final
@attrs.define(eq=False)
class _Strike:
    """A power failure that waits for a write."""

    nemesis: "SimNemesis"
    step: Step
    nodes: list[Node]
    later_ns: int
    begun: bool = False
    over: bool = False

    def soon(self) -> None:
        """Note that something was written: power fails soon."""
        if not self.begun:
            self.begun = True
            self.nemesis.world.after(self.later_ns, self.now)

    def now(self) -> None:
        """Let power fail, unless it failed before or all was healed.

        Several machines come back at different times.
        """
        if self.over or self.nemesis.healed:
            return
        self.over = True
        draws = self.nemesis.world.stream(f"power-in-write/{self.nemesis.world.now}/back")
        for node in self.nodes:
            for_ms = self.step.for_ms
            if len(self.nodes) > 1:
                for_ms = min(for_ms, 1 + draws.below(for_ms + 1))
            _power_fails(self.nemesis, self.step._replace(for_ms=for_ms), node)


def _pause(nemesis: "SimNemesis", step: Step) -> bool:
    paused = [node for node in nemesis.nodes(step, "node") if node.up and not node.suspended]
    for node in paused:
        nemesis.note("pause", node.number)
        node.suspend()
        nemesis.later(step, _resume, nemesis, node, node.boots)
    return bool(paused)


def _late_turn(nemesis: "SimNemesis", step: Step) -> bool:
    """Serve each turn later than it took its events and read the clock.

    The process then knows and says what was true at that time. A later step sets another delay.
    Trio mode does not have the fault, since all its brokers share one loop.
    """
    if nemesis.workload.options.trio:
        return False
    nodes, late_ns = nemesis.nodes(step, "node"), millis(int(step.argument("ms")))
    for node in nodes:
        nemesis.note("start-late-turns", node.number)
        node.late_turn_ns = late_ns
        nemesis.later(step, _in_time, nemesis, node)
    return bool(nodes)


def _stall(nemesis: "SimNemesis", step: Step) -> bool:
    stalled = [node for node in nemesis.nodes(step, "node") if not node.stalled]
    for node in stalled:
        nemesis.note("start-stall", node.number)
        node.stalled = True
        nemesis.later(step, _unstall, nemesis, node)
    return bool(stalled)


def _elect(nemesis: "SimNemesis", step: Step) -> bool:
    """Let a replica campaign in its next turn, as if it had drawn a short timeout."""
    struck = False
    for node in nemesis.nodes(step, "node"):
        group = group_of(nemesis.world, TOPIC, int(step.argument("partition")))
        replica = node.broker.context.replicas.get(group) if node.up and group else None
        if replica is not None and not replica.is_leader:
            now = node.live.clock.now(node.world.now)
            if replica.leader is not None:
                replica.node.link_down(replica.leader.node, now)
            replica.node._state.election_deadline = now
            nemesis.urged[replica.group, replica.me] = None
            node.broker.context.touch(replica.group)
            node.deliver_nothing("an election timeout ended")
            struck = True
    return struck


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "crash": _crash,
    "power": _power,
    "power-in-write": _power_in_write,
    "pause": _pause,
    "late-turn": _late_turn,
    "stall": _stall,
    "elect": _elect,
}


def restart_later(nemesis: "SimNemesis", step: Step, node: Node) -> None:
    """Schedule a restart for the step's end, unless the node was started before."""
    nemesis.later(step, _restart, nemesis, node, node.boots)


# --- ending them ----------------------------------------------------------------------------------


def _restart(nemesis: "SimNemesis", node: Node, boots: int) -> None:
    if not node.up and node.boots == boots:
        nemesis.note("restart", node.number)
        node.start()


def _resume(nemesis: "SimNemesis", node: Node, boots: int) -> None:
    if node.up and node.suspended and node.boots == boots:
        nemesis.note("resume", node.number)
        node.resume()


def _unstall(nemesis: "SimNemesis", node: Node) -> None:
    if node.stalled:
        nemesis.note("stop-stall", node.number)
        node.stalled = False


def _in_time(nemesis: "SimNemesis", node: Node) -> None:
    if node.late_turn_ns:
        nemesis.note("stop-late-turns", node.number)
        node.late_turn_ns = 0


def reboot(nemesis: "SimNemesis", node: Node) -> None:
    """Kill the process and start it at once."""
    if node.up:
        nemesis.note("kill", node.number)
        node.stop_process()
        _restart(nemesis, node, node.boots)


def heal(nemesis: "SimNemesis", node: Node) -> None:
    """Let the machine work again."""
    _unstall(nemesis, node)
    _in_time(nemesis, node)
    if not node.up:
        _restart(nemesis, node, node.boots)
    elif node.suspended:
        _resume(nemesis, node, node.boots)
