"""`raftlog consume`: read records, with the flags of kcat."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, final

import click
import trio

from raftlog.base.amounts import amount
from raftlog.base.errors import CorruptData, RaftlogError
from raftlog.cli.connect import with_client
from raftlog.cli.consume_group import StartAt, consume_group
from raftlog.cli.output.record_format import compile_format, record_as_json
from raftlog.cli.output.render import bootstrap_option, format_option, print_json_line, progress
from raftlog.client.core.asks import EARLIEST, LATEST
from raftlog.client.core.fetched import CorruptBatch, FetchedBatches
from raftlog.client.core.fetcher import Polled, Trouble
from raftlog.client.core.values import ConsumedRecord, TopicPartition
from raftlog.client.trio_driver import Client

_POLL_SECONDS: Final = 1.0
_DEFAULT_FORMAT: Final = "%s\\n"


def parse_start(text: str) -> StartAt:
    """Read `beginning`, `end`, N, -N, `s@MS`. `BadParameter` for anything else."""
    if text in ("beginning", "earliest"):
        return StartAt("timestamp", EARLIEST)
    if text in ("end", "latest"):
        return StartAt("timestamp", LATEST)
    kind, digits = ("timestamp", text[2:]) if text.startswith("s@") else ("offset", text)
    if kind == "offset" and text.startswith("-"):
        kind, digits = "tail", text[1:]
    if not digits.isascii() or not digits.isdigit():
        raise click.BadParameter(
            f"{text!r} is none of beginning, end, N, -N, s@MILLISECONDS", param_hint="-o"
        )
    return StartAt(kind, int(digits))


class RecordsWanted(NamedTuple):
    """The partitions to read and the place to stop."""

    topic: str
    partitions: tuple[int, ...]
    start: StartAt
    stop_at_end: bool
    count_max: int | None
    skip_corrupt: bool


@click.command(
    epilog="""\b
