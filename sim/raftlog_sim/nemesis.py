"""The faults of a schedule, struck and undone.

All faults of the safety phase leave a quorum able to repair everything: disks lose only what was
not synced, and nodes come back. So every failure of such a run is a bug.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog_sim.disk import Keep
from raftlog_sim.network import PairKey
from raftlog_sim.node import Node
from raftlog_sim.schedule import Step
from raftlog_sim.targets import resolve
from raftlog_sim.workload import TOPIC, Workload

if TYPE_CHECKING:
    from raftlog_sim.world import World

Undo = Callable[[], None]


@final
@attrs.define(eq=False)
class Nemesis:
    """Strikes steps until `heal`, which undoes what still stands. `done` counts, by kind, the steps
    that did something."""

    world: "World"
    workload: Workload
    done: dict[str, int] = attrs.Factory(dict)
    _healed: bool = False

    def strike(self, step: Step) -> None:
        """Do it, and undo it later; a target that is not there, or already struck, is left."""
        if self._healed:
            return
        strike = getattr(self, f"_{step.kind.replace('-', '_')}")
        if strike(step):
            self.done[step.kind] = self.done.get(step.kind, 0) + 1

    # --- the kinds: each returns whether it did anything ------------------------------------------

    def _crash(self, step: Step) -> bool:
        stopped = [node for node in self._nodes(step, "node") if node.up]
        for node in stopped:
            self._note("kill", node.number)
            node.stop_process()
            self._later(step, self._restart, node, node.boots)
        return bool(stopped)

    def _power(self, step: Step) -> bool:
        """A machine whose process is dead already loses what was not synced too."""
        keep = Keep(step.argument("keep"))
        struck = self._nodes(step, "node")
        for node in struck:
            self._note("power-loss", node.number)
            draws = self.world.stream(f"power/{node.number}/{self.world.now}")
            if node.up:
                node.stop_process()
                self._later(step, self._restart, node, node.boots)
            node.disk.crash(keep, draws)
        return bool(struck)

    def _partition(self, step: Step) -> bool:
        side = [node.number for node in self._nodes(step, "side")]
        if not 0 < len(side) < len(self.world.nodes):
            return False
        self._note("start-partition", *side)
        pairs = self.world.network.partition(side)
        self._later(step, self._mend, pairs)
        return True

    def _reset(self, step: Step) -> bool:
        one, other = self._nodes(step, "one")[:1], self._nodes(step, "other")[:1]
        if not one or not other or one == other:
            return False
        return self.world.network.reset(one[0].number, other[0].number)

    def _pause(self, step: Step) -> bool:
        paused = [node for node in self._nodes(step, "node") if node.up and not node.suspended]
        for node in paused:
            self._note("pause", node.number)
            node.suspend()
            self._later(step, self._resume, node, node.boots)
        return bool(paused)

    def _stall(self, step: Step) -> bool:
        stalled = [node for node in self._nodes(step, "node") if not node.stalled]
        for node in stalled:
            self._note("start-stall", node.number)
            node.stalled = True
            self._later(step, self._unstall, node)
        return bool(stalled)

    # --- ending them ------------------------------------------------------------------------------

    def _nodes(self, step: Step, name: str) -> list[Node]:
        numbers = resolve(self.world, str(step.argument(name)), TOPIC)
        return [self.world.nodes[number] for number in numbers]

    def _later(self, step: Step, undo: Callable[..., None], *arguments: Any) -> None:
        if step.for_ms:
            self.world.after(millis(step.for_ms), undo, *arguments)

    def _restart(self, node: Node, boots: int) -> None:
        if not node.up and node.boots == boots:
            self._note("restart", node.number)
            node.start()

    def _mend(self, pairs: tuple[PairKey, ...]) -> None:
        if not self._healed:
            self._note("stop-partition")
            self.world.network.mend(pairs)

    def _resume(self, node: Node, boots: int) -> None:
        if node.up and node.suspended and node.boots == boots:
            self._note("resume", node.number)
            node.resume()

    def _unstall(self, node: Node) -> None:
        if node.stalled:
            self._note("stop-stall", node.number)
            node.stalled = False

    def heal(self) -> None:
        """Everything works again from here on."""
        self._healed = True
        self.world.network.heal()
        for number in sorted(self.world.nodes):
            node = self.world.nodes[number]
            self._unstall(node)
            if not node.up:
                self._restart(node, node.boots)
            elif node.suspended:
                self._resume(node, node.boots)

    def _note(self, what: str, *nodes: NodeId) -> None:
        value: dict[str, Any] = {"nodes": [f"n{number}" for number in nodes]} if nodes else {}
        self.workload.history.nemesis(what, time_ns=self.world.now, value=value)
