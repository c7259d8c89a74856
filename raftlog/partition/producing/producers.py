"""The table of idempotent producers: which sequences of which producer are in the log, and where.

Rules (KIP-98), which the leader checks from batch headers only:

* Same epoch, and exactly the (first, last) sequence of one of the last five batches: a duplicate.
  Its answer is the original offset, once that entry is committed.
* An epoch lower than the known one is INVALID_PRODUCER_EPOCH. A higher one must begin at sequence
  0, else OUT_OF_ORDER_SEQUENCE_NUMBER.
* The same epoch goes on at last + 1, else OUT_OF_ORDER_SEQUENCE_NUMBER. 0 follows 2147483647.
* An unknown producer may begin anywhere: its state may have expired.

The table is a function of the log alone. It moves when an entry is appended, on every replica
alike. The leader writes expiry into the log (term starts and markers carry a cut-off), so that no
replica's own clock decides. `last_seen_ms` is the later of two times: the batch's latest timestamp,
and the newest timestamp of Raft's own entries before it. So a client that sends no timestamps does
not look silent.

Truncation drops uncommitted entries only. For every entry above the commit the table keeps the
change that the entry made, and takes it back. That is cheaper than loading the nearest snapshot and
headers, and has an equal result (the tests compare the two). Boot and install do start from a
snapshot and headers.
"""

from collections import deque
from typing import Final, NamedTuple, final

from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.limits import PRODUCER_SPANS_MAX, PRODUCERS_MAX
from raftlog.base.probes import probe
from raftlog.kafka.error_codes import ErrorCode
from raftlog.records.batch import BatchHeader

SEQUENCES: Final = 2**31
"""Sequence numbers run from 0 to 2**31 - 1 and begin again at 0."""
_NO_CLOCK: Final = -1


class Span(NamedTuple):
    """One appended batch: its first and last sequence and its first offset."""

    first_sequence: int
    last_sequence: int
    base_offset: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + (self.last_sequence - self.first_sequence) % SEQUENCES


class ProducerState(NamedTuple):
    """One producer: its newest epoch, its last batches (newest last), and when it was last seen, in
    wall milliseconds."""

    epoch: int
    spans: tuple[Span, ...]
    last_seen_ms: int


class Duplicate(NamedTuple):
    """The offsets of a batch that is in the log already."""

    base_offset: int
    last_offset: int


class _Change(NamedTuple):
    """A change that an entry made: `before` is the earlier state of `producer_id`, None for none.

    A change of the log's clock has producer id -1.
    """

    raft_index: RaftIndex
    producer_id: int
    before: ProducerState | None
    clock_before: int


