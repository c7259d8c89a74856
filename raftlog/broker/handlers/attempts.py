"""Attempts of admin requests: each uses the newest image, and gives up at the deadline."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.units import Instant, millis
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode

BEHIND: Final = "this broker's image may be behind, and the controller did not say by how much"


@final
@attrs.frozen(eq=False)
class Attempt:
    """One attempt to do what an admin request asks for topics that it names.

    `current`: this broker's image is new enough to refuse a name. `before`: the outcomes of a first
    attempt. Names whose topic was gone then are looked up once more.
    """

    context: Context
    request: KafkaRequest
    deadline: Instant
    current: bool = True
    before: Sequence[CallOutcome] = ()

    def once_current(
        self, perform: Callable[["Attempt"], None], before: Sequence[CallOutcome] = ()
    ) -> None:
        """Make another attempt with `perform` once the image is up to date, or the time is up."""
        go_on = partial(self._go_on, perform, before)
        self.context.controller.when_current(self.deadline, go_on)

    def _go_on(
        self, perform: Callable[["Attempt"], None], before: Sequence[CallOutcome], current: bool
    ) -> None:
        if not self.request.dead:
            perform(attrs.evolve(self, current=current, before=before))


def is_gone(outcome: CallOutcome) -> bool:
    """Whether the controller does not know the id that this broker's image had for a name.

    The topic may have been deleted and created again meanwhile.
    """
    return outcome.error == ErrorCode.UNKNOWN_TOPIC_ID


def gone_by_name(error: int) -> int:
    """The error for a client that asked by name: it gets that the name is unknown, not the id.

    The topic may be deleted after this broker looked up its id and before the controller does.
    """
    if error == ErrorCode.UNKNOWN_TOPIC_ID:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error


def deadline_of(context: Context, timeout_ms: int) -> Instant:
    """The instant at which an admin request gives up: the client's time, within our bound."""
    wait = min(max(timeout_ms, 0), context.config.request_ns // millis(1))
    return Instant(context.now + millis(wait))
