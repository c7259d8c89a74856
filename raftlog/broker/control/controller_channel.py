"""Asks the active controller, wherever it is: routing, hints, retries, one deadline.

A request is tried at the controller that this node believes in. That is itself, the leader of its
own replica of the metadata group, the node that the last refusal named, or else the configured
controllers in turn. A refusal (NOT_CONTROLLER; REQUEST_TIMED_OUT when it is busy), a broken link or
silence leads to another try. At the deadline the caller gets REQUEST_TIMED_OUT: outcome unknown. A
request that must not be performed twice goes inside of a `OnceRequest`, numbered by `once`.

A try without an answer may still be on its way, over a link that is slow and not broken. It may
arrive when its receiver is the controller again. So later tries say that they are not the first,
and a refusal of an earlier try is not the answer.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

import attrs

from raftlog.base.ids import METADATA_GROUP, NodeId, SessionId
from raftlog.base.limits import CONTROLLER_OWN_REQUESTS_MAX, CONTROLLER_REQUESTS_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.deadlines import Timer
from raftlog.broker.peer_messages import ControllerKind, ControllerReply, ControllerRequest
from raftlog.broker.turn import Turn

NOT_CONTROLLER: Final = 41
TIMED_OUT: Final = 7

OnReply = Callable[[ControllerReply], None]


class Server(Protocol):
    """The controller duties of this node, active or not."""

    @property
    def active(self) -> bool: ...

    def serve(self, call: "ControllerCall") -> None: ...


@final
@attrs.define(eq=False)
class ControllerCall:
    """One request at the controller. Call `reply` exactly once, in this turn or a later one."""

    sender: NodeId
    kind: int
    body: bytes
    _request_no: int
    _deliver: Callable[[ControllerReply], None]
    _replied: bool = False

    def reply(self, error: int, text: str = "", body: bytes = b"") -> None:
        """Send the answer; it is dropped when the asker's session is over."""
        assert not self._replied, (self.sender, self.kind, self._request_no)
        self._replied = True
        self._deliver(ControllerReply(self._request_no, error, text, body))


@final
@attrs.define(eq=False)
class OpenRequest:
    """One open request of this node.

    `numbers` has the number of its last try. Before it stand those of tries without an answer, if
    later tries have another body, which `again` gives.
    """

    numbers: list[int]
    kind: int
    body: bytes
    deadline: Instant
    then: OnReply
    again: Callable[[], bytes] | None = None
    expiry: Timer | None = None
    retry: Timer | None = None
    asked: NodeId | None = None
    """The node that was asked last and has not answered."""
    over: bool = False

    def answered_by(self, reply: ControllerReply) -> bool:
        """Whether this reply decides.

        A refusal of an earlier try does not, as the last may get another.
        """
        return reply.error == 0 or reply.request_no == self.numbers[-1]


