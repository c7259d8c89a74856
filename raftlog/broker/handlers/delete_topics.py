"""DeleteTopics: topics are deleted by name, or from version 6 by name or id.

The answer leaves when this broker's image is rid of them. A topic is called unknown only when the
image is known to be up to date.
"""

from collections import Counter
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.ids import TopicId
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import BEHIND, Attempt, deadline_of, gone_by_name, is_gone
from raftlog.broker.handlers.each_named import first_of_each
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from raftlog.kafka.shape import ZERO_ID
from raftlog.metadata.commands import DeleteTopic
from raftlog.metadata.requests import SubmitCommand

_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class _Named(NamedTuple):
    """One topic that the request named, as far as this broker's image knows it."""

    name: str | None
    topic_id: bytes
    error: ErrorCode
    message: str
    by_name: bool


@final
@attrs.define(eq=False)
class _Deletion:
    """One request on its way."""

    attempt: Attempt
    named: list[_Named]

    def answer(self, outcomes: list[CallOutcome]) -> None:
        """Answer with each topic's result; names whose topic is gone are looked up once more."""
        attempt, request = self.attempt, self.attempt.request
        if request.dead:
            return
        if not attempt.before and any(map(_is_gone, self.named, outcomes)):
            attempt.once_current(_perform, outcomes)
            return
        results = [
            DeletableTopicResult(
                named.name,
                named.topic_id,
                gone_by_name(outcome.error) if named.by_name else outcome.error,
                outcome.message or None,
            )
            for named, outcome in zip(self.named, outcomes, strict=True)
        ]
        request.answer(DeleteTopicsResponse(responses=results))


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    if not context.config.delete_topics:
        request.answer(_disabled(request))
        return
    attempt = Attempt(context, request, deadline_of(context, request.body.timeout_ms))
    if any(topic.error in _UNKNOWN for topic in _all_named(context, request)):
        attempt.once_current(_perform)
    else:
        _perform(attempt)


def _disabled(request: KafkaRequest) -> DeleteTopicsResponse:
    """The refusal of every topic, whether it exists or not, as in Kafka.

    Before version 3 clients do not know the error code.
    """
    body: DeleteTopicsRequest = request.body
    code = ErrorCode.TOPIC_DELETION_DISABLED if request.version >= 3 else ErrorCode.INVALID_REQUEST
    asked = list(body.topics) or [DeleteTopicState(name) for name in body.topic_names]
    why = "delete.topic.enable=false on this broker"
    results = [DeletableTopicResult(each.name, each.topic_id, code, why) for each in asked]
    return DeleteTopicsResponse(responses=results)


def _all_named(context: Context, request: KafkaRequest) -> list[_Named]:
    """Each name and each id once; those that the request gives twice are refused."""
    body: DeleteTopicsRequest = request.body
    asked = list(body.topics) or [DeleteTopicState(name) for name in body.topic_names]
    times = Counter(map(_key, asked))
    return [
        _twice(topic) if times[_key(topic)] > 1 else _look_up(context, topic)
        for topic in first_of_each(asked, _key)
    ]


def _key(asked: DeleteTopicState) -> tuple[str | None, bytes]:
    return asked.name, asked.topic_id


def _twice(asked: DeleteTopicState) -> _Named:
    what = "the request names this topic twice"
    return _Named(asked.name, asked.topic_id, ErrorCode.INVALID_REQUEST, what, False)


def _is_gone(named: _Named, outcome: CallOutcome) -> bool:
    return named.by_name and is_gone(outcome)


def _perform(attempt: Attempt) -> None:
    before = attempt.before
    named = _all_named(attempt.context, attempt.request)
    deletion = _Deletion(attempt, named)
    calls = ControllerCalls(attempt.context.controller, attempt.deadline, deletion.answer)
    for place, topic in enumerate(named):
        if before and not _is_gone(topic, before[place]):
            calls.keep(before[place])
        elif not attempt.current and (before or topic.error in _UNKNOWN):
            calls.known(ErrorCode.REQUEST_TIMED_OUT, BEHIND)
        elif topic.error is ErrorCode.NONE:
            calls.add(SubmitCommand(command=DeleteTopic(topic_id=TopicId(topic.topic_id))))
        else:
            calls.known(topic.error, topic.message)
    calls.begin()


def _look_up(context: Context, asked: DeleteTopicState) -> _Named:
    by_id = asked.topic_id != ZERO_ID
    if by_id and asked.name is not None:
        what = "name and id are both given"
        return _Named(asked.name, asked.topic_id, ErrorCode.INVALID_REQUEST, what, False)
    topic = context.router.topic(asked.topic_id if by_id else asked.name or "")
    if topic is not None and topic.internal:
        what = f"{topic.name} belongs to the cluster"
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        return _Named(topic.name, topic.topic_id, code, what, not by_id)
    if topic is not None:
        return _Named(topic.name, topic.topic_id, ErrorCode.NONE, "", not by_id)
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Named(asked.name, asked.topic_id, code, code.message, not by_id)
