"""Connections to brokers: dialled on demand, greeted by ApiVersions, redialled with backoff.

Whoever wants an answer gives a `then`, a bound method or partial, which is called exactly once with
the decoded body or with an error. Requests wait while a connection comes about; when it breaks, or
answers too late, all of them fail together and their owners decide what to do next.
"""

import enum
from collections import deque
from collections.abc import Callable
from typing import Any, Final, final

import attrs

from raftlog.base.errors import ProtocolError, RaftlogError, RemoteError
from raftlog.base.ids import NodeId
from raftlog.base.ports import Entropy
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.values import (
    ANY_NODE,
    ClientOptions,
    Dial,
    DialId,
    Effects,
    Hangup,
    Send,
)
from raftlog.kafka.connection import ClientConnection

Then = Callable[[Any], None]
FORGOTTEN_CORRELATION: Final = -1


@final
class ConnectionLost(RemoteError):
    """The request may or may not have been carried out."""


@final
class NotSent(RemoteError):
    """The request has certainly not reached the broker."""


@final
class _State(enum.Enum):
    DOWN = "down"
    DIALLING = "dialling"
    GREETING = "greeting"
    READY = "ready"


@final
@attrs.define(eq=False)
class _Waiting:
    """A request on its way. `deadline` is for its answer, the time in the queue included."""

    api_key: int
    body: Any
    then: Then
    deadline: Instant
    answered: bool = True


@final
@attrs.define(eq=False)
class _Peer:
    """One broker, by node id, or by its place in the bootstrap list (below ANY_NODE)."""

    key: int
    state: _State = _State.DOWN
    dial: DialId = -1
    wire: ClientConnection | None = None
    queue: deque[_Waiting] = attrs.Factory(deque)
    in_flight: deque[_Waiting] = attrs.Factory(deque)
    failures: int = 0
    retry_at: Instant = Instant(0)
    state_deadline: Instant = NEVER


