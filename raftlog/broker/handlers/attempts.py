"""What admin requests share: tries that look at the newest image, and when they give up."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.units import Instant, millis
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import Outcome
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode

BEHIND: Final = "this broker's image may be behind, and the controller did not say by how much"


@final
@attrs.frozen(eq=False)
class Attempt:
    """One try at what an admin request asks of topics that it names. `current`: this broker's image
    may refuse them. `before` came of a first try: names whose topic was gone are looked up once
    more."""

    context: Context
    request: KafkaRequest
    deadline: Instant
    current: bool = True
    before: Sequence[Outcome] = ()

    def once_current(
        self, perform: Callable[["Attempt"], None], before: Sequence[Outcome] = ()
    ) -> None:
        """`perform` another attempt when the image is up to date, or cannot be had so."""
        go_on = partial(self._go_on, perform, before)
        self.context.controller.when_current(self.deadline, go_on)

    def _go_on(
        self, perform: Callable[["Attempt"], None], before: Sequence[Outcome], current: bool
    ) -> None:
        if not self.request.dead:
            perform(attrs.evolve(self, current=current, before=before))


def is_gone(outcome: Outcome) -> bool:
    """Whether the controller does not know the id that our image had for a name: the topic may have
    been made anew meanwhile."""
    return outcome.error == ErrorCode.UNKNOWN_TOPIC_ID


def gone_by_name(error: int) -> int:
    """Who asked by name hears of a name: the topic may go between our look at the image and the
    controller's at the id that we found there."""
    if error == ErrorCode.UNKNOWN_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error


def deadline_of(context: Context, timeout_ms: int) -> Instant:
    """When an admin request gives up: the client's time, within the broker's bound."""
    wait = min(max(timeout_ms, 0), context.config.request_ns // millis(1))
    return Instant(context.now + millis(wait))
