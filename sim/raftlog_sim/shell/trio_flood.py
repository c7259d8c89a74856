"""Plays what only byte streams can suffer: a client that asks much more than it reads.

Then these must hold:

    answers-in-order    each request on a connection is answered once, in the order of asking
    back-pressure       of a paused connection the broker hears no more than was on its way inside
                        the process: a turn's worth in the queue, and a turn's worth being posted
"""

from collections.abc import Sequence
from typing import Any, Final, final

import attrs
import trio

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import ConnectionId, NodeId
from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.base.units import KIB, NANOS_PER_SECOND, WallMillis
from raftlog.broker.events import ConnectionClosed, Effects, Event, Pause, Request
from raftlog.kafka.codec import decode_response, encode_request
from raftlog.kafka.frames import FrameCutter
from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import SERVED, ApiKey
from raftlog.records.builder import RecordBatchBuilder
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.shell.trio_streams import ClientEnd
from raftlog_sim.shell.trio_surroundings import Surroundings
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.world.world import CLIENT_PORT

AFTER_PAUSE_MAX: Final = 2 * TURN_EVENTS_MAX
_LEAVES_ONE_IN: Final = 3
"""Floods whose client leaves without having read anything, in the middle of a frame perhaps."""
_RECEIVE_BYTES: Final = 3_000
_FETCH_EVERY: Final = 4
_WAIT_EVERY: Final = 24
"""Fetches that wait for more than there is: what was asked after them is answered before them."""
_WAIT_MS: Final = 10
_FETCH_BYTES: Final = 16 * KIB
_FETCH_BY_NAME: Final = 12
_PRODUCE_BY_NAME: Final = 9
_BULK_ONE_IN: Final = 3
_BULK_MIN: Final = 5_000
_BULK_MAX: Final = 300_000
_EVERYTHING: Final = MetadataRequest(topics=None, allow_auto_topic_creation=False)


@final
@attrs.define(eq=False)
class BackPressure:
    """Watches the connections of one boot: requests that were heard while paused."""

    _paused: dict[ConnectionId, int] = attrs.Factory(dict)

    def after_turn(
        self, events: Sequence[Event], effects: Effects, invariants: Invariants | None
    ) -> None:
        """Look at a turn. Raises `Violation`."""
        if not (self._paused or effects.pauses):
            return
        for event in events:
            if type(event) is ConnectionClosed:
                self._paused.pop(event.connection, None)
            elif type(event) is Request and event.connection in self._paused:
                heard = self._paused[event.connection] = self._paused[event.connection] + 1
                if invariants is not None:
                    invariants.checked["back-pressure"] += 1
                if heard > AFTER_PAUSE_MAX:
                    raise Violation(
                        "back-pressure",
                        f"connection {event.connection} is paused, and {heard} of its requests "
                        "came all the same",
                    )
        for change in effects.pauses:
            if type(change) is Pause:
                self._paused[change.connection] = 0
            else:
                self._paused.pop(change.connection, None)


@final
@attrs.define(eq=False)
class Flood:
    """A client that sends `count` requests, metadata and fetches that wait or do not, reads nothing
    for a while, and then reads all answers, unless it leaves. Its first request may be a large one,
    of which it sends a half, and the other half a while later."""

    world: Surroundings
    node: NodeId
    count: int
    deaf_ns: int
    draws: Stream
    _bulk: int = 0
    """Bytes of the large request; 0 for none."""
    _answered: int = 0

    def __attrs_post_init__(self) -> None:
        if self.draws.chance(1, _BULK_ONE_IN):
            self._bulk = self.draws.between(_BULK_MIN, _BULK_MAX)

    async def run(self) -> None:
        """The task."""
        try:
            connection = await self.world.connect_client(f"n{self.node}", CLIENT_PORT)
        except OSError:
            return
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._ask, connection)
                await trio.sleep(self.deaf_ns / NANOS_PER_SECOND)
                if not self.draws.chance(1, _LEAVES_ONE_IN):
                    await self._hear(connection)
                nursery.cancel_scope.cancel()
        finally:
            connection.close()

    async def _ask(self, connection: ClientEnd) -> None:
        """Send everything; how much of it goes depends on who reads."""
        data = memoryview(b"".join(self._request(number) for number in range(self.count)))
        half = self._bulk // 2
        try:
            await _send(connection, data[:half])
            if half:
                await trio.sleep(self.deaf_ns / 2 / NANOS_PER_SECOND)
            await _send(connection, data[half:])
        except OSError:
            return  # the reader of answers is told

    async def _hear(self, connection: ClientEnd) -> None:
        """Read until everything is answered, or the connection ends."""
        cutter, received = FrameCutter.for_responses(), bytearray()
        buffer = bytearray(_RECEIVE_BYTES)
        while self._answered < self.count:
            try:
                size = await connection.receive_into(memoryview(buffer))
            except OSError:
                return
            if size == 0:
                return
            received += buffer[:size]
            cut = cutter.cut(memoryview(bytes(received)))
            for frame in cut.frames:
                self._judge(bytes(frame))
            del received[: cut.consumed]

    def _judge(self, frame: bytes) -> None:
        if self.world.invariants is not None:
            self.world.invariants.checked["answers-in-order"] += 1
        found = int.from_bytes(frame[:4], "big")
        if found != self._answered:
            raise self._wrong(f"the answer of request {found}")
        api_key, version, _ = self._asked(found)
        try:
            trailing = decode_response(api_key, version, frame).trailing
        except ProtocolError as error:
            raise self._wrong(f"what is no answer: {error}") from error
        if trailing:
            raise self._wrong(f"an answer with {trailing} bytes too many")
        self._answered += 1

    def _wrong(self, what: str) -> Violation:
        return Violation("answers-in-order", f"request {self._answered} to n{self.node} got {what}")

    def _request(self, number: int) -> bytes:
        api_key, version, body = self._asked(number)
        parts = encode_request(api_key, version, number, "flood", body)
        return b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]

    def _asked(self, number: int) -> tuple[int, int, Any]:
        """The request of that number: API key, version, body."""
        if number == 0 and self._bulk:
            return ApiKey.PRODUCE, _PRODUCE_BY_NAME, _to_nobody(self._bulk)
        if number % _FETCH_EVERY:
            return ApiKey.METADATA, SERVED[ApiKey.METADATA].max, _EVERYTHING
        patient = number % _WAIT_EVERY == 0
        part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=_FETCH_BYTES)
        body = FetchRequest(
            max_wait_ms=_WAIT_MS if patient else 0,
            min_bytes=2 * _FETCH_BYTES if patient else 0,
            max_bytes=_FETCH_BYTES,
            topics=(FetchTopic(TOPIC, partitions=(part,)),),
        )
        return ApiKey.FETCH, _FETCH_BY_NAME, body


async def _send(connection: ClientEnd, rest: memoryview) -> None:
    while rest:
        sent = connection.send_nowait([rest])
        rest = rest[sent:]
        if rest and sent == 0:
            await connection.wait_writable()
        await trio.lowlevel.checkpoint()


def _to_nobody(size: int) -> ProduceRequest:
    """Records for a topic that does not exist."""
    builder = RecordBatchBuilder()
    builder.append(bytes(size), timestamp_ms=WallMillis(0))
    data = (PartitionProduceData(0, builder.build()),)
    return ProduceRequest(acks=1, topic_data=(TopicProduceData("nobody", partition_data=data),))