@final
@attrs.define(eq=False)
class ControllerChannel:
    """Both ends of the channel: requests of this node, and calls that other nodes make here."""

    turn: Turn
    server: Server
    _asks: dict[int, OpenRequest] = attrs.Factory(dict)
    """Number of a try -> its request."""
    _open: int = 0
    _last_no: int = 0
    _hint: NodeId | None = None
    _next_controller: int = 0

    def __len__(self) -> int:
        return self._open

    # --- asking ---

    def ask(
        self,
        kind: int,
        body: bytes,
        deadline: Instant,
        then: OnReply,
        again: Callable[[], bytes] | None = None,
    ) -> None:
        """Ask the controller. `then` is called exactly once, never before this call returns.

        `again` gives the body of a try after one that had no answer.
        """
        own = 0 if kind == ControllerKind.PROPOSE else CONTROLLER_OWN_REQUESTS_MAX
        if self._open >= CONTROLLER_REQUESTS_MAX + own:
            probe("controller-requests-over-limit")
            self.turn.soon(then, ControllerReply(0, TIMED_OUT, "too many requests wait", b""))
            return
        ask = OpenRequest([], kind, body, deadline, then, again)
        self._open += 1
        self._number(ask)
        ask.expiry = self.turn.at(deadline, self._expire, ask)
        self._try(ask)

    def replied(self, peer: NodeId, reply: ControllerReply) -> None:
        """Take an answer from another node, or from this one."""
        ask = self._asks.get(reply.request_no)
        if ask is None or ask.asked != peer or not ask.answered_by(reply):
            probe("controller-reply-too-late")
            return
        ask.asked = None
        if reply.error == NOT_CONTROLLER:
            self._hint = _node_of(reply.text)
            self._try_later(ask)
            return
        if reply.error == TIMED_OUT:
            probe("controller-busy-asked-again")
            self._try_later(ask)
            return
        self._finish(ask, reply)

    def link_down(self, peer: NodeId) -> None:
        """Ask another node whatever was asked at `peer`."""
        if self._hint == peer:
            self._hint = None
        for ask in list(self._asks.values()):
            if ask.asked == peer:
                self._lose(ask)
                self._try_later(ask)

    def _number(self, ask: OpenRequest) -> None:
        self._last_no += 1
        ask.numbers.append(self._last_no)
        self._asks[self._last_no] = ask

    def _lose(self, ask: OpenRequest) -> None:
        """Take it that the last try gets no answer."""
        ask.asked = None
        if ask.again is not None:
            self._number(ask)

    def _try(self, ask: OpenRequest) -> None:
        ask.retry = None
        if ask.over:
            return
        target = self._target()
        if target is None:
            self._try_later(ask)
            return
        ask.asked = target
        again = ask.again if len(ask.numbers) > 1 else None
        body = ask.body if again is None else again()
        request = ControllerRequest(ask.numbers[-1], ask.kind, body)
        if target == self.turn.config.node:
            self.turn.soon(self._serve_own, request)
        else:
            self.turn.send(target, request)
        patience = Instant(self.turn.now + self.turn.config.session_ns)
        ask.retry = self.turn.at(patience, self._unanswered, ask)

    def _try_later(self, ask: OpenRequest) -> None:
        if ask.retry is not None:
            ask.retry.cancel()
        pause = self.turn.config.heartbeat_ns
        ask.retry = self.turn.at(Instant(self.turn.now + pause), self._try, ask)

    def _unanswered(self, ask: OpenRequest) -> None:
        """Try again after a session time without an answer: one of the messages may be lost."""
        if not ask.over:
            probe("controller-request-repeated")
            self._lose(ask)
            self._hint = None
            self._try(ask)

    def _expire(self, ask: OpenRequest) -> None:
        if not ask.over:
            number = ask.numbers[-1]
            self._finish(ask, ControllerReply(number, TIMED_OUT, "no controller in time", b""))

    def _finish(self, ask: OpenRequest, reply: ControllerReply) -> None:
        ask.over = True
        self._open -= 1
        for number in ask.numbers:
            del self._asks[number]
        for timer in (ask.expiry, ask.retry):
            if timer is not None:
                timer.cancel()
        ask.then(reply)

    def _target(self) -> NodeId | None:
        """The node to ask: the best knowledge first, then in turn all controllers.

        These are the configured ones and those that came later.
        """
        if self.server.active:
            return self.turn.config.node
        sessions = self.turn.sessions
        replica = self.turn.replicas.get(METADATA_GROUP)
        leader = replica.leader.node if replica is not None and replica.leader else None
        for known in (leader, self._hint):
            if known is not None and known in sessions:
                return known
        self._hint = None
        configured = [address.node for address in self.turn.config.controllers]
        later = [replica.node for replica in self.turn.image.controllers]
        reachable = [n for n in dict.fromkeys((*configured, *later)) if n in sessions]
        if not reachable:
            return None
        self._next_controller += 1
        return reachable[self._next_controller % len(reachable)]

    # --- serving ---

    def _serve_own(self, request: ControllerRequest) -> None:
        own = self.turn.config.node
        deliver = _Deliverer(self, own, None)
        self.server.serve(
            ControllerCall(own, request.kind, request.body, request.request_no, deliver.deliver)
        )

    def requested(self, peer: NodeId, session: SessionId, request: ControllerRequest) -> None:
        """Take a request of another node; it is refused at once unless this node is active."""
        deliver = _Deliverer(self, peer, session)
        call = ControllerCall(peer, request.kind, request.body, request.request_no, deliver.deliver)
        if not self.server.active:
            call.reply(NOT_CONTROLLER, self._leader_text())
            return
        self.server.serve(call)

    def _leader_text(self) -> str:
        replica = self.turn.replicas.get(METADATA_GROUP)
        if (
            replica is None
            or replica.leader is None
            or replica.leader.node == self.turn.config.node
        ):
            return ""
        return str(replica.leader.node)


@final
@attrs.define(eq=False)
class _Deliverer:
    """Carries one reply back to its asker, in the session of the request."""

    channel: ControllerChannel
    asker: NodeId
    session: SessionId | None
    """The session of the asker; None when this node itself asked."""

    def deliver(self, reply: ControllerReply) -> None:
        turn = self.channel.turn
        if self.session is None:
            turn.soon(self.channel.replied, self.asker, reply)
            return
        link = turn.sessions.get(self.asker)
        if link is not None and link.session == self.session:
            turn.send(self.asker, reply)


def _node_of(text: str) -> NodeId | None:
    """The node that a refusal named; None when the text is no number."""
    return NodeId(int(text)) if text.isascii() and text.isdigit() and len(text) < 11 else None
