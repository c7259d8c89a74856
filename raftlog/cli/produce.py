"""`raftlog produce`: write records from lines, with the flags of kcat."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, final

import click
import trio

from raftlog.base.amounts import amount
from raftlog.base.arguments import check
from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.base.units import KIB, millis
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import bootstrap_option, format_option, print_json, progress
from raftlog.client.core.arguments import TopicName
from raftlog.client.core.calls import KnowTopic
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.values import RecordPosition, TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.records.compression import CODEC_NAMES

_READ_BYTES: Final = 64 * KIB
_LINE_BYTES_MAX: Final = 64 << 20
_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}


class Manner(NamedTuple):
    """The way in which a line becomes a record."""

    key: bytes | None
    key_delimiter: bytes | None
    empty_is_null: bool
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None

    def record(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """The (key, value) of a line."""
        key, value = self.key, line
        if self.key_delimiter is not None and self.key_delimiter in line:
            key, _, value = line.partition(self.key_delimiter)
        if self.empty_is_null:
            return key or None, value or None
        return key, value


@click.command(
    epilog="""\b
Examples:
  printf 'alice:buys\\nbob:sells\\n' | raftlog produce orders -K :
  raftlog produce orders events.txt --compression zstd --format json""",
    context_settings={"max_content_width": 100},
)
@click.argument("topic")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE...]")
@click.option("-p", "--partition", type=click.IntRange(0), help="All records to this partition.")
@click.option("-k", "--key", help="A key for all records.")
@click.option(
    "-K", "--key-delimiter", metavar="TEXT", help="The key stands before this, the value after it."
)
@click.option(
    "-D", "--delimiter", default="\\n", show_default=True, help="What ends a record in the input."
)
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header for all."
)
@click.option("-Z", "empty_is_null", is_flag=True, help="An empty key or value is a null one.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(list(CODEC_NAMES)),
    default="none",
    show_default=True,
    help="How batches are compressed.",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="When a record counts as written; only all is idempotent.",
)
@click.option(
    "--linger-ms",
    type=click.IntRange(0, 60_000),
    default=5,
    show_default=True,
    help="How long a record may wait for company.",
)
@bootstrap_option()
@format_option()
def produce(
    topic: str,
    files: tuple[Path, ...],
    partition: int | None,
    key: str | None,
    key_delimiter: str | None,
    delimiter: str,
    headers: tuple[str, ...],
    empty_is_null: bool,
    compression: str,
    acks: str,
    linger_ms: int,
    bootstrap: str,
    form: str,
) -> None:
    """Write each line of the files, or of standard input, as a record.

    Done when all are acknowledged. Keyed records go to the partition of their key's murmur2 hash,
    as with Kafka's own clients; others take turns. Exit code 1 when a record was not acknowledged.
    """
    check("topic", topic, TopicName)
    manner = Manner(
        key.encode() if key is not None else None,
        _unescaped(key_delimiter, "-K") if key_delimiter is not None else None,
        empty_is_null,
        tuple(_header(each) for each in headers),
        partition,
    )
    separator = _unescaped(delimiter, "-D")
    tally = ProduceTally()

    async def work(client: Client) -> None:
        await _check_topic(client, topic, partition)
        with progress(f"writing {topic}", None) as advance:
            tally.advance = advance
            async for line in _lines(files, separator):
                record_key, value = manner.record(line)
                await client.send_soon(
                    topic,
                    value,
                    key=record_key,
                    headers=manner.headers,
                    partition=manner.partition,
                    then=tally.count,
                )
                tally.check()
            await client.flush()

    options: dict[str, Any] = {
        "acks": _ACKS[acks],
        "idempotent": _ACKS[acks] == -1,
        "compression": CODEC_NAMES[compression],
        "linger_ns": millis(linger_ms),
    }
    with_client(bootstrap, work, **options)
    tally.check()
    if form == "json":
        partitions = {str(at): number for at, number in sorted(tally.partitions.items())}
        print_json({"topic": topic, "produced": tally.acknowledged, "partitions": partitions})
    else:
        print(f"produced {amount(tally.acknowledged, 'record')} to {topic}")


@final
class ProduceTally:
    """Outcomes of records. `check` raises the first error."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.failed = 0
        self.partitions: dict[int, int] = {}
        self.advance: Any = None
        self._error: RaftlogError | None = None

    def count(self, outcome: RecordPosition | RaftlogError) -> None:
        """Count one record's outcome."""
        if isinstance(outcome, RaftlogError):
            self.failed += 1
            self._error = self._error or outcome
            return
        self.acknowledged += 1
        self.partitions[outcome.partition] = self.partitions.get(outcome.partition, 0) + 1
        if self.advance is not None:
            self.advance(1)

    def check(self) -> None:
        """Raise the first error, with the numbers of records."""
        if self._error is not None:
            error = self._error
            raise OperatingError(
                f"{error.what}; acknowledged: {amount(self.acknowledged, 'record')}, "
                f"not acknowledged: {self.failed}",
                on=error.on,
                do=error.do,
            ) from error


async def _check_topic(client: Client, topic: str, partition: int | None) -> None:
    """Fail before anything is read when the topic or its partition does not exist."""
    await client.ask(KnowTopic(topic))
    if partition is None:
        return
    try:
        await client.ask(KnowTopic(topic, partition))
    except KafkaError as error:
        if error.on != str(TopicPartition(topic, partition)):
            raise
        raise click.BadParameter(error.do, param_hint="-p") from error


async def _lines(files: tuple[Path, ...], separator: bytes) -> AsyncIterator[bytes]:
    """The lines of all files, or of standard input, as they come."""
    if not files:
        async for line in _lines_of(sys.stdin.buffer, separator, "standard input"):
            yield line
        return
    for path in files:
        try:
            with path.open("rb") as file:
                async for line in _lines_of(file, separator, str(path)):
                    yield line
        except OSError as error:
            raise OperatingError(f"cannot be read: {error.strerror}", on=str(path)) from error


async def _lines_of(file: BinaryIO, separator: bytes, name: str) -> AsyncIterator[bytes]:
    """Yield the texts between separators. The last separator may be missing."""
    rest = b""
    while True:
        # read1 gives the bytes at hand, so that a person's typing leaves line by line.
        piece = await trio.to_thread.run_sync(_read_some, file, abandon_on_cancel=True)
        if not piece:
            break
        lines = (rest + piece).split(separator)
        rest = lines.pop()
        if len(rest) > _LINE_BYTES_MAX:
            raise OperatingError(f"a line of more than {_LINE_BYTES_MAX} bytes", on=name)
        for line in lines:
            yield line
    if rest:
        yield rest


def _read_some(file: BinaryIO) -> bytes:
    read1 = getattr(file, "read1", file.read)
    piece: bytes = read1(_READ_BYTES)
    return piece


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="-H")
    return name, value.encode() if equals else None


def _unescaped(text: str, option: str) -> bytes:
    r"""The bytes of `\n`, `\t`, `\0`, `\xNN` as on kcat's command line."""
    try:
        found = text.encode("latin-1", "backslashreplace").decode("unicode_escape")
        content = found.encode("latin-1") if found.isascii() else text.encode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        raise click.BadParameter(f"{text!r} cannot be read", param_hint=option) from None
    if not content:
        raise click.BadParameter("it is empty", param_hint=option)
    return content
