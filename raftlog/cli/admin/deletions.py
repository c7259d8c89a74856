"""`raftlog delete-records`: partitions forget their oldest records."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, final

import click

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.cli.admin.plan_files import read_offsets
from raftlog.cli.connect import with_client
from raftlog.cli.group_reset import parse_datetime
from raftlog.cli.output.group_view import all_places, offsets_at, parse_places
from raftlog.cli.output.render import (
    DONE_CODE,
    FAILED_CODE,
    bootstrap_option,
    format_option,
    print_json,
    print_table,
)
from raftlog.client.core.asks import EARLIEST, EVERYTHING, LATEST, delete_records
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode


@final
class Deletion(NamedTuple):
    """One partition: its present start and end, and the start that it shall have."""

    place: TopicPartition
    start: int
    end: int
    wanted: int
    error: RaftlogError | None = None

    @property
    def records(self) -> int:
        """The number of records to delete, 0 when the partition refuses."""
        if self.error is not None:
            return 0
        return max(0, self.wanted - self.start)

    def as_json(self) -> dict[str, Any]:
        """The deletion for `--format json`."""
        return {
            **self.place._asdict(),
            "start": self.start,
            "end": self.end,
            "wanted": self.wanted,
            "records": self.records,
            "error": self.error.what if self.error is not None else None,
        }


@click.command(
    "delete-records",
    epilog="""\b
Examples:
  raftlog delete-records orders:0 --before-offset 1000
  raftlog delete-records orders --before-datetime 2026-01-31T12:00:00 --execute""",
    context_settings={"max_content_width": 100},
)
@click.argument("wanted", nargs=-1, metavar="[TOPIC[:PARTITION,...]...]")
@click.option("--before-offset", type=click.IntRange(0), help="Those below this offset.")
@click.option("--before-datetime", metavar="TIME", help="Those older: 2026-01-31T12:00:00, UTC.")
@click.option("--everything", is_flag=True, help="All that is there now.")
@click.option(
    "--file",
    "path",
    type=click.Path(path_type=Path),
    help='Offsets as Kafka\'s tool takes them: {"partitions": [{"topic", "partition", "offset"}]}.',
)
@click.option("--execute", "execute_it", is_flag=True, help="Do it. Without, it is only shown.")
@bootstrap_option()
@format_option()
def delete_records_command(
    wanted: tuple[str, ...],
    before_offset: int | None,
    before_datetime: str | None,
    everything: bool,
    path: Path | None,
    execute_it: bool,
    bootstrap: str,
    form: str,
) -> int:
    """Delete the records of partitions before an offset or a time, for good.

    Without --execute nothing is deleted. Consumers behind the new start begin at it.
    """
    kinds = [before_offset is not None, before_datetime is not None, everything, path is not None]
    if sum(kinds) != 1:
        raise click.UsageError(
            "give one of --before-offset, --before-datetime, --everything and --file"
        )
    if bool(wanted) == (path is not None):
        raise click.UsageError("name topics or give --file, and not both")
    try:
        named = parse_places(wanted)
        time_ms = None if before_datetime is None else parse_datetime(before_datetime)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    offsets = read_offsets(path) if path is not None else None

    async def work(client: Client) -> list[Deletion]:
        places = await all_places(client, named) if offsets is None else sorted(offsets)
        found = await _planned(client, places, offsets, before_offset, time_ms)
        return await _executed(client, found) if execute_it else found

    found = with_client(bootstrap, work)
    code = FAILED_CODE if any(each.error for each in found) else DONE_CODE
    if form == "json":
        print_json({"executed": execute_it, "partitions": [each.as_json() for each in found]})
        return code
    _print(found)
    if not execute_it:
        print("nothing was deleted: --execute does it", flush=True)
    for each in found:
        if each.error is not None:
            raise each.error
    return code


async def _planned(
    client: Client,
    places: Sequence[TopicPartition],
    offsets: Mapping[TopicPartition, int] | None,
    before_offset: int | None,
    time_ms: int | None,
) -> list[Deletion]:
    """The deletions that a command would make. A time behind the last record means all records."""
    starts = await offsets_at(client, places, EARLIEST)
    ends = await offsets_at(client, places, LATEST)
    times = await offsets_at(client, places, time_ms) if time_ms is not None else {}
    found: list[Deletion] = []
    for place in places:
        if place not in starts or place not in ends:
            raise OperatingError("there is no such partition", on=str(place))
        end = ends[place]
        wanted = end
        if offsets is not None:
            wanted = end if offsets[place] == EVERYTHING else offsets[place]
        elif before_offset is not None:
            wanted = before_offset
        elif time_ms is not None and times.get(place, -1) >= 0:
            wanted = times[place]
        error = _beyond(place, wanted, end) if wanted > end else None
        found.append(Deletion(place, starts[place], end, wanted, error))
    return found


def _beyond(place: TopicPartition, wanted: int, end: int) -> RaftlogError:
    """The error for an offset beyond the end, raised before anything is deleted."""
    what = f"offset {wanted} lies behind the end, which is {end}"
    return KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, on=str(place), message=what)


async def _executed(client: Client, found: Sequence[Deletion]) -> list[Deletion]:
    """Delete, one partition after the other; those that are refused say why."""
    done: list[Deletion] = []
    for each in found:
        if each.error is not None:
            done.append(each)
            continue
        try:
            await client.ask(delete_records(each.place, each.wanted))
        except RaftlogError as error:
            done.append(each._replace(error=error))
        else:
            done.append(each)
    return done


def _print(found: Sequence[Deletion]) -> None:
    print_table(
        ["TOPIC", "PARTITION", "START", "END", "NEW-START", "RECORDS"],
        [
            [
                each.place.topic,
                each.place.partition,
                each.start,
                each.end,
                "refused" if each.error is not None else max(each.start, each.wanted),
                0 if each.error is not None else each.records,
            ]
            for each in found
        ],
    )
