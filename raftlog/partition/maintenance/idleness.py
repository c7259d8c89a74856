"""A group that nobody writes to gives its memory back.

A log keeps its recent entries for followers and consumers; a thousand partitions that were busy
once must not keep a full window each, nor the receive slabs that large batches pin.
"""

from typing import Final, Protocol, final

from raftlog.base.ids import RaftIndex
from raftlog.base.limits import IDLE_AFTER_MS, IDLE_WINDOW_BYTES
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, millis

_IDLE_AFTER_NS: Final = millis(IDLE_AFTER_MS)


class TrimmableLog(Protocol):
    """The part of `storage.PartitionLog` that is needed here."""

    @property
    def last_index(self) -> RaftIndex: ...

    def trim_window(self, bytes_max: int) -> None: ...


@final
class IdleWatch:
    """`deadline` is when `tick` must be called at the latest; NEVER once the log is trimmed."""

    __slots__ = ("_log", "_seen", "deadline")

    def __init__(self, log: TrimmableLog) -> None:
        self._log = log
        self._seen = log.last_index
        self.deadline = NEVER

    def written(self, now: Instant) -> None:
        """Something goes to the disk: look again in a while."""
        if self.deadline == NEVER:
            self.deadline = Instant(now + _IDLE_AFTER_NS)

    def tick(self, now: Instant) -> None:
        """When nothing was appended since the last look, trim."""
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
