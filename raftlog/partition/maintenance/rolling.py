"""Rolls the active segment of a replica when it is old enough.

Only whole segments can be deleted, so a segment must not take records without end. Each replica
rolls its own segment, by its own monotonic clock, so a wall clock that jumps rolls nothing. Rolling
deletes nothing; records go only by a log start that the leader proposes and a majority commits.
"""

from typing import Final, final

from raftlog.base.limits import ROLL_AFTER_BOOT_MS_MAX
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.partition.config import PartitionConfig
from raftlog.storage.partition_log import PartitionLog

_NOT_SEEN: Final = -1


@final
class RollWatch:
    """Watches the age of one replica's active segment.

    * `deadline`: when `tick` must be called at the latest; NEVER while the active segment holds no
      records, or no age bounds it.
    * `_sequence`: the file sequence of the segment whose age counts, from its first write on
      (`_began_at`).
    """

    __slots__ = ("_began_at", "_booted", "_limit_ns", "_log", "_sequence", "deadline")

    def __init__(self, log: PartitionLog, config: PartitionConfig) -> None:
        self._log = log
        self._limit_ns = _limit_of(config)
        self._sequence = _NOT_SEEN
        self._booted = True
        self._began_at = Instant(0)
        self.deadline = NEVER

    def configure(self, config: PartitionConfig) -> None:
        """The topic's settings changed."""
        self._limit_ns = _limit_of(config)
        if self._sequence != _NOT_SEEN:
            self._wait()

    def look(self, now: Instant) -> None:
        """Look at the active segment after a turn: with its first records it begins to age."""
        segments = self._log.segments
        if not segments:
            # Damage took every entry; the first one that a leader sends begins a file again.
            self._sequence, self.deadline = _NOT_SEEN, NEVER
            return
        active = segments[-1]
        if active.header.file_sequence == self._sequence:
            return
        if active.end.next_offset == active.base_offset:
            self._sequence, self.deadline, self._booted = _NOT_SEEN, NEVER, False
            return
        self._sequence, self._began_at = active.header.file_sequence, now
        if self._booted:
            # After a boot the age of the segment is not known: it rolls after an hour at the
            # latest.
            self._booted = False
            known_ns = max(0, self._limit_ns - millis(ROLL_AFTER_BOOT_MS_MAX))
            self._began_at = Instant(now - known_ns)
        self._wait()

    def tick(self, now: Instant) -> None:
        """Roll the segment if it is old enough."""
        if now < self.deadline:
            return
        probe("segment-rolled-by-age")
        self._sequence, self.deadline = _NOT_SEEN, NEVER
        self._log.roll()

    def _wait(self) -> None:
        self.deadline = Instant(min(NEVER, self._began_at + self._limit_ns))


def _limit_of(config: PartitionConfig) -> Nanos:
    return millis(config.roll_ms)
