"""Client connections: how many requests are handed in at once, who is closed, and how many fit."""

import struct

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from raftlog.base.errors import DiskError
from raftlog.base.ids import ConnectionId, IoId
from raftlog.base.limits import TURN_EVENTS_MAX
from raftlog.base.trace import ListTracer
from raftlog.base.units import MIB
from raftlog.broker.events import (
    ConnectionClosed,
    ConnectionOpened,
    Hangup,
    Pause,
    Persisted,
    Reply,
    Request,
)
from raftlog.broker.turn_queue import CROWDED_SHARE
from raftlog.records.slices import FileSlice
from raftlog.runtime.disks.open_files import OpenFiles
from raftlog.runtime.network.intake import FRAME_SECONDS_MAX
from raftlog.runtime.network.listener import STREAMED_FROM, AcceptedConnections
from tests.runtime.driver_rig import HOME
from tests.runtime.frame_senders import LittleMemory
from tests.runtime.memory_stream import memory_pair
from tests.runtime.test_driver import FakeBroker, driver_of

SMALL = struct.pack(">ihhih", 10, 3, 1, 7, -1)
MEDIUM = struct.pack(">ihh", 96, 3, 1) + bytes(92)


class Rig:
    """Connections over a driver whose broker answers by `plan`."""

    def __init__(self, nursery, plan=None, connections_max: int = 10, files=None) -> None:
        self.nursery = nursery
        self.broker = FakeBroker(plan)
        self.driver = driver_of(self.broker)
        self.tracer = ListTracer()
        self.connections = AcceptedConnections(
            self.driver,
            files or OpenFiles({}, None),
            self.tracer,
            1 << 20,
            connections_max,
        )
        self.driver.connections = self.connections
        nursery.start_soon(self.driver.run)

    async def connect(self):
        client, stream = memory_pair(room=1 << 24)
        self.nursery.start_soon(self.connections.serve, stream, "PLAINTEXT", "here:1")
        await wait_all_tasks_blocked()
        return client

    def events(self, kind) -> list:
        return [each for turn in self.broker.turns for each in turn if isinstance(each, kind)]


class Answering:
    """A plan that answers every request of the turn, but for those in `held`."""

    def __init__(self, held: int = 0) -> None:
        self.held = held
        self.rig: Rig | None = None

    def __call__(self, turn, effects) -> None:
        for event in self.rig.broker.turns[turn - 1]:
            if isinstance(event, Request) and event.request_no >= self.held:
                effects.replies.append(Reply(event.connection, event.request_no, (b"answer",)))


def answering(nursery, held: int = 0, **more) -> Rig:
    plan = Answering(held)
    plan.rig = Rig(nursery, plan, **more)
    return plan.rig


async def test_no_memory_for_one_frame_costs_one_connection(monkeypatch):
    """`OSError` from the slab left the reader of one connection and ended the whole process."""
    async with trio.open_nursery() as nursery:
        rig = answering(nursery)
        rig.connections.frame_bytes_max = 32 * MIB
        LittleMemory(monkeypatch)
        polite, large = await rig.connect(), await rig.connect()
        large.send_nowait([struct.pack(">ihh", 20 * MIB, 0, 9) + bytes(9 * MIB)])
        await wait_all_tasks_blocked()
        (closed,) = rig.events(ConnectionClosed)
        assert closed.connection == 2
        (trace,) = [each for each in rig.tracer.events if each.name == "hang-up"]
        assert "no memory for a frame" in str(trace)
        assert rig.connections.intake.held == 0
        polite.send_nowait([SMALL])
        await wait_all_tasks_blocked()
        assert len(rig.events(Request)) == 1
        nursery.cancel_scope.cancel()


async def test_a_flood_is_handed_in_piece_by_piece():
    """One receive may bring thousands of small requests. All of them were queued at once, before
    the broker could pause their connection, and all others waited behind them."""
    async with trio.open_nursery() as nursery:
        queued = []

        def plan(turn, effects) -> None:
            queued.append(len(rig.driver._queue._requests))

        rig = Rig(nursery, plan)
        clients = [await rig.connect() for _ in range(3)]
        for client in clients:
            client.send_nowait([SMALL * 5000])
        await wait_all_tasks_blocked()
        assert max(queued) <= TURN_EVENTS_MAX + 3 * CROWDED_SHARE
        assert len(rig.events(Request)) == 3 * 5000
        nursery.cancel_scope.cancel()


