"""OffsetCommit: a group stores how far its members have read.

Topics that do not exist have no offsets: their partitions are refused here, one by one. The others
go to the group's coordinator with name and id of their topic, however the client named it. The
answer is put together in the order of the request.
"""

from functools import partial
from typing import Final, final

import attrs

from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.deadlines import Timer
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import client_of, refuse, reply
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_FROM: Final = 10
_Slots = list[OffsetCommitResponsePartition | None]


def handle(context: Context, request: KafkaRequest) -> None:
    """Hand existing partitions of the request to the group's coordinator."""
    body: OffsetCommitRequest = request.body
    commit = _Commit(context, request)
    context.groups.ask(body.group_id, request, commit.begin, partial(refuse, request))


@final
@attrs.define(eq=False)
class _Commit:
    """One request on its way.

    `slots` has a list for each topic: refusals so far, and None for what the coordinator decides.
    """

    context: Context
    request: KafkaRequest
    slots: list[_Slots] = attrs.Factory(list)

    def begin(self, coordinator: Coordinator) -> None:
        """Divide the request, and ask for the part that may be committed.

        When that takes too long the client is told to try again; the offsets may be committed all
        the same.
        """
        context, request = self.context, self.request
        until = Instant(context.now + context.config.offsets_topic.commit_ns)
        timer = context.at(until, self._timed_out)
        request.on_close(timer.cancel)
        body: OffsetCommitRequest = request.body
        topics = [found for topic in body.topics if (found := self._judge(topic)) is not None]
        coordinator.commit_offsets(
            body._replace(topics=topics),
            client_of(request),
            partial(self._answer, timer),
            context.now,
            context.wall,
        )

    def _judge(self, asked: OffsetCommitRequestTopic) -> OffsetCommitRequestTopic | None:
        by_id = self.request.version >= TOPIC_IDS_FROM
        key = asked.topic_id if by_id else asked.name
        topic = self.context.router.topic(key)
        slots: _Slots = []
        good: list[OffsetCommitRequestPartition] = []
        for each in asked.partitions:
            known = self.context.router.partition(key, each.partition_index)
            if isinstance(known, ErrorCode):
                slots.append(OffsetCommitResponsePartition(each.partition_index, known))
            else:
                slots.append(None)
                good.append(each)
        self.slots.append(slots)
        if topic is None or not good:
            return None
        return OffsetCommitRequestTopic(topic.name, topic.topic_id, good)

    def _answer(self, timer: Timer, answer: OffsetCommitResponse) -> None:
        timer.cancel()
        decided = [partition for topic in answer.topics for partition in topic.partitions]
        decided.reverse()
        topics = []
        for asked, slots in zip(self.request.body.topics, self.slots, strict=True):
            partitions = [slot or decided.pop() for slot in slots]
            topics.append(OffsetCommitResponseTopic(asked.name, asked.topic_id, partitions))
        assert not decided, (len(decided), self.request.version)
        reply(self.request, answer._replace(topics=topics))

    def _timed_out(self) -> None:
        if not self.request.dead:
            probe("offset-commit-timed-out")
            refuse(self.request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
