"""The parts that all clients of a world share: the topic, their options, and the history."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from raftlog.base.errors import RaftlogError
from raftlog.base.units import millis
from raftlog.client.core.calls import Call
from raftlog.client.core.values import ClientOptions

if TYPE_CHECKING:
    from raftlog_sim.world.world import World

TOPIC: Final = "t"
CHURN: Final = "churn-"
"""The prefix of the names of topics that are created and deleted."""


def client_options(world: "World", name: str) -> ClientOptions:
    """Returns the options of a client with little patience."""
    return ClientOptions(
        bootstrap=tuple((f"n{number}", 9092) for number in sorted(world.nodes)),
        client_id=name,
        request_timeout_ns=millis(1_500),
        delivery_timeout_ns=millis(4_000),
        connect_timeout_ns=millis(500),
    )


class Caller(Protocol):
    """A client of the world."""

    def call(self, request: Call, then: Callable[[Any], None]) -> None:
        """Begin a call of the core; `then` hears its result."""
        ...


class SharedHistory(Protocol):
    """The workload as its parts see it: calls under way, and the history of each record."""

    running: bool
    busy: int

    def client(self, name: str) -> Caller:
        """One more client of the world."""
        ...

    def begin(self, process: int, partition: int, value: str) -> None:
        """Note that a record is about to be sent."""
        ...

    def ok(self, process: int, partition: int, offset: int, value: str) -> None:
        """Note that the producer knows where the record lies."""
        ...

    def failed(self, process: int, error: RaftlogError) -> None:
        """Note that the record is certainly not stored."""
        ...

    def unclear(self, process: int, error: RaftlogError) -> None:
        """Note that the record may be stored or not."""
        ...
