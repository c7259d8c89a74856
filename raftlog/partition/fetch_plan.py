"""The view that a fetch has of one partition: an error, or how many committed bytes it may read.

A fetch reads committed records only, up to the published high watermark. An offset between the
high watermark and the end of the log gives an empty answer, not an error: a new leader's high
watermark may trail what clients have read from the leader before. `available` counts committed
bytes from the offset on, not the length of one slice.
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
"""The high watermark in a fetch answer while a new leader may know less than the one before it."""


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
    """The present state of a partition for a fetch at one offset.

    `available` is in bytes; with an error it is 0.
    """

    error: ErrorCode
    high_watermark: Offset = UNKNOWN_WATERMARK
    log_start: Offset = Offset(-1)
    available: int = 0


def epoch_error(asked: int, term: Term) -> ErrorCode:
    """The error for a client that names this leader epoch, NONE if it is the present one
    (KIP-320)."""
    if asked in (NO_EPOCH_CHECK, term):
        return ErrorCode.NONE
    return ErrorCode.FENCED_LEADER_EPOCH if asked < term else ErrorCode.UNKNOWN_LEADER_EPOCH


def view_of(log: ReadableLog, offset: int, high_watermark: Offset | None) -> FetchView:
    """The view of a fetch at `offset`.

    `high_watermark` is None while the leader may not publish one. Such a fetch waits, as one at the
    end of the log does. In the damaged part of a segment the error is CORRUPT_MESSAGE.
    """
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
