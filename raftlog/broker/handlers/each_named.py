"""Admin requests that ask one thing for each of several resources.

Each of these is a request to the controller.

A resource that this broker's image does not know, or would refuse, is refused only when the image
is known to be up to date. An image that is behind may lack a topic that a client has been told of.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, final

import attrs

from raftlog.base.ids import TopicId
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import BEHIND, Attempt, deadline_of, is_gone
from raftlog.broker.handlers.leaders_shown import LeadersShown
from raftlog.kafka.error_codes import ErrorCode

T = TypeVar("T")


def first_of_each(items: Sequence[T], key: Callable[[T], Hashable]) -> list[T]:
    """The items, without those whose key an earlier one has."""
    found: dict[Hashable, T] = {}
    for item in items:
        found.setdefault(key(item), item)
    return list(found.values())


@final
@attrs.frozen(eq=False, kw_only=True)
class EachNamed:
    """One kind of such requests; the items are the resources that a body names.

    * `asked`: the items of a body, in order; `key`: by which two of them are the same.
    * `once`: an item that is named twice has one outcome, and one entry in the answer.
    * `twice`: the outcome of an item that is named twice.
    * `fits`: whether this broker's image knows the item, and would not refuse it.
    * `ask`: adds one controller request, or one known outcome, for an item to the calls.
    * `timeout_ms`: how long the client waits, by its body.
    * `respond`: the response to a body, from the outcomes in the order of its items.
    * `made`: topics that have new partitions now, from the same; the answer waits for their
      leaders.
    """

    asked: Callable[[Any], Sequence[Any]]
    key: Callable[[Any], Hashable]
    twice: str
    fits: Callable[[Context, Any], bool]
    ask: Callable[[Context, ControllerCalls, Any, Any], None]
    respond: Callable[[Any, list[CallOutcome]], Any]
    once: bool = False
    made: Callable[[Context, Any, list[CallOutcome]], list[TopicId]] | None = None
    timeout_ms: Callable[[Any], int] = attrgetter("timeout_ms")

    def handle(self, context: Context, request: KafkaRequest) -> None:
        """Answer the request when all of its items have an outcome."""
        body = request.body
        attempt = Attempt(context, request, deadline_of(context, self.timeout_ms(body)))
        if all(self.fits(context, each) for each in self.asked(body)):
            self._perform(attempt)
        else:
            attempt.once_current(self._perform)

    def _perform(self, attempt: Attempt) -> None:
        context, before, body = attempt.context, attempt.before, attempt.request.body
        asked = self.asked(body)
        times = Counter(map(self.key, asked))
        if self.once:
            asked = first_of_each(asked, self.key)
        then = partial(self._answer, attempt)
        calls = ControllerCalls(context.controller, attempt.deadline, then)
        for place, each in enumerate(asked):
            if before and not is_gone(before[place]):
                calls.keep(before[place])
            elif times[self.key(each)] > 1:
                calls.known(ErrorCode.INVALID_REQUEST, self.twice)
            elif not attempt.current and (before or not self.fits(context, each)):
                calls.known(ErrorCode.REQUEST_TIMED_OUT, BEHIND)
            else:
                self.ask(context, calls, body, each)
        calls.begin()

    def _answer(self, attempt: Attempt, outcomes: list[CallOutcome]) -> None:
        """Answer, or look up names again whose topic is gone, once."""
        request = attempt.request
        if request.dead:
            return
        if not attempt.before and any(map(is_gone, outcomes)):
            attempt.once_current(self._perform, outcomes)
            return
        context, body = attempt.context, request.body
        made = [] if self.made is None else self.made(context, body, outcomes)
        respond = partial(self._respond, request, outcomes)
        LeadersShown(context, request, made, attempt.deadline, respond).begin()

    def _respond(self, request: KafkaRequest, outcomes: list[CallOutcome]) -> None:
        request.answer(self.respond(request.body, outcomes))
