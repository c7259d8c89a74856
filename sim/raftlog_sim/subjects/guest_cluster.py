"""Guests in virtual time: a heap of events, ticks, first-in first-out links, and an onlooker.

A link keeps its messages in order and loses them only with its connection, as TCP does. Faults are
the verbs of a plan; nothing else is random but the library's own election timeouts.
"""

import shutil
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, Final, final

import attrs

from raftlog_sim.subjects.guest_view import GuestView
from raftlog_sim.subjects.pysyncobj import (
    GuestClock,
    GuestKilledError,
    GuestNode,
    GuestSettings,
)

TICK_US: Final = 20_000
PHASE_US: Final = 3_000
LATENCY_US: Final = 2_000
REDIAL_US: Final = 20_000

Pair = tuple[int, int]


@final
@attrs.define(eq=False)
class _Link:
    """One direction of a connection."""

    session: int
    queue: deque[dict[str, Any]] = attrs.Factory(deque)


@final
@attrs.define(eq=False)
class GuestCluster:
    """All nodes of a run. `view` looks on."""

    size: int
    settings: GuestSettings
    folder: Path | None
    view: GuestView
    clock: GuestClock = attrs.Factory(GuestClock)
    nodes: dict[int, GuestNode] = attrs.Factory(dict)
    _heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = attrs.Factory(list)
    _sequence: int = 0
    _sessions: int = 0
    _links: dict[Pair, _Link] = attrs.Factory(dict)
    _cut: dict[Pair, None] = attrs.Factory(dict)
    _held: dict[Pair, None] = attrs.Factory(dict)
    _quiet: dict[int, None] = attrs.Factory(dict)
    _added: dict[int, None] = attrs.Factory(dict)

    # --- time ---

    def at(self, instant_us: int, action: Callable[..., None], *args: Any) -> None:
        """Schedule `action(*args)`; ties go by the order of scheduling."""
        self._sequence += 1
        heappush(self._heap, (instant_us, self._sequence, action, args))

    def run_until(self, instant_us: int) -> None:
        """Perform everything that is due by then."""
        while self._heap and self._heap[0][0] <= instant_us:
            due, _, action, args = heappop(self._heap)
            self.clock.advance(due)
            action(*args)
        self.clock.advance(instant_us)

    # --- nodes ---

    def start_all(self) -> None:
        for number in range(1, self.size + 1):
            self.start(number)

    def start(self, number: int) -> None:
        """Boot from the files in the node's folder."""
        if number in self.nodes:
            return
        home = None if self.folder is None else self.folder / f"n{number}"
        if home is not None:
            home.mkdir(parents=True, exist_ok=True)
        members = [*range(1, self.size + 1), *(each for each in self._added if each == number)]
        others = [member for member in members if member != number]
        node = GuestNode(number, others, home, self.settings, partial(self._send, number))
        self.nodes[number] = node
        self.view.started(self.clock.now_us, node)
        tick = self.clock.now_us // TICK_US * TICK_US + TICK_US + PHASE_US * number
        self.at(tick, self._tick, node, tick)
        for other in sorted(self.nodes):
            if other != number:
                self._dial(number, other)

    def kill(self, number: int) -> None:
        """Kill a process (kill -9): its connections break, its files stay."""
        node = self.nodes.pop(number, None)
        if node is None:
            return
        self.view.killed(self.clock.now_us, node)
        node.kill()
        for pair in [pair for pair in self._links if number in pair]:
            self._break(*pair)

    def _tick(self, node: GuestNode, due: int) -> None:
        if self.nodes.get(node.number) is not node:
            return
        if node.number in self._quiet:
            node.hold_election()
        self._guarded(node, node.tick)
        self.at(due + TICK_US, self._tick, node, due + TICK_US)

    def _guarded(self, node: GuestNode, call: Callable[..., None], *args: Any) -> None:
        try:
            call(*args)
        except GuestKilledError:
            self.kill(node.number)
            return
        self.view.look(self.clock.now_us, node, self.nodes)

    # --- links ---

    def _dial(self, one: int, other: int) -> None:
        if one not in self.nodes or other not in self.nodes:
            return
        if _pair(one, other) in self._cut or (one, other) in self._links:
            return
        self._sessions += 1
        for pair in ((one, other), (other, one)):
            self._links[pair] = _Link(self._sessions)
        self.nodes[one].connected(other)
        self.nodes[other].connected(one)

    def _break(self, one: int, other: int) -> None:
        if self._links.pop((one, other), None) is None:
            return
        lost = self._links.pop((other, one), None)
        assert lost is not None, (one, other)
        for node, peer in ((one, other), (other, one)):
            if node in self.nodes:
                self.nodes[node].disconnected(peer)

    def _send(self, sender: int, to: int, message: dict[str, Any]) -> bool:
        link = self._links.get((sender, to))
        if link is None:
            return False
        link.queue.append(message)
        self.at(self.clock.now_us + LATENCY_US, self._deliver, sender, to, link.session)
        return True

    def _deliver(self, sender: int, to: int, session: int) -> None:
        link = self._links.get((sender, to))
        if link is None or link.session != session or (sender, to) in self._held:
            return
        if link.queue and to in self.nodes:
            message = link.queue.popleft()
            self.view.delivered(sender, to, message)
            node = self.nodes[to]
            self._guarded(node, node.receive, sender, message)

    # --- the verbs of a plan ---

    def do_write(self, target: str, name: str, count: str = "1", padding: str = "60") -> None:
        """Let a client submit some values at a node, or at the leader."""
        node = self._target(target)
        for number in range(1, int(count) + 1 if node is not None else 0):
            assert node is not None, target
            value = f"{name}.{number}"
            self.view.submitted(self.clock.now_us, node.number, value)
            node.submit(value, int(padding), partial(self._answered, node.number, value))

    def _answered(self, number: int, value: str, position: Any, reason: int) -> None:
        self.view.answered(self.clock.now_us, number, value, position, reason)

    def do_cut(self, one: str, other: str) -> None:
        """Break the connection of two nodes, and keep them from connecting."""
        first, second = int(one), int(other)
        self._cut[_pair(first, second)] = None
        self._break(first, second)

    def do_join(self, one: str, other: str) -> None:
        """Let two nodes connect again, which they do."""
        first, second = int(one), int(other)
        self._cut.pop(_pair(first, second), None)
        self._dial(first, second)

    def do_reset(self, one: str, other: str) -> None:
        """Break a connection, which loses its queue, and make it again soon."""
        first, second = int(one), int(other)
        self._break(first, second)
        self.at(self.clock.now_us + REDIAL_US, self._dial, first, second)

    def do_isolate(self, one: str) -> None:
        """Cut a node off from all others."""
        for other in self._everybody():
            if other != int(one):
                self.do_cut(one, str(other))

    def do_rejoin(self, one: str) -> None:
        """Let a node reach all others again."""
        for other in self._everybody():
            if other != int(one):
                self.do_join(one, str(other))

    def do_hold(self, one: str, other: str) -> None:
        """Hold the messages from one node to the other, in order, on a connection that stands."""
        self._held[(int(one), int(other))] = None

    def do_release(self, one: str, other: str) -> None:
        """Deliver the held messages, in order."""
        pair = (int(one), int(other))
        self._held.pop(pair, None)
        link = self._links.get(pair)
        if link is not None:
            for _ in range(len(link.queue)):
                self._deliver(*pair, link.session)

    def do_pass(self, one: str, other: str, count: str) -> None:
        """Deliver some of the messages that wait on a held link."""
        pair = (int(one), int(other))
        link = self._links.get(pair)
        if pair in self._held and link is not None:
            del self._held[pair]
            for _ in range(min(int(count), len(link.queue))):
                self._deliver(*pair, link.session)
            self._held[pair] = None

    def do_kill(self, one: str) -> None:
        """Kill one process (kill -9)."""
        self.kill(int(one))

    def do_start(self, one: str) -> None:
        """Start it again."""
        self.start(int(one))

    def do_killall(self) -> None:
        """Kill all processes at once (kill -9)."""
        for number in sorted(self.nodes):
            self.kill(number)

    def do_compact(self, one: str) -> None:
        """Compact at the next tick."""
        if int(one) in self.nodes:
            self.nodes[int(one)].compact()

    def do_tear(self, one: str, after: str) -> None:
        """Let the process die in the next rewrite of the journal, after some entries."""
        if int(one) in self.nodes:
            self.nodes[int(one)].die_in_rewrite(int(after))

    def do_copy(self, one: str) -> None:
        """Remember the node's files as they are.

        A power loss would leave no more of them, since the library never syncs.
        """
        home = self._home(one)
        shutil.rmtree(home.with_suffix(".old"), ignore_errors=True)
        shutil.copytree(home, home.with_suffix(".old"))

    def do_revert(self, one: str) -> None:
        """Let power fail: the node is gone, and its files are those of the copy."""
        self.kill(int(one))
        home = self._home(one)
        if home.with_suffix(".old").exists():
            shutil.rmtree(home)
            shutil.copytree(home.with_suffix(".old"), home)

    def do_elect(self, one: str) -> None:
        """Let that node campaign at its next tick."""
        self._quiet.pop(int(one), None)
        if int(one) in self.nodes:
            self.nodes[int(one)].elect()

    def do_quiet(self, one: str) -> None:
        """Keep that node from campaigning until `do_elect` or `do_loud`."""
        self._quiet[int(one)] = None

    def do_loud(self, one: str) -> None:
        """Let that node campaign again when it hears nothing."""
        if self._quiet.pop(int(one), 0) is None and int(one) in self.nodes:
            self.nodes[int(one)].await_election()

    def do_member(self, target: str, number: str) -> None:
        """Ask the cluster to take in a new node."""
        node = self._target(target)
        if node is not None:
            self._added[int(number)] = None
            node.add_member(int(number), lambda *_: None)

    def do_heal(self) -> None:
        """Let all nodes run, reach each other and campaign as they like."""
        self._cut.clear()
        for pair in list(self._held):
            self.do_release(str(pair[0]), str(pair[1]))
        for number in list(self._quiet):
            self.do_loud(str(number))
        for number in range(1, self.size + 1):
            self.start(number)
        for one in sorted(self.nodes):
            for other in sorted(self.nodes):
                if one < other:
                    self._dial(one, other)

    def do_settle(self) -> None:
        """Do nothing: only time passes until the next step."""

    # --- lookups ---

    def _target(self, target: str) -> GuestNode | None:
        return self.leader() if target == "leader" else self.nodes.get(int(target))

    def reachable(self, number: int) -> list[int]:
        """Returns the node and those to which it is connected."""
        peers = [other for one, other in self._links if one == number]
        return sorted([number, *peers])

    def leader(self) -> GuestNode | None:
        """Returns the leader of the highest term."""
        leading = [node for node in self.nodes.values() if node.leading]
        return max(leading, key=lambda node: node.term, default=None)

    def _everybody(self) -> list[int]:
        return [*range(1, self.size + 1), *(each for each in self._added if each > self.size)]

    def _home(self, one: str) -> Path:
        assert self.folder is not None, "this verb needs journals"
        return self.folder / f"n{int(one)}"


def _pair(one: int, other: int) -> Pair:
    return (one, other) if one < other else (other, one)


VERBS: Final = tuple(
    sorted(name.removeprefix("do_") for name in vars(GuestCluster) if name.startswith("do_"))
)
