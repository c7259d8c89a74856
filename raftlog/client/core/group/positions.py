"""The position of a consumer in each of its partitions: looked up, moved, given out, committed.

offset      the next record that `take` gives out; None while it is looked up
    processed   what the user has done with: given out before the poll that runs now began
    committed   what the coordinator last took

A partition begins at the committed offset, or else where `auto_offset_reset` says. From then on it
is fetched, except while it is paused: then none of its records are kept in memory.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.errors import LocalMisuse, RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.ports import Entropy
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.asks import EARLIEST, LATEST, list_offsets
from raftlog.client.core.connections import backoff
from raftlog.client.core.errors import KafkaError, NoOffset
from raftlog.client.core.fetched import CorruptBatch, FetchedBatches
from raftlog.client.core.fetcher import Fetcher, Trouble
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.group_asks import OffsetAndMetadata, fetch_offsets
from raftlog.client.core.requests import Requests
from raftlog.client.core.results import OffsetAt
from raftlog.client.core.values import ClientOptions, ClientTurn, ConsumedRecord, TopicPartition
from raftlog.kafka.error_codes import ErrorCode

Taken = dict[TopicPartition, list[ConsumedRecord]]
_RESET_TO: Final = {"earliest": EARLIEST, "latest": LATEST}
_BEGIN_AGAIN: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_ID)
"""The errors after which `auto_offset_reset` chooses the offset: its record is gone, or another
topic has the same name now."""
_PIECE_BYTES: Final = 1 << 20


@final
@attrs.define(eq=False)
class _Position:
    """The position in one partition. `moves` counts seeks and the end of the assignment: answers to
    questions asked before the last one no longer count."""

    place: TopicPartition
    offset: Offset | None = None
    epoch: int = -1
    processed: OffsetAndMetadata | None = None
    committed: Offset | None = None
    paused: bool = False
    moves: int = 0
    asked: bool = False
    reset_to: int | None = None
    """The special timestamp (EARLIEST, LATEST) at which to begin; None while the committed offset
    is looked up."""
    failures: int = 0
    retry_at: Instant = Instant(0)
    trouble: RaftlogError | None = None
    """Why the partition cannot be read any further until a seek; None when it can."""

    def here(self) -> OffsetAndMetadata | None:
        """The present position, as a commit sends it."""
        if self.offset is None:
            return None
        return OffsetAndMetadata(self.offset, "", self.epoch)


@final
@attrs.define(eq=False)
class _Piece:
    """Decoded records that wait to be taken; `error` lies behind them."""

    position: _Position
    records: Sequence[ConsumedRecord]
    next_offset: Offset
    epoch: int
    taken: int = 0
    error: RaftlogError | None = None


@final
@attrs.define(eq=False)
class Positions:
    """See the module."""

    options: ClientOptions
    settings: ConsumerOptions
    requests: Requests
    fetcher: Fetcher
    entropy: Entropy
    turn: ClientTurn
    error: RaftlogError | None = attrs.field(default=None, init=False)
    """The error of a question about offsets. The next poll raises it; meanwhile the question is
    repeated."""
    _positions: dict[TopicPartition, _Position] = attrs.field(factory=dict, init=False)
    _pieces: deque[_Piece] = attrs.field(factory=deque, init=False)

    # --- what is assigned -------------------------------------------------------------------------

    def places(self) -> list[TopicPartition]:
        """The assigned partitions, in order."""
        return sorted(self._positions)

    def begin(self, places: Iterable[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        for place in places:
            if place not in self._positions:
                self._positions[place] = _Position(place)

    def drop(self, places: Iterable[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        for place in places:
            self._stop_reading(place)
            position = self._positions.pop(place, None)
            if position is not None:
                # An answer still under way would start reading a partition that is no longer
                # assigned.
                position.moves += 1

    def of(self, place: TopicPartition) -> _Position:
        """The position in a partition; `LocalMisuse` for a partition that is not assigned."""
        position = self._positions.get(place)
        if position is None:
            raise LocalMisuse(
                f"partition {place} is not assigned to this consumer",
                do="poll until the group assigns it, or call assign",
            )
        return position

    def seek(self, place: TopicPartition, offset: Offset) -> None:
        """Go on from this offset."""
        position = self.of(place)
        self._move(position)
        self._arrive(position, offset)

    def seek_to(self, places: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Read on from EARLIEST or LATEST, whose offsets are looked up now."""
        for position in [self.of(place) for place in places]:
            self._move(position)
            position.reset_to = timestamp_ms

    def _move(self, position: _Position) -> None:
        self._stop_reading(position.place)
        position.moves += 1
        position.offset, position.trouble, position.reset_to = None, None, None
        position.asked, position.failures, position.retry_at = False, 0, Instant(0)
        position.epoch = -1

    def pause(self, places: Iterable[TopicPartition]) -> None:
        """Give out nothing of these until `resume`."""
        for position in [self.of(place) for place in places]:
            position.paused = True
            self._stop_reading(position.place)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        """Give out records of these again, from where `pause` stopped."""
        for position in [self.of(place) for place in places]:
            if position.paused:
                position.paused = False
                self._read_on(position)

    def paused(self) -> list[TopicPartition]:
        """The paused partitions, sorted."""
        return sorted(place for place, each in self._positions.items() if each.paused)

    def _stop_reading(self, place: TopicPartition) -> None:
        self.fetcher.unassign(place)
        self._pieces = deque(each for each in self._pieces if each.position.place != place)

    def _read_on(self, position: _Position) -> None:
        assert self._positions.get(position.place) is position, f"{position.place} was dropped"
        if position.offset is not None and not position.paused and position.trouble is None:
            self.fetcher.begin(position.place, position.offset)

    def _arrive(self, position: _Position, offset: Offset) -> None:
        position.offset, position.asked, position.failures = offset, False, 0
        self._read_on(position)

    # --- where to begin ---------------------------------------------------------------------------

    def drive(self) -> None:
        """Look up the offsets that are not known."""
        now = self.turn.now
        unknown = [
            each
            for each in self._positions.values()
            if each.offset is None
            and not each.asked
            and each.trouble is None
            and now >= each.retry_at
        ]
        if not unknown:
            return
        without = [each for each in unknown if each.reset_to is None]
        if without and self.settings.group_id is not None:
            self._ask_committed(self.settings.group_id, without)
        elif without:
            for position in without:
                self._reset(position, None)
        for position in unknown:
            if position.reset_to is not None and not position.asked:
                self._ask_reset(position, position.reset_to)

    def _ask_committed(self, group: str, positions: Sequence[_Position]) -> None:
        asked = [(each, each.moves) for each in positions]
        for each in positions:
            each.asked = True
        ask = fetch_offsets(group, [each.place for each in positions])
        self.requests.start_own(ask, partial(self._committed_told, asked))

    def _committed_told(self, asked: Sequence[tuple[_Position, int]], answer: Any) -> None:
        for position, moves in asked:
            if position.moves != moves:
                continue
            if isinstance(answer, RaftlogError):
                self._ask_later(position, answer)
                continue
            found = answer.get(position.place)
            position.asked = False
            if found is None:
                self._reset(position, None)
            else:
                position.epoch, position.committed = found.leader_epoch, found.offset
                self._arrive(position, Offset(found.offset))

    def _reset(self, position: _Position, why: RaftlogError | None) -> None:
        """Begin where `auto_offset_reset` says."""
        policy = self.settings.auto_offset_reset
        if policy in _RESET_TO:
            position.reset_to = _RESET_TO[policy]
            return
        error = why or NoOffset(
            "the group has committed no offset, and auto_offset_reset is none",
            on=str(position.place),
            do="seek to an offset, or set auto_offset_reset to earliest or latest",
        )
        position.trouble = error
        self._pieces.append(_Piece(position, (), Offset(0), -1, error=error))

    def _ask_reset(self, position: _Position, timestamp_ms: int) -> None:
        position.asked = True
        then = partial(self._reset_told, position, position.moves)
        self.requests.start_own(list_offsets(position.place, timestamp_ms), then)

    def _reset_told(self, position: _Position, moves: int, answer: OffsetAt | RaftlogError) -> None:
        if position.moves != moves:
            return
        if isinstance(answer, RaftlogError):
            self._ask_later(position, answer)
        else:
            position.reset_to = None
            self._arrive(position, answer.offset)

    def _ask_later(self, position: _Position, error: RaftlogError) -> None:
        position.asked = False
        position.failures += 1
        pause = backoff(self.options, position.failures, self.entropy)
        position.retry_at = Instant(self.turn.now + pause)
        if self._positions.get(position.place) is position:
            self.error = error

    # --- records ----------------------------------------------------------------------------------

    @property
    def has_ready(self) -> bool:
        """Whether `take` would give or raise something."""
        return bool(self._pieces) or self.fetcher.has_ready or self.error is not None

    def take(self, records_max: int) -> Taken:
        """Take records that were read ahead, in order within each partition. When none are left,
        raise the error of a partition that cannot be read."""
        taken: Taken = {}
        left = records_max
        while left > 0:
            if not self._pieces and not self._refill():
                break
            left -= self._take_from(self._pieces[0], left, taken)
        if taken:
            return taken
        error, self.error = self.error, None
        if error is not None:
            raise error
        for position in self._positions.values():
            if position.trouble is not None and not position.paused:
                raise position.trouble
        return taken

    def _take_from(self, piece: _Piece, left: int, taken: Taken) -> int:
        records = piece.records[piece.taken : piece.taken + left]
        piece.taken += len(records)
        position = piece.position
        if records:
            taken.setdefault(position.place, []).extend(records)
            position.offset = Offset(records[-1].offset + 1)
            position.epoch = piece.epoch
        if piece.taken >= len(piece.records):
            self._pieces.popleft()
            if piece.error is not None:
                position.trouble = piece.error
                self._stop_reading(position.place)
            else:
                # This also skips control records and the records of aborted transactions before it.
                position.offset = piece.next_offset
        return len(records)

    def _refill(self) -> bool:
        """Decode the next batches of the fetcher. Return whether there is anything to take."""
        for read in self.fetcher.poll(_PIECE_BYTES):
            position = self._positions.get(read.place)
            if position is None or position.paused:
                continue
            if isinstance(read, Trouble):
                self._in_trouble(position, read)
            else:
                self._pieces.append(_decoded(position, read))
        return bool(self._pieces)

    def _in_trouble(self, position: _Position, trouble: Trouble) -> None:
        """Handle a trouble of the fetcher. Earlier records of the partition are taken already or
        wait ahead of it."""
        error = trouble.error
        if isinstance(error, KafkaError) and error.code in _BEGIN_AGAIN:
            self._move(position)
            self._reset(position, error)
            return
        piece = _Piece(position, (), trouble.offset, -1, error=error)
        self._pieces.append(piece)

    # --- commits ----------------------------------------------------------------------------------

    def mark_processed(self) -> None:
        """Note that a poll begins: the user has finished with the records of earlier polls."""
        for position in self._positions.values():
            position.processed = position.here()

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position in each partition, for a commit by the user."""
        found = ((place, each.here()) for place, each in self._positions.items())
        return {place: here for place, here in found if here is not None}

    def processed(self, *, all_again: bool) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets for an automatic commit: those that moved since the last one, or with
        `all_again` all."""
        return {
            place: each.processed
            for place, each in self._positions.items()
            if each.processed is not None and (all_again or each.processed.offset != each.committed)
        }

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note the offsets that the coordinator has committed."""
        for place, each in offsets.items():
            position = self._positions.get(place)
            if position is not None:
                position.committed = Offset(each.offset)

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        later = (
            each.retry_at
            for each in self._positions.values()
            if each.offset is None and not each.asked and each.retry_at > now
        )
        return min(later, default=NEVER)


def _decoded(position: _Position, read: FetchedBatches) -> _Piece:
    """The records of a fetched piece, as far as they can be read."""
    records: list[ConsumedRecord] = []
    error: RaftlogError | None = None
    try:
        for each in read.records():
            records.append(each)  # noqa: PERF402 - what came before the error counts
    except CorruptBatch as corrupt:
        error = corrupt
    return _Piece(position, records, read.next_offset, read.last_epoch, error=error)
