"""Runs that stop after each step, for the debugger.

A heap of events stops by itself. Trio mode is a thread of its own, which waits between two turns.
Only one of the two threads runs at any time.
"""

from functools import partial
from threading import Semaphore, Thread
from typing import Final, Protocol, final

from raftlog_sim.base.failures import told
from raftlog_sim.checks.onlooker import Watch, WatchedTurn
from raftlog_sim.playing.simulation import LIVENESS_SECONDS, Run, in_world
from raftlog_sim.schedules.schedule import Schedule

OVER: Final = "over; every invariant holds (the history is not judged here)"


class Steps(Protocol):
    """A run that its caller moves step by step."""

    @property
    def run(self) -> Run:
        """Returns the run, to be looked at between two steps."""

    def advance(self) -> str:
        """Take one step, of a turn at the most; returns how the run ended, "" while it goes on.

        It must not be called after the end.
        """

    def close(self) -> None:
        """Give the run up. It cannot be moved any more."""


@final
class HeapSteps:
    """Steps of one event of the world each, effects included."""

    def __init__(self, schedule: Schedule, watch: Watch) -> None:
        self._run = Run(schedule, watch=watch)

    @property
    def run(self) -> Run:
        return self._run

    def advance(self) -> str:
        try:
            return "" if self._run.advance() else self._run.lost() or OVER
        except Exception as error:  # any error of a broken broker is a finding
            return told(error)

    def close(self) -> None:
        """Do nothing: the run does not run by itself."""


@final
class _GivenUp(BaseException):
    """Unwinds the tasks of a run that will not be moved any more."""


@final
class TrioSteps:
    """Steps of one turn of a broker each, without its effects, which the driver performs later."""

    def __init__(self, schedule: Schedule, watch: Watch) -> None:
        self._schedule = schedule
        self._watch = watch
        self._on, self._stopped = Semaphore(0), Semaphore(0)
        self._given_up = False
        self._ended = ""
        self._error: BaseException | None = None
        self._runs: list[Run] = []
        self._thread = Thread(target=self._play, name="the run", daemon=True)
        self._thread.start()
        self._wait()

    @property
    def run(self) -> Run:
        return self._runs[0]

    def advance(self) -> str:
        self._on.release()
        self._wait()
        return self._ended

    def close(self) -> None:
        if self._thread.is_alive():
            self._given_up = True
            self._on.release()
            self._thread.join()

    def _wait(self) -> None:
        self._stopped.acquire()
        if self._error is not None:
            raise self._error

    # --- in the thread of the run ---

    def _play(self) -> None:
        from raftlog_sim.shell import trio_run  # noqa: PLC0415  (the runtime is not always needed)

        begin = partial(in_world, self._schedule, self._saw, LIVENESS_SECONDS)
        try:
            run, failure = trio_run.play(self._schedule, begin, begun=self._begun)
            self._ended = failure or run.lost() or OVER
        except _GivenUp:
            return
        except BaseException as error:
            self._error = error
        self._stopped.release()

    def _begun(self, run: Run) -> None:
        self._runs.append(run)
        self._stop()

    def _saw(self, turn: WatchedTurn) -> None:
        if not self._given_up:
            self._watch(turn)
            self._stop()

    def _stop(self) -> None:
        self._stopped.release()
        self._on.acquire()
        if self._given_up:
            raise _GivenUp


def steps_of(schedule: Schedule, watch: Watch) -> Steps:
    """Returns the run of this schedule, before its first step."""
    return (TrioSteps if schedule.options.trio else HeapSteps)(schedule, watch)
