"""How long a frame may hold memory that others wait for, and whose time that is."""

import struct

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from raftlog.base.units import KIB, MIB
from raftlog.runtime.intake import FRAME_SECONDS_MAX, STILL_SECONDS_MAX, Intake
from tests.runtime.frame_senders import LARGE, Holder, Sender, senders


async def test_who_waits_looks_after_the_others_once_for_all(autojump_clock: MockClock):
    """Each of those who waited sent each of the slow ones away: 800,000 times for two thousand."""
    intake, slow = Intake(bytes_max=10), Holder(0)
    async with trio.open_nursery() as nursery:
        intake.hold(slow, 20)
        for _ in range(50):
            nursery.start_soon(intake.admit, Holder(), 5)
        await trio.sleep(STILL_SECONDS_MAX)
        assert slow.evicted == 0
        await trio.sleep(0.9)
        assert slow.evicted == 1
        intake.release(slow)


async def test_who_stalls_while_others_wait_is_sent_away(autojump_clock: MockClock):
    intake = Intake()
    async with trio.open_nursery() as nursery:
        hostile = await senders(nursery, intake, 8)
        for each in hostile:
            each.announce(LARGE, LARGE - 1)
        await trio.sleep(0.1)
        (honest,) = await senders(nursery, intake, 1)
        honest.send_whole(2 * MIB)
        await trio.sleep(FRAME_SECONDS_MAX + 8)
        assert honest.frames == 1
        assert honest.error is None
        text = str(next(each.error for each in hostile if each.error is not None))
        assert "held memory for too long" in text
        nursery.cancel_scope.cancel()


async def test_who_stalls_alone_is_left_alone(autojump_clock: MockClock):
    """Slow is no crime while nobody waits: a phone may take a minute for its megabyte."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        (slow,) = await senders(nursery, intake, 1)
        slow.announce(LARGE, LARGE // 2)
        await trio.sleep(100 * FRAME_SECONDS_MAX)
        slow.finish(LARGE - LARGE // 2)
        await trio.sleep(1)
        assert (slow.frames, slow.error) == (1, None)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("holder", "rests", "seconds"),
    [
        pytest.param(Holder(None), False, None, id="waits-for-a-turn"),
        pytest.param(Holder(0), False, STILL_SECONDS_MAX, id="stands-still"),
        pytest.param(Holder(None), True, FRAME_SECONDS_MAX, id="paused"),
    ],
)
async def test_how_long_memory_is_held_while_others_wait(
    holder, rests, seconds, autojump_clock: MockClock
):
    """Time in which a receiver waits for a turn, say for the disk, is not its sender's."""
    intake = Intake(bytes_max=100)
    intake.hold(holder, 101)
    await trio.sleep(1000)  # nobody waits: nothing counts
    if rests:
        intake.rest(holder)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, Holder(), 50)
        await trio.sleep(seconds or 20 * FRAME_SECONDS_MAX)
        assert not holder.evicted
        if seconds is not None:
            await trio.sleep(1.1)
            assert holder.evicted
        nursery.cancel_scope.cancel()


async def test_who_sends_has_the_time_of_a_frame(autojump_clock: MockClock):
    intake = Intake(bytes_max=100)
    holder = Holder(0)
    intake.hold(holder, 101)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, Holder(), 50)
        for _ in range(int(10 * FRAME_SECONDS_MAX)):
            assert not holder.evicted
            await trio.sleep(0.1)
            holder.bytes += 5 * KIB
        await trio.sleep(0.6)
        assert holder.evicted
        nursery.cancel_scope.cancel()


async def test_pauses_of_a_frame_count_together(autojump_clock: MockClock):
    """Regression: a pause began the count anew, so that who was paused and went on again and again
    held its memory for ever."""
    intake = Intake(bytes_max=100)
    holder = Holder(0)
    intake.hold(holder, 101)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, Holder(), 50)
        for _ in range(4):
            intake.rest(holder)
            await trio.sleep(FRAME_SECONDS_MAX / 3)
            intake.resume(holder)
            holder.bytes += 20 * KIB
        assert holder.evicted
        nursery.cancel_scope.cancel()


async def test_slow_senders_who_wait_for_memory_are_not_the_ones_that_take_long(
    autojump_clock: MockClock,
):
    """Regression: of fourteen clients with 3 MiB at 0.4 MB/s each, twelve were sent away: the time
    that they waited for memory counted as their own."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        honest = await senders(nursery, intake, 14)

        async def send_slowly(sender: Sender) -> None:
            sender.announce(3 * MIB, 40_000)
            rest = 3 * MIB - 40_000
            while rest:
                await trio.sleep(0.1)
                if sender.unread() < 256 * KIB:  # as much as the kernels take
                    piece = min(rest, 40_000)
                    sender.finish(piece)
                    rest -= piece

        for each in honest:
            nursery.start_soon(send_slowly, each)
        await trio.sleep(120)
        assert [(each.frames, each.error) for each in honest] == [(1, None)] * 14
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_nothing_is_held_by_drips_of_small_frames(autojump_clock: MockClock):
    """Regression: a connection that had earned a large slab kept it for as long as it made a tiny
    frame whole every nine seconds, with the first bytes of the next; a dozen of them held all
    memory, and a small connection that waited for some had no place among those who may go beyond
    the bound."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        hostile = await senders(nursery, intake, 12)
        for each, size in zip(hostile, [4160] * 3 + [1088] * 3 + [256] * 2 + [32] * 4, strict=True):
            for _ in range(6):
                each.send_whole(size * KIB - 8)
                await wait_all_tasks_blocked()
            each.announce(100, 50)
        await wait_all_tasks_blocked()
        assert intake.held == intake.bytes_max

        async def drip(sender: Sender) -> None:
            while True:
                await trio.sleep(0.9 * STILL_SECONDS_MAX)
                sender.stream.send_nowait([bytes(50) + struct.pack(">ihh", 100, 0, 9) + bytes(46)])

        for each in hostile:
            nursery.start_soon(drip, each)
        for size in (30_000, 5_000_000, 5_000, 5_000_000):
            (honest,) = await senders(nursery, intake, 1)
            honest.send_whole(size)
            await trio.sleep(5)
            assert (honest.frames, honest.error) == (1, None)
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_who_stands_still_has_no_place_among_those_who_wait(autojump_clock: MockClock):
    """A hundred senders fill their slabs and stop: they are not given more, one after the other,
    before an honest one is."""
    intake = Intake(bytes_max=4 * MIB)
    async with trio.open_nursery() as nursery:
        hostile = await senders(nursery, intake, 120)
        for each in hostile:
            each.announce(LARGE, 32 * KIB - 4)
        await trio.sleep(0.1)
        (honest,) = await senders(nursery, intake, 1)
        honest.send_whole(2 * MIB)
        await trio.sleep(2 * STILL_SECONDS_MAX)
        assert (honest.frames, honest.error) == (1, None)
        nursery.cancel_scope.cancel()
