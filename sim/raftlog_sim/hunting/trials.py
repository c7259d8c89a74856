"""Candidates of a shrink: whole runs, and which of them still fail as the original did.

They are tried in order, and the first that fails is taken. This process plays them, or a few
helpers, which play ahead of the answer. So one shrink with more helpers takes the same steps, only
faster. A helper gives up a candidate that is no longer needed. One that is stuck in a turn does not
hear of that: when time is out the shrink does not wait for it, and it is ended.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog_sim.base.minimise import Effort
from raftlog_sim.base.outcome import signature
from raftlog_sim.checks.onlooker import WatchedTurn
from raftlog_sim.hunting.workers import LOOK_SECONDS, begin_as_helper
from raftlog_sim.playing.simulation import LIVENESS_SECONDS, simulate
from raftlog_sim.schedules.schedule import Schedule, schedule_from_text

if TYPE_CHECKING:
    from multiprocessing.sharedctypes import Synchronized

_Numbered = Iterator[tuple[int, Schedule]]

AHEAD: Final = 2
"""How many candidates are played, or wait, for each helper."""
_END: Final = -1
"""The number of the question after the last one."""
_GRACE_SECONDS: Final = 2.0
"""How many seconds a helper may go on after the last question."""


class _GivenUpError(BaseException):
    """A candidate runs much longer than the original, or is no longer needed."""


@final
@attrs.frozen
class Original:
    """The failure that a candidate must repeat: this signature, within so many events and, if
    `until_ns` is known, until that world time. It gets `liveness_seconds` to come to rest."""

    signature: str
    events_max: int
    until_ns: int | None = None
    liveness_seconds: int = LIVENESS_SECONDS

    def is_like(self, candidate: Schedule, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Whether `candidate` fails so."""

        def watch(turn: WatchedTurn) -> None:
            late = self.until_ns is not None and turn.node.world.now > self.until_ns
            if late or turn.events_so_far > self.events_max or given_up():
                raise _GivenUpError

        try:
            result = simulate(candidate, watch=watch, liveness_seconds=self.liveness_seconds)
        except _GivenUpError:
            return False
        return signature(result.failure) == self.signature


def _nothing() -> None:
    pass


@final
@attrs.frozen
class Helpers:
    """Processes that play candidates ahead, if there is more than one; `prepare` runs in each."""

    count: int = 1
    prepare: Callable[[], None] = _nothing


ALONE: Final = Helpers()


@final
@attrs.define(eq=False)
class Trials:
    """Tries the candidates of one shrink."""

    original: Original
    effort: Effort
    _pool: "_Pool | None" = None
    _passed: set[Schedule] = attrs.Factory(set)
    """Candidates that do not fail so. Later passes come to many of them again."""

    def fails(self, candidate: Schedule) -> bool:
        """Whether it fails as the original did; False when time is out."""
        return self.first([candidate]) is not None

    def confirms(self, found: Schedule) -> bool:
        """Whether a schedule found by another measure fails as the original did.

        It takes one run in this process, even when time is out.
        """
        self.effort.count()
        return self.original.is_like(found)

    def first(self, candidates: Sequence[Schedule]) -> int | None:
        """Returns the place of the first candidate that fails; see `First`."""
        new = self._new(candidates)
        if self._pool is None:
            return self._judged((place, one, self._is_like(one)) for place, one in new)
        try:
            return self._judged(self._pool.answers(self.original, new, self.effort))
        except BrokenProcessPool as error:  # out of memory, say: the findings so far count
            self.effort.stopped = f"a helper died: {error}"
            return None
        finally:
            self._pool.give_up()

    def _is_like(self, candidate: Schedule) -> bool:
        return self.original.is_like(candidate, lambda: not self.effort.may_go_on())

    def _judged(self, answers: Iterator[tuple[int, Schedule, bool]]) -> int | None:
        for place, candidate, fails in answers:
            self.effort.left = len(candidate.steps)
            self.effort.count()
            if fails:
                return place
            self._passed.add(candidate)
            if not self.effort.may_go_on():  # helpers play others; do not wait for them
                break
        return None

    def _new(self, candidates: Sequence[Schedule]) -> _Numbered:
        for numbered in enumerate(candidates):
            if not self.effort.may_go_on():
                return
            if numbered[1] not in self._passed:
                yield numbered


@contextmanager
def trials(helpers: Helpers) -> Iterator[Callable[[Original, Effort], Trials]]:
    """Returns a maker of `Trials` that share these helpers; the helpers end with the block."""
    if helpers.count == 1:
        yield Trials
        return
    context = get_context("spawn")
    wanted: Synchronized[int] = context.Value("q", 0, lock=False)
    with ProcessPoolExecutor(
        helpers.count, context, initializer=_prepare, initargs=(wanted, helpers.prepare)
    ) as executor:
        pool = _Pool(executor, wanted, AHEAD * helpers.count)
        try:
            yield lambda original, effort: Trials(original, effort, pool)
        finally:
            pool.end()


@final
@attrs.define(eq=False)
class _Pool:
    """The helpers that play ahead. `wanted` is the number of the present question. Helpers give up
    candidates of an earlier one."""

    executor: ProcessPoolExecutor
    wanted: "Synchronized[int]"
    ahead: int
    _waiting: deque[tuple[int, Schedule, Future[bool]]] = attrs.Factory(deque)

    def answers(
        self, original: Original, candidates: _Numbered, effort: Effort
    ) -> Iterator[tuple[int, Schedule, bool]]:
        """Yields whether each candidate fails so, in order, until time is out.

        Call `give_up` when no more are wanted.
        """
        waiting = self._waiting
        while True:
            while len(waiting) < self.ahead and (each := next(candidates, None)) is not None:
                call = (self.wanted.value, original, each[1].text())
                waiting.append((*each, self.executor.submit(_is_like, *call)))
            if not waiting:
                return
            place, candidate, future = waiting[0]
            while not (future.done() or _done_soon(future)):
                if not effort.may_go_on():
                    return
            waiting.popleft()
            yield place, candidate, future.result()

    def give_up(self) -> None:
        """Tell the helpers that no answer is wanted any more."""
        self.wanted.value += 1
        for _, _, future in self._waiting:
            future.cancel()
        self._waiting.clear()

    def end(self) -> None:
        """Tell the helpers that no question will follow; `_end_when_nobody_asks` ends one that is
        stuck."""
        self.give_up()
        self.wanted.value = _END


def _done_soon(future: Future[bool]) -> bool:
    with suppress(TimeoutError):
        future.exception(timeout=LOOK_SECONDS)
    return future.done()


_wanted: "list[Synchronized[int]]" = []
"""In a helper: holds `_Pool.wanted`."""


def _prepare(wanted: "Synchronized[int]", prepare: Callable[[], None]) -> None:
    begin_as_helper()
    _wanted.append(wanted)
    threading.Thread(target=_end_when_nobody_asks, args=(wanted,), daemon=True).start()
    prepare()


def _end_when_nobody_asks(wanted: "Synchronized[int]") -> None:
    while wanted.value != _END:
        time.sleep(LOOK_SECONDS)
    time.sleep(_GRACE_SECONDS)  # most have ended long before that
    os._exit(1)


def _is_like(question: int, original: Original, text: str) -> bool:
    (wanted,) = _wanted
    return original.is_like(schedule_from_text(text), lambda: wanted.value != question)
