"""Worker processes that play one call at a time, so that it is known which call a dead one had.

    calls -> [worker, pipe] x jobs -> answers, in the order of the calls

A worker that dies (killed, out of memory, a crash of the interpreter) costs the call that it had,
and is replaced. After a few deaths no more calls are handed out. A worker is also replaced after
some calls, which bounds a leak. Workers end with the process that made them: they obey SIGTERM,
leave Ctrl-C to the parent, and watch for the parent's death.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from types import FrameType
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.errors import OperatingError

CALLS_A_WORKER: Final = 200
AHEAD: Final = 4
"""How many calls a job may be ahead of the oldest unanswered call, since answers wait for their
turn."""
DEATHS_MAX: Final = 5
GRACE_SECONDS: Final = 120.0
"""How many seconds running calls may go on after no more are handed out."""
LOOK_SECONDS: Final = 0.5
"""How often a wait for a worker checks whether it should go on, in seconds."""
_END_SECONDS: Final = 3.0

Call = tuple[Any, ...]


@final
class Lost(NamedTuple):
    """A call without an answer; the text is `<class>: <why>`."""

    why: str


@final
@attrs.define(eq=False)
class _Worker:
    """A process, the pipe to it, where it imports from, and the number of the call that it has."""

    process: SpawnProcess
    pipe: "Connection[Any, Any]"
    home: str
    number: int | None = None
    played: int = 0


@final
@attrs.define(eq=False)
class SeedWorkers:
    """Plays calls in workers. The workers import `play` and `prepare` by their names; `prepare`
    runs once in each. `may_go_on` is asked before a call is handed out. `home_of` a call is the
    folder from which its worker imports before any other. When it is empty, the worker imports what
    this process does."""

    jobs: int
    play: Callable[..., Any]
    prepare: Callable[[], None]
    may_go_on: Callable[[], bool]
    home_of: Callable[[Call], str] = lambda call: ""
    grace_seconds: float = GRACE_SECONDS
    deaths: int = 0
    _workers: list[_Worker] = attrs.Factory(list)
    _answers: dict[int, Any] = attrs.Factory(dict)
    _next: int = 0
    """The number of the call whose answer is given out next."""
    _stopped_at: float | None = None

    @property
    def gave_up(self) -> bool:
        """Whether too many workers died."""
        return self.deaths >= DEATHS_MAX

    def answers(self, calls: Iterable[Call]) -> Generator[tuple[Call, Any], None, None]:
        """Yields each handed-out call with its answer, or with a `Lost`."""
        waiting, given = iter(calls), dict[int, Call]()
        try:
            while self._stopped_at is None or given:
                self._hand_out_more(waiting, given)
                while self._next in self._answers:
                    self._next += 1
                    yield given.pop(self._next - 1), self._answers.pop(self._next - 1)
                if given:
                    self._listen()
        finally:
            self._end_all()

    def _hand_out_more(self, waiting: Iterator[Call], given: dict[int, Call]) -> None:
        """Give every idle job a call, as long as there are calls and time."""
        while self._stopped_at is None:
            goes_on = not self.gave_up and self.may_go_on()
            if goes_on and not self._has_room(len(given)):
                return
            call = next(waiting, None) if goes_on else None
            if call is None:
                self._stopped_at = time.perf_counter()
                return
            number = self._next + len(given)
            given[number] = call
            self._hand_out(number, call)

    def _has_room(self, given: int) -> bool:
        busy = sum(worker.number is not None for worker in self._workers)
        return busy < self.jobs and given < AHEAD * self.jobs

    def _hand_out(self, number: int, call: Call) -> None:
        home = self.home_of(call)
        idle = (each for each in self._workers if each.number is None and each.home == home)
        worker = next(idle, None)
        if worker is None:
            worker = self._started(home)
        worker.number = number
        try:
            worker.pipe.send(call)
        except OSError:
            self._buried(worker)

    def _started(self, home: str) -> _Worker:
        context = get_context("spawn")
        mine, its = context.Pipe()
        process = context.Process(target=_serve, args=(its, self.play, self.prepare), daemon=True)
        with importing_from(home):
            process.start()
        its.close()
        worker = _Worker(process, mine, home)
        self._workers.append(worker)
        return worker

    def _listen(self) -> None:
        """Wait a little for answers."""
        busy = {each.pipe: each for each in self._workers if each.number is not None}
        for pipe in wait([*busy], timeout=LOOK_SECONDS):
            assert isinstance(pipe, Connection), pipe
            self._hear(busy[pipe])
        stopped = self._stopped_at
        if stopped is not None and time.perf_counter() - stopped > self.grace_seconds:
            for worker in [each for each in self._workers if each.number is not None]:
                self._lose(worker, f"worker-stuck: not done {self.grace_seconds:.0f} s after the "
                                   "time limit")  # fmt: skip
                self._end(worker)

    def _hear(self, worker: _Worker) -> None:
        try:
            kind, answer = worker.pipe.recv()
        except (EOFError, OSError):
            self._buried(worker)
            return
        if kind == "refused":
            raise OperatingError(answer[0], on=answer[1], do=answer[2])
        assert worker.number is not None, worker
        self._answers[worker.number] = Lost(answer) if kind == "failed" else answer
        worker.number = None
        worker.played += 1
        if worker.played >= CALLS_A_WORKER:
            self._end(worker)

    def _buried(self, worker: _Worker) -> None:
        worker.process.join(_END_SECONDS)
        self.deaths += 1
        self._lose(worker, f"worker-died: the process that played it {_end_of(worker.process)}")
        self._end(worker)

    def _lose(self, worker: _Worker, why: str) -> None:
        assert worker.number is not None, worker
        self._answers[worker.number] = Lost(why)

    # --- ends -------------------------------------------------------------------------------------

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        _let_go(worker)
        _waited_for(worker)

    def _end_all(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:
            _let_go(worker)
        for worker in workers:
            _waited_for(worker)


@contextmanager
def importing_from(home: str) -> Iterator[None]:
    """Give processes that start in this block this process's path with `home` before it."""
    before = sys.path.copy()
    sys.path[:0] = [home] if home else []
    try:
        yield
    finally:
        sys.path[:] = before


