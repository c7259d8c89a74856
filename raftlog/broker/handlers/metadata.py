"""Metadata: brokers, topics, leaders; creates topics on first use where that is allowed.

A topic that had to be created is answered when it exists and is led. After a bounded moment it is
answered LEADER_NOT_AVAILABLE, after which clients ask again.
"""

from functools import partial
from typing import Final, final

import attrs

from raftlog.base.ids import TopicId
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.control.topic_ids import new_topic_id
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.all_topics import Question, kept_answer
from raftlog.broker.handlers.cluster_view import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    cluster_text,
    controller_id,
    live_brokers,
)
from raftlog.broker.handlers.leaders_shown import LeadersShown
from raftlog.kafka.codec import EncodedAnswer, encode_answer
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raftlog.kafka.shape import ZERO_ID
from raftlog.metadata.requests import NewTopicRequest
from raftlog.metadata.rules.topic_names import RESERVED_TOPICS, topic_name_problem
from raftlog.metadata.topic_image import PartitionImage, TopicImage

_NO_LEADER: Final = -1


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer at once, unless topics have to be created first."""
    body: MetadataRequest = request.body
    if _asks_for_everything(request):
        request.answer_encoded(_everything(context, request))
        return
    missing = _to_create(context, body)
    if missing:
        _AutoCreation(context, request, missing).begin()
    else:
        request.answer(_answer(context, request, {}))


def _asks_for_everything(request: KafkaRequest) -> bool:
    topics = request.body.topics
    return topics is None or (request.version == 0 and not topics)


def _to_create(context: Context, body: MetadataRequest) -> list[str]:
    """Names of topics that do not exist and may be created, each once."""
    if not (body.allow_auto_topic_creation and context.config.auto_create and body.topics):
        return []
    names = [topic.name for topic in body.topics if topic.topic_id == ZERO_ID and topic.name]
    return [
        name
        for name in dict.fromkeys(names)
        if context.image.topic(name) is None
        and name not in RESERVED_TOPICS
        and topic_name_problem(name) is None
    ]


@final
@attrs.define(eq=False)
class _AutoCreation:
    """One request that creates topics."""

    context: Context
    request: KafkaRequest
    names: list[str]
    deadline: Instant = Instant(0)
    refused: dict[str, CallOutcome] = attrs.Factory(dict)

    def begin(self) -> None:
        """Ask the controller to create all of them with the broker's defaults."""
        config = self.context.config
        self.deadline = Instant(self.context.now + config.create_wait_ns)
        calls = ControllerCalls(self.context.controller, self.deadline, self.created)
        for name in self.names:
            calls.add(
                NewTopicRequest(
                    topic_id=new_topic_id(self.context.entropy),
                    name=name,
                    internal=False,
                    count=config.partitions_default,
                    factor=config.replication_default,
                    nodes=(),
                    configs=(),
                    validate_only=False,
                )
            )
        calls.begin()

    def created(self, outcomes: list[CallOutcome]) -> None:
        """Take the controller's decisions; a topic that another client created first is as good."""
        self.refused = {
            name: outcome
            for name, outcome in zip(self.names, outcomes, strict=True)
            if outcome.error not in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
        if self.request.dead:
            return
        if self._there():
            self._wait_for_leaders()
            return
        waiter = self.context.image_waiters.wait(self._there, self.deadline, self._wait_for_leaders)
        self.request.on_close(waiter.leave)

    def _there(self) -> bool:
        """Whether this broker's image knows all topics that were not refused."""
        names = self.context.image.names
        return all(name in names for name in self.names if name not in self.refused)

    def _wait_for_leaders(self) -> None:
        names = self.context.image.names
        made = [names[name] for name in self.names if name in names and name not in self.refused]
        LeadersShown(self.context, self.request, made, self.deadline, self.answer).begin()

    def answer(self) -> None:
        """Answer with topics that exist now, and LEADER_NOT_AVAILABLE for the others."""
        codes = {name: _creation_code(outcome.error) for name, outcome in self.refused.items()}
        for name in self.names:
            if self.context.image.topic(name) is None:
                codes.setdefault(name, ErrorCode.LEADER_NOT_AVAILABLE)
        self.request.answer(_answer(self.context, self.request, codes))


def _creation_code(error: int) -> int:
    """The error code of a topic: a controller out of reach is only a passing condition."""
    if error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error


# --- the answer -----------------------------------------------------------------------------------


def _answer(context: Context, request: KafkaRequest, codes: dict[str, int]) -> MetadataResponse:
    body: MetadataRequest = request.body
    operations = _topic_operations(body)
    topics = [_asked_topic(context, topic, codes, operations) for topic in body.topics or ()]
    return _response(context, request, topics)


def _everything(context: Context, request: KafkaRequest) -> EncodedAnswer:
    body: MetadataRequest = request.body
    question = Question(
        request.version,
        request.connection.listener,
        body.include_topic_authorized_operations,
        body.include_cluster_authorized_operations,
    )
    return kept_answer(context, question, partial(_encode_everything, context, request))


def _encode_everything(context: Context, request: KafkaRequest) -> EncodedAnswer:
    image, operations = context.image, _topic_operations(request.body)
    names = sorted(image.names)
    topics = [_topic(context, image.topics[image.names[name]], operations) for name in names]
    body = _response(context, request, topics)
    return encode_answer(request.api_key, request.version, body)


def _topic_operations(body: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if body.include_topic_authorized_operations else NOT_ASKED


def _response(
    context: Context, request: KafkaRequest, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    body: MetadataRequest = request.body
    cluster_operations = body.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                broker.node, broker.endpoint.host, broker.endpoint.port, broker.endpoint.rack
            )
            for broker in live_brokers(context, request.connection.listener)
        ],
        cluster_id=cluster_text(context.cluster),
        controller_id=controller_id(context),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if cluster_operations else NOT_ASKED,
    )


def _asked_topic(
    context: Context, asked: MetadataRequestTopic, codes: dict[str, int], operations: int
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_ID:
        topic = context.image.topics.get(TopicId(bytes(asked.topic_id)))
        if topic is not None:
            return _topic(context, topic, operations)
        return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_ID, asked.name, asked.topic_id)
    name = asked.name or ""
    topic = context.image.topic(name)
    if topic is not None:
        return _topic(context, topic, operations)
    code = codes.get(name)
    if code is None:
        wrong = topic_name_problem(name) is not None
        code = ErrorCode.INVALID_TOPIC_EXCEPTION if wrong else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(code, name)


def _topic(context: Context, topic: TopicImage, operations: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        0,
        topic.name,
        topic.topic_id,
        topic.internal,
        [partition_view(context, number, each) for number, each in enumerate(topic.partitions)],
        operations,
    )


def partition_view(
    context: Context, number: int, partition: PartitionImage
) -> MetadataResponsePartition:
    """A partition's row. Leader and epoch come as one pair; a leader that is not alive is none."""
    router = context.router
    leader = router.newest(partition)
    led = leader is not None and router.is_alive(leader.node)
    replicas = [replica.node for replica in partition.target]
    return MetadataResponsePartition(
        ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        number,
        leader.node if leader is not None and led else _NO_LEADER,
        leader.epoch if leader is not None else partition.leader_epoch,
        replicas,
        [each.node for each in partition.reported.in_sync if router.is_alive(each.node)],
        [node for node in replicas if not router.is_alive(node)],
    )
