"""Faults on a schedule drawn from the seed, each kind from its own stream.

All faults of the safety phase leave a quorum able to repair everything: disks lose only what was
not synced, and nodes come back. So every failure of such a run is a bug.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog_sim.disk import Keep
from raftlog_sim.node import Node
from raftlog_sim.options import SimOptions
from raftlog_sim.streams import Stream
from raftlog_sim.workload import Workload

if TYPE_CHECKING:
    from raftlog_sim.world import World

KEEPS: Final = (Keep.NONE, Keep.SOME, Keep.ALL)


@final
@attrs.define(eq=False)
class Nemesis:
    """Injects faults until `stop`; `heal` undoes what still stands. `done` counts them by kind."""

    world: "World"
    options: SimOptions
    workload: Workload
    running: bool = False
    done: dict[str, int] = attrs.Factory(dict)
    _streams: dict[str, Stream] = attrs.Factory(dict)

    def start(self) -> None:
        """Schedule the first fault of each kind that is on."""
        self.running = True
        for kind, gap_ms in self.options.fault_gaps_ms:
            if gap_ms:
                self._streams[kind] = self.world.stream(f"nemesis/{kind}")
                self._next(kind, gap_ms)

    def stop(self) -> None:
        self.running = False

    def _next(self, kind: str, gap_ms: int) -> None:
        delay = self._streams[kind].between(gap_ms // 2, gap_ms * 2)
        self.world.after(millis(delay), self._strike, kind, gap_ms)

    def _strike(self, kind: str, gap_ms: int) -> None:
        if not self.running:
            return
        strike: Callable[[Stream], bool] = getattr(self, f"_{kind}")
        if strike(self._streams[kind]):
            self.done[kind] = self.done.get(kind, 0) + 1
        self._next(kind, gap_ms)

    # --- the kinds: each returns whether it did anything ------------------------------------------

    def _crash(self, stream: Stream) -> bool:
        """One process is killed (the machine and its page cache live on)."""
        return self._stop_one(stream, "kill", lambda node: node.stop_process())

    def _power(self, stream: Stream) -> bool:
        """One machine loses power: of what was not synced, all, none or part is kept."""
        keep = KEEPS[stream.below(len(KEEPS))]
        return self._stop_one(stream, "power-loss", lambda node: node.crash(keep))

    def _stop_one(self, stream: Stream, name: str, stop: Callable[[Node], None]) -> bool:
        node = self._pick(stream)
        if node is None:
            return False
        self._note(name, node.number)
        stop(node)
        self._restart_later(stream, node)
        return True

    def _all(self, stream: Stream) -> bool:
        """Power fails everywhere at once; all come back, each in its own time."""
        nodes = self.world.running()
        if len(nodes) < len(self.world.nodes):
            return False
        self._note("power-loss-all", *(node.number for node in nodes))
        for node in nodes:
            node.crash(KEEPS[stream.below(len(KEEPS))])
        for node in nodes:
            self._restart_later(stream, node)
        return True

    def _partition(self, stream: Stream) -> bool:
        """A random side is cut off for a while."""
        numbers = sorted(self.world.nodes)
        if len(numbers) < 2:
            return False
        size = stream.between(1, len(numbers) - 1)
        side = [numbers.pop(stream.below(len(numbers))) for _ in range(size)]
        self._note("start-partition", *side)
        self.world.network.partition(side)
        self.world.after(millis(stream.between(50, 1500)), self._heal_network)
        return True

    def _reset(self, stream: Stream) -> bool:
        """One link breaks and loses what was queued on it."""
        links = sorted(self.world.network.links)
        if not links:
            return False
        one, other = links[stream.below(len(links))]
        self.world.network.reset(one, other)
        return True

    def _pause(self, stream: Stream) -> bool:
        """One process stands still, for less or more than an election."""
        node = self._pick(stream)
        if node is None or node.suspended:
            return False
        self._note("pause", node.number)
        node.suspend()
        self.world.after(millis(stream.between(20, 900)), self._resume, node, node.boots)
        return True

    def _stall(self, stream: Stream) -> bool:
        """One disk answers nothing for a while."""
        node = self._pick(stream)
        if node is None or node.stalled:
            return False
        self._note("start-stall", node.number)
        node.stalled = True
        self.world.after(millis(stream.between(20, 700)), self._unstall, node)
        return True

    # --- ending them ------------------------------------------------------------------------------

    def _pick(self, stream: Stream) -> Node | None:
        nodes = self.world.running()
        return nodes[stream.below(len(nodes))] if nodes else None

    def _restart_later(self, stream: Stream, node: Node) -> None:
        self.world.after(millis(stream.between(10, 1200)), self._restart, node)

    def _restart(self, node: Node) -> None:
        if not node.up:
            self._note("restart", node.number)
            node.start()

    def _heal_network(self) -> None:
        self._note("stop-partition")
        self.world.network.heal()

    def _resume(self, node: Node, boots: int) -> None:
        if node.up and node.suspended and node.boots == boots:
            self._note("resume", node.number)
            node.resume()

    def _unstall(self, node: Node) -> None:
        self._note("stop-stall", node.number)
        node.stalled = False

    def heal(self) -> None:
        """Everything works again from here on."""
        self.world.network.heal()
        for number in sorted(self.world.nodes):
            node = self.world.nodes[number]
            node.stalled = False
            if not node.up:
                self._restart(node)
            elif node.suspended:
                self._resume(node, node.boots)

    def _note(self, what: str, *nodes: NodeId) -> None:
        value: dict[str, Any] = {"nodes": [f"n{number}" for number in nodes]} if nodes else {}
        self.workload.history.nemesis(what, time_ns=self.world.now, value=value)
