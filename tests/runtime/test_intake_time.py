"""How long a frame may hold memory that others wait for, and whose time that is."""

import struct

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from raftlog.base.units import KIB, MIB
from raftlog.runtime.network.framing import FIRST_SLAB_BYTES
from raftlog.runtime.network.intake import (
    FRAME_SECONDS_MAX,
    PAUSE_SECONDS_MAX,
    STILL_BEYOND_SECONDS_MAX,
    STILL_SECONDS_MAX,
    WAIT_SECONDS_MAX,
    Intake,
)
from tests.runtime.frame_senders import LARGE, Holder, Sender, senders

STILL_RATES = [
    pytest.param(32 * KIB, 204, False, id="408-bytes-a-second-for-32-KiB"),
    pytest.param(32 * KIB, 203, True, id="less-for-32-KiB"),
    pytest.param(256 * KIB, 1_638, False, id="3.2-KiB-a-second-for-256-KiB"),
    pytest.param(256 * KIB, 1_637, True, id="less-for-256-KiB"),
    pytest.param(4 * MIB, 16 * KIB, False, id="32-KiB-a-second-for-4-MiB"),
    pytest.param(4 * MIB, 16 * KIB - 1, True, id="less-for-4-MiB"),
]


async def test_who_waits_looks_after_the_others_once_for_all(autojump_clock: MockClock):
    """Each of those who waited sent each of the slow ones away: 800,000 times for two thousand."""
    intake, slow = Intake(bytes_max=10), Holder(0)
    async with trio.open_nursery() as nursery:
        intake.hold(slow, 20)
        for _ in range(50):
            nursery.start_soon(intake.admit, Holder(), 5)
        await trio.sleep(STILL_BEYOND_SECONDS_MAX)
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
        assert "takes too long" in text
        nursery.cancel_scope.cancel()


async def test_who_stalls_alone_is_left_alone(autojump_clock: MockClock):
    """Slow is no crime while no other waits: a phone may take a minute for its megabyte."""
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
    ("arrived", "rests", "seconds"),
    [
        pytest.param(None, False, None, id="waits-for-a-turn"),
        pytest.param(0, False, STILL_BEYOND_SECONDS_MAX, id="stands-still"),
        pytest.param(None, True, PAUSE_SECONDS_MAX, id="paused"),
    ],
)
async def test_how_long_memory_is_held_while_others_wait(
    arrived, rests, seconds, autojump_clock: MockClock
):
    """Time in which a receiver waits for a turn, say for the disk, is not its sender's."""
    intake, holder = Intake(bytes_max=100), Holder(arrived)
    intake.hold(holder, 101)
    await trio.sleep(1000)  # no receiver waits: nothing counts
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
    """Regression: a pause restarted the count, so that who was paused and went on again and again
    held its memory for good."""
    intake = Intake(bytes_max=100)
    holder = Holder(0)
    intake.hold(holder, 101)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, Holder(), 50)
        for _ in range(4):
            intake.rest(holder)
            await trio.sleep(PAUSE_SECONDS_MAX / 3)
            intake.resume(holder)
            holder.bytes += 20 * KIB
        assert holder.evicted
        nursery.cancel_scope.cancel()


