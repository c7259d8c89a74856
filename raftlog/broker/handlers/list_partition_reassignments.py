"""ListPartitionReassignments: the partitions that are not yet on their wanted brokers.

The answer comes from an image that shows everything that any client was told before: a client that
has just asked one broker for a move sees it at every other one. Moves are between brokers, not
replicas: a replica that is rebuilt on its own broker is no move. Partitions that do not move or
exist are left out, as in Kafka.
"""

from collections.abc import Iterable
from functools import partial
from typing import final

import attrs

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import BEHIND, deadline_of
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from raftlog.metadata.image import EMPTY_IMAGE, ClusterImage
from raftlog.metadata.topic_image import PartitionImage

Moving = dict[str, dict[int, OngoingPartitionReassignment]]


@final
@attrs.define(eq=False)
class _Kept:
    """The moves of one image. They are kept, because finding them means to read all partitions."""

    image: ClusterImage = EMPTY_IMAGE
    moving: Moving = attrs.Factory(dict)


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: ListPartitionReassignmentsRequest = request.body
    deadline = deadline_of(context, body.timeout_ms)
    context.controller.when_current(deadline, partial(_tell, context, request))


def _tell(context: Context, request: KafkaRequest, current: bool) -> None:
    if request.dead:
        return
    body: ListPartitionReassignmentsRequest = request.body
    if not current:
        request.answer(error_body(body, ErrorCode.REQUEST_TIMED_OUT, BEHIND))
        return
    moving = _all_moving(context)
    if body.topics is None:
        topics = [_topic(name, found.values()) for name, found in moving.items()]
    else:
        topics = _asked_for(body, moving)
    request.answer(ListPartitionReassignmentsResponse(error_message=None, topics=topics))


def _asked_for(
    body: ListPartitionReassignmentsRequest, moving: Moving
) -> list[OngoingTopicReassignment]:
    """Each partition once, however often it was asked for."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in body.topics or ():
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    topics = []
    for name, numbers in wanted.items():
        known = moving.get(name, {})
        found = [known[number] for number in numbers if number in known]
        if found:
            topics.append(_topic(name, found))
    return topics


def _topic(name: str, found: Iterable[OngoingPartitionReassignment]) -> OngoingTopicReassignment:
    return OngoingTopicReassignment(name, list(found))


def _all_moving(context: Context) -> Moving:
    kept = context.kept(_Kept)
    image = context.image
    if kept.image is not image:
        kept.image, kept.moving = image, {}
        for name in sorted(image.names):
            partitions = image.topics[image.names[name]].partitions
            found = {
                number: told
                for number, partition in enumerate(partitions)
                if not partition.settled and (told := _ongoing(number, partition)) is not None
            }
            if found:
                kept.moving[name] = found
    return kept.moving


def _ongoing(number: int, partition: PartitionImage) -> OngoingPartitionReassignment | None:
    """All brokers concerned, the wanted ones first; None when only replicas change."""
    wanted = [replica.node for replica in partition.target]
    voters = [replica.node for replica in partition.reported.membership.voters]
    before = partition.nodes_before
    adding = [node for node in wanted if node not in before]
    removing = [node for node in dict.fromkeys((*before, *voters)) if node not in wanted]
    if not (adding or removing):
        return None
    return OngoingPartitionReassignment(number, [*wanted, *removing], adding, removing)
