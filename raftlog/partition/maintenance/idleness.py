"""Frees the memory of a log that no client writes to any more.

A log keeps its recent entries in memory for followers and consumers. A thousand partitions that
were busy once must not keep a full window each, nor the receive slabs that large batches hold.
"""

from typing import Final, Protocol, final

from raftlog.base.ids import RaftIndex
from raftlog.base.limits import IDLE_AFTER_MS, IDLE_WINDOW_BYTES
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, millis

_IDLE_AFTER_NS: Final = millis(IDLE_AFTER_MS)


class TrimmableLog(Protocol):
    """The part of `storage.PartitionLog` that an idle watch needs."""

    @property
    def last_index(self) -> RaftIndex: ...

    def trim_window(self, bytes_max: int) -> None: ...


@final
class IdleWatch:
    """Trims the memory of one log when nothing was appended for IDLE_AFTER_MS.

    `deadline` is when `tick` must be called at the latest; NEVER once the log is trimmed.
    """

    __slots__ = ("_log", "_seen", "deadline")

    def __init__(self, log: TrimmableLog) -> None:
        self._log = log
        self._seen = log.last_index
        self.deadline = NEVER

    def written(self, now: Instant) -> None:
        """Note that the replica writes something: look whether it is idle after IDLE_AFTER_MS."""
        if self.deadline == NEVER:
            self.deadline = Instant(now + _IDLE_AFTER_NS)

    def tick(self, now: Instant) -> None:
        """At the deadline, trim the log if nothing was appended since the last look."""
        if now < self.deadline:
            return
        last = self._log.last_index
        if last == self._seen:
            probe("idle-log-trimmed")
            self._log.trim_window(IDLE_WINDOW_BYTES)
            self.deadline = NEVER
        else:
            self._seen = last
            self.deadline = Instant(now + _IDLE_AFTER_NS)
