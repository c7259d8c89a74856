"""`raftlog elect-leaders`: partitions go back to the brokers that shall lead them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

import click

from raftlog.cli.connect import with_client
from raftlog.cli.output.group_view import parse_places
from raftlog.cli.output.render import (
    DONE_CODE,
    FAILED_CODE,
    bootstrap_option,
    format_option,
    print_json,
    print_table,
)
from raftlog.cli.output.topic_view import PartitionView, describe_topics
from raftlog.client.core.admin_asks import elect_leaders
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode, error_name

if TYPE_CHECKING:
    from raftlog.client.core.results import PartitionResult


@final
class Election(NamedTuple):
    """One partition: its leader before, the leader that it shall have, and the result.

    Without an error and with `done` False the partition was only looked at.
    """

    place: TopicPartition
    leader: int | None
    preferred: int
    done: bool = False
    error_code: int = 0
    message: str | None = None

    @property
    def outcome(self) -> str:
        """The result in a word."""
        if self.error_code == ErrorCode.ELECTION_NOT_NEEDED or self.leader == self.preferred:
            return "leads already"
        if self.error_code != ErrorCode.NONE:
            return error_name(self.error_code)
        return "elected" if self.done else "would be elected"

    @property
    def failed(self) -> bool:
        """Whether the preferred leader does not lead now."""
        return self.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)

    def as_json(self) -> dict[str, Any]:
        """The election for `--format json`."""
        told = {**self.place._asdict(), "leader": self.leader, "preferred": self.preferred}
        error = error_name(self.error_code) if self.failed else None
        return {**told, "outcome": self.outcome, "error": error, "message": self.message}


@click.command(
    "elect-leaders",
    epilog="""\b
Examples:
  raftlog elect-leaders --all --dry-run
  raftlog elect-leaders orders:0,2 payments""",
    context_settings={"max_content_width": 100},
)
@click.argument("wanted", nargs=-1, metavar="[TOPIC[:PARTITION,...]...]")
@click.option("--all", "all_", is_flag=True, help="Every partition that has another leader.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@bootstrap_option()
@format_option()
def elect_leaders_command(
    wanted: tuple[str, ...], all_: bool, dry_run: bool, bootstrap: str, form: str
) -> int:
    """Let the first of a partition's replicas lead it again, by a transfer that loses nothing.

    A replica that is not alive or not in sync is not elected. Exit code 1 when one was not.
    """
    if bool(wanted) == all_:
        raise click.UsageError("name topics or give --all, and not both")
    try:
        places = parse_places(wanted)
    except ValueError as error:
        raise click.UsageError(str(error)) from None

    async def work(client: Client) -> list[Election]:
        found = await looked_at(client, places or None)
        return found if dry_run else await elected(client, found)

    found = with_client(bootstrap, work)
    code = FAILED_CODE if any(each.failed for each in found) else DONE_CODE
    if form == "json":
        print_json({"dry_run": dry_run, "partitions": [each.as_json() for each in found]})
        return code
    _print_elections(found, dry_run=dry_run)
    return code


def _print_elections(found: Sequence[Election], *, dry_run: bool) -> None:
    if not found:
        print("every partition is led by its preferred broker")
        return
    print_table(
        ["TOPIC", "PARTITION", "LEADER", "PREFERRED", "OUTCOME"],
        [
            [
                each.place.topic,
                each.place.partition,
                "none" if each.leader is None else each.leader,
                each.preferred,
                each.outcome,
            ]
            for each in found
        ],
    )
    for each in found:
        if each.failed and each.message:
            print(f"{each.place}: {each.message}")
    if dry_run:
        print("nothing was changed: it was a dry run")


async def looked_at(client: Client, wanted: dict[str, tuple[int, ...]] | None) -> list[Election]:
    """The named partitions, or all partitions that their preferred broker does not lead."""
    names = None if wanted is None else sorted(wanted)
    views = [
        each
        for topic in await describe_topics(client, names, configs=False)
        for each in topic.partitions
    ]
    if wanted is None:
        return [_election(each) for each in views if each.leader != each.replicas[0]]
    known = {(each.topic, each.partition) for each in views}
    for topic, numbers in wanted.items():
        for number in numbers:
            if (topic, number) not in known:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, on=str(TopicPartition(topic, number))
                )
    return [
        _election(each)
        for each in views
        if not wanted[each.topic] or each.partition in wanted[each.topic]
    ]


def _election(each: PartitionView) -> Election:
    return Election(TopicPartition(each.topic, each.partition), each.leader, each.replicas[0])


async def elected(client: Client, found: Sequence[Election]) -> list[Election]:
    """Elect the preferred leaders; returns each result."""
    if not found:
        return []
    results: list[PartitionResult] = await client.ask(elect_leaders([each.place for each in found]))
    told = {each.place: each for each in results}
    return [
        each._replace(
            done=True, error_code=told[each.place].error_code, message=told[each.place].message
        )
        for each in found
        if each.place in told
    ]
