"""OffsetFetch: how far groups have read.

An answer rests on a read index: a broker that was replaced as coordinator and does not know it yet
would tell older offsets than its successor has committed.

A refusal names every requested partition, each with the error. A client of librdkafka that gets an
error of the whole request, and no partitions, never begins to fetch them (its issue 5586). For the
same reason this request waits longer than others for a coordinator that loads.
"""

from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.ids import TopicId
from raftlog.base.limits import OFFSETS_FETCHED_MAX
from raftlog.base.probes import probe
from raftlog.base.units import millis
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import Gathered, Room, reply
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

LOAD_WAIT_NS: Final = millis(5_000)
_BATCHED_FROM: Final = 8
TOPIC_IDS_FROM: Final = 10
_NONE: Final = -1


def handle(context: Context, request: KafkaRequest) -> None:
    """Ask the coordinator of each group; from version 8 on there may be several."""
    body: OffsetFetchRequest = request.body
    groups = body.groups if request.version >= _BATCHED_FROM else [_as_group(body)]
    gathered = Gathered(request, partial(_answer, request))
    room = Room(OFFSETS_FETCHED_MAX)
    for group in groups:
        fetch = _GroupFetch(context, request, group, room, gathered.place())
        context.groups.ask(group.group_id, request, fetch.begin, fetch.refuse, LOAD_WAIT_NS)
    gathered.all_asked()


def _as_group(body: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The request of an older version in the form of the newer ones."""
    topics = None
    if body.topics is not None:
        topics = [
            OffsetFetchRequestTopics(topic.name, partition_indexes=topic.partition_indexes)
            for topic in body.topics
        ]
    return OffsetFetchRequestGroup(body.group_id, topics=topics)


@final
@attrs.define(eq=False)
class _GroupFetch:
    """The offsets of one group; `fill` takes the answer."""

    context: Context
    request: KafkaRequest
    group: OffsetFetchRequestGroup
    room: Room
    fill: Any

    @property
    def by_id(self) -> bool:
        """Whether topics are named by their ids."""
        return bool(self.request.version >= TOPIC_IDS_FROM)

    def begin(self, coordinator: Coordinator) -> None:
        """Confirm that this broker still coordinates the group, then look."""
        then = partial(self._confirmed, coordinator)
        self.context.groups.confirmed(coordinator, then)

    def _confirmed(self, coordinator: Coordinator, error: ErrorCode) -> None:
        if self.request.dead:
            return
        if error:
            self.refuse(error)
            return
        if self.room.is_full:
            # A request of a few bytes asks for all offsets of a group, and may name it again and
            # again.
            probe("fetched-offsets-over-limit")
            self.refuse(ErrorCode.NOT_COORDINATOR)
            return
        group, unknown = self.group, []
        if group.topics is not None:
            known = []
            for topic in group.topics:
                named = self._named(topic)
                if named is None:
                    unknown.append(_refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    known.append(named)
            group = group._replace(topics=known)
        answer = coordinator.fetch_offsets(
            group, self._topic_id, require_stable=self.request.body.require_stable
        )
        self.room.take(sum(len(topic.partitions) for topic in answer.topics))
        topics = [found for topic in answer.topics if (found := self._with_id(topic)) is not None]
        self.fill(answer._replace(topics=[*topics, *unknown]))

    def refuse(self, code: ErrorCode) -> None:
        """Answer with the group's error, and the same for each requested partition."""
        topics = [_refused_topic(topic, code) for topic in self.group.topics or ()]
        self.fill(OffsetFetchResponseGroup(self.group.group_id, topics, code))

    def _named(self, asked: OffsetFetchRequestTopics) -> OffsetFetchRequestTopics | None:
        """The topic by its name; None when no topic has that id."""
        if not self.by_id:
            return asked
        topic = self.context.router.topic(asked.topic_id)
        return None if topic is None else asked._replace(name=topic.name)

    def _with_id(self, found: OffsetFetchResponseTopics) -> OffsetFetchResponseTopics | None:
        """The topic with its id, if the client uses ids; None when it has none any more."""
        if not self.by_id:
            return found
        topic_id = self._topic_id(found.name)
        return None if topic_id is None else found._replace(topic_id=topic_id)

    def _topic_id(self, name: str) -> TopicId | None:
        topic = self.context.router.topic(name)
        return None if topic is None else topic.topic_id


def _refused_topic(asked: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(number, _NONE, error_code=code)
        for number in asked.partition_indexes
    ]
    return OffsetFetchResponseTopics(asked.name, asked.topic_id, partitions)


def _answer(request: KafkaRequest, groups: list[OffsetFetchResponseGroup]) -> None:
    if request.version >= _BATCHED_FROM:
        reply(request, OffsetFetchResponse(groups=groups))
        return
    one = groups[0]
    topics = [
        OffsetFetchResponseTopic(
            topic.name, [OffsetFetchResponsePartition(*each) for each in topic.partitions]
        )
        for topic in one.topics
    ]
    reply(request, OffsetFetchResponse(topics=topics, error_code=one.error_code))