@final
@attrs.define(eq=False)
class Connections:
    """All connections of a client. `effects` is where this turn's actions go."""

    options: ClientOptions
    cache: MetadataCache
    entropy: Entropy
    effects: Effects
    _peers: dict[int, _Peer] = attrs.field(factory=dict, init=False)
    _dials: dict[DialId, _Peer] = attrs.field(factory=dict, init=False)
    _last_dial: DialId = attrs.field(default=0, init=False)
    _turn: int = attrs.field(default=0, init=False)
    closed: bool = attrs.field(default=False, init=False)

    def send(
        self,
        target: NodeId,
        api_key: int,
        body: object,
        then: Then,
        now: Instant,
        *,
        answered: bool = True,
    ) -> None:
        """Send to a node, or to `ANY_NODE`. With `answered=False` (acks=0) `then` is called with
        None as soon as the request was handed to the driver."""
        if self.closed:
            then(NotSent("the client is closed"))
            return
        peer = self._peer(target)
        deadline = Instant(now + self.options.request_timeout_ns)
        peer.queue.append(_Waiting(api_key, body, then, deadline, answered))
        self._drive(peer, now)

    def _peer(self, target: NodeId) -> _Peer:
        if target != ANY_NODE:
            return self._peers.setdefault(target, _Peer(target))
        ready = [peer for peer in self._peers.values() if peer.state is _State.READY]
        if ready:
            return min(ready, key=_load)
        under_way = [
            peer
            for peer in self._peers.values()
            if peer.state in (_State.DIALLING, _State.GREETING) and peer.failures == 0
        ]
        if under_way:
            return under_way[0]
        keys = sorted(self.cache.addresses)
        keys += [NodeId(ANY_NODE - 1 - at) for at in range(len(self.options.bootstrap))]
        self._turn += 1
        key = keys[self._turn % len(keys)]
        return self._peers.setdefault(key, _Peer(key))

    def _address(self, peer: _Peer) -> tuple[str, int] | None:
        if peer.key < ANY_NODE:
            return self.options.bootstrap[ANY_NODE - 1 - peer.key]
        return self.cache.addresses.get(NodeId(peer.key))

    # --- events
    # -------------------------------------------------------------------------------------

    def connected(self, dial: DialId, now: Instant) -> None:
        """The transport is there: greet."""
        peer = self._dials.get(dial)
        if peer is None or peer.state is not _State.DIALLING:
            return
        peer.state = _State.GREETING
        peer.state_deadline = Instant(now + self.options.request_timeout_ns)
        peer.wire = ClientConnection(client_id=self.options.client_id)
        self.effects.actions.append(Send(dial, peer.wire.hello().parts))

    def disconnected(self, dial: DialId, why: str, now: Instant) -> None:
        """The transport is gone."""
        peer = self._dials.get(dial)
        if peer is not None:
            self._fail(peer, why, now)

    def frame(self, dial: DialId, frame: memoryview, now: Instant) -> None:
        """An answer. One that cannot be read ends the connection."""
        peer = self._dials.get(dial)
        if peer is None or peer.wire is None:
            return
        try:
            answer = peer.wire.receive(frame)
        except ProtocolError as error:
            self.effects.actions.append(Hangup(dial))
            self._fail(peer, f"sent an answer that cannot be read: {error}", now)
            return
        if peer.state is _State.GREETING:
            peer.state = _State.READY
            peer.state_deadline = NEVER
            peer.failures = 0
            self._drive(peer, now)
            return
        peer.in_flight.popleft().then(answer.body)

    def expire(self, now: Instant) -> Instant:
        """Fail what is overdue, dial what has waited long enough; the next instant to be called."""
        wake = NEVER
        for peer in list(self._peers.values()):
            if peer.state_deadline <= now or (peer.in_flight and peer.in_flight[0].deadline <= now):
                self.effects.actions.append(Hangup(peer.dial))
                self._fail(peer, "did not answer in time", now)
            while peer.queue and peer.queue[0].deadline <= now:
                peer.queue.popleft().then(NotSent("no connection in time", on=self._name(peer)))
            self._drive(peer, now)
            wake = min(wake, self._next_instant(peer))
        return wake

    def _next_instant(self, peer: _Peer) -> Instant:
        wake = peer.state_deadline
        if peer.in_flight:
            wake = min(wake, peer.in_flight[0].deadline)
        if peer.queue:
            wake = min(wake, peer.queue[0].deadline)
            if peer.state is _State.DOWN:
                wake = min(wake, peer.retry_at)
        return wake

    # --- one connection
    # -----------------------------------------------------------------------------

    def _drive(self, peer: _Peer, now: Instant) -> None:
        if peer.state is _State.DOWN and peer.queue and now >= peer.retry_at:
            self._dial(peer, now)
        if peer.state is not _State.READY:
            return
        while peer.queue:
            self._transmit(peer, peer.queue.popleft())

    def _dial(self, peer: _Peer, now: Instant) -> None:
        address = self._address(peer)
        if address is None:
            self._fail(peer, "has no known address", now)
            return
        self._last_dial += 1
        peer.dial = self._last_dial
        peer.state = _State.DIALLING
        peer.state_deadline = Instant(now + self.options.connect_timeout_ns)
        self._dials[peer.dial] = peer
        self.effects.actions.append(Dial(peer.dial, address[0], address[1]))

    def _transmit(self, peer: _Peer, waiting: _Waiting) -> None:
        wire = peer.wire
        assert wire is not None
        try:
            sent = wire.send(waiting.api_key, waiting.body)
        except RaftlogError as error:
            waiting.then(error)
            return
        self.effects.actions.append(Send(peer.dial, sent.parts))
        if waiting.answered:
            peer.in_flight.append(waiting)
            return
        wire.forget(sent.correlation_id)
        waiting.then(None)

    def _fail(self, peer: _Peer, why: str, now: Instant) -> None:
        """The connection is over: everybody who waits on it hears so, once."""
        self._dials.pop(peer.dial, None)
        peer.state = _State.DOWN
        peer.state_deadline = NEVER
        peer.wire = None
        peer.failures += 1
        peer.retry_at = Instant(now + backoff(self.options, peer.failures, self.entropy))
        sent, peer.in_flight = peer.in_flight, deque()
        queued, peer.queue = peer.queue, deque()
        name = self._name(peer)
        for waiting in sent:
            waiting.then(ConnectionLost(why, on=name))
        for waiting in queued:
            waiting.then(NotSent(why, on=name))

    def _name(self, peer: _Peer) -> str:
        address = self._address(peer)
        return f"{address[0]}:{address[1]}" if address is not None else f"node {peer.key}"

    def close(self) -> None:
        """Hang up everywhere; whoever waits hears that the client is closed."""
        self.closed = True
        for peer in self._peers.values():
            if peer.dial in self._dials:
                self.effects.actions.append(Hangup(peer.dial))
            self._fail(peer, "the client is closed", Instant(0))


def _load(peer: _Peer) -> tuple[int, int]:
    return len(peer.in_flight), peer.key


def backoff(options: ClientOptions, failures: int, entropy: Entropy) -> int:
    """Exponential, with jitter from half to the whole, bounded."""
    doubled = options.retry_backoff_ns << min(failures - 1, 16)
    whole = min(doubled, options.retry_backoff_max_ns)
    return whole // 2 + entropy.below(whole // 2 + 1)
