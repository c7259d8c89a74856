"""Connections to brokers: dialled on demand, opened with ApiVersions, redialled with backoff.

Each request has a `then`, a bound method or partial. It is called exactly once, with the decoded
body or with an error. Requests wait while a connection is being opened. When it breaks, or answers
too late, all its requests fail together, and their owners decide what to do next.
"""

import enum
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.errors import ProtocolError, RaftlogError
from raftlog.base.ids import NodeId
from raftlog.base.limits import CLIENT_REQUESTS_IN_FLIGHT_MAX
from raftlog.base.ports import Entropy
from raftlog.base.units import NEVER, Instant, Nanos
from raftlog.client.core.errors import ConnectionLost, NotSent
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.values import (
    ANY_NODE,
    ClientEffects,
    ClientOptions,
    Dial,
    DialId,
    Disconnect,
    Send,
)
from raftlog.kafka.connection import ClientConnection
from raftlog.kafka.versions import ApiKey

Then = Callable[[Any], None]

MEMBER_LANE: Final = 1 << 32
"""Added to a node id, it names a second connection to that broker, for joining and heartbeats.
Brokers answer a connection in order, and keep a JoinGroup until all members have joined."""
COMMIT_LANE: Final = 2 << 32
"""Added to a node id, it names a third connection, for commits and questions to a coordinator. They
then wait behind no join and no fetch."""
_VERSION_MAX: Final = {int(ApiKey.OFFSET_COMMIT): 9, int(ApiKey.OFFSET_FETCH): 9}
"""The highest version used of an API. The next versions name topics by id; but a group may have
offsets of deleted topics, whose ids are unknown."""


@final
class _State(enum.Enum):
    DOWN = "down"
    DIALLING = "dialling"
    GREETING = "greeting"
    READY = "ready"


_UNDER_WAY: Final = (_State.DIALLING, _State.GREETING)


@final
@attrs.define(eq=False)
class QueuedRequest:
    """A request without an answer yet. `deadline` is that of the answer, and time in the queue
    counts. `departed` is set once the driver has the request."""

    target: int
    api_key: int
    body: Any
    then: Then
    since: Instant
    deadline: Instant
    answered: bool = True
    departed: bool = False


@final
@attrs.define(eq=False)
class _Peer:
    """One broker. Its key is a node id, or a number below ANY_NODE for its place in the bootstrap
    list."""

    key: int
    state: _State = _State.DOWN
    dial: DialId = -1
    wire: ClientConnection | None = None
    queue: deque[QueuedRequest] = attrs.Factory(deque)
    in_flight: deque[QueuedRequest] = attrs.Factory(deque)
    failures: int = 0
    last_failure: str = ""
    """The reason of the last failure; "" when nothing has failed since the broker was last
    connected."""
    retry_at: Instant = Instant(0)
    state_since: Instant = Instant(0)
    state_deadline: Instant = NEVER


