"""A thread in which trio runs one of our clients, for faces that block.

`begin` starts it and waits until the client is open. `call` runs a coroutine function there, from
any thread. `end` lets it close the client, and waits for the thread.
"""

import contextlib
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, final

import trio

from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client import system

Result = TypeVar("Result")


@final
class TrioThread:
    """See the module. `name` is what errors call the client, as "client"; `face` is the blocking
    class, `instead` what to use inside trio, `leave` is called before the client is closed."""

    def __init__(
        self,
        opened: AbstractAsyncContextManager[Any],
        *,
        name: str,
        face: str,
        instead: str,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self._opened = opened
        self._name = name
        self._face = face
        self._instead = instead
        self._leave = leave
        self._thread = threading.Thread(target=self._run, name=f"raftlog {name}", daemon=True)
        self._started = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._closing: trio.Event | None = None
        self.error: BaseException | None = None
        """What ended the thread before it was asked to end."""

    def begin(self) -> None:
        """Open the client; raises what its opening raised."""
        self._thread.start()
        self._started.wait()
        if self.error is not None:
            self._thread.join()
            raise self.error

    def end(self) -> None:
        """Close the client. What went wrong is `error`."""
        token, closing = self._token, self._closing
        if token is not None and closing is not None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(closing.set)
        self._thread.join()

    def call(self, function: Callable[..., Awaitable[Result]], *args: object) -> Result:
        """Run in the thread; its result, or what it raised."""
        if self._token is None:
            raise LocalMisuse(
                f"the {self._name} is not open", do=f"with {self._face}(...) as {self._name}"
            )
        system.refuse_inside_trio(self._face, self._instead)
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            why = f": {self.error}" if self.error is not None else ""
            raise OperatingError(f"the {self._name} is closed{why}") from None

    def do(self, function: Callable[..., Result], *args: object) -> Result:
        """The same of a function that does not wait."""

        async def run() -> Result:
            return function(*args)

        return self.call(run)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # those who call hear of it
            self.error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._closing = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with self._opened:
            self._started.set()
            await self._closing.wait()
            if self._leave is not None:
                self._leave()
