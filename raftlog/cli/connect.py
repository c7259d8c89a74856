"""Connects commands to a cluster: one trio run, one client, errors that come out bare."""

import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, final

import click
import trio

from raftlog.base.errors import OperatingError
from raftlog.base.units import millis
from raftlog.client.system import parse_bootstrap
from raftlog.client.trio_driver import Client

Result = TypeVar("Result")

TOPIC_WAIT = millis(2_000)
"""The time for which a command waits for a missing topic: a person is waiting too."""
PATIENCE = millis(15_000)
"""The time for which a command waits for a cluster that accepts a connection."""
REACH_SECONDS = 5.0
"""The time for which a command waits for any broker to accept a connection. A broker starts in
about a second, and a person is waiting."""
_SILENCE_SECONDS = 1.0
"""The time after which a person is told why nothing happens, if no address has refused so far."""
_REDIAL_SECONDS = 0.2


def with_client(
    bootstrap: str, work: Callable[[Client], Awaitable[Result]], **options: Any
) -> Result:
    """Run `work` with an open client; returns its result, or raises its one error."""

    async def main() -> Result:
        await reach(bootstrap)
        more = {"topic_wait_ns": TOPIC_WAIT, "call_timeout_ns": PATIENCE, **options}
        async with Client(bootstrap, **more) as client:
            return await work(client)

    return run(main)


async def reach(bootstrap: str) -> None:
    """Wait until one bootstrap address accepts a connection.

    Raises `OperatingError` when none does within `REACH_SECONDS`. Standard error says at once what
    the command waits for.
    """
    found = _Reaching(bootstrap)
    addresses = parse_bootstrap(bootstrap)
    with trio.move_on_after(REACH_SECONDS) as scope:
        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(found.dial, address, len(addresses), nursery.cancel_scope)
            await trio.sleep(_SILENCE_SECONDS)
            found.say()
    if scope.cancelled_caught:
        raise OperatingError(
            f"no broker accepts a connection{found.why}",
            on=bootstrap,
            do="start a cluster with `raftlog up`, or name one that runs by -b HOST:PORT",
        )


@final
class _Reaching:
    """Dials all bootstrap addresses until one accepts."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.why = ""
        self._failed: dict[tuple[str, int], None] = {}
        self._said = False

    async def dial(self, address: tuple[str, int], count: int, scope: trio.CancelScope) -> None:
        """Dial one address; when it accepts, end all dialling."""
        while True:
            try:
                stream = await trio.open_tcp_stream(*address)
            except OSError as error:
                if isinstance(error, socket.gaierror):
                    self.why = f": {address[0]}: {error.strerror}"
                self._failed[address] = None
                if len(self._failed) == count:
                    self.say()
                await trio.sleep(_REDIAL_SECONDS)
            else:
                await stream.aclose()
                scope.cancel()
                return

    def say(self) -> None:
        """Tell a person, once. A program that wants JSON gets one document, about the error."""
        context = click.get_current_context(silent=True)
        as_json = context is not None and context.params.get("form") == "json"
        if not (self._said or as_json):
            print(
                f"raftlog: no broker accepts a connection at {self.bootstrap} yet; "
                f"trying for {REACH_SECONDS:g} s",
                file=sys.stderr,
                flush=True,
            )
        self._said = True


def run(main: Callable[[], Awaitable[Result]]) -> Result:
    """Do `trio.run`, and raise the one error out of nested groups."""
    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        raise only_error(group) from group


def only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error inside nested groups; the group itself when there are several. Ctrl-C wins."""
    if group.subgroup(KeyboardInterrupt) is not None:
        return KeyboardInterrupt()
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
