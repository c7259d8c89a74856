"""The actions of a nemesis in a run: break brokers and links, and repair all of it.

Every fault and every repair is written into the history, so that the report shows them as bands. A
nemesis is a generator of waits: it does something, yields how many seconds the fault shall last,
undoes it, yields again. It may be abandoned at any yield; `ProcessWorld.heal` then repairs whatever
is broken.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Final, Protocol, final

import attrs

from jepsen_style_tests.namespaces import Namespaces
from jepsen_style_tests.processes import ProcessCluster
from jepsen_style_tests.proxy import ProxyLinks
from raftlog.base.errors import OperatingError

PEERS: Final = "peers"
EVERYBODY: Final = "everybody"
CONTROL: Final = "CONTROL"
"""Stands for each broker's own control file in the options of the test disk."""


def nothing_missing() -> str:
    """The answer of a nemesis that needs nothing."""
    return ""


class Note(Protocol):
    """How a fault gets into the history."""

    def nemesis(self, f: str, value: object = None) -> None:
        """Record a fault or a repair."""


@final
@attrs.frozen(kw_only=True)
class Setup:
    """The needs of a nemesis before the brokers start."""

    proxies: str = ""
    """`PEERS`: a faulty link between each two brokers; `EVERYBODY`: to the clients as well."""
    test_disk: str = ""
    """The broker's RAFTLOG_TEST_DISK, with `CONTROL` in it."""
    small_disk_megabytes: int = 0
    """A tmpfs of this size as each data directory (root only)."""
    namespaces: bool = False
    """Each broker in a network namespace of its own (root only)."""
    fake_clock: bool = False
    """The brokers run under libfaketime."""
    settings: dict[str, str] = attrs.field(factory=dict)
    missing: Callable[[], str] = nothing_missing
    """Why it cannot run on this machine; empty when it can."""
    lost_copies: bool = False
    """A copy of the data was destroyed: replicas may then differ until they are repaired."""


_POLL_SECONDS: Final = 0.1
Steps = Callable[["ProcessWorld"], Iterator[float]]


@final
@attrs.frozen(kw_only=True)
class Nemesis:
    """A kind of fault. `steps` runs for ever; the runner stops it."""

    name: str
    about: str
    steps: Steps
    setup: Setup = attrs.field(factory=Setup)


@final
@attrs.define(eq=False)
class ProcessWorld:
    """The run as a nemesis sees it."""

    cluster: ProcessCluster
    links: ProxyLinks
    note: Note
    dice: Random
    folder: Path
    namespaces: Namespaces | None = None
    _bands: dict[str, object] = attrs.field(factory=dict, init=False)
    """Faults that are on: name -> value of the start."""
    _cleaners: dict[str, Callable[[], None]] = attrs.field(factory=dict, init=False)

    @property
    def nodes(self) -> list[int]:
        """All brokers."""
        return self.cluster.nodes

    def some(self, count: int) -> list[int]:
        """So many brokers, drawn."""
        return sorted(self.dice.sample(self.nodes, count))

    def leader(self) -> int:
        """The broker that leads most partitions, the metadata among them; any if none leads."""
        leads = list(self.cluster.leaders().values())
        if not leads:
            return self.dice.choice(self.nodes)
        return min(self.nodes, key=lambda node: (-leads.count(node), node))

    def minority(self) -> list[int]:
        """Fewer than half of the brokers, at least one."""
        return self.some((len(self.nodes) - 1) // 2)

    def majority(self) -> list[int]:
        """More than half of the brokers."""
        return self.some(len(self.nodes) // 2 + 1)

    # --- processes --------------------------------------------------------------------------------

    def kill(self, nodes: Sequence[int]) -> None:
        """SIGKILL, all at the same time."""
        self.note.nemesis("kill", names(nodes))
        self.cluster.kill_all(nodes)

    def start(self, nodes: Sequence[int]) -> None:
        """Start again whoever is down."""
        for node in nodes:
            self.cluster.start(node)
        self.note.nemesis("restart", names(nodes))

    def wait_ready(self, nodes: Sequence[int], seconds: float = 30.0) -> bool:
        """Wait until these serve; whether they do. Longer than the wait is the runner's worry."""
        try:
            self.cluster.wait_ready(nodes, seconds)
        except OperatingError:
            return False
        return True

    def wait_in_sync(self, seconds: float) -> bool:
        """Wait until every group's leader counts all brokers in sync; whether that came about."""
        deadline = time.monotonic() + seconds
        while not self.cluster.in_sync():
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def pause(self, nodes: Sequence[int]) -> None:
        """SIGSTOP."""
        self.note.nemesis("pause", names(nodes))
        for node in nodes:
            self.cluster.pause(node)

    def resume(self, nodes: Sequence[int]) -> None:
        """SIGCONT."""
        for node in nodes:
            self.cluster.resume(node)
        self.note.nemesis("resume", names(nodes))

    def stop(self, node: int) -> None:
        """SIGTERM: leadership is handed over first."""
        self.note.nemesis("start-handover", names([node]))
        self.cluster.stop(node)
        self.note.nemesis("stop-handover", names([node]))
        self.note.nemesis("kill", names([node]))

    # --- links ------------------------------------------------------------------------------------

    def hold(self, flows: Sequence[tuple[int, int]], what: str) -> None:
        """Nothing arrives any more on these (from, to); connections stay open."""
        for start, to in flows:
            self.links.flow(start, to).held = True
        self.begin(what, {"flows": [list(flow) for flow in flows]})

    def drop(self, flows: Sequence[tuple[int, int]], what: str) -> None:
        """No packet arrives any more on these (from, to), between namespaces."""
        assert self.namespaces is not None, "the setup asks for namespaces"
        self.namespaces.drop(flows)
        value = {"flows": [list(flow) for flow in flows]}
        self.begin(what, value, self.namespaces.heal)

    def begin(self, what: str, value: object, clean: Callable[[], None] | None = None) -> None:
        """Note that a fault is on; `clean` undoes it in `heal` if nobody does before."""
        self._bands[what] = value
        if clean is not None:
            self._cleaners[what] = clean
        self.note.nemesis(f"start-{what}", value)

    def end(self, what: str) -> None:
        """Undo a fault that `begin` announced, and note it."""
        clean = self._cleaners.pop(what, None)
        if clean is not None:
            clean()
        value = self._bands.pop(what, None)
        self.note.nemesis(f"stop-{what}", value)

    def heal_links(self) -> None:
        """All links are perfect. Half of the time connections that were cut are reset as well."""
        held = [flow for flow in self._bands if flow not in self._cleaners]
        self.links.heal()
        if self.dice.random() < 0.5:
            self.links.reset([(a, b) for a in self.nodes for b in self.nodes if a < b])
        for what in held:
            self.end(what)

    def heal(self) -> None:
        """Everything runs, every link passes, every disk works."""
        for node in list(self.cluster.paused):
            self.resume([node])
        for what in list(self._cleaners):
            self.end(what)
        self.links.heal()
        for what in list(self._bands):
            self.end(what)
        down = [node for node in self.nodes if not self.cluster.running(node)]
        if down:
            self.start(down)

    def heal_quietly(self) -> None:
        """Undo what must not outlive the run, without notes: the history is closed."""
        for clean in self._cleaners.values():
            clean()
        self._cleaners.clear()
        for node in list(self.cluster.paused):
            self.cluster.resume(node)


def names(nodes: Sequence[int]) -> dict[str, object]:
    """Nodes as the history names them."""
    if len(nodes) == 1:
        return {"node": f"n{nodes[0]}"}
    return {"nodes": [f"n{node}" for node in nodes]}
