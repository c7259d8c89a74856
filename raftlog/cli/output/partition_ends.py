"""Asks leaders for the starts and ends of described partitions, for a short time.

One ListOffsets for the starts and one for the ends go to each leader. A partition whose leader is
not known, or does not answer, is asked again until `WAIT_SECONDS` are over; then its ends stay
unknown. So a partition without a leader costs a person that time, and never more.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import trio

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog.cli.output.topic_view import Ends, PartitionView, TopicDescription, describe_topics
from raftlog.client.core.asks import EARLIEST, LATEST, Ask
from raftlog.client.trio_driver import Client
from raftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from raftlog.kafka.versions import ApiKey

WAIT_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 0.2
_PER_REQUEST: Final = 1_000
"""The most partitions in one request; a broker takes 20,000 named things."""
_ANY_EPOCH: Final = -1


class _Place(NamedTuple):
    topic: str
    partition: int


_Found = dict[_Place, int]


async def with_ends(
    client: Client, described: Sequence[TopicDescription]
) -> list[TopicDescription]:
    """The same topics with the ends of their partitions, as far as leaders answered in time."""
    views = {_Place(each.topic, each.partition): each for each in _partitions(described)}
    with trio.move_on_after(WAIT_SECONDS):
        while True:
            missing = [each for each in views.values() if each.ends is None]
            async with trio.open_nursery() as nursery:
                for leader in sorted({each.leader for each in missing if each.leader is not None}):
                    led = [each for each in missing if each.leader == leader]
                    nursery.start_soon(_ask_leader, client, leader, led, views)
            missing = [each for each in views.values() if each.ends is None]
            if not missing:
                break
            await trio.sleep(_AGAIN_SECONDS)
            await _refresh(client, missing, views)
    return [
        topic._replace(
            partitions=tuple(views[_Place(each.topic, each.partition)] for each in topic.partitions)
        )
        for topic in described
    ]


def _partitions(described: Sequence[TopicDescription]) -> Iterator[PartitionView]:
    for topic in described:
        yield from topic.partitions


async def _refresh(
    client: Client, missing: Sequence[PartitionView], views: dict[_Place, PartitionView]
) -> None:
    """Learn the present leaders. A topic that was deleted meanwhile stays as it was described."""
    for topic in sorted({each.topic for each in missing}):
        try:
            fresh = await describe_topics(client, [topic], configs=False)
        except RaftlogError:
            continue
        for each in _partitions(fresh):
            place = _Place(each.topic, each.partition)
            old = views.get(place)
            if old is not None and old.ends is None:
                views[place] = each._replace(min_isr=old.min_isr)


async def _ask_leader(
    client: Client,
    leader: int,
    led: Sequence[PartitionView],
    views: dict[_Place, PartitionView],
) -> None:
    for first in range(0, len(led), _PER_REQUEST):
        asked = led[first : first + _PER_REQUEST]
        try:
            starts = await client.ask(_list_offsets(leader, asked, EARLIEST))
            ends = await client.ask(_list_offsets(leader, asked, LATEST))
        except RaftlogError:
            return  # this leader is gone or silent: its partitions are asked again, or stay unknown
        for place, end in ends.items():
            if place in starts and place in views:
                # The start may have risen between the two answers.
                views[place] = views[place]._replace(ends=Ends(starts[place], end))


def _list_offsets(leader: int, asked: Sequence[PartitionView], timestamp: int) -> Ask:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for each in asked:
        row = ListOffsetsPartition(each.partition, _ANY_EPOCH, timestamp)
        topics.setdefault(each.topic, []).append(row)
    wanted = tuple(ListOffsetsTopic(name, tuple(rows)) for name, rows in topics.items())
    wait = millis(int(WAIT_SECONDS * 1_000))
    body = ListOffsetsRequest(replica_id=-1, topics=wanted, timeout_ms=int(WAIT_SECONDS * 1_000))
    return Ask(ApiKey.LIST_OFFSETS, _read, body, node=NodeId(leader), timeout_ns=wait)


def _read(body: ListOffsetsResponse) -> _Found:
    """The offsets of those partitions that were answered without an error."""
    return {
        _Place(topic.name, each.partition_index): each.offset
        for topic in body.topics
        for each in topic.partitions
        if each.error_code == 0 and each.offset >= 0
    }
