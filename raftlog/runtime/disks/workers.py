"""Workers beside the loop: each takes what it is given, in order, and tells the loop what came of
it. Here they are threads; `trio_world` has them in virtual time, without any.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, TypeVarTuple, final

import trio

Item = TypeVar("Item")
Taken_contra = TypeVar("Taken_contra", contravariant=True)
Arguments = TypeVarTuple("Arguments")

_JOIN_POLL_SECONDS: Final = 0.001


class Worker(Protocol[Taken_contra]):
    """One worker, as the loop reaches it; `report` is for the work itself."""

    def put(self, item: Taken_contra) -> None:
        """Queue something, from the loop."""
        ...

    def report(self, call: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """From the work: call this on the loop, soon, after everything reported before."""
        ...

    def end(self) -> None:
        """End after what is queued."""
        ...

    async def ended(self) -> None:
        """Wait until nothing more will be done."""
        ...


class WorkSteps(Protocol):
    """Work that was begun, and is done step by step."""

    @property
    def syncs(self) -> bool:
        """Whether the next step waits until a disk has synced something."""
        ...

    def step(self) -> bool:
        """Do one step; whether any is left."""
        ...


class Workers(Protocol):
    """Where workers come from."""

    def start(
        self, name: str, work: Callable[[list[Item]], WorkSteps | None], together_max: int
    ) -> Worker[Item]:
        """A worker that calls `work` with what is queued, at most so many things at a time. Where
        that returns steps, it does them all before it takes more."""
        ...


@final
class ThreadWorkers:
    """Each worker is a daemon thread, so that a wedged disk cannot hold up an exit. Made, and given
    things to do, on the trio thread whose token this is."""

    def __init__(self, token: trio.lowlevel.TrioToken) -> None:
        self._token = token

    def start(
        self, name: str, work: Callable[[list[Item]], WorkSteps | None], together_max: int
    ) -> Worker[Item]:
        """See `Workers`."""
        return _ThreadWorker(self._token, name, work, together_max)


@final
class _ThreadWorker(Generic[Item]):
    """`put` is the queue's own: it is called for every round."""

    def __init__(
        self,
        token: trio.lowlevel.TrioToken,
        name: str,
        work: Callable[[list[Item]], WorkSteps | None],
        together_max: int,
    ) -> None:
        self._token = token
        self._work = work
        self._together_max = together_max
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put: Callable[[Item], None] = self._queue.put
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def report(self, call: Callable[[*Arguments], None], *arguments: *Arguments) -> None:
        """See `Worker`."""
        try:
            self._token.run_sync_soon(call, *arguments)
        except trio.RunFinishedError:
            return  # the loop has ended; nobody is left to be told

    def end(self) -> None:
        self._queue.put(None)

    async def ended(self) -> None:
        """See `Worker`."""
        # Not by a helper thread that joins: trio would keep it for ten seconds more.
        while self._thread.is_alive():  # noqa: ASYNC110
            await trio.sleep(_JOIN_POLL_SECONDS)

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            together = [first]
            ended = False
            while len(together) < self._together_max and not ended:
                try:
                    following = self._queue.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    ended = True
                else:
                    together.append(following)
            steps = self._work(together)
            while steps is not None and steps.step():
                pass
            if ended:
                return