@final
class ProducerTable:
    """The producers of one partition, after the last entry that the table followed.

    `clock_ms` is the newest timestamp of Raft's own entries so far. Only truncation moves it back.
    """

    __slots__ = ("_changes", "_producers_max", "_states", "clock_ms")

    def __init__(self, producers_max: int = PRODUCERS_MAX) -> None:
        assert producers_max >= 4, producers_max
        self._producers_max = producers_max
        self._states: dict[int, ProducerState] = {}
        self._changes: deque[_Change] = deque()
        self.clock_ms = _NO_CLOCK

    def __len__(self) -> int:
        return len(self._states)

    def state_of(self, producer_id: int) -> ProducerState | None:
        """The state of a producer; None when it is unknown."""
        return self._states.get(producer_id)

    def states(self) -> list[tuple[int, ProducerState]]:
        """All producers by id, ascending."""
        return sorted(self._states.items())

    def check(self, header: BatchHeader) -> Duplicate | ErrorCode | None:
        """None when a batch with producer id >= 0 may be appended now; else why it may not."""
        state = self._states.get(header.producer_id)
        if state is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch != state.epoch:
            return _check_other_epoch(epoch, first, state)
        last = (first + header.last_offset_delta) % SEQUENCES
        for span in state.spans:
            if span.first_sequence == first and span.last_sequence == last:
                probe("producer-duplicate")
                return Duplicate(span.base_offset, span.last_offset)
        if first != (state.spans[-1].last_sequence + 1) % SEQUENCES:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return None

    def appended(self, header: BatchHeader, base_offset: Offset, raft_index: RaftIndex) -> None:
        """Follow a batch with producer id >= 0 that is in the log at `base_offset`.

        The table does not judge the log's entries. The leader checked them, and the state may have
        expired in between.
        """
        producer_id = header.producer_id
        first = header.base_sequence
        span = Span(first, (first + header.last_offset_delta) % SEQUENCES, base_offset)
        before = self._states.get(producer_id)
        if before is not None and before.epoch == header.producer_epoch:
            spans = (*before.spans[1 - PRODUCER_SPANS_MAX :], span)
        else:
            spans = (span,)
            if before is None and len(self._states) >= self._producers_max:
                self._make_room(raft_index)
        seen_ms = max(header.max_timestamp, self.clock_ms)
        self._changes.append(_Change(raft_index, producer_id, before, self.clock_ms))
        self._states[producer_id] = ProducerState(header.producer_epoch, spans, seen_ms)

    def control_appended(
        self, timestamp_ms: int, expire_before_ms: int, raft_index: RaftIndex
    ) -> None:
        """Follow one of Raft's own entries: its timestamp moves the clock, and producers last seen
        before the cut-off are forgotten (-1: none)."""
        if timestamp_ms > self.clock_ms:
            self._changes.append(_Change(raft_index, -1, None, self.clock_ms))
            self.clock_ms = timestamp_ms
        silent = [
            producer_id
            for producer_id, state in self._states.items()
            if state.last_seen_ms < expire_before_ms
        ]
        for producer_id in silent:
            probe("producer-expired")
            self._remove(producer_id, raft_index)

    def committed(self, raft_index: RaftIndex) -> None:
        """Forget the changes of entries up to `raft_index`: they are never taken back."""
        changes = self._changes
        while changes and changes[0].raft_index <= raft_index:
            changes.popleft()

    def truncated_from(self, raft_index: RaftIndex) -> None:
        """Take back the changes of the truncated entries from `raft_index` on, newest first."""
        changes = self._changes
        while changes and changes[-1].raft_index >= raft_index:
            change = changes.pop()
            self.clock_ms = change.clock_before
            if change.before is not None:
                self._states[change.producer_id] = change.before
            elif change.producer_id >= 0:
                del self._states[change.producer_id]

    def load(self, clock_ms: int, states: dict[int, ProducerState]) -> None:
        """Take the state of a snapshot; entries before it can no longer be taken back."""
        self._changes.clear()
        self._states = states
        self.clock_ms = clock_ms

    def marker_due(self, wall_ms: int, cut_off_ms: int, expiration_ms: int) -> bool:
        """Whether a leader should write a marker: a producer was last seen before the cut-off, or
        the log's clock lags too far behind to measure silence."""
        if not self._states:
            return False
        if wall_ms - self.clock_ms > expiration_ms // 8:
            return True
        return any(state.last_seen_ms < cut_off_ms for state in self._states.values())

    def _make_room(self, raft_index: RaftIndex) -> None:
        """Forget the quarter of the producers whose newest batch is oldest.

        Age goes by offset, so every replica forgets the same ones.
        """
        probe("producer-table-full")
        oldest = sorted(self._states, key=lambda pid: self._states[pid].spans[-1].base_offset)
        for producer_id in oldest[: self._producers_max // 4]:
            self._remove(producer_id, raft_index)

    def _remove(self, producer_id: int, raft_index: RaftIndex) -> None:
        before = self._states.pop(producer_id)
        self._changes.append(_Change(raft_index, producer_id, before, self.clock_ms))


def _check_other_epoch(epoch: int, first: int, state: ProducerState) -> ErrorCode | None:
    if epoch < state.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return None if first == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
