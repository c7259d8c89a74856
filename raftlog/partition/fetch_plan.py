"""What a fetch may see of one partition, and what it gets.

Committed records only, up to the published high watermark. An offset between that and the end of
the log is empty, not an error: a new leader's mark trails what clients have read. What counts as
available is committed bytes from the offset on, not the length of one slice.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from raftlog.base.binary import Buffer
from raftlog.base.ids import Offset, Term
from raftlog.base.probes import probe
from raftlog.kafka.error_codes import ErrorCode
from raftlog.records.slices import FileSlice
from raftlog.storage.segments.cold import ColdRead
from raftlog.storage.segments.segment import Gap, gap_at

Part = Buffer | FileSlice
NO_EPOCH_CHECK: Final = -1
UNKNOWN_WATERMARK: Final = Offset(-1)
"""What a fetch tells as high watermark while the leader may know less than the one before it."""


class ReadableLog(Protocol):
    """The part of `storage.PartitionLog` that reads need."""

    @property
    def log_start(self) -> Offset: ...

    @property
    def next_offset(self) -> Offset: ...

    @property
    def gaps(self) -> Sequence[Gap]: ...

    def available_bytes(self, offset: Offset, limit_offset: Offset) -> int: ...

    def plan_read(
        self, offset: Offset, bytes_max: int, limit_offset: Offset
    ) -> Sequence[Part] | ColdRead: ...


class FetchView(NamedTuple):
    """What a fetch at one offset finds now. With an error, `available` is 0."""

    error: ErrorCode
    high_watermark: Offset = UNKNOWN_WATERMARK
    log_start: Offset = Offset(-1)
    available: int = 0


def epoch_error(asked: int, term: Term) -> ErrorCode:
    """Whether a client that names a leader epoch means the present one (KIP-320)."""
    if asked in (NO_EPOCH_CHECK, term):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < term else ErrorCode.UNKNOWN_LEADER_EPOCH


def view_of(log: ReadableLog, offset: int, high_watermark: Offset | None) -> FetchView:
    """What a fetch at `offset` finds. `high_watermark` is None while the leader may not publish
    one: such a fetch waits, as one at the end of the log does. Where a segment is damaged that
    nobody can repair it is CORRUPT_MESSAGE."""
    if not log.log_start <= offset <= log.next_offset:
        mark = UNKNOWN_WATERMARK if high_watermark is None else high_watermark
        return FetchView(ErrorCode.OFFSET_OUT_OF_RANGE, mark, log.log_start)
    if high_watermark is None:
        return FetchView(ErrorCode.NONE, UNKNOWN_WATERMARK, log.log_start)
    available = 0
    if offset < high_watermark:
        if gap_at(log.gaps, offset) is not None:
            probe("fetch-into-a-gap")
            return FetchView(ErrorCode.CORRUPT_MESSAGE, high_watermark, log.log_start)
        available = log.available_bytes(Offset(offset), high_watermark)
    return FetchView(ErrorCode.NONE, high_watermark, log.log_start, available)