async def test_one_request_waits_for_two_shares_of_each_flood_at_most():
    """Sixteen clients asked for large answers as fast as they could; each receive was queued whole,
    and a client that sends one request at a time waited for a second behind each of its own."""
    async with trio.open_nursery() as nursery:
        rig = answering(nursery, connections_max=20)
        floods = [await rig.connect() for _ in range(16)]
        polite = await rig.connect()
        for flood in floods:
            flood.send_nowait([SMALL * 2000])
        polite.send_nowait([SMALL])
        await wait_all_tasks_blocked()
        order = [each.connection for each in rig.events(Request)]
        assert len(order) == 16 * 2000 + 1
        assert order.index(ConnectionId(17)) <= 2 * len(floods) * TURN_EVENTS_MAX
        nursery.cancel_scope.cancel()


async def test_a_paused_connection_hands_in_no_more_than_it_has_begun():
    async with trio.open_nursery() as nursery:

        def plan(turn, effects) -> None:
            if rig.events(Request):
                effects.pauses.append(Pause(ConnectionId(1)))

        rig = Rig(nursery, plan)
        client = await rig.connect()
        client.send_nowait([SMALL * 5000])
        await wait_all_tasks_blocked()
        assert 0 < len(rig.events(Request)) <= 2 * TURN_EVENTS_MAX
        nursery.cancel_scope.cancel()


async def test_numbers_follow_the_order_on_the_wire():
    async with trio.open_nursery() as nursery:
        rig = answering(nursery)
        client = await rig.connect()
        client.send_nowait([SMALL * 1000])
        await wait_all_tasks_blocked()
        assert [each.request_no for each in rig.events(Request)] == list(range(1000))
        assert b"".join(client.incoming) == b"answer" * 1000
        nursery.cancel_scope.cancel()


async def test_an_answer_to_several_requests_waits_for_those_before_and_holds_up_those_behind():
    async with trio.open_nursery() as nursery:
        connection = ConnectionId(1)
        replies = [
            Reply(connection, 4, (b"5",)),
            Reply(connection, 1, (b"2", b"34"), 3),
            Reply(connection, 0, (b"1",)),
        ]

        def plan(turn, effects) -> None:
            if replies and len(rig.events(Request)) > 4:
                effects.replies.append(replies.pop(0))

        rig = Rig(nursery, plan)
        client = await rig.connect()
        client.send_nowait([SMALL * 5])
        await wait_all_tasks_blocked()
        for left in (2, 1):
            assert len(replies) == left
            assert not client.incoming
            client.send_nowait([SMALL])
            await wait_all_tasks_blocked()
        assert b"".join(client.incoming) == b"12345"
        nursery.cancel_scope.cancel()


async def test_the_idle_are_hung_up_on(autojump_clock: MockClock):
    async with trio.open_nursery() as nursery:
        rig = answering(nursery, held=1)
        silent, waiting, talking = [await rig.connect() for _ in range(3)]
        nursery.start_soon(rig.connections.close_idle, 10.0)
        waiting.send_nowait([SMALL])  # its first request is held: a long poll
        for _ in range(6):
            talking.send_nowait([SMALL * 2])
            await trio.sleep(5.0)
        assert silent.other.closed
        assert not waiting.other.closed
        assert [each.connection for each in rig.events(ConnectionClosed)] == [1]
        nursery.cancel_scope.cancel()


async def test_half_a_frame_is_no_activity(autojump_clock: MockClock):
    """A client that sends a byte now and then would hold a connection for good."""
    async with trio.open_nursery() as nursery:
        rig = answering(nursery)
        drip = await rig.connect()
        nursery.start_soon(rig.connections.close_idle, 10.0)
        for byte in SMALL[:7]:
            if not drip.other.closed:
                drip.send_nowait([bytes([byte])])
            await trio.sleep(4.0)
        assert drip.other.closed
        nursery.cancel_scope.cancel()


