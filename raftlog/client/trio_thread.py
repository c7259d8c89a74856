"""A thread in which trio runs a client, for the classes whose methods block.

`begin` starts the thread and waits until the client is open. `call` runs a coroutine function in
it, from any thread. `end` closes the client and waits for the thread. A process that was forked
meanwhile has no such thread: there `call` is refused, and `end` does nothing.
"""

import contextlib
import os
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
    """The thread of one client.

    For error messages, `name` names the client ("client"), `face` the blocking class, and `instead`
    the class to use inside trio. `leave` is called before the client is closed."""

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
        self._process = os.getpid()
        self.error: BaseException | None = None
        """The error that ended the thread before `end` was called; None without one."""

    @property
    def forked(self) -> bool:
        """Whether this process was forked from the one in which the thread runs."""
        return os.getpid() != self._process

    def begin(self) -> None:
        """Start the thread and open the client; raises the error that opening it raised."""
        self._process = os.getpid()
        self._thread.start()
        self._started.wait()
        if self.error is not None:
            self._thread.join()
            raise self.error

    def end(self) -> None:
        """Close the client and wait for the thread. An error of either is then in `error`."""
        if self.forked:
            return
        token, closing = self._token, self._closing
        if token is not None and closing is not None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(closing.set)
        self._thread.join()

    def call(self, function: Callable[..., Awaitable[Result]], *args: object) -> Result:
        """Run a coroutine function in the thread; return its result or raise its error."""
        if self._token is None:
            raise LocalMisuse(
                f"the {self._name} is not open", do=f"with {self._face}(...) as {self._name}"
            )
        if self.forked:
            raise LocalMisuse(
                f"the {self._name} was opened before this process was forked",
                do=f"open a {self._face} in each process",
            )
        system.refuse_inside_trio(self._face, self._instead)
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            why = f": {self.error}" if self.error is not None else ""
            raise OperatingError(f"the {self._name} is closed{why}") from None

    def do(self, function: Callable[..., Result], *args: object) -> Result:
        """Run a plain function in the thread, which must not block; return its result or raise its
        error."""

        async def run() -> Result:
            return function(*args)

        return self.call(run)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # `begin`, `call` and `end` raise it
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
