"""Virtual time for trio, and a scheduler that the seed decides: all that trio mode needs of trio.

Rules:
1. Trio asks the clock how long to sleep only when no task can run. Then the clock jumps to the next
   deadline; nothing of a run may wait for a real descriptor or thread.
2. When there is no deadline either, no task will ever wake up: a finding, not a hang. Nor is it one
   when tasks wake each other up without end, and time stands still.
3. Tasks that can run at the same time run in an order drawn from the seed. Trio can do that, for
   Hypothesis, by two names that are private. They are set here and nowhere else, for the time of a
   run, and put back: importing Hypothesis sets them as well, and neither depends on the other.
   `tests/sim/shell/test_trio_clock.py` fails when they move or mean something else.
"""

import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from random import Random  # noqa: TID251  (the type of trio's own dice)
from threading import get_ident
from typing import Any, Final, final

import trio

from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_SECOND
from raftlog_sim.base.stuck import StuckError

TRIO: Final = "0.35.0"
"""The release whose scheduler was read and tested."""
PASSES_MAX: Final = 20_000
"""Over tasks that can run, at one instant: thousands of times what a busy turn of events takes."""
_SCHEDULER: Final = "trio._core._run"
_ORDERED: Final = "_ALLOW_DETERMINISTIC_SCHEDULING"
_DICE: Final = "_r"


@final
class JumpClock(trio.abc.Clock):
    """Integer nanoseconds from 0. Time passes when no task can run, or when a task that holds up
    the loop says so (`advance`)."""

    def __init__(self) -> None:
        self.now = 0
        self.stuck: Callable[[], None] | None = None
        """Called when no task will ever wake up; it must wake one."""
        self.livelock: Callable[[], None] | None = None
        """Called when tasks run on and on while time stands still; it must end them."""

    def start_clock(self) -> None:
        """Time does not run by itself."""

    def current_time(self) -> float:
        return self.now / NANOS_PER_SECOND

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump there."""
        if deadline == math.inf:
            assert self.stuck is not None, "a clock in use says what to do when nobody wakes up"
            self.stuck()
            return 0
        self.now = max(self.now, int(deadline * NANOS_PER_SECOND))
        while self.current_time() < deadline:  # what the conversion has rounded off
            self.now += 1
        return 0

    def advance(self, nanos: int) -> None:
        """Let time pass for all tasks, in the middle of whatever is running."""
        assert nanos >= 0, nanos
        self.now += nanos


def run(seed: int, clock: JumpClock, main: Callable[[], Awaitable[None]]) -> None:
    """`trio.run` in virtual time and in the order of the seed. Raises what `main` raises, and
    `StuckError` when no task will ever wake up."""
    with _ordered_by(seed):
        try:
            trio.run(_guarded, clock, main, clock=clock, instruments=[_Watch(clock)])
        except trio.TrioInternalError as error:
            raise error.__cause__ or error from None


@final
class _Watch(trio.abc.Instrument):
    """Ends a run in which tasks go on and on while time stands still."""

    def __init__(self, clock: JumpClock) -> None:
        self._clock = clock
        self._seen = -1
        self._passes = 0

    def before_io_wait(self, timeout: float) -> None:
        """Once for every pass over the tasks that can run."""
        del timeout
        if self._clock.now != self._seen:
            self._seen, self._passes = self._clock.now, 0
        self._passes += 1
        if self._passes == PASSES_MAX and self._clock.livelock is not None:
            self._clock.livelock()


async def _guarded(clock: JumpClock, main: Callable[[], Awaitable[None]]) -> None:
    """Cancel tasks that wait or run without end, once. A task that ignores this stops the whole
    run."""
    what = deadlock = "deadlock: every task waits, and nobody will wake one up"

    def stuck() -> None:
        if scope.cancel_called:
            raise StuckError(f"{deadlock}; one does not hear that it is cancelled")
        scope.cancel()

    def livelock() -> None:
        nonlocal what
        what = f"livelock: {PASSES_MAX} passes over tasks that run, and time stands still"
        scope.cancel()

    with trio.CancelScope() as scope:
        clock.stuck, clock.livelock = stuck, livelock
        try:
            await main()
        finally:
            clock.stuck, clock.livelock = _over, None
    if scope.cancelled_caught:
        raise StuckError(what)


def _over() -> None:
    """Trio's own tasks end now, and need no time for it."""


@final
class _Dice:
    """The dice for trio: the seed's in the thread of the run, and trio's own in other threads.

    A process may well have a trio in another thread, such as a blocking client's.
    """

    def __init__(self, seed: int, others: Random) -> None:
        self._seeded, self._others = Random(seed), others
        self._thread = get_ident()

    def shuffle(self, tasks: list[Any]) -> None:
        self._of_this_thread().shuffle(tasks)

    def random(self) -> float:
        return self._of_this_thread().random()

    def uniform(self, low: float, high: float) -> float:
        return self._of_this_thread().uniform(low, high)

    def _of_this_thread(self) -> Random:
        return self._seeded if get_ident() == self._thread else self._others


@contextmanager
def _ordered_by(seed: int) -> Iterator[None]:
    """Set the two private names, and put them back at the end."""
    names = scheduler()
    ordered, dice = names[_ORDERED], names[_DICE]
    names[_ORDERED] = True
    names[_DICE] = _Dice(seed, dice)
    try:
        yield
    finally:
        names[_ORDERED] = ordered
        names[_DICE] = dice


def scheduler() -> dict[str, Any]:
    """The names of trio's scheduler. `OperatingError` when the two that we set are not there as we
    know them."""
    names = vars(import_module(_SCHEDULER))
    known = type(names.get(_ORDERED)) is bool and isinstance(names.get(_DICE), Random | _Dice)
    if not known:
        raise OperatingError(
            f"trio {trio.__version__} has no {_ORDERED} and {_DICE} as trio {TRIO} has",
            on=_SCHEDULER,
            do=f"install trio {TRIO}, or read its scheduler again and change {__name__}",
        )
    return names
