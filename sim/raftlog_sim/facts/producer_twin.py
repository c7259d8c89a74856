"""A simple twin of the product's table of producers, which follows a log entry by entry."""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from raftlog.base.entries import EntryKind

if TYPE_CHECKING:
    from raftlog.base.entries import Entry
    from raftlog.partition.producing.producers import ProducerTable
    from raftlog.records.batch import BatchHeader

from raftlog.base.errors import CorruptData
from raftlog.records.control import parse_control_entry, read_marker, read_term_start

SEQUENCES: Final = 2**31
_SPANS_MAX: Final = 5
_ON: Final = "committed entry"


class ProducerTwin(NamedTuple):
    """The state of a producer, as `ProducerState`. A span is first and last sequence and first
    offset."""

    epoch: int
    spans: tuple[tuple[int, int, int], ...]
    last_seen_ms: int


class ProducerTwins(NamedTuple):
    """All producers after an entry; each entry makes a new value. `clock_ms` is the newest
    timestamp of Raft's own entries."""

    states: dict[int, ProducerTwin]
    clock_ms: int

    def after(self, entry: "Entry", header: "BatchHeader") -> "ProducerTwins":
        """Returns the producers after one more entry."""
        if entry.kind is EntryKind.RECORDS:
            return self if header.producer_id < 0 else self._recorded(entry, header)
        if entry.kind not in (EntryKind.TERM_START, EntryKind.MARKER):
            return self
        body = parse_control_entry(entry.batch, CorruptData, _ON).body
        if entry.kind is EntryKind.TERM_START:
            before_ms = read_term_start(body).producers_expire_before_ms
        else:
            before_ms = read_marker(body).producers_expire_before_ms
        kept = {
            number: each for number, each in self.states.items() if each.last_seen_ms >= before_ms
        }
        return ProducerTwins(kept, max(self.clock_ms, header.max_timestamp))

    def _recorded(self, entry: "Entry", header: "BatchHeader") -> "ProducerTwins":
        before, first = self.states.get(header.producer_id), header.base_sequence
        span = (first, (first + header.last_offset_delta) % SEQUENCES, int(entry.base_offset))
        same = before is not None and before.epoch == header.producer_epoch
        spans = (*before.spans, span)[-_SPANS_MAX:] if before is not None and same else (span,)
        seen_ms = max(header.max_timestamp, self.clock_ms)
        heard = ProducerTwin(header.producer_epoch, spans, seen_ms)
        return ProducerTwins({**self.states, header.producer_id: heard}, self.clock_ms)

    def differs(self, table: "ProducerTable") -> str:
        """Returns how a table of the product differs from this one; "" when it does not."""
        mine: list[Any] = sorted(self.states.items())
        if table.states() == mine and table.clock_ms == self.clock_ms:
            return ""
        return f"{table.states()} at {table.clock_ms}, the log has {mine} at {self.clock_ms}"


NONE: Final = ProducerTwins({}, -1)
