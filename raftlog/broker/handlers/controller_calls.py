"""Several wishes to the controller, one answer to the client.

Each wish is asked on its own; when all have an outcome, and this broker's own image shows what was
done, `then` is called once with the outcomes in the order of asking.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.base.probes import probe
from raftlog.base.units import Instant, millis
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata.requests import (
    CurrentVersion,
    OnceWish,
    Performable,
    decode_answer,
    encode_wish,
)

BEHIND: Final = "this broker's image may be behind, and the controller did not say by how much"


class Outcome(NamedTuple):
    """`error` 0: done; an image of `version` shows it. `value` is what the controller allocated."""

    error: int
    message: str
    version: int = 0
    value: int = 0


@final
@attrs.define(eq=False)
class ControllerCalls:
    """Add wishes or ready outcomes, then `begin`."""

    context: Context
    deadline: Instant
    then: Callable[[list[Outcome]], None]
    outcomes: list[Outcome | None] = attrs.Factory(list)
    _wishes: list[tuple[int, Performable]] = attrs.Factory(list)
    _open: int = 0

    def wish(self, wish: Performable) -> None:
        """The next outcome is the controller's, which performs this at most once."""
        self._wishes.append((len(self.outcomes), wish))
        self.outcomes.append(None)

    def known(self, error: int, message: str = "") -> None:
        """The next outcome is known without asking."""
        self.outcomes.append(Outcome(error, message))

    def keep(self, outcome: Outcome) -> None:
        """The next outcome is one of an earlier try."""
        self.outcomes.append(outcome)

    def begin(self) -> None:
        """Ask. `then` may be called before this returns, when there was nothing to ask."""
        self._open = len(self._wishes)
        for place, wish in self._wishes:
            once = self.context.once.begin(wish)
            self.context.ask_controller(
                ControllerKind.PROPOSE,
                encode_wish(once),
                self.deadline,
                partial(self._replied, place, once),
                partial(self._again, once),
            )
        if not self._wishes:
            self._finish()

    def _again(self, once: OnceWish) -> bytes:
        return encode_wish(self.context.once.again(once))

    def _replied(self, place: int, once: OnceWish, reply: ControllerReply) -> None:
        self.context.once.end(once)
        self.outcomes[place] = _outcome(reply)
        self._open -= 1
        if self._open == 0:
            self._see()

    def _see(self) -> None:
        """Wait until the own image shows what was done: the client will look for it here next."""
        if self._shown():
            self._finish()
        else:
            self.context.image_waiters.wait(self._shown, self.deadline, self._finish)

    def _shown(self) -> bool:
        version = self.context.image.version
        return all(outcome is None or outcome.version <= version for outcome in self.outcomes)

    def _finish(self) -> None:
        self.then([outcome for outcome in self.outcomes if outcome is not None])


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
        when_current(self.context, self.deadline, go_on)

    def _go_on(
        self, perform: Callable[["Attempt"], None], before: Sequence[Outcome], current: bool
    ) -> None:
        if not self.request.dead:
            perform(attrs.evolve(self, current=current, before=before))


def when_current(context: Context, deadline: Instant, then: Callable[[bool], None]) -> None:
    """`then(True)` once this broker's image shows everything that anybody was told before this
    call; `then(False)` when that is not to be had by the deadline. An image may be behind: that of
    a broker that has just booted is empty."""
    told = partial(_version_told, context, deadline, then)
    context.ask_controller(ControllerKind.PROPOSE, encode_wish(CurrentVersion()), deadline, told)


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


def _version_told(
    context: Context, deadline: Instant, then: Callable[[bool], None], reply: ControllerReply
) -> None:
    outcome = _outcome(reply)
    if outcome.error != 0:
        then(False)
        return
    shown = partial(_shows, context, outcome.version)
    if shown():
        then(True)
    else:
        probe("image-behind-the-controller")
        context.image_waiters.wait(shown, deadline, partial(_waited, shown, then))


def _shows(context: Context, version: int) -> bool:
    return context.image.version >= version


def _waited(shown: Callable[[], bool], then: Callable[[bool], None]) -> None:
    then(shown())


def _outcome(reply: ControllerReply) -> Outcome:
    if reply.error != 0:
        return Outcome(reply.error, reply.text)
    try:
        answer = decode_answer(reply.body)
    except ProtocolError as error:
        return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return Outcome(0, reply.text, answer.version, answer.value)


def deadline_of(context: Context, timeout_ms: int) -> Instant:
    """When an admin request gives up: the client's time, within the broker's bound."""
    wait = min(max(timeout_ms, 0), context.config.request_ns // millis(1))
    return Instant(context.now + millis(wait))
