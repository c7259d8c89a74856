"""Sends several requests to the controller for one answer to the client.

Each is asked on its own. When all have an outcome, and this broker's own image shows the results,
`then` is called once with the outcomes in the order of asking.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.control.controller_channel import ControllerChannel
from raftlog.broker.control.image_waiters import ImageWaiters
from raftlog.broker.control.once import OnceRequests
from raftlog.broker.peer_messages import ControllerKind, ControllerReply
from raftlog.broker.turn import Turn
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata.requests import (
    CurrentVersion,
    OnceRequest,
    Performable,
    decode_answer,
    encode_body,
)


class CallOutcome(NamedTuple):
    """`error` 0: done, and an image of `version` shows it.

    `value` is what the controller allocated.
    """

    error: int
    message: str
    version: int = 0
    value: int = 0


@final
@attrs.define(eq=False)
class ControllerCalls:
    """Collects requests and ready outcomes; `begin` asks the controller."""

    client: "ControllerClient"
    deadline: Instant
    then: Callable[[list[CallOutcome]], None]
    outcomes: list[CallOutcome | None] = attrs.Factory(list)
    _requests: list[tuple[int, Performable]] = attrs.Factory(list)
    _open: int = 0

    def add(self, request: Performable) -> None:
        """Let the next outcome be the controller's, which performs `wish` at most once."""
        self._requests.append((len(self.outcomes), request))
        self.outcomes.append(None)

    def known(self, error: int, message: str = "") -> None:
        """Let the next outcome be this one, without asking."""
        self.outcomes.append(CallOutcome(error, message))

    def keep(self, outcome: CallOutcome) -> None:
        """Let the next outcome be one of an earlier try."""
        self.outcomes.append(outcome)

    def begin(self) -> None:
        """Ask. `then` may be called before this returns, when there was nothing to ask."""
        self._open = len(self._requests)
        for place, request in self._requests:
            once = self.client.once.begin(request)
            self.client.ask(
                ControllerKind.PROPOSE,
                encode_body(once),
                self.deadline,
                partial(self._replied, place, once),
                partial(self._again, once),
            )
        if not self._requests:
            self._finish()

    def _again(self, once: OnceRequest) -> bytes:
        return encode_body(self.client.once.again(once))

    def _replied(self, place: int, once: OnceRequest, reply: ControllerReply) -> None:
        self.client.once.end(once)
        self.outcomes[place] = _outcome(reply)
        self._open -= 1
        if self._open == 0:
            self._see()

    def _see(self) -> None:
        """Wait until the own image shows the results: the client will look for them here next."""
        if self._shown():
            self._finish()
        else:
            self.client.waiters.wait(self._shown, self.deadline, self._finish)

    def _shown(self) -> bool:
        version = self.client.turn.image.version
        return all(outcome is None or outcome.version <= version for outcome in self.outcomes)

    def _finish(self) -> None:
        self.then([outcome for outcome in self.outcomes if outcome is not None])


@final
@attrs.frozen(eq=False)
class ControllerClient:
    """Asks the controller for clients, and waits until this broker's image shows the result."""

    turn: Turn
    channel: ControllerChannel
    once: OnceRequests
    waiters: ImageWaiters

    def ask(
        self,
        kind: int,
        body: bytes,
        deadline: Instant,
        then: Callable[[ControllerReply], None],
        again: Callable[[], bytes] | None = None,
    ) -> None:
        """Ask the active controller, wherever it is.

        `then` gets its reply, or REQUEST_TIMED_OUT at the deadline. `again` gives the body of a try
        after one that may still be on its way.
        """
        self.channel.ask(kind, body, deadline, then, again)

    def when_current(self, deadline: Instant, then: Callable[[bool], None]) -> None:
        """Call `then(True)` once this broker's image shows everything that any client was told.

        Only answers before this call count. `then(False)` is called when the deadline comes first.
        An image may be behind: that of a broker that has just booted is empty.
        """
        told = partial(self._version_told, deadline, then)
        self.ask(ControllerKind.PROPOSE, encode_body(CurrentVersion()), deadline, told)

    def _version_told(
        self, deadline: Instant, then: Callable[[bool], None], reply: ControllerReply
    ) -> None:
        outcome = _outcome(reply)
        if outcome.error != 0:
            then(False)
            return
        shown = partial(self._shows, outcome.version)
        if shown():
            then(True)
        else:
            probe("image-behind-the-controller")
            self.waiters.wait(shown, deadline, partial(_waited, shown, then))

    def _shows(self, version: int) -> bool:
        return self.turn.image.version >= version


def _waited(shown: Callable[[], bool], then: Callable[[bool], None]) -> None:
    then(shown())


def _outcome(reply: ControllerReply) -> CallOutcome:
    if reply.error != 0:
        return CallOutcome(reply.error, reply.text)
    try:
        answer = decode_answer(reply.body)
    except ProtocolError as error:
        return CallOutcome(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return CallOutcome(0, reply.text, answer.version, answer.value)
