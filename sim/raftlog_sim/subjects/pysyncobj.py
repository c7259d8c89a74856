"""PySyncObj as a subject: the real library, unmodified, one object a node, in virtual time.

Its source stays as it is. While a run lasts, three names that `pysyncobj.syncobj` imports are
replaced: its clock, its dice and its poller. Our own transport implements the library's interface,
and ticks come from the outside. Node ids are integers, since the library iterates sets of nodes.
Its journals and dumps are real files: a kill drops the object and opens the files again.

The clock moves a little at each reading: while a dump is being written the library waits in a loop
for time to pass.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import attrs
import pysyncobj
from pysyncobj import syncobj as library
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from raftlog_sim.base.streams import Stream

VERSION: Final[str] = library.VERSION
READING_US: Final = 100
"""How far each reading moves the clock, in microseconds."""
SUCCESS: Final = 0
LEADER: Final = 2
NEVER_S: Final = 1e12
NO_COMPACTION: Final = 1_000_000
"""More entries than any run has."""

Send = Callable[[int, dict[str, Any]], bool]
Answer = Callable[[Any, int], None]


@final
@attrs.define(eq=False)
class GuestClock:
    """A clock of microseconds since the run began."""

    now_us: int = 0

    def seconds(self) -> float:
        """Returns the seconds that the library reads."""
        self.now_us += READING_US
        return self.now_us / 1e6

    def advance(self, to_us: int) -> None:
        """Move the clock to at least that instant."""
        self.now_us = max(self.now_us, to_us)


@final
@attrs.define(eq=False)
class _Dice:
    """Stands for the module `random` inside the library."""

    stream: Stream

    def random(self) -> float:
        return self.stream.below(1 << 30) / (1 << 30)


@final
class _NoPoller:
    """A poller that has nothing to poll."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@contextmanager
def driven(clock: GuestClock, stream: Stream) -> Iterator[None]:
    """Let the library read this clock and throw these dice during the block."""
    before = library.monotonicTime, library.random, library.createPoller
    library.monotonicTime = clock.seconds
    library.random = _Dice(stream)
    library.createPoller = lambda kind: _NoPoller()
    library.logger.disabled, quiet = True, library.logger.disabled
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # it leaves files to the collector
            yield
    finally:
        library.monotonicTime, library.random, library.createPoller = before
        library.logger.disabled = quiet


class GuestKilledError(Exception):
    """The process died in the middle of a call."""


class GuestEntry(NamedTuple):
    """An entry of the library's log."""

    at: int
    term: int
    command: bytes


@final
class _Store(pysyncobj.SyncObj):  # type: ignore[misc]
    """A replicated list of texts."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.values: list[str] = []

    @pysyncobj.replicated  # type: ignore[untyped-decorator]
    def put(self, value: str, padding: str) -> int:
        """Append a value; returns its position. The padding only makes the entry larger."""
        del padding
        self.values.append(value)
        return len(self.values) - 1


@final
class _Wire(Transport):  # type: ignore[misc]
    """The library's transport over our links."""

    def __init__(self, send: Send) -> None:
        super().__init__(None, None, [])
        self._send = send

    def send(self, node: Any, message: dict[str, Any]) -> bool:
        """Hand a message to the link."""
        return self._send(node.id, message)


@final
@attrs.frozen(kw_only=True)
class GuestSettings:
    """The configuration of the library. Times are its defaults. Sizes are small, so that a short
    run meets what a long one would."""

    batch_bytes: int = 65_536
    chunk_bytes: int = 65_536
    compaction_entries: int = NO_COMPACTION
    journal: bool = False
    dump_file: bool = True
    """Whether a journal comes with a file for the dumps."""
    membership: bool = False