async def test_a_broker_that_hangs_up_on_everybody_fills_no_log():
    """In the very turn that hears of them, for as long as they come back (a broker whose directory
    is refused, for days)."""
    async with trio.open_nursery() as nursery:

        def turn_away(turn, effects) -> None:
            for event in rig.broker.turns[turn - 1]:
                if isinstance(event, ConnectionOpened):
                    effects.hangups.append(Hangup(event.connection))

        rig = Rig(nursery, turn_away)
        clients = [await rig.connect() for _ in range(20)]
        assert all(each.other.closed for each in clients)
        assert len(rig.events(ConnectionOpened)) == len(rig.events(ConnectionClosed)) == 20
        assert rig.tracer.events == []
        nursery.cancel_scope.cancel()


async def test_one_more_than_fit_is_closed_at_once():
    async with trio.open_nursery() as nursery:
        rig = answering(nursery, connections_max=2)
        clients = [await rig.connect() for _ in range(3)]
        assert [each.other.closed for each in clients] == [False, False, True]
        assert len(rig.events(ConnectionOpened)) == 2
        clients[0].close()
        await wait_all_tasks_blocked()
        assert not (await rig.connect()).other.closed
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("opening", [b"\x7f\xff\xff\xff", b"\0\0\0\1x", b"GET / HTTP/1.1\r\n\r\n"])
async def test_what_is_no_frame_ends_its_connection_only(opening):
    async with trio.open_nursery() as nursery:
        rig = answering(nursery)
        bad, good = await rig.connect(), await rig.connect()
        bad.send_nowait([opening])
        good.send_nowait([SMALL])
        await wait_all_tasks_blocked()
        assert bad.other.closed
        assert b"".join(good.incoming) == b"answer"
        assert not good.other.closed
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("count", [1, STREAMED_FROM + 2, 500])
async def test_what_was_sent_before_the_end_is_handed_in_before_it(count):
    """A producer with acks=0 hears nothing: it closes when its last request has left, and Kafka
    takes what it had sent. The news that a client had gone overtook its requests that waited for a
    turn, in the queue of what is small, and they were dropped."""
    async with trio.open_nursery() as nursery:
        rig = Rig(nursery)
        disk = next(iter(rig.driver.directories.values()))
        client = await rig.connect()
        disk.round_ends_soon = True  # what is streamed waits for the round's turn
        client.send_nowait([SMALL * count])
        client.close()
        await wait_all_tasks_blocked()
        disk.round_ends_soon = False
        rig.driver.queue(Persisted(IoId(1), HOME))
        await wait_all_tasks_blocked()
        assert len(rig.events(Request)) == count
        (end,) = rig.events(ConnectionClosed)
        order = rig.events((Request, ConnectionClosed))
        assert order[-1] is end
        nursery.cancel_scope.cancel()


def pausing(nursery, after: int) -> Rig:
    """A broker that pauses who has had so many requests, and answers nothing."""

    def plan(turn, effects) -> None:
        for event in rig.broker.turns[turn - 1]:
            if isinstance(event, Request) and event.request_no == after:
                effects.pauses.append(Pause(event.connection))

    rig = Rig(nursery, plan, connections_max=100)
    return rig


async def test_requests_that_wait_to_be_handed_in_count_as_receive_memory():
    """A paused connection kept what it had received and not yet handed in, up to a large slab of
    whole frames, and no part counted it: memory for each of thousands of connections."""
    async with trio.open_nursery() as nursery:
        rig = pausing(nursery, after=500)  # by then it receives into large slabs
        clients = [await rig.connect() for _ in range(70)]
        for client in clients:
            client.send_nowait([MEDIUM * 3_000])
        await wait_all_tasks_blocked()
        intake = rig.connections.intake
        assert intake.bytes_max // 2 < intake.held <= intake.bytes_max + MIB
        for number in range(1, 71):
            rig.connections.resume(ConnectionId(number))
        await wait_all_tasks_blocked()
        assert len(rig.events(Request)) == 70 * 3_000
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_paused_connections_that_came_one_after_another_are_bounded_too():
    """Each of them found all who held memory paused, took itself for the one that may go beyond
    the bound, and had a large slab because its traffic deserved one: 75 MiB for 300 of them."""
    async with trio.open_nursery() as nursery:
        rig = pausing(nursery, after=500)  # by then it receives into large slabs
        for _ in range(100):
            client = await rig.connect()
            client.send_nowait([MEDIUM * 3_000])
            await wait_all_tasks_blocked()
        intake = rig.connections.intake
        assert intake.bytes_max // 2 < intake.held <= intake.bytes_max
        nursery.cancel_scope.cancel()


