"""OffsetDelete: a group forgets its offsets of some partitions."""

from typing import final

import attrs

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import hand_over, reply
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_delete import (
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Hand existing partitions of the request to the group's coordinator."""
    deletion = _Deletion(context, request)
    hand_over(context, request, deletion.begin)


@final
@attrs.define(eq=False)
class _Deletion:
    """One request on its way. `unknown` holds, by topic, the answers for missing partitions."""

    context: Context
    request: KafkaRequest
    unknown: dict[str, list[OffsetDeleteResponsePartition]] = attrs.Factory(dict)

    def begin(self, coordinator: Coordinator) -> None:
        """Divide the request, and ask for the part that may be deleted."""
        context, body = self.context, self.request.body
        topics = [found for topic in body.topics if (found := self._judge(topic)).partitions]
        request = body._replace(topics=topics)
        coordinator.delete_offsets(request, self._answer, context.now, context.wall)

    def _judge(self, asked: OffsetDeleteRequestTopic) -> OffsetDeleteRequestTopic:
        good = []
        for each in asked.partitions:
            known = self.context.router.partition(asked.name, each.partition_index)
            if isinstance(known, ErrorCode):
                refused = OffsetDeleteResponsePartition(each.partition_index, known)
                self.unknown.setdefault(asked.name, []).append(refused)
            else:
                good.append(each)
        return OffsetDeleteRequestTopic(asked.name, good)

    def _answer(self, answer: OffsetDeleteResponse) -> None:
        if answer.error_code:
            reply(self.request, answer)
            return
        topics = {topic.name: [*topic.partitions] for topic in answer.topics}
        for name, refused in self.unknown.items():
            topics.setdefault(name, []).extend(refused)
        found = [OffsetDeleteResponseTopic(*each) for each in topics.items()]
        reply(self.request, answer._replace(topics=found))