Examples:
  raftlog consume orders -o beginning -e
  raftlog consume orders -p 0 -o -10 -c 10 -f '%o %p %k %s\\n'
  raftlog consume orders --group billing""",
    context_settings={"max_content_width": 100},
)
@click.argument("topic")
@click.option(
    "-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these."
)
@click.option(
    "-o",
    "--offset",
    "offset",
    default="beginning",
    show_default=True,
    metavar="WHERE",
    help="beginning, end, N, -N (so many before the end), s@MS (a time). With --group: where to "
    "begin without a committed offset, beginning or end.",
)
@click.option(
    "-G", "--group", help="Share the topic with this group, from its committed offsets on."
)
@click.option("-e", "--exit", "stop_at_end", is_flag=True, help="Stop at what is the end now.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many records.")
@click.option(
    "-f", "text_format", metavar="FORMAT", help=r"kcat's: %t %p %o %T %k %K %s %S %h, \n \t \xNN."
)
@click.option(
    "--skip-corrupt",
    is_flag=True,
    help="Name a batch that cannot be read on standard error, and go on behind it.",
)
@click.option("-Z", "null_words", is_flag=True, help="Write NULL for a null key or value.")
@bootstrap_option()
@format_option()
def consume(
    topic: str,
    partitions: tuple[int, ...],
    offset: str,
    group: str | None,
    stop_at_end: bool,
    count: int | None,
    text_format: str | None,
    skip_corrupt: bool,
    null_words: bool,
    bootstrap: str,
    form: str,
) -> None:
    """Read records from a topic, in order within each partition, until Ctrl-C.

    Each value is written on a line of its own, unless -f says otherwise. With --format json each
    record is one line of JSON.

    A batch whose inside is damaged, or was never good, ends the command. Records before it are
    written, and the error names its offsets.

    With --group the partitions are shared with the other members of the group. Written records are
    committed, as it goes and at the end, so that the next member continues behind them. -p, -e and
    --skip-corrupt do not go with it.
    """
    render = compile_format(text_format or _DEFAULT_FORMAT, b"NULL" if null_words else b"")
    wanted = RecordsWanted(topic, partitions, parse_start(offset), stop_at_end, count, skip_corrupt)

    def write(record: ConsumedRecord) -> None:
        if form == "json":
            print_json_line(record_as_json(record))
        else:
            sys.stdout.buffer.write(render(record))

    if group is not None:
        if partitions or stop_at_end or skip_corrupt:
            raise click.UsageError("-p, -e and --skip-corrupt do not go with --group")
        consume_group(bootstrap, topic, group, wanted.start, count, write)
        return

    async def work(client: Client) -> None:
        positions = await _positions(client, wanted)
        ends = await _ends(client, wanted) if stop_at_end else {}
        total = count if count is not None else _left(positions, ends)
        with progress(f"reading {topic}", total) as advance:
            reader = _Reader(client, wanted, positions, ends)
            while not reader.done:
                try:
                    for record in await reader.next_records():
                        write(record)
                        advance(1)
                finally:
                    sys.stdout.flush()

    with_client(bootstrap, work, fetch_wait_ms=500)


async def _positions(client: Client, wanted: RecordsWanted) -> dict[TopicPartition, int]:
    """The first offset to read of each partition."""
    kind, number = wanted.start
    asked = number if kind == "timestamp" else LATEST
    found: dict[TopicPartition, int] = {**await client.offsets(wanted.topic, asked)}
    if kind == "timestamp" and number >= 0:
        ends = await client.offsets(wanted.topic, LATEST)
        found = {place: at if at >= 0 else ends[place] for place, at in found.items()}
    if kind == "offset":
        found = dict.fromkeys(found, number)
    if kind == "tail":
        first = await client.offsets(wanted.topic, EARLIEST)
        found = {place: max(first[place], at - number) for place, at in found.items()}
    return _only(found, wanted)


async def _ends(client: Client, wanted: RecordsWanted) -> dict[TopicPartition, int]:
    return _only({**await client.offsets(wanted.topic, LATEST)}, wanted)


def _only(found: dict[TopicPartition, int], wanted: RecordsWanted) -> dict[TopicPartition, int]:
    for partition in wanted.partitions:
        if TopicPartition(wanted.topic, partition) not in found:
            raise click.BadParameter(
                f"{wanted.topic} has {amount(len(found), 'partition')}, numbered from 0",
                param_hint="-p",
            )
    if not wanted.partitions:
        return found
    return {place: at for place, at in found.items() if place.partition in wanted.partitions}


def _left(positions: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> int | None:
    if not ends:
        return None
    return sum(max(0, ends[place] - at) for place, at in positions.items())


@final
class _Reader:
    """Records until the count or the ends are reached, or a batch cannot be read."""

    def __init__(
        self,
        client: Client,
        wanted: RecordsWanted,
        positions: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> None:
        self._client = client
        self._left = wanted.count_max
        self._skip_corrupt = wanted.skip_corrupt
        self._ends = ends
        self._open = dict(positions)
        if wanted.stop_at_end:
            self._open = {place: at for place, at in positions.items() if at < ends[place]}
        client.assign(self._open)

    @property
    def done(self) -> bool:
        return not self._open or self._left == 0

    async def next_records(self) -> Iterator[ConsumedRecord]:
        """The records that came within a second; the caller reads all of them.

        It raises the error of a partition behind all records that came before the error.
        """
        pieces = await self._client.poll(seconds=_POLL_SECONDS)
        await trio.lowlevel.checkpoint()
        return self._records(pieces)

    def _records(self, pieces: Sequence[Polled]) -> Iterator[ConsumedRecord]:
        for piece in pieces:
            if isinstance(piece, Trouble):
                self._corrupt(piece.error)
                continue
            if piece.place not in self._open:
                continue
            end = self._ends.get(piece.place)
            for record in self._readable(piece):
                if end is not None and record.offset >= end:
                    continue
                if self._left is not None:
                    self._left -= 1
                yield record
                if self._left == 0:  # stop here: the next record may be a damaged one
                    return
            self._read_up_to(piece.place, piece.next_offset)

    def _readable(self, piece: FetchedBatches) -> Iterator[ConsumedRecord]:
        for batch in piece.batches:
            try:
                yield from piece.records_of(batch)
            except CorruptBatch as error:
                self._skip(error)

    def _corrupt(self, error: RaftlogError) -> None:
        """Stop reading a partition whose fetches failed, unless its bad batch may be skipped."""
        if not isinstance(error, CorruptBatch):
            raise error
        self._skip(error)
        self._read_up_to(error.place, error.next_offset)
        if error.place in self._open:
            self._client.seek(error.place, error.next_offset)

    def _skip(self, error: CorruptBatch) -> None:
        if not self._skip_corrupt:
            do = "--skip-corrupt goes on behind it"
            raise CorruptData(error.what, on=error.on, do=do) from error
        print(f"raftlog: skipped in {error.on}: {error.what}", file=sys.stderr)

    def _read_up_to(self, place: TopicPartition, next_offset: int) -> None:
        end = self._ends.get(place)
        if end is not None and next_offset >= end and place in self._open:
            del self._open[place]
            self._client.unassign(place)
