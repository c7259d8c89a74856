"""CreateTopics: topics are made through the controller.

The answer leaves when this broker's image shows the topics and, within the client's time, all
brokers name the leaders of their partitions.
"""

from collections import Counter
from operator import attrgetter
from typing import Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.ids import NodeId, TopicId
from raftlog.base.limits import PARTITIONS_PER_TOPIC_MAX, REPLICATION_FACTOR_MAX
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.control.topic_ids import new_topic_id
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import deadline_of
from raftlog.broker.handlers.each_named import first_of_each
from raftlog.broker.handlers.leaders_shown import LeadersShown
from raftlog.broker.topic_settings import effective_settings, topic_values
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raftlog.kafka.shape import ZERO_ID
from raftlog.metadata.requests import NewTopicRequest
from raftlog.metadata.rules.topic_names import RESERVED_TOPICS, topic_name_problem
from raftlog.metadata.settings.topic_configs import config_warnings, configs_problem
from raftlog.metadata.settings.topic_defaults import MADE_NOW
from raftlog.metadata.topic_image import TopicImage

BROKER_DEFAULT: Final = -1


@final
class Problem(Exception):
    """One topic of a request cannot be created: Kafka's code and a sentence."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(error, message)
        self.error = error
        self.message = message


@final
@attrs.define(eq=False)
class _Creation:
    """One request on its way."""

    context: Context
    request: KafkaRequest
    deadline: Instant
    topics: list[CreatableTopic] = attrs.Factory(list)
    """The topics to create. Each name stands once, though the request may name it more often."""
    outcomes: list[CallOutcome] = attrs.Factory(list)
    ids: list[TopicId] = attrs.Factory(list)

    def begin(self) -> None:
        """Judge each topic, and ask the controller for the valid ones."""
        body: CreateTopicsRequest = self.request.body
        names = Counter(topic.name for topic in body.topics)
        self.topics = first_of_each(body.topics, attrgetter("name"))
        calls = ControllerCalls(self.context.controller, self.deadline, self.created)
        for topic in self.topics:
            topic_id = new_topic_id(self.context.entropy)
            self.ids.append(topic_id)
            try:
                if names[topic.name] > 1:
                    raise Problem(ErrorCode.INVALID_REQUEST, "the request names this topic twice")
                calls.add(new_topic_of(self.context, topic, topic_id, body.validate_only))
            except Problem as problem:
                calls.known(problem.error, problem.message)
        calls.begin()

    def created(self, outcomes: list[CallOutcome]) -> None:
        """Take the controller's decisions; leaders may still be missing.

        A creation without an answer in time may be done. The topic ids are ours, so a topic of that
        id is the one.
        """
        topics = self.context.image.topics
        self.outcomes = outcomes = [
            CallOutcome(0, "") if _made_late(outcome, topic_id in topics) else outcome
            for outcome, topic_id in zip(outcomes, self.ids, strict=True)
        ]
        if self.request.dead:
            return
        made = [
            topic_id
            for topic_id, outcome in zip(self.ids, outcomes, strict=True)
            if outcome.error == 0 and not self.request.body.validate_only
        ]
        LeadersShown(self.context, self.request, made, self.deadline, self.answer).begin()

    def answer(self) -> None:
        """Answer with the result for each topic."""
        results = [
            self._result(topic, topic_id, outcome)
            for topic, topic_id, outcome in zip(self.topics, self.ids, self.outcomes, strict=True)
        ]
        self.request.answer(CreateTopicsResponse(topics=results))

    def _result(
        self, topic: CreatableTopic, topic_id: TopicId, outcome: CallOutcome
    ) -> CreatableTopicResult:
        if outcome.error != 0:
            return CreatableTopicResult(topic.name, ZERO_ID, outcome.error, outcome.message)
        made = self.context.image.topics.get(topic_id)
        overrides = [(config.name, config.value or "") for config in topic.configs]
        overrides.append(MADE_NOW)
        count, factor = _shape(self.context, topic, made)
        values = topic_values(overrides, self.context.defaults)
        warnings = [*_even_factor_warnings(factor), *config_warnings(values, dict(overrides))]
        return CreatableTopicResult(
            topic.name,
            topic_id if made is not None else ZERO_ID,
            0,
            "; ".join(warnings) or None,
            num_partitions=count,
            replication_factor=factor,
            configs=[
                CreatableTopicConfigs(each.setting.name, each.value, False, each.source)
                for each in effective_settings(overrides, self.context.defaults)
            ],
        )


def _made_late(outcome: CallOutcome, there: bool) -> bool:
    """Whether a request of unknown outcome was done, as the image shows."""
    return there and outcome.error == ErrorCode.REQUEST_TIMED_OUT


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    _Creation(context, request, deadline_of(context, request.body.timeout_ms)).begin()


def new_topic_of(
    context: Context, topic: CreatableTopic, topic_id: TopicId, validate_only: bool
) -> NewTopicRequest:
    """The controller request for a topic; raises Problem when the client's request is wrong."""
    if topic.name in RESERVED_TOPICS:
        what = f"{topic.name} belongs to the cluster, which creates it itself"
        raise Problem(ErrorCode.TOPIC_AUTHORIZATION_FAILED, what)
    name_problem = topic_name_problem(topic.name)
    if name_problem is not None:
        raise Problem(ErrorCode.INVALID_TOPIC_EXCEPTION, name_problem)
    nodes = _assigned_nodes(topic)
    return NewTopicRequest(
        topic_id=topic_id,
        name=topic.name,
        internal=False,
        count=0 if nodes else _count(context, topic),
        factor=0 if nodes else _factor(context, topic),
        nodes=nodes,
        configs=_configs(topic),
        validate_only=validate_only,
    )