@final
@attrs.define(eq=False)
class Connections:
    """All connections of a client. They add their actions to this turn's `effects`."""

    options: ClientOptions
    cache: MetadataCache
    entropy: Entropy
    effects: ClientEffects
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
        other_than: Sequence[int] = (),
        lane: int = 0,
        timeout_ns: Nanos | None = None,
    ) -> QueuedRequest:
        """Send a request to a node, on the connection of its lane, or to `ANY_NODE`.

        `ANY_NODE` avoids the nodes `other_than` (each a `QueuedRequest.target`). When it knows no
        others, it avoids as many of the last ones as leave one to ask. With `answered=False`
        (acks=0) `then` is called with None as soon as the driver has the request."""
        timeout = self.options.request_timeout_ns if timeout_ns is None else timeout_ns
        deadline = Instant(now + timeout)
        if self.closed:
            waiting = QueuedRequest(ANY_NODE, api_key, body, then, now, deadline, answered)
            then(NotSent("the client is closed"))
            return waiting
        peer = self._peer(NodeId(target + lane), now, other_than)
        waiting = QueuedRequest(peer.key, api_key, body, then, now, deadline, answered)
        peer.queue.append(waiting)
        self._drive(peer, now)
        return waiting

    def withdraw(self, waiting: QueuedRequest) -> None:
        """Take back a request that has not departed; its `then` is called with `NotSent`."""
        peer = self._peers.get(waiting.target)
        if peer is not None and waiting in peer.queue:
            peer.queue.remove(waiting)
            # The owner gave up while the request waited for a connection, so the error says why
            # there is none.
            waiting.then(NotSent(peer.last_failure or "not connected yet", on=self._name(peer)))

    def _peer(self, target: NodeId, now: Instant, other_than: Sequence[int]) -> _Peer:
        """The peer of a node. For `ANY_NODE`: a connected peer that answers; else one that is being
        connected; else the next of all known peers in turn. `other_than` is as in `send`."""
        if target != ANY_NODE:
            return self._peers.setdefault(target, _Peer(target))
        keys = sorted(self.cache.addresses)
        keys += [NodeId(ANY_NODE - 1 - at) for at in range(len(self.options.bootstrap))]
        keys, avoided = self._others(keys, other_than)
        slow = [*self._slow_addresses(now), *avoided]
        prompt = [
            peer
            for peer in self._peers.values()
            if peer.state is _State.READY
            and peer.key < MEMBER_LANE
            and self._address(peer.key) not in slow
        ]
        if prompt:
            return min(prompt, key=_load)
        under_way = [
            peer
            for peer in self._peers.values()
            if peer.state in _UNDER_WAY
            and peer.failures == 0
            and peer.key < MEMBER_LANE
            and self._address(peer.key) not in slow
        ]
        if under_way:
            return under_way[0]
        self._turn += 1
        key = keys[self._turn % len(keys)]
        return self._peers.setdefault(key, _Peer(key))

    def _others(
        self, keys: list[NodeId], other_than: Sequence[int]
    ) -> tuple[list[NodeId], list[tuple[str, int]]]:
        """The keys that are left when nodes are avoided, and the addresses that are avoided."""
        addresses = [self._address(key) for key in other_than]
        avoided = [address for address in addresses if address is not None]
        while avoided:
            others = [key for key in keys if self._address(key) not in avoided]
            if others:
                return others, avoided
            del avoided[0]
        return keys, []

    def _address(self, key: int) -> tuple[str, int] | None:
        """The address of a peer; None for a node that is no longer known, and for `ANY_NODE`."""
        if key < ANY_NODE:
            return self.options.bootstrap[ANY_NODE - 1 - key]
        return self.cache.addresses.get(NodeId(key % MEMBER_LANE))

    def _is_slow(self, peer: _Peer, now: Instant) -> bool:
        since = self._waiting_since(peer)
        return since is not None and since + self.options.suspect_ns <= now

    def _waiting_since(self, peer: _Peer) -> Instant | None:
        """Since when the broker owes something: an answer, its ApiVersions, or a connection."""
        if peer.state in _UNDER_WAY:
            return peer.state_since
        return peer.in_flight[0].since if peer.in_flight else None

    def _slow_addresses(self, now: Instant) -> list[tuple[str, int] | None]:
        """The addresses of brokers that are slow to answer. A broker may be connected twice, as a
        node and from the bootstrap list; when one of the two connections is slow, the other will be
        too."""
        return [
            self._address(peer.key)
            for peer in self._peers.values()
            if peer.key < MEMBER_LANE and self._is_slow(peer, now)
        ]

    def slow_nodes(self, now: Instant) -> list[NodeId]:
        """The nodes that have owed an answer for longer than `suspect_ns`. They may be dead or
        paused."""
        return [
            NodeId(peer.key)
            for peer in self._peers.values()
            if 0 <= peer.key < MEMBER_LANE and self._is_slow(peer, now)
        ]

    def drop(self, node: NodeId, why: str, now: Instant) -> None:
        """Hang up on a node. Its waiting requests fail with this reason."""
        peer = self._peers.get(node)
        if peer is not None and peer.state is not _State.DOWN:
            self.effects.actions.append(Disconnect(peer.dial))
            self._fail(peer, why, now)

    # --- events -----------------------------------------------------------------------------------

    def connected(self, dial: DialId, now: Instant) -> None:
        """Handle a new connection: send ApiVersions."""
        peer = self._dials.get(dial)
        if peer is None or peer.state is not _State.DIALLING:
            return
        peer.state = _State.GREETING
        peer.state_deadline = Instant(now + self.options.connect_timeout_ns)
        peer.wire = ClientConnection(client_id=self.options.client_id)
        self.effects.actions.append(Send(dial, peer.wire.hello().parts))

    def disconnected(self, dial: DialId, why: str, now: Instant) -> None:
        """Handle the end of a connection."""
        peer = self._dials.get(dial)
        if peer is not None:
            self._fail(peer, why, now)

    def frame(self, dial: DialId, frame: memoryview, now: Instant) -> None:
        """Handle an answer. One that cannot be read ends the connection."""
        peer = self._dials.get(dial)
        if peer is None or peer.wire is None:
            return
        try:
            answer = peer.wire.receive(frame)
        except ProtocolError as error:
            self.effects.actions.append(Disconnect(dial))
            self._fail(peer, f"sent an answer that cannot be read: {error}", now)
            return
        if peer.state is _State.GREETING:
            peer.state = _State.READY
            peer.state_deadline = NEVER
            peer.failures = 0
            peer.last_failure = ""
            self._drive(peer, now)
            return
        peer.in_flight.popleft().then(answer.body)
        self._drive(peer, now)

    def expire(self, now: Instant) -> None:
        """Fail requests that are overdue, and dial peers whose backoff is over."""
        for peer in list(self._peers.values()):
            if peer.state_deadline <= now or (peer.in_flight and peer.in_flight[0].deadline <= now):
                self.effects.actions.append(Disconnect(peer.dial))
                self._fail(peer, "did not answer in time", now)
            while peer.queue and peer.queue[0].deadline <= now:
                peer.queue.popleft().then(NotSent("no connection in time", on=self._name(peer)))
            if peer.queue:
                self._drive(peer, now)

    def next_instant(self, now: Instant) -> Instant:
        """When `expire` has something to do again."""
        wake = NEVER
        for peer in self._peers.values():
            wake = min(wake, peer.state_deadline)
            if peer.in_flight:
                wake = min(wake, peer.in_flight[0].deadline)
            since = self._waiting_since(peer)
            if since is not None and since + self.options.suspect_ns > now:
                wake = min(wake, Instant(since + self.options.suspect_ns))
            if peer.queue:
                wake = min(wake, peer.queue[0].deadline)
                if peer.state is _State.DOWN:
                    wake = min(wake, peer.retry_at)
        return wake

    # --- one connection ---------------------------------------------------------------------------

    def _drive(self, peer: _Peer, now: Instant) -> None:
        if peer.state is _State.DOWN and peer.queue and now >= peer.retry_at:
            self._dial(peer, now)
        if peer.state is not _State.READY:
            return
        while peer.queue and len(peer.in_flight) < CLIENT_REQUESTS_IN_FLIGHT_MAX:
            self._transmit(peer, peer.queue.popleft())

    def _dial(self, peer: _Peer, now: Instant) -> None:
        address = self._address(peer.key)
        if address is None:
            self._fail(peer, "has no known address", now)
            return
        self._last_dial += 1
        peer.dial = self._last_dial
        peer.state = _State.DIALLING
        peer.state_since = now
        peer.state_deadline = Instant(now + self.options.connect_timeout_ns)
        self._dials[peer.dial] = peer
        self.effects.actions.append(Dial(peer.dial, address[0], address[1]))

    def _transmit(self, peer: _Peer, waiting: QueuedRequest) -> None:
        wire = peer.wire
        assert wire is not None
        try:
            version_max = _VERSION_MAX.get(int(waiting.api_key))
            version = None
            if version_max is not None:
                version = min(version_max, wire.version_of(waiting.api_key))
            sent = wire.send(waiting.api_key, waiting.body, version=version)
        except RaftlogError as error:
            waiting.then(error)
            return
        self.effects.actions.append(Send(peer.dial, sent.parts))
        waiting.departed = True
        if waiting.answered:
            peer.in_flight.append(waiting)
            return
        wire.forget(sent.correlation_id)
        waiting.then(None)

    def _fail(self, peer: _Peer, why: str, now: Instant) -> None:
        """End a connection. The `then` of each of its requests is called with the error, once."""
        self._dials.pop(peer.dial, None)
        peer.state = _State.DOWN
        peer.state_deadline = NEVER
        peer.wire = None
        peer.failures += 1
        peer.last_failure = why
        peer.retry_at = Instant(now + backoff(self.options, peer.failures, self.entropy))
        sent, peer.in_flight = peer.in_flight, deque()
        queued, peer.queue = peer.queue, deque()
        name = self._name(peer)
        for waiting in sent:
            waiting.then(ConnectionLost(why, on=name))
        for waiting in queued:
            waiting.then(NotSent(why, on=name))

    def _name(self, peer: _Peer) -> str:
        address = self._address(peer.key)
        return f"{address[0]}:{address[1]}" if address is not None else f"node {peer.key}"

    def close(self) -> None:
        """Hang up on all brokers. All waiting requests fail because the client is closed."""
        self.closed = True
        for peer in self._peers.values():
            if peer.dial in self._dials:
                self.effects.actions.append(Disconnect(peer.dial))
            self._fail(peer, "the client is closed", Instant(0))


def _load(peer: _Peer) -> tuple[int, int]:
    return len(peer.in_flight), peer.key


def backoff(options: ClientOptions, failures: int, entropy: Entropy) -> int:
    """The backoff in nanoseconds: exponential, bounded, with jitter between half and the whole of
    it."""
    doubled = options.retry_backoff_ns << min(failures - 1, 16)
    whole = min(doubled, options.retry_backoff_max_ns)
    return whole // 2 + entropy.below(whole // 2 + 1)
