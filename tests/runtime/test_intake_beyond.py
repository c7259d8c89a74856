"""The cost of a frame beyond the bound for receivers that wait, and the order among them."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from raftlog.base.units import KIB, MIB
from raftlog.kafka.frames import FrameCutter
from raftlog.runtime.network.intake import (
    BEYOND_SECONDS_MAX,
    STILL_SECONDS_MAX,
    WAIT_SECONDS_MAX,
    Intake,
)
from tests.runtime.frame_senders import Holder, senders


@pytest.mark.parametrize(("count", "size"), [(4, 32 * MIB - 8), (1, 100 * MIB)])
async def test_a_burst_earns_no_time_for_the_drips_that_follow(
    count, size, autojump_clock: MockClock
):
    """Regression: bytes that came before any receiver waited counted as time, a second for 2 MiB:
    who had sent 30 MiB of a frame at once dripped for 25 seconds, beyond the bound. Four of them,
    or one with 100 MiB, kept two thirds of all others from being heard."""
    intake, honest = Intake(), []
    async with trio.open_nursery() as nursery:

        async def attack() -> None:
            while True:
                (hostile,) = await senders(nursery, intake, 1)
                hostile.receiver.cutter = FrameCutter.for_requests(frame_bytes_max=100 * MIB)
                hostile.announce(size, size - 2 * MIB)
                while hostile.error is None:
                    await trio.sleep(0.9)
                    hostile.finish(17 * KIB)

        for _ in range(count):
            nursery.start_soon(attack)
        await trio.sleep(0.2)
        for _ in range(60):
            honest += await senders(nursery, intake, 1)
            honest[-1].send_whole(30_000)
            await trio.sleep(1)
        served = [each.frames for each in honest[: -int(WAIT_SECONDS_MAX)]]
        assert served == [1] * len(served)
        assert [each.error for each in honest] == [None] * len(honest)
        nursery.cancel_scope.cancel()


async def test_who_is_slow_beyond_the_bound_goes_before_those_who_wait(autojump_clock: MockClock):
    """Regression: a produce of 60 MB at 1.2 MB/s is honest, and earned its time: all others
    waited, and was sent away for it."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        (large,) = await senders(nursery, intake, 1)
        large.receiver.cutter = FrameCutter.for_requests(frame_bytes_max=100 * MIB)
        large.announce(60_000_000, 17 * MIB)
        await wait_all_tasks_blocked()
        others = await senders(nursery, intake, 5)
        for each in others:
            each.send_whole(30_000)
        for _ in range(int(10 * BEYOND_SECONDS_MAX)):
            assert large.error is None
            await trio.sleep(0.1)
            large.finish(120_000)
        await trio.sleep(0.6)
        assert "beyond" in str(large.error)
        assert [(each.frames, each.error) for each in others] == [(1, None)] * 5
        nursery.cancel_scope.cancel()


async def test_a_frame_beyond_the_bound_has_no_end_while_nobody_waits(autojump_clock: MockClock):
    intake = Intake(bytes_max=100)
    holder = Holder(0)
    intake.hold(holder, 101)
    for _ in range(5):
        with trio.move_on_after(BEYOND_SECONDS_MAX / 8):
            await intake.admit(other := Holder(), 50)
        intake.release(other)
        holder.bytes += 10 * MIB
        await trio.sleep(BEYOND_SECONDS_MAX)
    assert not holder.evicted


async def test_who_waits_is_sent_away_only_when_nothing_came_free(autojump_clock: MockClock):
    """Regression: in the look in which the one that held all memory was sent away, those who had
    waited for it were, too."""
    intake, holder, waits = Intake(bytes_max=100), Holder(0), Holder()
    intake.hold(holder, 100)
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            await intake.admit(waits, 50)
            intake.hold(waits, 50)

        nursery.start_soon(wait)
        while trio.current_time() < WAIT_SECONDS_MAX - STILL_SECONDS_MAX:
            await trio.sleep(0.1)
            holder.bytes += 5 * MIB
        await trio.sleep(STILL_SECONDS_MAX + 0.7)
        assert WAIT_SECONDS_MAX < trio.current_time() < WAIT_SECONDS_MAX + 1
        assert holder.evicted
        assert not waits.evicted
        intake.release(holder)
        await trio.sleep(1)
        assert (intake.held, waits.evicted) == (50, 0)


async def test_who_waits_is_sent_away_a_look_later_whatever_comes_free(autojump_clock: MockClock):
    """Else the line would be as long as slow clients follow each other."""
    intake, waits = Intake(bytes_max=100), Holder()
    intake.hold(Holder(None), 1000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(intake.admit, waits, 50)
        while trio.current_time() < WAIT_SECONDS_MAX + 1.2:
            intake.hold(late := Holder(0), 10)
            intake._shares[late].sent = 1000
            await trio.sleep(0.5)
            intake.release(late)
            assert not waits.evicted or trio.current_time() > WAIT_SECONDS_MAX + 0.9
        assert waits.evicted
        nursery.cancel_scope.cancel()


async def test_ordinary_frames_are_served_before_large_ones(autojump_clock: MockClock):
    """Regression: of several frames that were to go beyond the bound, each took what the one before
    it left, and ordinary ones waited for all of them."""
    intake = Intake(bytes_max=10 * MIB)
    holder, large, ordinary, served = Holder(0), Holder(0), Holder(), []

    async def waits(who: Holder, size: int) -> None:
        await intake.admit(who, size)
        intake.hold(who, size)
        served.append(who)

    intake.hold(holder, 10 * MIB)
    async with trio.open_nursery() as nursery:
        for who, size in ((large, 10 * MIB), (ordinary, MIB)):
            nursery.start_soon(waits, who, size)
            await wait_all_tasks_blocked()
        intake.release(holder)
        await wait_all_tasks_blocked()
        assert served == [ordinary, large]
