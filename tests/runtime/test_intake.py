"""The cost of unfinished frames is bounded, for all clients together.

Regression: every connection held a receive slab of 256 KiB while it waited, and a frame was given
all the memory that its first four bytes announced. A thousand idle connections took 260 MiB; sixty
that announced 20 MiB and sent a hundred bytes took a gigabyte.
"""

import struct
from random import Random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from raftlog.base.units import KIB, MIB
from raftlog.runtime.network.framing import FIRST_SLAB_BYTES, FrameReceiver
from raftlog.runtime.network.intake import Intake
from raftlog.runtime.network.slabs import SIZE_CLASSES, Slab
from tests.runtime.frame_senders import LARGE, Holder, LittleMemory, Sender, senders


async def test_a_connection_that_has_sent_nothing_holds_nothing():
    async with trio.open_nursery() as nursery:
        (idle,) = await senders(nursery, Intake(), 1)
        assert idle.slab == 0
        idle.send_whole(100)
        await wait_all_tasks_blocked()
        assert (idle.frames, idle.slab) == (1, 0)
        nursery.cancel_scope.cancel()


async def test_what_is_announced_costs_nothing():
    intake = Intake()
    async with trio.open_nursery() as nursery:
        made = await senders(nursery, intake, 50)
        for each in made:
            each.announce(LARGE, 100)
        await wait_all_tasks_blocked()
        assert {each.slab for each in made} == {FIRST_SLAB_BYTES}
        assert intake.held == 0
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("sent", [FIRST_SLAB_BYTES, 300_000, 3 * MIB, 9 * MIB, LARGE - 1])
async def test_what_has_arrived_is_held_not_much_more_than_twice(sent):
    intake = Intake()
    async with trio.open_nursery() as nursery:
        (one,) = await senders(nursery, intake, 1)
        one.announce(LARGE, sent)
        await wait_all_tasks_blocked()
        assert sent < one.slab <= max(8 * FIRST_SLAB_BYTES, 5 * sent)
        assert one.slab <= max(SIZE_CLASSES[-1], 2 * sent + 8)
        assert intake.held == one.slab
        one.finish(LARGE - sent)
        await wait_all_tasks_blocked()
        assert (one.frames, one.slab, intake.held) == (1, 0, 0)
        nursery.cancel_scope.cancel()


async def test_all_unfinished_frames_together_are_bounded():
    intake = Intake()
    async with trio.open_nursery() as nursery:
        made = await senders(nursery, intake, 40)
        for each in made:
            each.announce(LARGE, LARGE - 1)
        await wait_all_tasks_blocked()
        assert sum(each.slab for each in made) <= intake.bytes_max + LARGE + 40 * FIRST_SLAB_BYTES
        assert intake.held <= intake.bytes_max + LARGE + 8
        nursery.cancel_scope.cancel()


