"""The network of trio mode: what arrives, who waits, and what a fault does to a connection."""

from contextlib import suppress
from heapq import heappop, heappush

import pytest
import trio
from raftlog_sim.base.streams import Stream
from raftlog_sim.shell import trio_clock
from raftlog_sim.shell.trio_network import CLIENTS, CONNECT_SECONDS, Hub, ProcessNetwork
from raftlog_sim.shell.trio_streams import ClientEnd, Pace

from raftlog.base.ids import NodeId
from raftlog.base.units import NANOS_PER_SECOND, millis

ONE, TWO = NodeId(1), NodeId(2)


class Rig:
    """Two machines, a listener on the second, and time."""

    def __init__(self, buffer_bytes=400, latency_ns=millis(2), jitter_ns=millis(1)):
        self.clock = trio_clock.JumpClock()
        self.heap = []
        self.woken = trio.Event()
        self.hub = Hub(Pace(self, latency_ns, jitter_ns), buffer_bytes)
        self.one, self.two = ProcessNetwork(self.hub, ONE), ProcessNetwork(self.hub, TWO)

    @property
    def now(self):
        return self.clock.now

    def stream(self, name):
        return Stream(7, name)

    def at(self, instant, action, *args):
        heappush(self.heap, (instant, len(self.heap) + self.now, id(args), action, args))
        self.woken.set()

    async def perform(self):
        while True:
            while self.heap and self.heap[0][0] <= self.now:
                _, _, _, action, args = heappop(self.heap)
                action(*args)
            due = self.heap[0][0] / NANOS_PER_SECOND if self.heap else 1e9
            with trio.CancelScope(deadline=due):
                await self.woken.wait()
            self.woken = trio.Event()

    async def pair(self):
        """A connected pair: the end of machine 1 and the end of machine 2."""
        (self.listening,) = await self.two.listen("n2", 9)
        mine = await self.one.connect("n2", 9)
        return mine, await self.accepted()

    async def accepted(self):
        while True:
            with suppress(OSError):  # too many open files, now and then
                return (await self.listening.accept())[0]


def in_virtual_time(body, **more):
    rig = Rig(**more)

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.perform)
            await body(rig)
            nursery.cancel_scope.cancel()

    trio_clock.run(1, rig.clock, main)


async def send_all(stream, data):
    view = memoryview(data)
    while view:
        view = view[stream.send_nowait([view]) :]
        if view:
            await stream.wait_writable()


async def receive(stream, count, sizes=None):
    got = bytearray()
    buffer = memoryview(bytearray(100))
    while len(got) < count:
        size = await stream.receive_into(buffer)
        assert size, "the end of the stream"
        got += buffer[:size]
        if sizes is not None:
            sizes.append(size)
    return bytes(got)


DATA = bytes(range(256)) * 20


def test_bytes_arrive_whole_and_in_order_in_pieces_of_odd_sizes():
    async def body(rig):
        mine, theirs = await rig.pair()
        sizes = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all, mine, DATA)
            nursery.start_soon(send_all, theirs, DATA[::-1])
            assert await receive(theirs, len(DATA), sizes) == DATA
            assert await receive(mine, len(DATA)) == DATA[::-1]
        assert len(set(sizes)) > 10
        assert rig.now > millis(2)

    in_virtual_time(body)


def test_who_is_not_read_is_held_back():
    async def body(rig):
        mine, theirs = await rig.pair()
        sent = 0
        while taken := mine.send_nowait([DATA]):
            sent += taken
        assert 0 < sent <= 400
        with trio.move_on_after(5) as waited:
            await mine.wait_writable()
        assert waited.cancelled_caught, "time alone makes no room"
        await receive(theirs, 1)
        await mine.wait_writable()
        assert mine.send_nowait([DATA]) > 0

    in_virtual_time(body)


def test_a_reset_breaks_both_ends_and_loses_what_was_under_way():
    async def body(rig):
        mine, theirs = await rig.pair()
        mine.send_nowait([b"lost"])
        assert rig.hub.reset(TWO, ONE)
        for end in (mine, theirs):
            with pytest.raises(trio.BrokenResourceError):
                await end.receive_into(memoryview(bytearray(9)))
            with pytest.raises(trio.BrokenResourceError):
                end.send_nowait([b"x"])
        assert not rig.hub.reset(ONE, TWO), "there is none any more"

    in_virtual_time(body)


