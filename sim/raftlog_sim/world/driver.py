"""Runs the product's own client in a world: performs its effects over simulated connections.

Client machines are not nodes: they do not crash, and the network between them and the brokers
neither loses nor reorders frames. Only the broker at the other end breaks.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final

import attrs

from raftlog.base.ids import ConnectionId, NodeId
from raftlog.base.units import NANOS_PER_MICRO, NEVER, Instant, millis
from raftlog.broker.events import Request
from raftlog.client.core.calls import Call
from raftlog.client.core.client import ClientCore
from raftlog.client.core.group.consumer import GroupConsumer
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.values import (
    ClientEffects,
    ClientOptions,
    Complete,
    Connected,
    Dial,
    Disconnect,
    Disconnected,
    Event,
    Frame,
    Send,
)
from raftlog_sim.world.faces import SimNode, SimWorld

DIAL_NS: Final = millis(1)
WAY_NS: Final = 60 * NANOS_PER_MICRO
_LENGTH_BYTES: Final = 4
Then = Callable[[Any], None]


class Listens(Protocol):
    """Listens to a client's connections, frame by frame; frames come without their length."""

    def says(self, dial: int, frame: bytes) -> None:
        """Hear that a request leaves the client."""

    def hears(self, dial: int, frame: bytes) -> None:
        """Hear that an answer has reached the client."""

    def loses(self, dial: int) -> None:
        """Hear that a connection is gone; open requests on it get no answer any more."""


@final
@attrs.define(eq=False)
class _Wire:
    """One connection of a client to one boot of a node; the node calls `answered` and `lost`."""

    driver: "SimClient"
    dial: int
    node: SimNode
    connection: ConnectionId = ConnectionId(0)
    requests: int = 0
    open: bool = True
    _next: int = 0
    _early: dict[int, bytes | None] = attrs.Factory(dict)
    """Answers, by request number, that the node gave before the answer to an earlier request."""

    def answered(self, request_no: int, frame: bytes | None) -> None:
        """Take the node's answer to a request.

        Answers reach the client in the order of its requests, as in a real process.
        """
        assert request_no >= self._next, (request_no, self._next)
        assert request_no not in self._early, request_no
        self._early[request_no] = frame
        while self._next in self._early:
            ready = self._early.pop(self._next)
            self._next += 1
            if ready is not None:
                self.driver.later(WAY_NS, Frame(self.dial, ready[_LENGTH_BYTES:]))

    def lost(self) -> None:
        """Tell the client that the node hung up or died."""
        if self.open:
            self.open = False
            self.driver.later(WAY_NS, Disconnected(self.dial, "the broker is gone"))


@final
@attrs.define(eq=False)
class SimClient:
    """A `ClientCore` in virtual time. `call` begins a call and its `then` takes the result."""

    world: SimWorld
    name: str
    options: ClientOptions
    listens: Listens | None = None
    on_turn: Callable[[], None] | None = None
    """Called after each turn that an event or the time caused."""
    core: ClientCore = attrs.field(init=False)
    _wires: dict[int, _Wire] = attrs.Factory(dict)
    _thens: dict[int, Then] = attrs.Factory(dict)
    _calls: int = 0
    _wake_at: Instant = NEVER
    _alarm: Instant = NEVER

    def __attrs_post_init__(self) -> None:
        self.core = ClientCore(self.options, self.world.stream(f"client/{self.name}"))

    def call(self, request: Call, then: Then) -> None:
        """Begin a call of the core."""
        self._calls += 1
        self._thens[self._calls] = then
        self._perform(self.core.call(self._calls, request, Instant(self.world.now)))

    def open_consumer(self, settings: ConsumerOptions) -> GroupConsumer:
        """Open a group consumer on this client."""
        return self.core.open_consumer(settings)

    def begin(self, own: Callable[[int], None], then: Then) -> None:
        """Begin a call of a consumer: `own` takes the call's number."""
        self._calls += 1
        self._thens[self._calls] = then
        own(self._calls)
        self.turn()

    def turn(self) -> None:
        """Let the core take a turn, after its caller changed something."""
        self._perform(self.core.handle((), Instant(self.world.now)))

    def die(self) -> None:
        """End the client's process without a word to the brokers."""
        if not self.core.closed:
            self.on_turn = None
            self._perform(self.core.close(Instant(self.world.now)))

    def later(self, delay_ns: int, event: Event) -> None:
        """Let an event reach the core after a delay."""
        self.world.after(delay_ns, self._arrive, event)

    def _arrive(self, event: Event) -> None:
        self._turn((event,))

    def _turn(self, events: Sequence[Event]) -> None:
        if self.core.closed:
            return
        if self.listens is not None:
            _tell(self.listens, events)
        self._perform(self.core.handle(events, Instant(self.world.now)))
        if self.on_turn is not None:
            self.on_turn()

    def _perform(self, effects: ClientEffects) -> None:
        for action in effects.actions:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Dial):
                self.world.after(DIAL_NS, self._dial, action)
            elif isinstance(action, Disconnect):
                self._hang_up(action.dial)
            elif isinstance(action, Complete):
                self.world.after(0, self._thens.pop(action.call), action.value)
        self._wake_at = effects.wake_at
        if effects.wake_at < self._alarm:
            self._set_alarm(effects.wake_at)

    def _set_alarm(self, instant: Instant) -> None:
        self._alarm = instant
        self.world.at(instant, self._wake, instant)

    def _wake(self, instant: Instant) -> None:
        """Take a turn when one is due; else set the alarm again."""
        # An alarm may ring too early: not every turn needs an alarm of its own.
        if self._alarm != instant:
            return
        self._alarm = NEVER
        if self._wake_at <= self.world.now:
            self._turn(())
        elif self._wake_at != NEVER:
            self._set_alarm(self._wake_at)

    def _dial(self, dial: Dial) -> None:
        if self.core.closed:
            return
        node = self.world.nodes[NodeId(int(dial.host.removeprefix("n")))]
        if not node.up:
            self._turn((Disconnected(dial.dial, "nobody listens"),))
            return
        wire = self._wires[dial.dial] = _Wire(self, dial.dial, node)
        wire.connection = node.connect(wire)
        self._turn((Connected(dial.dial),))

    def _send(self, send: Send) -> None:
        wire = self._wires.get(send.dial)
        if wire is None or not wire.open or not wire.node.up:
            return
        frame = b"".join(bytes(part) for part in send.parts)[_LENGTH_BYTES:]  # type: ignore[arg-type]
        if self.listens is not None:
            self.listens.says(send.dial, frame)
        wire.node.arrive_later(WAY_NS, Request(wire.connection, wire.requests, frame))
        wire.requests += 1

    def _hang_up(self, dial: int) -> None:
        wire = self._wires.pop(dial, None)
        if self.listens is not None:
            self.listens.loses(dial)
        if wire is not None and wire.open:
            wire.open = False
            if wire.node.up:
                wire.node.disconnect(wire.connection)


def _tell(listens: Listens, events: Sequence[Event]) -> None:
    for event in events:
        if isinstance(event, Frame):
            listens.hears(event.dial, bytes(event.frame))
        elif isinstance(event, Disconnected):
            listens.loses(event.dial)