async def test_honest_senders_all_finish_one_after_another():
    """More than fits at one time: each waits for its turn, and none is sent away."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        made = await senders(nursery, intake, 40)
        for each in made:
            each.announce(3 * MIB, 2 * MIB)
        await wait_all_tasks_blocked()
        for each in made:
            each.finish(MIB)
        await wait_all_tasks_blocked()
        assert [each.frames for each in made] == [1] * 40
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_a_frame_whose_connection_is_paused_is_not_waited_for():
    """A connection that the broker had paused in the midst of a frame stood first for as long as
    its requests waited, and no frame larger than the bound got in."""
    intake = Intake()
    paused, large, third = Holder(), Holder(), Holder()
    intake.hold(paused, MIB)
    assert not intake.admits(large, LARGE)
    intake.rest(paused)
    assert intake.admits(large, LARGE)
    intake.hold(large, LARGE)
    assert not intake.admits(third, LARGE)
    intake.resume(paused)
    assert not intake.admits(paused, LARGE)
    intake.release(large)
    assert intake.admits(paused, LARGE)
    intake.release(paused)
    assert intake.held == 0


async def test_nobody_goes_beyond_the_bound_on_top_of_a_paused_frame_that_did():
    """Each that was paused in the midst of a large frame let the next one in beside it."""
    intake = Intake()
    paused, second = Holder(), Holder()
    intake.hold(paused, LARGE)
    intake.rest(paused)
    assert not intake.admits(second, MIB)
    intake.release(paused)
    assert intake.admits(second, LARGE)


async def test_who_goes_beyond_the_bound_lets_others_in_after_each_frame(
    autojump_clock: MockClock,
):
    """It kept what it had received of its next frame in memory beyond the bound, and waited for
    the others, who waited for that memory: nobody's frame was received any more."""
    intake, large = Intake(), 4 * MIB - 100 * KIB
    async with trio.open_nursery() as nursery:
        first, *others = await senders(nursery, intake, 16)
        pipelined = 3 * (struct.pack(">ihh", large, 0, 9) + bytes(large - 4))
        first.stream.send_nowait([pipelined[:20_000]])
        await wait_all_tasks_blocked()
        for each in others:
            each.announce(3 * MIB, MIB)
            await wait_all_tasks_blocked()
        first.stream.send_nowait([pipelined[20_000:]])
        for each in others:
            each.finish(2 * MIB)
        await trio.sleep(1)
        assert [first.frames, *(each.frames for each in others)] == [3] + 15 * [1]
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_who_was_paused_beyond_the_bound_goes_on_before_those_who_came_meanwhile(
    autojump_clock: MockClock,
):
    """They stood first, and waited for the memory that it held and could not use."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        paused, early, late = await senders(nursery, intake, 3)
        paused.announce(30 * MIB, 7 * MIB)
        await wait_all_tasks_blocked()
        early.announce(2 * MIB, MIB // 2)
        await wait_all_tasks_blocked()
        paused.finish(3 * MIB)
        await wait_all_tasks_blocked()
        assert intake.held > intake.bytes_max
        goes_on = paused.paused = trio.Event()
        paused.finish(MIB)
        await wait_all_tasks_blocked()
        early.finish(2 * MIB - MIB // 2)
        late.send_whole(2 * MIB)
        await trio.sleep(1)
        assert (early.frames, late.frames) == (0, 0)
        goes_on.set()
        paused.finish(19 * MIB)
        await trio.sleep(1)
        assert [each.frames for each in (paused, early, late)] == [1, 1, 1]
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_small_frames_pass_by_a_large_one_that_stands_still(autojump_clock: MockClock):
    """A receiver that had received a burst of them waited, for a slab that is not counted."""
    intake = Intake()
    async with trio.open_nursery() as nursery:
        large, small = await senders(nursery, intake, 2)
        large.announce(LARGE, LARGE - 1)
        await wait_all_tasks_blocked()
        assert intake.held > intake.bytes_max
        small.stream.send_nowait([60 * (struct.pack(">ihh", 96, 3, 1) + bytes(92))])
        await wait_all_tasks_blocked()
        assert small.frames == 60
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(12))
async def test_whoever_sends_and_is_paused_everybody_finishes(seed, autojump_clock: MockClock):
    """Frames of all sizes, pipelined, cut anywhere, with pauses too short to end a connection;
    memory stays within the bound and one frame."""
    rng, intake = Random(seed), Intake(bytes_max=2 * MIB)
    async with trio.open_nursery() as nursery:
        made = await senders(nursery, intake, 12)
        wanted = [rng.randrange(1, 6) for _ in made]

        async def send(sender: Sender, frames: int) -> None:
            for _ in range(frames):
                size = rng.choice((100, 5_000, 60_000, 300_000, MIB, 3 * MIB))
                content = struct.pack(">ihh", size, 0, 9) + bytes(size - 4)
                cut = rng.randrange(len(content))
                for part in (content[:cut], content[cut:]):
                    sender.stream.send_nowait([part])
                    assert intake.held <= intake.bytes_max + 3 * MIB + MIB
                    await trio.sleep(rng.choice((0, 0, 0.01, 0.5)))
                if rng.random() < 0.3 and sender.paused is None:
                    goes_on = sender.paused = trio.Event()
                    await trio.sleep(rng.choice((0.01, 1)))
                    goes_on.set()

        for sender, frames in zip(made, wanted, strict=True):
            nursery.start_soon(send, sender, frames)
        await trio.sleep(60)
        assert [each.error for each in made] == [None] * len(made)
        assert [each.frames for each in made] == wanted
        assert intake.held == 0
        nursery.cancel_scope.cancel()


async def test_a_busy_connection_gets_a_slab_that_fits_its_frames():
    intake = Intake()
    async with trio.open_nursery() as nursery:
        (busy,) = await senders(nursery, intake, 1)
        for _ in range(4):
            busy.send_whole(MIB)
            await wait_all_tasks_blocked()
        assert busy.frames == 4
        assert busy.receiver._appetite == next(size for size in SIZE_CLASSES if size > MIB)
        for _ in range(6):
            busy.send_whole(100)
            await wait_all_tasks_blocked()
        assert busy.receiver._appetite == FIRST_SLAB_BYTES
        nursery.cancel_scope.cancel()


async def test_a_pipeline_of_small_frames_gets_larger_slabs():
    intake = Intake()
    async with trio.open_nursery() as nursery:
        (busy,) = await senders(nursery, intake, 1)
        busy.stream.send_nowait([struct.pack(">ihh", 996, 0, 9) + bytes(992)] * 2000)
        await wait_all_tasks_blocked()
        assert busy.frames == 2000
        assert busy.receiver._appetite >= SIZE_CLASSES[2] // 8
        nursery.cancel_scope.cancel()


async def test_who_has_no_memory_for_less_keeps_what_it_has(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
):
    """A smaller slab for a paused connection is asked for by a receiver that waits: had there been
    no memory for it, that one would have paid."""
    intake = Intake(bytes_max=2 * MIB)
    async with trio.open_nursery() as nursery:
        paused = Sender(intake)
        nursery.start_soon(paused.run)
        for _ in range(3):
            paused.send_whole(MIB)
            await wait_all_tasks_blocked()
        paused.paused = trio.Event()
        whole = struct.pack(">ihh", 100, 0, 9) + bytes(96)
        paused.stream.send_nowait([whole + struct.pack(">ihh", 1000, 0, 9) + bytes(96)])
        await wait_all_tasks_blocked()
        shrink, asked = FrameReceiver._make_room, []

        def shrink_without_memory(receiver: FrameReceiver, slab: Slab) -> None:
            if receiver is paused.receiver:
                asked.append(len(slab))
                with monkeypatch.context() as during:
                    LittleMemory(during, 0)
                    shrink(receiver, slab)
            else:
                shrink(receiver, slab)

        monkeypatch.setattr(FrameReceiver, "_make_room", shrink_without_memory)
        others = await senders(nursery, intake, 3)
        for each in others:
            each.announce(MIB, MIB - 100)
        await trio.sleep(0.9)
        assert intake.contended
        assert asked
        assert paused.slab > MIB
        assert [each.error for each in (paused, *others)] == [None] * 4
        nursery.cancel_scope.cancel()


async def test_a_connection_that_ends_gives_everything_back():
    intake = Intake()
    async with trio.open_nursery() as nursery:
        made = await senders(nursery, intake, 5)
        for each in made:
            each.announce(LARGE, 2 * MIB)
        await wait_all_tasks_blocked()
        assert intake.held > 0
        for each in made:
            each.stream.close()
    assert intake.held == 0
    assert not intake._shares
    assert all("bytes into a frame" in str(each.error) for each in made)


def test_the_order_is_that_of_the_frames():
    intake = Intake(bytes_max=100)
    one, two, three = holders = Holder(), Holder(), Holder()

    async def main() -> None:
        intake.hold(one, 50)
        intake.hold(two, 50)
        assert not intake.admits(three, 1)
        assert not intake.admits(two, 51)
        assert intake.admits(one, 1000), "who began first may always finish"
        intake.progressed(one)
        assert intake.admits(two, 1000)
        assert not intake.admits(one, 51)
        intake.release(two)
        assert intake.admits(three, 50)
        assert (intake.held, [each.evicted for each in holders]) == (50, [0, 0, 0])

    trio.run(main)
