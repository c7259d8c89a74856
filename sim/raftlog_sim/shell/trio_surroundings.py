"""The world of trio mode as its nodes and clients see it."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from raftlog.base.ports import Tracer
from raftlog_sim.base.streams import Stream
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.shell.trio_clock import JumpClock
from raftlog_sim.shell.trio_network import Hub
from raftlog_sim.shell.trio_streams import ClientEnd
from raftlog_sim.world.faces import Action
from raftlog_sim.world.node import Observer

SECRET: Final = b"a secret of simulated brokers, long enough"


class Surroundings(Protocol):
    """Time, tasks and the network; `trio_run.TrioWorld` has them."""

    clock: JumpClock
    network: Hub
    observer: Observer | None
    invariants: Invariants | None
    sync_ns: int
    turn_ns: int
    idle_ms: int
    intake_bytes: int
    frozen: bool

    @property
    def now(self) -> int:
        """The world instant."""
        ...

    @property
    def tracer(self) -> Tracer:
        """Hears what brokers trace."""
        ...

    def stream(self, name: str) -> Stream:
        """A named stream of this world's randomness."""
        ...

    def after(self, delay_ns: int, action: Action, *args: Any) -> None:
        """`action(*args)` so much later."""
        ...

    def start(self, work: Callable[[], Any], name: str) -> None:
        """A task that lives at most as long as the world."""
        ...

    def fail(self, error: BaseException) -> None:
        """The run has failed; the first error counts."""
        ...

    async def connect_client(self, host: str, port: int) -> ClientEnd:
        """A connection from a client's machine."""
        ...
