"""Tracks write rounds in flight: how far the log can be read from files, and survives a crash."""

from collections import deque
from typing import Final, NamedTuple, final

from raftlog.base.ids import Chain, IoId, Offset, RaftIndex, Term
from raftlog.storage.log_end import FileEnd
from raftlog.storage.replica import LogEnd


class _Flight(NamedTuple):
    """The end that a round makes durable, and the files that are void once it did."""

    io_id: IoId
    end: FileEnd
    obsolete: list[str]


_OVERTAKEN: Final = FileEnd(LogEnd(RaftIndex(0), Term(0), Chain(0), Offset(0)), 0, 0)
"""The end of a round that an install overtook: it makes nothing of the new log durable."""


@final
class Rounds:
    """The ends so far, `written` and `durable`; None while an install is neither.

    They rise with completions and fall with truncations only.
    """

    __slots__ = ("_flights", "durable", "written")

    def __init__(self, end: FileEnd) -> None:
        self._flights: deque[_Flight] = deque()
        self.written: FileEnd | None = end
        self.durable: FileEnd | None = end

    def begin(self, io_id: IoId, end: FileEnd, obsolete: list[str]) -> None:
        """Begin a round, whose completion makes everything up to `end` durable."""
        assert not self._flights or self._flights[-1].io_id < io_id, (io_id, self._flights[-1])
        self._flights.append(_Flight(io_id, end, obsolete))

    def note_written(self, io_id: IoId) -> None:
        """Note that the bytes of the rounds up to `io_id` can be read."""
        for flight in self._flights:
            if flight.io_id > io_id:
                break
            self.written = _later(self.written, flight.end)

    def note_persisted(self, io_id: IoId) -> list[str]:
        """Note that the rounds up to `io_id` are durable; returns the files that are void now."""
        obsolete: list[str] = []
        while self._flights and self._flights[0].io_id <= io_id:
            flight = self._flights.popleft()
            self.durable = _later(self.durable, flight.end)
            self.written = _later(self.written, flight.end)
            obsolete += flight.obsolete
        return obsolete

    def clamp(self, cut: FileEnd) -> None:
        """Limit all completions to `cut`, after a truncation.

        The entries behind it are gone, whatever comes to lie at their indexes (etcd's append ABA).
        """
        self._flights = deque(
            _Flight(io_id, min(end, cut, key=index_of), obsolete)
            for io_id, end, obsolete in self._flights
        )
        if self.written is not None:
            self.written = min(self.written, cut, key=index_of)
        if self.durable is not None:
            self.durable = min(self.durable, cut, key=index_of)

    def overtake(self) -> None:
        """Void all rounds in flight, since the log begins again after an install."""
        self._flights = deque(
            _Flight(io_id, _OVERTAKEN, obsolete) for io_id, _, obsolete in self._flights
        )
        self.written = self.durable = None


def _later(known: FileEnd | None, end: FileEnd) -> FileEnd | None:
    if end is _OVERTAKEN:
        return known
    if known is None or end.end.raft_index >= known.end.raft_index:
        return end
    return known


def index_of(end: FileEnd | None) -> RaftIndex:
    """The last entry before an end; 0 when an install is neither written nor durable."""
    return end.end.raft_index if end is not None else RaftIndex(0)
