"""How a server has its broker recorded; `recording_files` is behind it, and is loaded only where
something is recorded: it takes a fiftieth of the start of a process."""

from collections.abc import Sequence
from typing import Protocol

from raftlog.base.ports import Entropy, Tracer
from raftlog.base.units import Instant
from raftlog.broker.broker import Broker
from raftlog.broker.config import BrokerConfig
from raftlog.runtime.driver import DrivenBroker
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.log_directories import FurtherImage


class RecordedBroker(DrivenBroker, Protocol):
    """Takes the turns of `broker`, and records them."""

    broker: Broker

    def end(self, why: str) -> None:
        """Record nothing more; the reader is told why."""


class Recordings(Protocol):
    """Where the boots of a broker are recorded."""

    def of_boot(
        self,
        config: BrokerConfig,
        image: DirectoryImage,
        further: Sequence[FurtherImage],
        entropy: Entropy,
        tracer: Tracer,
        now: Instant,
    ) -> RecordedBroker:
        """The broker of a boot, made and recorded."""
        ...
