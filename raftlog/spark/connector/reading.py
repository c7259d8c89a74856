"""The work of a task: read one range of one partition in order and completely, or report what is
missing.

* When a leader changes, dies or hangs up, the client reads on where it stopped, and reads no record
  twice.
* A missing record has one of three reasons. Below the log's start, retention deleted it. After the
  log's end it never existed: the topic was created again, or the log was cut by force. Between two
  batches or inside of one it was compacted away if the topic has cleanup.policy=compact; otherwise
  it is lost.
* A topic of another id under the same name is another topic and is not read.
* With failOnDataLoss (the default) loss is an error. Without it, the task warns and goes forward,
  never back.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

import pyarrow as pa

from raftlog.base.binary import Buffer
from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.base.ids import Offset
from raftlog.client.blocking import BlockingClient
from raftlog.client.core import asks
from raftlog.client.core.errors import KafkaError, LogTruncated
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.records.batch import read_header
from raftlog.spark.connector.cluster import WAITS_SECONDS, client_of, topic_id_of
from raftlog.spark.connector.offsets import LOSS_ADVICE, DataLoss, Range
from raftlog.spark.connector.options import ReadOptions
from raftlog.spark.decoding.columns import ColumnsWanted

Decoder = Callable[[Sequence[Buffer], ColumnsWanted], pa.RecordBatch]

COMPILED_RECORDS_MIN: Final = 500_000
"""From how many records on `auto` takes the compiled decoder, which saves a microsecond a record
and takes half a second to load."""
LOOK_SECONDS: Final = 2.0
"""After so long without a record the task asks whether its topic still exists."""


def decoder_of(name: str, records: int) -> Decoder:
    """The decoder of this name. `auto` is the fastest installed one that is worth loading for so
    many more records: compiled code takes half a second to load, once in a process."""
    from raftlog.spark.decoding import plain

    if name == "plain":
        return plain.decode
    try:
        if name == "numba" or (name == "auto" and _compiled_is_worth_it(records)):
            from raftlog.spark.decoding import compiled

            return compiled.decode
    except ImportError:
        if name == "numba":
            raise
    try:
        from raftlog.spark.decoding import vectors
    except ImportError:
        if name == "numpy":
            raise
        return plain.decode
    return vectors.decode


def _compiled_is_worth_it(records: int) -> bool:
    """Whether this process has read, or will read, enough records to make up for the loading
    time."""
    _WORKER.records += records
    return _WORKER.records >= COMPILED_RECORDS_MIN or "raftlog.spark.decoding.kernel" in sys.modules


@final
class _Worker:
    """The number of records that the tasks of this process were to read. A Spark worker runs many
    tasks."""

    records = 0


_WORKER: Final = _Worker()


def read_range(
    wanted: Range, columns: tuple[str, ...], options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Read the records of a range as Arrow batches. Raises `DataLoss` or `OperatingError` when it
    cannot."""
    with client_of(options) as client:
        yield from RangeReader(client, wanted, columns, options).batches()


