"""Shows consumer groups: states, members, offsets and lag."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, final

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.client.core.asks import LATEST, metadata
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.group.protocol import decode_assignment
from raftlog.client.core.group_asks import (
    CoordinatorAt,
    OffsetAndMetadata,
    describe_group,
    fetch_offsets,
    find_coordinator,
    list_groups,
)
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client, gather
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_groups import DescribedGroup, DescribedGroupMember
from raftlog.kafka.messages.list_groups import ListedGroup

CONSUMER_GROUPS = ("", "consumer")
"""The kinds of groups that keep offsets. Simple groups, of tools and `assign`, have no kind."""


@final
class MemberRow(NamedTuple):
    """A member, with its client and its partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@final
class OffsetRow(NamedTuple):
    """One partition of a group. None where nothing is committed, or the partition is gone."""

    place: TopicPartition
    committed: int | None
    end: int | None
    member: MemberRow | None

    @property
    def lag(self) -> int | None:
        """The number of records behind the committed offset."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@final
class GroupDescription(NamedTuple):
    """A group as its coordinator describes it."""

    name: str
    state: str
    assignor: str
    coordinator: CoordinatorAt
    members: tuple[MemberRow, ...]
    offsets: tuple[OffsetRow, ...]

    @property
    def lag(self) -> int | None:
        """The lag of all partitions with a committed offset together; None when none has one."""
        known = [each.lag for each in self.offsets if each.lag is not None]
        return sum(known) if known else None

    @property
    def uncommitted(self) -> int:
        """The number of partitions without a commit; their unread records count in no lag."""
        return sum(each.committed is None for each in self.offsets)

    def as_json(self) -> dict[str, Any]:
        """The group for `--format json`."""
        return {
            "group": self.name,
            "state": self.state,
            "assignor": self.assignor,
            "coordinator": self.coordinator._asdict(),
            "lag": self.lag,
            "uncommitted": self.uncommitted,
            "members": [
                {**each._asdict(), "partitions": [place._asdict() for place in each.partitions]}
                for each in self.members
            ],
            "offsets": [
                {
                    **each.place._asdict(),
                    "committed": each.committed,
                    "end": each.end,
                    "lag": each.lag,
                    "member_id": each.member.member_id if each.member else None,
                }
                for each in self.offsets
            ],
        }


@final
class GroupListing(NamedTuple):
    """The groups of the brokers that answered, sorted by name, and why the others did not."""

    groups: list[ListedGroup]
    silent: dict[int, RaftlogError]

    def check(self) -> None:
        """Raise an `OperatingError` that names the brokers whose groups are missing."""
        if not self.silent:
            return
        whys = "; ".join(f"broker {node}: {self.silent[node]}" for node in sorted(self.silent))
        raise OperatingError(
            f"the groups of some brokers are missing: {whys}",
            on="brokers " + ",".join(map(str, sorted(self.silent))),
            do="ask again; when a broker is dead, others coordinate its groups in a few seconds",
        )


async def list_known(client: Client) -> GroupListing:
    """The consumer groups of all brokers that answer."""
    await client.know_brokers()
    brokers = (await client.ask(metadata([]))).brokers
    found: dict[str, ListedGroup] = {}
    silent: dict[int, RaftlogError] = {}

    async def ask(node: int) -> None:
        try:
            told = await client.ask(list_groups(node))
        except RaftlogError as error:
            silent[node] = error
            return
        for each in told:
            if each.protocol_type in CONSUMER_GROUPS:
                found[each.group_id] = each

    async with gather() as nursery:
        for broker in brokers:
            nursery.start_soon(ask, broker.node_id)
    return GroupListing([found[name] for name in sorted(found)], silent)


async def list_all(client: Client) -> list[ListedGroup]:
    """The consumer groups of all brokers, sorted by name; an error when one does not answer."""
    listing = await list_known(client)
    listing.check()
    return listing.groups


async def describe(client: Client, name: str) -> GroupDescription:
    """The group; `KafkaError` GROUP_ID_NOT_FOUND when there is none."""
    told: DescribedGroup = await client.ask(describe_group(name))
    coordinator: CoordinatorAt = await client.ask(find_coordinator(name))
    committed: dict[TopicPartition, OffsetAndMetadata] = await client.ask(
        fetch_offsets(name, stable=False)
    )
    members = tuple(_member(each) for each in told.members)
    owners = {place: each for each in members for place in each.partitions}
    places = sorted({*committed, *owners})
    ends = await offsets_at(client, places, LATEST)
    offsets = tuple(
        OffsetRow(
            place,
            committed[place].offset if place in committed else None,
            ends.get(place),
            owners.get(place),
        )
        for place in places
    )
    return GroupDescription(
        name, told.group_state, told.protocol_data, coordinator, members, offsets
    )


def _member(each: DescribedGroupMember) -> MemberRow:
    try:
        partitions = tuple(decode_assignment(each.member_assignment))
    except RaftlogError:
        # An assignment that is not in the form of consumers has no partitions to show.
        partitions = ()
    return MemberRow(
        each.member_id, each.group_instance_id, each.client_id, each.client_host, partitions
    )


async def offsets_at(
    client: Client, places: Iterable[TopicPartition], timestamp_ms: int
) -> dict[TopicPartition, int]:
    """The first offset at or after a time, or a special one; -1 for none.

    Partitions that do not exist are left out.
    """
    found: dict[TopicPartition, int] = {}

    async def ask(place: TopicPartition) -> None:
        try:
            found[place] = (await client.offset(place, timestamp_ms)).offset
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    async with gather() as nursery:
        for place in places:
            nursery.start_soon(ask, place)
    return found


def parse_places(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read `topic` or `topic:0,1,2`: topic -> partitions, none for all.

    `ValueError` says what is wrong.
    """
    found: dict[str, tuple[int, ...]] = {}
    for text in texts:
        topic, colon, partitions = text.partition(":")
        numbers = partitions.split(",") if colon else []
        if not topic or not all(each.isascii() and each.isdigit() for each in numbers):
            raise ValueError(f"{text!r} is neither a topic nor like topic:0,1")
        found[topic] = (*found.get(topic, ()), *(int(each) for each in numbers))
    return found


async def all_places(client: Client, wanted: Mapping[str, tuple[int, ...]]) -> list[TopicPartition]:
    """The named partitions; for a topic without numbers all of its partitions.

    Raises `KafkaError` for a topic that does not exist.
    """
    places: list[TopicPartition] = []
    for topic, partitions in wanted.items():
        numbers: Iterable[int] = partitions
        if not partitions:
            numbers = range(len((await client.describe(topic)).partitions))
        places += [TopicPartition(topic, each) for each in numbers]
    return sorted(set(places))