def _assigned_nodes(topic: CreatableTopic) -> tuple[tuple[NodeId, ...], ...]:
    if not topic.assignments:
        return ()
    if topic.num_partitions != BROKER_DEFAULT or topic.replication_factor != BROKER_DEFAULT:
        what = "with an assignment, partitions and replication factor must be -1"
        raise Problem(ErrorCode.INVALID_REQUEST, what)
    by_partition = {each.partition_index: each.broker_ids for each in topic.assignments}
    if sorted(by_partition) != list(range(len(topic.assignments))):
        what = "an assignment must name every partition from 0 on, each once"
        raise Problem(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
    if len(by_partition) > PARTITIONS_PER_TOPIC_MAX:
        what = (
            f"{amount(len(by_partition), 'partition')}, at most {PARTITIONS_PER_TOPIC_MAX} "
            "are allowed"
        )
        raise Problem(ErrorCode.INVALID_PARTITIONS, what)
    found = []
    for number in range(len(by_partition)):
        brokers = by_partition[number]
        if len(brokers) > REPLICATION_FACTOR_MAX:
            what = (
                f"{amount(len(brokers), 'replica')}, at most {REPLICATION_FACTOR_MAX} are allowed"
            )
            raise Problem(ErrorCode.INVALID_REPLICATION_FACTOR, what)
        if not brokers or len(dict.fromkeys(brokers)) != len(brokers) or min(brokers) < 0:
            what = f"the brokers of partition {number} must be some, and different"
            raise Problem(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
        found.append(tuple(NodeId(broker) for broker in brokers))
    if len(dict.fromkeys(map(len, found))) > 1:
        what = "all partitions must have the same number of replicas"
        raise Problem(ErrorCode.INVALID_REPLICA_ASSIGNMENT, what)
    return tuple(found)


def _count(context: Context, topic: CreatableTopic) -> int:
    if topic.num_partitions == BROKER_DEFAULT:
        return context.config.partitions_default
    if topic.num_partitions < 1:
        what = f"{amount(topic.num_partitions, 'partition')}; at least 1 is needed"
        raise Problem(ErrorCode.INVALID_PARTITIONS, what)
    return topic.num_partitions


def _factor(context: Context, topic: CreatableTopic) -> int:
    if topic.replication_factor == BROKER_DEFAULT:
        return context.config.replication_default
    if topic.replication_factor < 1:
        what = f"replication factor {topic.replication_factor}; at least 1 is needed"
        raise Problem(ErrorCode.INVALID_REPLICATION_FACTOR, what)
    return topic.replication_factor


def _configs(topic: CreatableTopic) -> tuple[tuple[str, str], ...]:
    pairs = []
    for config in topic.configs:
        if config.value is None:
            raise Problem(ErrorCode.INVALID_CONFIG, f"{config.name} has no value")
        pairs.append((config.name, config.value))
    problem = configs_problem(pairs)
    if problem is not None:
        raise Problem(ErrorCode.INVALID_CONFIG, problem)
    return tuple(sorted(pairs))


def _shape(context: Context, topic: CreatableTopic, made: TopicImage | None) -> tuple[int, int]:
    """The partitions and the factor: as made, or as they would be made (validate_only)."""
    if made is not None:
        return len(made.partitions), len(made.partitions[0].target)
    nodes = _assigned_nodes(topic)
    if nodes:
        return len(nodes), len(nodes[0])
    return _count(context, topic), _factor(context, topic)


def _even_factor_warnings(factor: int) -> list[str]:
    if factor % 2:
        return []
    return [f"replication factor {factor} survives no more failures than {factor - 1}"]