async def test_slow_senders_who_wait_for_memory_are_not_the_ones_that_take_long(
    autojump_clock: MockClock,
):
    """Regression: the time that they waited for memory counted as their own, and most of fourteen
    clients with 3 MiB at 1 MB/s each were sent away."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        honest = await senders(nursery, intake, 14)

        async def send_slowly(sender: Sender) -> None:
            sender.announce(3 * MIB, 100_000)
            rest = 3 * MIB - 100_000
            while rest:
                await trio.sleep(0.1)
                if sender.unread() < 256 * KIB:  # as much as the kernels take
                    piece = min(rest, 100_000)
                    sender.finish(piece)
                    rest -= piece

        for each in honest:
            nursery.start_soon(send_slowly, each)
        await trio.sleep(60)
        assert [(each.frames, each.error) for each in honest] == [(1, None)] * 14
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_nothing_is_held_by_drips_of_small_frames(autojump_clock: MockClock):
    """Regression: a connection earned a large slab, and made a tiny frame whole every nine seconds,
    with the first bytes of the next. It kept the slab for as long. A dozen of them held all memory,
    and a small connection that waited for some had no place among those that may go beyond the
    bound."""
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


async def test_a_sender_that_stands_still_now_and_then_is_not_sent_away(
    autojump_clock: MockClock,
):
    """Regression: each half a second without bytes took two and a half of the time of a frame, and
    was never given back: bursts once a second were sent away."""
    intake = Intake(bytes_max=100)
    holder = Holder(0)
    intake.hold(holder, 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, Holder(), 50)
        for _ in range(5):
            await trio.sleep(1.7)
            holder.bytes += 200_000
        assert not holder.evicted
        nursery.cancel_scope.cancel()


async def test_a_slow_sender_of_an_ordinary_frame_does_not_stand_still(autojump_clock: MockClock):
    """Regression: who sent less than 32 KB/s "stood still", whatever it held: 100 KB at 24 KB/s
    take four seconds, and were sent away after two and a half."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        (slow,) = await senders(nursery, intake, 1)
        intake.hold(Holder(), 16 * MIB - 512 * KIB)
        nursery.start_soon(intake.admit, Holder(), 16 * MIB)
        slow.announce(100_000, 10_000)
        for _ in range(36):
            await trio.sleep(0.1)
            slow.finish(2_500)
        await wait_all_tasks_blocked()
        assert (slow.frames, slow.error) == (1, None)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("held", "bytes_a_look", "stands"), STILL_RATES)
async def test_who_sends_too_little_for_what_it_holds_stands_still(
    held, bytes_a_look, stands, autojump_clock: MockClock
):
    """A few bytes now and then would hold a large slab for the whole time of a frame."""
    intake, holder = Intake(bytes_max=4 * MIB), Holder(0)
    intake.hold(Holder(), 4 * MIB - held)
    intake.hold(holder, held)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, Holder(), 4 * MIB)
        await trio.sleep(0.25)
        for _ in range(6):
            await trio.sleep(0.5)
            holder.bytes += bytes_a_look
        assert bool(holder.evicted) == stands
        nursery.cancel_scope.cancel()


async def test_who_is_sent_away_is_told_whose_time_it_was(autojump_clock: MockClock):
    """Regression: a client that had waited for memory for half a minute read in the log that its
    own frame took too long while others waited."""
    intake = Intake(bytes_max=2 * MIB)
    async with trio.open_nursery() as nursery:
        intake.hold(Holder(), 2 * MIB)
        (waits,) = await senders(nursery, intake, 1)
        waits.announce(MIB, 40_000)
        await trio.sleep(WAIT_SECONDS_MAX + 1)
        assert waits.error == (
            "waited too long for memory that other clients hold, with 4096 of the 1048580 bytes of"
            " a frame"
        )
        nursery.cancel_scope.cancel()


async def test_who_parks_in_the_line_gives_way_after_a_while(autojump_clock: MockClock):
    """Regression: a sender that filled its slab and sent a byte more waited with it for as long as
    it took, and was served one after another: an honest client waited for minutes."""
    intake = Intake(bytes_max=2 * MIB)
    async with trio.open_nursery() as nursery:
        hostile = await senders(nursery, intake, 200)
        for each in hostile:
            each.announce(LARGE, 32 * KIB)
        await trio.sleep(1)
        (honest,) = await senders(nursery, intake, 1)
        honest.send_whole(200 * KIB)
        await trio.sleep(WAIT_SECONDS_MAX + 5)
        assert (honest.frames, honest.error) == (1, None)
        nursery.cancel_scope.cancel()