@final
class GuestNode:
    """One life of one node: an object of the library, from its making to `kill`."""

    def __init__(
        self,
        number: int,
        others: list[int],
        folder: Path | None,
        settings: GuestSettings,
        send: Send,
    ) -> None:
        self.number = number
        self.wire = _Wire(send)
        journal = str(folder / "journal") if folder is not None and settings.journal else None
        dump = str(folder / "dump") if journal and settings.dump_file and folder else None
        conf = pysyncobj.SyncObjConf(
            autoTick=False,
            useFork=False,
            appendEntriesBatchSizeBytes=settings.batch_bytes,
            logCompactionBatchSize=settings.chunk_bytes,
            logCompactionMinEntries=settings.compaction_entries,
            logCompactionMinTime=NO_COMPACTION,
            journalFile=journal,
            fullDumpFile=dump,
            dynamicMembershipChange=settings.membership,
        )
        self.store = _Store(
            Node(number), [Node(other) for other in others], conf, transport=self.wire
        )

    # --- what happens to it ---

    def tick(self) -> None:
        self.store.doTick(0)

    def receive(self, sender: int, message: dict[str, Any]) -> None:
        self.wire._onMessageReceived(Node(sender), message)

    def connected(self, peer: int) -> None:
        self.wire._onNodeConnected(Node(peer))

    def disconnected(self, peer: int) -> None:
        self.wire._onNodeDisconnected(Node(peer))

    def submit(self, value: str, padding: int, then: Answer) -> None:
        """Submit a client's write; `then(position, reason)` hears the answer."""
        self.store.put(value, "x" * padding, callback=then)

    def compact(self) -> None:
        """Begin a compaction at the next tick."""
        self.store.forceLogCompaction()

    def add_member(self, number: int, then: Answer) -> None:
        self.store.addNodeToCluster(Node(number), callback=then)

    def elect(self) -> None:
        """Campaign at the next tick."""
        self.store._SyncObj__raftElectionDeadline = 0.0

    def hold_election(self) -> None:
        """Keep the node from campaigning until `elect` or a message from a leader."""
        self.store._SyncObj__raftElectionDeadline = NEVER_S

    def await_election(self) -> None:
        """Let the node campaign after an ordinary timeout without a leader."""
        deadline = library.monotonicTime() + self.store._SyncObj__generateRaftTimeout()
        self.store._SyncObj__raftElectionDeadline = deadline

    def die_in_rewrite(self, after: int) -> None:
        """Let the process die in the next rewrite of its journal, after some of the entries."""
        journal = self.journal
        clear, add = journal.clear, journal.add
        left: list[int] = []

        def trapped_clear() -> None:
            clear()
            left.append(after)

        def trapped_add(command: bytes, index: int, term: int) -> None:
            if left and left[0] == 0:
                raise GuestKilledError(f"node {self.number} after {after} entries")
            if left:
                left[0] -= 1
            add(command, index, term)

        journal.clear, journal.add = trapped_clear, trapped_add

    def kill(self) -> None:
        """End the process; its files stay as they are."""
        self.journal._destroy()

    # --- what can be seen of it ---

    @property
    def journal(self) -> Any:
        """Returns the library's own log object."""
        return self.store._SyncObj__raftLog

    @property
    def first(self) -> int:
        return int(self.journal[0][1])

    @property
    def last(self) -> int:
        return int(self.journal[-1][1])

    def entry(self, index: int) -> GuestEntry | None:
        """Returns the entry at an index; None when the node has none there."""
        place = index - self.first
        if not 0 <= place < len(self.journal):
            return None
        command, found, term = self.journal[place]
        return GuestEntry(found, term, command)

    @property
    def term(self) -> int:
        return int(self.store.raftCurrentTerm)

    @property
    def commit(self) -> int:
        return int(self.store.raftCommitIndex)

    @property
    def applied(self) -> int:
        return int(self.store.raftLastApplied)

    @property
    def leading(self) -> bool:
        return bool(self.store._SyncObj__raftState == LEADER)

    @property
    def values(self) -> list[str]:
        return list(self.store.values)

    @property
    def members(self) -> list[int]:
        """Returns the ids of the members that the node knows, itself included."""
        return sorted([self.number, *(node.id for node in self.store.otherNodes)])
