"""A harness that lets a `ClientCore` talk to a `FakeCluster` in virtual time."""

import heapq
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import NodeId
from raftlog.base.units import NEVER, millis
from raftlog.client.core.client import ClientCore
from raftlog.client.core.values import (
    ClientOptions,
    Complete,
    Connected,
    Dial,
    Disconnect,
    Disconnected,
    Frame,
    Send,
    Settled,
)
from raftlog.kafka.frames import FrameBuffer, FrameCutter
from raftlog.runtime.real_ports import OsEntropy
from tests.client.fake_cluster import HOST, START, FakeCluster, Later


@attrs.define(eq=False)
class Harness:
    """A core, a cluster, and the network between them: `latency_ns` each way."""

    cluster: FakeCluster
    options: ClientOptions = attrs.Factory(
        lambda: ClientOptions(bootstrap=((HOST, 9001), (HOST, 9002)))
    )
    latency_ns: int = millis(1)
    now: int = START
    core: ClientCore = attrs.field(init=False)
    results: dict[int, Any] = attrs.field(factory=dict, init=False)
    settled: list[Any] = attrs.field(factory=list, init=False)
    hangups: list[int] = attrs.field(factory=list, init=False)
    dials: dict[int, int] = attrs.field(factory=dict, init=False)
    wake_at: int = attrs.field(default=START, init=False)
    _buffers: dict[int, FrameBuffer] = attrs.field(factory=dict, init=False)
    _parked: dict[int, list[Any]] = attrs.field(factory=dict, init=False)
    """By dial: frames behind one whose answer is held back. Brokers answer in order."""
    _heap: list[tuple[int, int, Any]] = attrs.field(factory=list, init=False)
    _numbers: Any = attrs.field(factory=lambda: itertools.count(1), init=False)

    def __attrs_post_init__(self) -> None:
        self.core = ClientCore(self.options, OsEntropy(b"x" * 32))

    # --- asking -----------------------------------------------------------------------------------

    def call(self, request: Any) -> int:
        number = next(self._numbers)
        self.perform(self.core.call(number, request, self.now))
        return number

    def ask(self, request: Any) -> Any:
        """Call and run until the result; raises what the call failed with."""
        number = self.call(request)
        self.run_until(lambda: number in self.results)
        result = self.results.pop(number)
        if isinstance(result, RaftlogError):
            raise result
        return result

    def send(self, topic: str, value: bytes, **more: Any) -> Any:
        return self.core.send(topic, value, timestamp_ms=1, now=self.now, **more)

    # --- running ----------------------------------------------------------------------------------

    def turn(self, *events: Any) -> None:
        self.perform(self.core.handle(events, self.now))

    def perform(self, effects: Any) -> None:
        self.wake_at = effects.wake_at
        for action in effects.actions:
            match action:
                case Dial():
                    self._dial(action)
                case Send():
                    self._post(self.latency_ns, "arrive", action)
                case Disconnect():
                    self.hangups.append(self.dials.pop(action.dial, 0))
                case Complete():
                    assert action.call not in self.results
                    self.results[action.call] = action.value
                case Settled():
                    assert action.batch.settled
                    self.settled.append(action.batch)

    def _dial(self, dial: Dial) -> None:
        node = dial.port - 9000
        self.dials[dial.dial] = node
        self._buffers[dial.dial] = FrameBuffer(FrameCutter.for_requests())
        if node in self.cluster.dead or not 1 <= node <= self.cluster.nodes:
            self._post(self.latency_ns, "event", Disconnected(dial.dial, "refused"))
        else:
            self._post(self.latency_ns, "event", Connected(dial.dial))

    def _post(self, delay: int, kind: str, item: Any) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._numbers), (kind, item)))

    def _arrive(self, send: Send) -> None:
        node = self.dials.get(send.dial)
        if node is None or node in self.cluster.dead:
            return
        if node in self.cluster.paused:
            self._post(millis(100), "arrive", send)
            return
        data = b"".join(bytes(part) for part in send.parts)
        for frame in self._buffers[send.dial].feed(data):
            if send.dial in self._parked:
                self._parked[send.dial].append(bytes(frame))
            elif not self._serve(node, send.dial, frame):
                return

    def _serve(self, node: int, dial: int, frame: Any) -> bool:
        """Let the broker answer; whether the connection is still there."""
        parts, cut = self.cluster.answer(node, frame, partial(self._reply_later, node, dial))
        if cut is not None:
            self._post(self.latency_ns, "event", Disconnected(dial, cut))
            self.dials.pop(dial, None)
            return False
        if isinstance(parts, Later):
            self._parked[dial] = []
        elif parts is not None:
            self._reply(dial, parts)
        return True

    def _reply(self, dial: int, parts: list[Any]) -> None:
        whole = b"".join(bytes(part) for part in parts)
        self._post(self.latency_ns, "event", Frame(dial, whole[4:]))

    def _reply_later(self, node: int, dial: int, parts: list[Any]) -> None:
        waiting = self._parked.pop(dial, [])
        if dial not in self.dials:
            return
        self._reply(dial, parts)
        for frame in waiting:
            if dial in self._parked:
                self._parked[dial].append(frame)
            elif not self._serve(node, dial, frame):
                return

    def kill(self, node: int) -> None:
        """The broker is gone; its connections break."""
        self.cluster.dead.add(node)
        for dial, at in list(self.dials.items()):
            if at == node:
                del self.dials[dial]
                self._post(0, "event", Disconnected(dial, "reset"))

    def step(self) -> None:
        """Go to the next thing that happens: a message, or the core's own deadline."""
        due = self._heap[0][0] if self._heap else NEVER
        assert min(due, self.wake_at) < NEVER, "nothing will ever happen again"
        if self.wake_at < due:
            assert self.wake_at >= self.now, (self.wake_at, self.now)
            before = (self.now, self.wake_at)
            self.now = self.wake_at
            self.turn()
            assert (self.now, self.wake_at) != before, "the core asks to be woken in vain"
            return
        self.now, _, (kind, item) = heapq.heappop(self._heap)
        if kind == "arrive":
            self._arrive(item)
        elif item.dial in self.dials or isinstance(item, Disconnected):
            self.turn(item)

    def run_until(self, done: Callable[[], bool], steps: int = 100_000) -> None:
        for _ in range(steps):
            if done():
                return
            self.step()
        raise AssertionError("it did not happen")

    def run_for(self, nanos: int) -> None:
        end = self.now + nanos
        while min(self._heap[0][0] if self._heap else NEVER, self.wake_at) <= end:
            self.step()
        self.now = end

    def settle(self) -> None:
        """Run until every record is settled."""
        self.turn()
        self.run_until(lambda: self.core.unsettled_batches == 0)


def node(number: int) -> NodeId:
    return NodeId(number)