def test_a_reset_wakes_who_waits():
    async def body(rig):
        mine, theirs = await rig.pair()
        while mine.send_nowait([DATA]):
            pass
        broken = []

        async def waits(wait):
            with pytest.raises(trio.BrokenResourceError):
                await wait()
            broken.append(wait)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(waits, mine.wait_writable)
            nursery.start_soon(waits, mine.wait_readable)
            await trio.sleep(0.001)
            mine.reset()
        assert len(broken) == 2
        assert not theirs.stands

    in_virtual_time(body)


def test_a_closed_end_finishes_what_it_sent_and_hears_nothing():
    async def body(rig):
        mine, theirs = await rig.pair()
        await send_all(mine, b"last words")
        mine.close()
        assert await receive(theirs, 10) == b"last words"
        assert await theirs.receive_into(memoryview(bytearray(9))) == 0
        with pytest.raises(trio.ClosedResourceError):
            mine.send_nowait([b"more"])
        theirs.send_nowait([b"into the void"])
        await trio.sleep(0.01)
        with pytest.raises(trio.BrokenResourceError):
            theirs.send_nowait([b"x"])

    in_virtual_time(body)


def test_a_held_direction_carries_nothing_and_then_everything():
    async def body(rig):
        mine, theirs = await rig.pair()
        cut = rig.hub.hold([(ONE, TWO)])
        await send_all(mine, b"held")
        await send_all(theirs, b"free")
        assert await receive(mine, 4) == b"free"
        with trio.move_on_after(3) as waited:
            await theirs.wait_readable()
        assert waited.cancelled_caught
        rig.hub.mend(cut)
        assert await receive(theirs, 4) == b"held"

    in_virtual_time(body)


def test_a_cut_pair_breaks_and_cannot_connect_until_it_is_mended():
    async def body(rig):
        mine, _ = await rig.pair()
        cut = rig.hub.part([(TWO, ONE)])
        assert not mine.stands
        with pytest.raises(OSError, match="No route"):
            await rig.one.connect("n2", 9)
        rig.hub.mend(cut)
        assert (await rig.one.connect("n2", 9)).stands

    in_virtual_time(body)


def test_nobody_listens():
    async def body(rig):
        with pytest.raises(ConnectionRefusedError):
            await rig.one.connect("n2", 9)
        await rig.pair()
        with pytest.raises(OSError, match="in use"):
            await rig.two.listen("n2", 9)
        rig.listening.close()
        with pytest.raises(ConnectionRefusedError):
            await rig.one.connect("n2", 9)

    in_virtual_time(body)


@pytest.mark.parametrize("how", ["finish", "reset"])
def test_a_process_that_ends_takes_its_streams_with_it(how):
    async def body(rig):
        mine, theirs = await rig.pair()
        waiting = await rig.one.connect("n2", 9)
        rig.two.end(how)
        assert not theirs.stands
        assert not waiting.stands, "it was never accepted"
        await trio.sleep(0.1)
        if how == "finish":
            assert await mine.receive_into(memoryview(bytearray(9))) == 0
        else:
            assert not mine.stands
        with pytest.raises(ConnectionRefusedError):
            await rig.one.connect("n2", 9)

    in_virtual_time(body)


def test_of_a_machine_without_power_nothing_is_heard_until_it_is_back():
    async def body(rig):
        mine, _ = await rig.pair()
        rig.two.end("silent")
        while mine.send_nowait([DATA]):
            pass
        with trio.move_on_after(60) as waited:
            await mine.wait_writable()
        assert waited.cancelled_caught
        before = rig.now
        with pytest.raises(OSError, match="timed out"):
            await rig.one.connect("n2", 9)
        assert rig.now - before > CONNECT_SECONDS * NANOS_PER_SECOND
        rig.hub.power_on(TWO)
        assert not mine.stands

    in_virtual_time(body)


def test_a_client_hears_of_a_broken_stream_by_an_oserror():
    async def body(rig):
        await rig.pair()
        end = ClientEnd(await ProcessNetwork(rig.hub, CLIENTS).connect("n2", 9))
        assert end.send_nowait([b"a"]) == 1
        rig.hub.reset(CLIENTS, TWO)
        with pytest.raises(ConnectionResetError):
            end.send_nowait([b"a"])
        with pytest.raises(ConnectionResetError):
            await end.receive_into(memoryview(bytearray(9)))
        await end.wait_writable()

    in_virtual_time(body)