@final
class RangeReader:
    """Reads one range with an open client."""

    def __init__(
        self,
        client: BlockingClient,
        wanted: Range,
        columns: tuple[str, ...],
        options: ReadOptions,
    ) -> None:
        self._client = client
        self._place = TopicPartition(*wanted.place)
        self._range = wanted
        self._columns = columns
        self._options = options
        self._decode = decoder_of(options.decoder, wanted.size)
        self._next = wanted.start
        """All offsets below it are yielded, or known not to be there."""
        self._compacted: bool | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """See `read_range`."""
        self._check_topic()
        self._client.assign({self._place: self._next})
        heard = looked = time.monotonic()  # noqa: TID251 - a task runs in real time
        while self._next < self._range.stop:
            pieces = self._client.poll(seconds=0.25, bytes_max=self._options.fetch_bytes)
            before = self._next
            yield from self._take(pieces)
            now = time.monotonic()  # noqa: TID251 - later: what is done with rows takes its time
            if self._next > before:
                heard = looked = now
            elif (now - heard) * 1000 > self._options.poll_timeout_ms:
                raise OperatingError(
                    f"nothing was read for {self._options.poll_timeout_ms} ms, at offset "
                    f"{self._next} of up to {self._range.stop}",
                    on=str(self._place),
                    do="check that the partition has a leader: raftlog topics describe "
                    f"{self._place.topic}",
                )
            elif now - looked > LOOK_SECONDS:
                looked = now
                self._look()

    # --- what was read ----------------------------------------------------------------------------

    def _take(self, pieces: Sequence[FetchedBatches | Trouble]) -> Iterator[pa.RecordBatch]:
        """Make an Arrow batch of each fetched piece. A piece is at most max.partition.fetch.bytes
        large, so its bytes are still in the processor's cache."""
        for piece in pieces:
            if self._next >= self._range.stop:
                return
            if isinstance(piece, Trouble):
                self._resolve(piece)
                return
            rows = self._decoded(piece)
            if rows is not None and rows.num_rows:
                yield rows

    def _decoded(self, piece: FetchedBatches) -> pa.RecordBatch | None:
        first = self._next
        batches: list[Buffer] = []
        for batch in piece.batches:
            if self._next >= self._range.stop:
                break
            self._pass(batch)
            batches.append(batch)
        place = self._place
        wanted = ColumnsWanted(
            place.topic,
            place.partition,
            self._columns,
            first,
            self._range.stop,
            self._options.skip_corrupt_batches,
        )
        return self._decode(batches, wanted) if batches else None

    def _pass(self, batch: Buffer) -> None:
        """Move past a batch. Gaps before it or inside of it must come from compaction."""
        header = read_header(batch)
        missing = header.base_offset - self._next
        if missing > 0:
            self._hole(self._next, header.base_offset)
        inside = header.last_offset_delta + 1 - header.records_count
        if inside > 0 and header.next_offset > self._range.start:
            self._hole(header.base_offset, header.next_offset, inside)
        self._next = max(self._next, header.next_offset)

    def _hole(self, start: int, stop: int, count: int | None = None) -> None:
        if self._compacted is None:
            self._compacted = self._is_compacted()
        if not self._compacted:
            some = f"{count} of the offsets" if count is not None else "offsets"
            self._lost(f"{some} {start} to {stop - 1} are missing, and the topic is not compacted")

    def _is_compacted(self) -> bool:
        topic = self._place.topic
        settings = self._client.ask(asks.describe_configs([topic]))[topic]
        policy = settings.get("cleanup.policy")
        return policy is not None and "compact" in (policy.value or "")

    # --- what went wrong --------------------------------------------------------------------------

    def _resolve(self, trouble: Trouble) -> None:
        error = trouble.error
        code = error.code if isinstance(error, KafkaError) else None
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
            return
        if code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._check_topic()
        elif isinstance(error, LogTruncated):
            self._lost(error.what)
            self._client.seek(self._place, Offset(self._next))
            return
        if self._next < self._range.stop:
            raise error

    def _out_of_range(self) -> None:
        first, end = self._borders()
        if self._next < first:
            stop = min(first, self._range.stop)
            self._lost(
                f"offsets {self._next} to {stop - 1} were deleted; the log begins at {first}"
            )
            self._next = stop
            if self._next < self._range.stop:
                self._client.seek(self._place, Offset(self._next))
        elif self._next > end:
            self._lost(
                f"offset {self._next} is out of range: the log ends at {end}, so it is not the "
                "log that was planned for"
            )
            self._next = self._range.stop
        else:
            self._client.seek(self._place, Offset(self._next))

    def _borders(self) -> tuple[int, int]:
        """The first and end offset of the log. A leader whose log is shorter than planned may no
        longer lead, so the question is repeated for a moment."""
        end = self._client.offset(self._place, asks.LATEST).offset
        for wait_seconds in WAITS_SECONDS:
            if self._next <= end:
                break
            time.sleep(wait_seconds)
            end = self._client.offset(self._place, asks.LATEST).offset
        return self._client.offset(self._place, asks.EARLIEST).offset, end

    def _check_topic(self) -> None:
        """Check that the topic is still the one that was planned. A broker that knows another topic
        id, or none, may only lag behind, so brokers are asked for a moment more before loss is
        reported."""
        found = topic_id_of(self._client, self._place.topic)
        for wait_seconds in WAITS_SECONDS:
            if found == self._range.topic_id:
                break
            time.sleep(wait_seconds)
            found = topic_id_of(self._client, self._place.topic)
        if found == self._range.topic_id:
            return
        if found is None:
            self._lost("the topic was deleted")
        else:
            self._lost("the topic was deleted and created again: what was planned for is gone")
        self._next = self._range.stop

    def _look(self) -> None:
        """No record has come: check whether the topic is gone or the brokers are only slow."""
        try:
            self._check_topic()
        except DataLoss:
            raise
        except RaftlogError:
            return  # no broker answers at the moment: the poll timeout decides

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(what, on=str(self._place), do=LOSS_ADVICE)
        warnings.warn(f"data loss, accepted: {what} ({self._place})", stacklevel=2)
