"""Moves of partitions as commands see them: changes of a plan, present moves, their progress."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.base.ids import NodeId
from raftlog.cli.admin.plan_files import Directories, Moves
from raftlog.client.core.admin_asks import LogDir, alter_replica_log_dirs, describe_log_dirs
from raftlog.client.core.asks import (
    alter_reassignments,
    describe_cluster,
    list_reassignments,
    metadata,
)
from raftlog.client.core.results import PartitionResult
from raftlog.client.core.values import Moving, TopicPartition
from raftlog.client.trio_driver import Client, gather
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse

if TYPE_CHECKING:
    from raftlog.kafka.messages.metadata import MetadataResponse

_PER_REQUEST = 1_000
_ACCEPTED = (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE)
"""The answers to an accepted move. REPLICA_NOT_AVAILABLE: the replica does not exist yet, and the
broker knows where it is wanted."""


@final
class UnknownPlace(OperatingError):
    """A plan or a command names a topic, a partition or a group that does not exist."""


class Copying(NamedTuple):
    """A broker that is new to a partition, and the bytes of it that lie there; None: not told."""

    node: int
    size_bytes: int | None
    leader_bytes: int | None

    @property
    def percent(self) -> int | None:
        """The share of the leader's size, in per cent; segments differ, so it is about right."""
        if self.size_bytes is None or self.leader_bytes is None:
            return None
        if self.leader_bytes == 0:
            return 100
        return min(100, self.size_bytes * 100 // self.leader_bytes)


class MoveState(NamedTuple):
    """One partition of a plan. `moving` is None when nothing moves it."""

    place: TopicPartition
    wanted: tuple[int, ...]
    current: tuple[int, ...]
    moving: Moving | None
    copying: tuple[Copying, ...] = ()

    @property
    def state(self) -> str:
        """done, moving, or differs: it is not there, and nothing moves it there."""
        if self.moving is not None:
            return "moving"
        return "done" if self.current == self.wanted else "differs"

    def as_json(self) -> dict[str, Any]:
        """The state for `--format json`."""
        moving = self.moving
        return {
            **self.place._asdict(),
            "state": self.state,
            "wanted": list(self.wanted),
            "current": list(self.current),
            "adding": list(moving.adding) if moving else [],
            "removing": list(moving.removing) if moving else [],
            "copying": [{**each._asdict(), "percent": each.percent} for each in self.copying],
        }


async def known_brokers(client: Client) -> DescribeClusterResponse:
    """The brokers of the cluster, without those that are fenced."""
    told: DescribeClusterResponse = await client.ask(describe_cluster(fenced=False))
    return told


async def check_alive(client: Client, nodes: Sequence[int]) -> dict[int, DescribeClusterBroker]:
    """These brokers, by number; `OperatingError` when one of them is not alive."""
    known = {each.broker_id: each for each in (await known_brokers(client)).brokers}
    missing = [node for node in nodes if node not in known]
    if missing:
        raise OperatingError(
            f"no such broker is alive: {','.join(map(str, missing))}",
            on="brokers " + ",".join(map(str, sorted(known))),
            do="raftlog brokers list shows them all",
        )
    return {node: known[node] for node in nodes}


async def current_moves(client: Client, topics: Iterable[str]) -> Moves:
    """The brokers of these topics' partitions; `UnknownPlace` for a topic that does not exist."""
    names = sorted(dict.fromkeys(topics))
    found: Moves = {}
    for first in range(0, len(names), _PER_REQUEST):
        answer: MetadataResponse = await client.ask(metadata(names[first : first + _PER_REQUEST]))
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code != ErrorCode.NONE:
                raise UnknownPlace(f"Topic {name} not found.", on=f"topic {name}")
            for each in topic.partitions:
                found[TopicPartition(name, each.partition_index)] = tuple(each.replica_nodes)
    return found


async def current_of(client: Client, places: Iterable[TopicPartition]) -> Moves:
    """The brokers of these partitions; `UnknownPlace` for one that does not exist."""
    wanted = list(places)
    known = await current_moves(client, (place.topic for place in wanted))
    missing = [place for place in wanted if place not in known]
    if missing:
        told = ", ".join(map(str, missing[:10]))
        raise UnknownPlace(f"Unable to find partition: {told}", on=f"topic {missing[0].topic}")
    return {place: known[place] for place in wanted}


async def states(client: Client, plan: Mapping[TopicPartition, Sequence[int]]) -> list[MoveState]:
    """The state of a plan, partition by partition.

    A partition that is gone counts as without brokers.
    """
    moving: dict[TopicPartition, Moving] = await client.ask(list_reassignments())
    known: Moves = {}
    for topic in sorted({place.topic for place in plan}):
        try:
            known |= await current_moves(client, [topic])
        except UnknownPlace:
            continue
    return [
        MoveState(place, tuple(nodes), known.get(place, ()), moving.get(place))
        for place, nodes in sorted(plan.items())
    ]


async def check_directories(client: Client, wanted: Directories) -> None:
    """Raise `OperatingError` for a directory that its broker does not have."""
    await client.know_brokers()
    for node, named in sorted(wanted.items()):
        directories: list[LogDir] = await client.ask(describe_log_dirs(NodeId(node), []))
        there = [each.path for each in directories]
        wrong = [path for path in named.values() if path not in there]
        if wrong:
            raise OperatingError(
                f"broker {node} has no directory {wrong[0]}",
                on=f"it has {', '.join(there)}",
                do='name one of these in log_dirs, or write "any"',
            )


async def alter_directories(client: Client, wanted: Directories) -> list[PartitionResult]:
    """Move replicas into these directories of their brokers; returns the refusals.

    The command does this before moves between brokers: a replica that does not exist yet then
    begins in the right directory.
    """
    refused: list[PartitionResult] = []
    for node, named in sorted(wanted.items()):
        places = sorted(named)
        for first in range(0, len(places), _PER_REQUEST):
            part = {place: named[place] for place in places[first : first + _PER_REQUEST]}
            results: list[PartitionResult] = await client.ask(
                alter_replica_log_dirs(NodeId(node), part)
            )
            refused += [each for each in results if each.error_code not in _ACCEPTED]
    return sorted(refused)


async def alter(
    client: Client,
    moves: Mapping[TopicPartition, Sequence[int] | None],
    *,
    factor_may_change: bool = True,
) -> list[PartitionResult]:
    """Begin moves, or (None) take them back; returns each result."""
    places = sorted(moves)
    results: list[PartitionResult] = []
    for first in range(0, len(places), _PER_REQUEST):
        part = {place: moves[place] for place in places[first : first + _PER_REQUEST]}
        results += await client.ask(alter_reassignments(part, factor_may_change=factor_may_change))
    return sorted(results)


async def with_progress(client: Client, found: Sequence[MoveState]) -> list[MoveState]:
    """The same states, with the bytes of each moving partition that its new brokers hold."""
    moving = [each for each in found if each.moving is not None]
    if not moving:
        return list(found)
    answer: MetadataResponse = await client.ask(
        metadata(sorted({each.place.topic for each in moving}))
    )
    leaders = {
        TopicPartition(topic.name or "", each.partition_index): each.leader_id
        for topic in answer.topics
        for each in topic.partitions
    }
    asked: dict[int, list[TopicPartition]] = {}
    for each in moving:
        assert each.moving is not None, each
        for node in (*each.moving.adding, leaders.get(each.place, -1)):
            if node >= 0:
                asked.setdefault(node, []).append(each.place)
    sizes = await _sizes(client, asked)
    return [
        each if each.moving is None else each._replace(copying=_copying(each, leaders, sizes))
        for each in found
    ]


_Sizes = dict[tuple[int, TopicPartition], int]


def _copying(
    each: MoveState, leaders: Mapping[TopicPartition, int], sizes: _Sizes
) -> tuple[Copying, ...]:
    assert each.moving is not None, each
    whole = sizes.get((leaders.get(each.place, -1), each.place))
    return tuple(Copying(node, sizes.get((node, each.place)), whole) for node in each.moving.adding)


async def _sizes(client: Client, asked: Mapping[int, Sequence[TopicPartition]]) -> _Sizes:
    """The sizes in bytes of these replicas; brokers that do not answer are left out."""
    await client.know_brokers()
    found: _Sizes = {}

    async def ask(node: int, places: Sequence[TopicPartition]) -> None:
        try:
            directories: list[LogDir] = await client.ask(describe_log_dirs(NodeId(node), places))
        except RaftlogError:
            return  # the broker is away, so its progress is not known now
        for directory in directories:
            for each in directory.replicas:
                found[node, each.place] = each.size_bytes

    async with gather() as nursery:
        for node, places in asked.items():
            nursery.start_soon(ask, node, list(dict.fromkeys(places)))
    return found
