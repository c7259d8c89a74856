"""Time-driven care for the log of every replica, leader or not.

It frees memory when the log is idle, rolls segments by age, and continues a machine's replay.
"""

from typing import final

from raftlog.base.units import Instant
from raftlog.partition.config import PartitionConfig
from raftlog.partition.machine.machine_feed import MachineFeed
from raftlog.partition.maintenance.idleness import IdleWatch
from raftlog.partition.maintenance.rolling import RollWatch
from raftlog.storage.partition_log import PartitionLog


@final
class Upkeep:
    """The time-driven tasks of one replica; `deadline` is when `tick` must be called at the
    latest."""

    __slots__ = ("_feed", "_idle", "_log", "_rolls")

    def __init__(
        self, log: PartitionLog, config: PartitionConfig, feed: MachineFeed | None
    ) -> None:
        self._feed = feed
        self._log = log
        self._idle = IdleWatch(log)
        self._rolls = RollWatch(log, config)

    @property
    def deadline(self) -> Instant:
        deadline = min(self._idle.deadline, self._rolls.deadline)
        return deadline if self._feed is None else min(deadline, self._feed.deadline)

    def taken(self, now: Instant, *, wrote: bool) -> None:
        """Note the end of a turn; `wrote`: the replica writes something to the disk."""
        if wrote:
            self._idle.written(now)
        self._rolls.look(now)

    def tick(self, now: Instant) -> None:
        """Do what is due by `now`."""
        self._idle.tick(now)
        self._rolls.tick(now)

    def configure(self, config: PartitionConfig) -> None:
        """Take changed settings of the topic."""
        self._rolls.configure(config)
        wanted = config.segment_bytes
        if wanted is not None and wanted != self._log.options.segment_bytes:
            self._log.resize(wanted)