def _let_go(worker: _Worker) -> None:
    """Let an idle worker end, by closing its pipe."""
    worker.pipe.close()
    if worker.number is not None:
        worker.process.terminate()


def _waited_for(worker: _Worker) -> None:
    worker.process.join(_END_SECONDS)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join()


def _end_of(process: SpawnProcess) -> str:
    code = process.exitcode
    if code is not None and code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


# --- in a worker ----------------------------------------------------------------------------------


def _serve(
    pipe: "Connection[Any, Any]", play: Callable[..., Any], prepare: Callable[[], None]
) -> None:
    """Play calls until the pipe ends: the life of a worker."""
    begin_as_worker()
    prepared = False
    while True:
        try:
            call = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            if not prepared:
                prepare()
            prepared = True
            answer = ("played", play(*call))
        except OperatingError as error:
            answer = ("refused", (error.what, error.on, error.do))
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            text = f"{type(error).__name__}: {error} at {where.filename}:{where.lineno}"
            answer = ("failed", f"worker-failed: {text}")
        pipe.send(answer)


def _terminated(number: int, frame: FrameType | None) -> None:
    """Raise SIGTERM as an exception, so that a process for which this one waits is ended too."""
    del frame
    raise SystemExit(128 + number)


def begin_as_worker() -> None:
    """Set up a worker whose own helpers end with it when it is told to end."""
    begin_as_helper()
    signal.signal(signal.SIGTERM, _terminated)


def begin_as_helper() -> None:
    """Leave Ctrl-C to the parent; watch for its death, and end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_wait_for_the_parent, daemon=True).start()


def _wait_for_the_parent() -> None:
    parent = parent_process()
    assert parent is not None, "a worker has a parent"
    parent.join()
    os._exit(1)