async def test_a_large_frame_has_time_for_its_bytes(autojump_clock: MockClock):
    """30 MB at 20 Mbit/s take twelve seconds, and no try would take less."""
    intake = Intake(bytes_max=100)
    holder = Holder(0)
    intake.hold(holder, 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, Holder(), 50)
        for _ in range(120):
            await trio.sleep(0.1)
            holder.bytes += 250_000
        assert not holder.evicted
        nursery.cancel_scope.cancel()


async def test_who_is_paused_gives_back_what_it_does_not_need(autojump_clock: MockClock):
    """Regression: producers that were paused before others came kept large slabs for the first
    bytes of a next frame, and were sent away for it."""
    intake = Intake(bytes_max=2 * MIB)
    async with trio.open_nursery() as nursery:
        (paused,) = await senders(nursery, intake, 1)
        for _ in range(3):
            paused.send_whole(MIB)
            await wait_all_tasks_blocked()
        paused.paused = trio.Event()
        whole = struct.pack(">ihh", 100, 0, 9) + bytes(96)
        paused.stream.send_nowait([whole + struct.pack(">ihh", 1000, 0, 9) + bytes(96)])
        await wait_all_tasks_blocked()
        assert paused.slab == intake.held > MIB
        others = await senders(nursery, intake, 3)
        for each in others:
            each.announce(MIB, MIB - 100)
        await trio.sleep(0.9)
        assert paused.slab == FIRST_SLAB_BYTES
        for each in others:
            each.finish(100)
        await trio.sleep(1)
        assert [(each.frames, each.error) for each in others] == [(1, None)] * 3
        assert (intake.held, paused.error) == (0, None)
        paused.paused.set()
        paused.finish(900)
        await trio.sleep(1)
        assert paused.frames == 5
        nursery.cancel_scope.cancel()


async def test_who_waits_is_served_in_the_order_of_the_frames(autojump_clock: MockClock):
    """One at a time: all of two thousand woke for each that left, twenty seconds of a processor."""
    intake = Intake(bytes_max=100)
    holder, line, served = Holder(0), [Holder() for _ in range(20)], []

    async def waits(who: Holder) -> None:
        await intake.admit(who, 100)
        intake.hold(who, 100)
        served.append(who)
        await trio.sleep(0.1)
        intake.release(who)

    intake.hold(holder, 101)
    async with trio.open_nursery() as nursery:
        for who in line:
            nursery.start_soon(waits, who)
            await wait_all_tasks_blocked()
        intake.release(holder)
        await trio.sleep(3)
        assert served == line
        assert (intake.held, intake.contended) == (0, False)


@pytest.mark.parametrize("bytes_a_wait", [0, 40 * KIB])
async def test_what_others_waited_for_a_moment_counts_for_nothing(
    bytes_a_wait, autojump_clock: MockClock
):
    """Regression: each wait of a millisecond counted as half a second of who held memory."""
    intake, holder = Intake(bytes_max=100), Holder(0)
    intake.hold(holder, 60)
    for _ in range(50):
        with trio.move_on_after(0.001):
            await intake.admit(other := Holder(), 50)
        intake.release(other)
        await trio.sleep(0.5)
        holder.bytes += bytes_a_wait
    assert not holder.evicted


async def test_looks_are_not_put_off_by_who_is_woken(autojump_clock: MockClock):
    """Regression: who was woken early restarted its half second, and all limits doubled."""
    intake, holder, other = Intake(bytes_max=100), Holder(0), Holder(None)
    intake.hold(holder, 60)
    intake.hold(other, 40)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(intake.admit, Holder(), 50)
        for _ in range(6):
            assert not holder.evicted
            await trio.sleep(0.45)
            for waiter in intake._waiting.values():
                waiter.woken.set()
        await trio.sleep(0.1)
        assert holder.evicted
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("change", ["rest", "progressed"])
async def test_who_may_go_beyond_the_bound_now_is_woken_at_once(change):
    intake, holder, waits = Intake(bytes_max=100), Holder(0), Holder()
    intake.hold(holder, 60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, waits, 200)
        await wait_all_tasks_blocked()
        assert intake.contended
        getattr(intake, change)(holder)
        await wait_all_tasks_blocked()
        assert not intake.contended
