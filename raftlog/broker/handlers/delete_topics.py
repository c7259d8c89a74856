"""DeleteTopics: by name, or from version 6 by name or id; answered when this broker's image is
rid of them."""

from typing import NamedTuple, final

import attrs

from raftlog.base.ids import TopicId
from raftlog.base.probes import probe
from raftlog.broker.context import Context
from raftlog.broker.handlers.controller_calls import ControllerCalls, Outcome, deadline_of
from raftlog.broker.requests import KafkaRequest
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


class _Named(NamedTuple):
    """What the request named, as far as this broker's image knows it."""

    name: str | None
    topic_id: bytes
    error: ErrorCode
    message: str
    by_name: bool


@final
@attrs.define(eq=False)
class _Deletion:
    """One request under way."""

    request: KafkaRequest
    named: list[_Named]

    def answer(self, outcomes: list[Outcome]) -> None:
        """What became of each topic."""
        if self.request.dead:
            return
        results = [
            DeletableTopicResult(
                named.name,
                named.topic_id,
                *_told(outcome, by_name=named.by_name),
            )
            for named, outcome in zip(self.named, outcomes, strict=True)
        ]
        self.request.answer(DeleteTopicsResponse(responses=results))


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: DeleteTopicsRequest = request.body
    asked = list(body.topics) or [DeleteTopicState(name) for name in body.topic_names]
    named = [_look_up(context, topic) for topic in asked]
    deletion = _Deletion(request, named)
    calls = ControllerCalls(context, deadline_of(context, body.timeout_ms), deletion.answer)
    for topic in named:
        if topic.error is ErrorCode.NONE:
            calls.wish(SubmitCommand(command=DeleteTopic(topic_id=TopicId(topic.topic_id))))
        else:
            calls.known(topic.error, topic.message)
    calls.begin()


def _look_up(context: Context, asked: DeleteTopicState) -> _Named:
    by_id = asked.topic_id != ZERO_ID
    if by_id and asked.name is not None:
        what = "name and id are both given"
        return _Named(asked.name, asked.topic_id, ErrorCode.INVALID_REQUEST, what, False)
    topic = context.router.topic(asked.topic_id if by_id else asked.name or "")
    if topic is not None:
        return _Named(topic.name, topic.topic_id, ErrorCode.NONE, "", not by_id)
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _Named(asked.name, asked.topic_id, code, code.message, not by_id)


def _told(outcome: Outcome, *, by_name: bool) -> tuple[int, str | None]:
    """Error and message. The topic was there when this began; if the controller had to be asked
    again and it is gone by now, then what was asked for has happened."""
    if outcome.repeated and outcome.error == ErrorCode.UNKNOWN_TOPIC_ID:
        probe("topic-gone-at-the-second-try")
        return ErrorCode.NONE, None
    error = gone_by_name(outcome.error) if by_name else outcome.error
    return error, outcome.message or None


def gone_by_name(error: int) -> int:
    """Who asked by name hears of a name: the topic may go between our look at the image and the
    controller's at the id that we found there."""
    if error == ErrorCode.UNKNOWN_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error
