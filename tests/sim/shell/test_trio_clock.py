"""Virtual time, and the guard over the two private names of trio that trio mode sets."""

import gc
import inspect
import math
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest
import trio
from raftlog_sim.base.stuck import StuckError
from raftlog_sim.shell import trio_clock

from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_SECOND

ROOT = Path(__file__).resolve().parents[3]
READ_AGAIN = (
    "trio's scheduler is not the one that was read: look at unrolled_run in trio._core._run, run "
    "tests/sim under several PYTHONHASHSEEDs, then change raftlog_sim/shell/trio_clock.py and "
    "this test"
)


def order_of(seed: int, tasks: int = 12) -> list[int]:
    """In which order tasks run that can all run at the same time."""
    order: list[int] = []

    async def one(number: int) -> None:
        for _ in range(3):
            await trio.sleep(0.001)
            order.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(tasks):
                nursery.start_soon(one, number)

    trio_clock.run(seed, trio_clock.JumpClock(), main)
    return order


# --- the guard --------------------------------------------------------------------------------


def test_the_release_of_trio_is_the_one_that_was_read():
    pinned = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    assert f"trio=={trio_clock.TRIO}" in pinned, READ_AGAIN
    assert trio.__version__ == trio_clock.TRIO, READ_AGAIN


def test_the_two_names_are_there_and_mean_what_they_meant():
    names = trio_clock.scheduler()
    assert type(names["_ALLOW_DETERMINISTIC_SCHEDULING"]) is bool, READ_AGAIN
    assert type(names["_r"]) is Random, READ_AGAIN
    source = inspect.getsource(names["unrolled_run"])
    for line in (
        "if _ALLOW_DETERMINISTIC_SCHEDULING:",
        "batch.sort(key=lambda t: t._counter)",
        "_r.shuffle(batch)",
        "_r.random() < 0.5",
        "timeout = runner.clock.deadline_to_sleep_time(deadline)",
    ):
        assert line in source, READ_AGAIN


@pytest.mark.parametrize(
    ("name", "value"), [("_ALLOW_DETERMINISTIC_SCHEDULING", None), ("_r", None), ("_r", 7)]
)
def test_a_name_that_moved_is_told_loudly(monkeypatch, name, value):
    monkeypatch.setitem(trio_clock.scheduler(), name, value)
    with pytest.raises(OperatingError, match=f"install trio {trio_clock.TRIO}"):
        trio_clock.run(1, trio_clock.JumpClock(), trio.lowlevel.checkpoint)


def test_the_seed_decides_the_order_and_nothing_else_does():
    first = order_of(1)
    assert order_of(1) == first
    assert sorted(first) == sorted(list(range(12)) * 3)
    assert len({tuple(order_of(seed)) for seed in range(5)}) == 5
    assert len({tuple(first[at : at + 12]) for at in (0, 12, 24)}) == 3, "each pass is drawn"


def test_trio_in_another_thread_takes_no_draw():
    """A consumer of Spark's tests was still running in its thread, and five tests of trio mode
    failed beside it."""
    alone, over = order_of(1), threading.Event()

    async def busy() -> None:
        async def spin() -> None:
            while not over.is_set():
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(spin)

    thread = threading.Thread(target=trio.run, args=(busy,))
    thread.start()
    try:
        beside = [order_of(1) for _ in range(10)]
    finally:
        over.set()
        thread.join()
    assert beside == [alone] * 10


def test_trio_may_begin_in_another_thread():
    """Its clock begins anywhere, and asks the dice where."""
    ended: list[bool] = []

    async def main() -> None:
        thread = threading.Thread(target=lambda: ended.append(trio.run(trio.sleep, 0) is None))
        thread.start()
        thread.join()

    trio_clock.run(1, trio_clock.JumpClock(), main)
    assert ended == [True]


class WatchedDice(Random):
    """Knows which threads asked it: a trio in another thread may, at any time."""

    def __init__(self) -> None:
        super().__init__(1)
        self.threads: set[int] = set()

    def getrandbits(self, count: int) -> int:
        self.threads.add(threading.get_ident())
        return super().getrandbits(count)

    def random(self) -> float:
        self.threads.add(threading.get_ident())
        return super().random()


@pytest.mark.parametrize("before", [False, True])
def test_the_names_are_put_back(monkeypatch, before):
    """Hypothesis sets them too; whichever comes first, neither is disturbed."""
    names, dice = trio_clock.scheduler(), WatchedDice()
    monkeypatch.setitem(names, "_ALLOW_DETERMINISTIC_SCHEDULING", before)
    monkeypatch.setitem(names, "_r", dice)
    order_of(1)

    async def main() -> None:
        assert names["_ALLOW_DETERMINISTIC_SCHEDULING"] is True
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        trio_clock.run(2, trio_clock.JumpClock(), main)
    assert names["_ALLOW_DETERMINISTIC_SCHEDULING"] is before
    assert names["_r"] is dice
    assert threading.get_ident() not in dice.threads, "the run took a draw that is not the seed's"
    trio.run(trio.sleep, 0)
    assert threading.get_ident() in dice.threads, "trio asks it again"


def test_importing_hypothesis_changes_nothing():
    code = (
        "import sys; sys.path[:0] = ['sim', '.']\n"
        "from tests.sim.shell.test_trio_clock import order_of\n"
        "alone = order_of(3)\n"
        "import hypothesis\n"
        "assert order_of(3) == alone\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# --- time ---------------------------------------------------------------------------------------


def test_time_jumps_to_the_nanosecond_and_takes_none():
    clock = trio_clock.JumpClock()
    seen = []

    async def main() -> None:
        for until in (1, 1_000_000_007, 3_600 * NANOS_PER_SECOND + 1, 86_400 * NANOS_PER_SECOND):
            await trio.sleep_until(until / NANOS_PER_SECOND)
            seen.append(clock.now)
        clock.advance(5)
        seen.append(clock.now)

    trio_clock.run(1, clock, main)
    assert seen == [
        1,
        1_000_000_007,
        3_600_000_000_001,
        86_400_000_000_000,
        86_400_000_000_005,
    ]


def test_when_nobody_will_wake_up_the_run_says_so():
    async def main() -> None:
        await trio.sleep(2)
        await trio.sleep_forever()

    clock = trio_clock.JumpClock()
    with pytest.raises(StuckError, match=r"wake one up$"):
        trio_clock.run(1, clock, main)
    assert clock.now == 2 * NANOS_PER_SECOND


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_who_does_not_hear_that_the_run_is_stuck_cannot_hang_it():
    """Trio leaves the task as it was; so do we, and collect it here."""

    async def main() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    with pytest.raises(StuckError, match="does not hear"):
        trio_clock.run(1, trio_clock.JumpClock(), main)
    gc.collect()


def test_tasks_that_run_for_ever_at_one_instant_do_not_hang_the_run():
    async def main() -> None:
        await trio.sleep(1)
        while True:
            await trio.lowlevel.checkpoint()

    with pytest.raises(StuckError, match="livelock: 20000 passes"):
        trio_clock.run(1, trio_clock.JumpClock(), main)


def test_a_clock_that_nobody_runs_refuses_to_wait_for_ever():
    with pytest.raises(AssertionError, match="says what to do"):
        trio_clock.JumpClock().deadline_to_sleep_time(math.inf)