async def test_large_frames_that_wait_for_a_turn_hold_up_those_who_would_bring_more():
    """A whole frame was not counted until a turn took it, and a turn takes two megabytes:
    a client that came meanwhile had receive memory for another one."""
    async with trio.open_nursery() as nursery:
        rig = answering(nursery, connections_max=100)
        rig.connections.frame_bytes_max = 8 * MIB
        clients = [await rig.connect() for _ in range(60)]
        rig.driver.pause()
        for client in clients:
            client.send_nowait([struct.pack(">ihh", 4 * MIB, 0, 9) + bytes(4 * MIB - 4)])
        await wait_all_tasks_blocked()
        queued = sum(len(each.frame) for each in rig.driver._queue._requests)
        intake = rig.connections.intake
        assert queued <= intake.held <= intake.bytes_max + 5 * MIB
        rig.driver.resume()
        await wait_all_tasks_blocked()
        assert len(rig.events(Request)) == 60
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_a_paused_connection_whose_memory_others_need_is_ended(autojump_clock: MockClock):
    """It may stay paused for as long as its own requests wait: an hour, if it likes."""
    async with trio.open_nursery() as nursery:
        rig = pausing(nursery, after=500)  # by then it receives into large slabs
        clients = [await rig.connect() for _ in range(70)]
        for client in clients:
            client.send_nowait([MEDIUM * 3_000])
        await trio.sleep(100 * FRAME_SECONDS_MAX)
        assert not any(client.other.closed for client in clients), "nobody waits for it"
        honest = [await rig.connect() for _ in range(8)]
        for client in honest:
            client.send_nowait([struct.pack(">ihh", MIB, 0, 9) + bytes(MIB // 2)])
        await trio.sleep(2 * FRAME_SECONDS_MAX)
        for client in honest:
            if not client.other.closed:
                client.send_nowait([bytes(MIB // 2 - 4)])
        await trio.sleep(1)
        assert any(client.other.closed for client in clients)
        nursery.cancel_scope.cancel()


class Unopenable:
    """Descriptors of a disk that opens nothing."""

    def open(self, path):
        raise DiskError("sector cannot be read", on=path)


async def test_behind_a_frame_that_broke_off_nothing_is_sent():
    """Seed 6401392: the file of an answer could not be opened when the answer's first bytes were
    queued. The connection was to be closed, but answers of the same turn followed: a client took
    them for the records that its frame had promised."""
    async with trio.open_nursery() as nursery:
        lost = FileSlice(HOME, "a.log", 0, 100)

        def plan(turn, effects) -> None:
            for event in rig.broker.turns[turn - 1]:
                if isinstance(event, Request):
                    parts = (b"first", lost) if event.request_no == 1 else (b"whole",)
                    effects.replies.append(Reply(event.connection, event.request_no, parts))

        rig = Rig(nursery, plan, files=OpenFiles({HOME: Unopenable()}, None))
        client = await rig.connect()
        client.send_nowait([SMALL * 4])
        await wait_all_tasks_blocked()
        assert b"".join([each async for each in everything(client)]) == b"wholefirst"
        assert rig.events(ConnectionClosed)
        nursery.cancel_scope.cancel()


async def everything(client):
    """Yields the bytes that arrive until the other end is closed."""
    buffer = bytearray(1000)
    while size := await client.receive_into(memoryview(buffer)):
        yield bytes(buffer[:size])
