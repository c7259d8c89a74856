"""Where a test may stand between a broker and its world.

The shell takes a `Faults` as an argument and knows no more of it. `serve` refuses one unless every
listener is on loopback; without one it runs as if this file did not exist
(docs/decisions/0067-faults-stand-in-the-shell.md).
"""

from collections.abc import Callable
from typing import Protocol

from raftlog.base.ports import Disk
from raftlog.broker.broker import Broker
from raftlog.runtime.driver import DrivenBroker

Answer = tuple[int, str, str]
"""Status code, content type, body."""


class FaultDoor(Protocol):
    """Answers the admin listener for paths that begin with /faults."""

    def answer(self, method: str, path: str, content_type: str, body: bytes) -> Answer: ...


class Faults(Protocol):
    """The faults of one broker."""

    @property
    def door(self) -> FaultDoor | None:
        """The door that answers /faults; None when /faults is not served."""
        ...

    def over_broker(self, driven: DrivenBroker, broker: Broker) -> DrivenBroker:
        """The broker to drive in place of `driven`, which is the broker or its recorder."""
        ...

    def over_disk(self, disk: Disk) -> Disk:
        """The disk that the broker uses. Its files are sent as they lie on `disk`."""
        ...

    def attach(self, turn_soon: Callable[[], None], inline: Callable[[bool], None]) -> None:
        """The broker begins. `turn_soon()` asks for a turn and `inline(False)` forbids syncs on the
        loop, which other brokers may share; both on the trio thread, on which this is called."""
        ...
