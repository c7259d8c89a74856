"""How commands talk to a cluster: one trio run, one client, errors that come out bare."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from raftlog.base.units import millis
from raftlog.client.trio_driver import Client

Result = TypeVar("Result")

TOPIC_WAIT = millis(2_000)
"""How long a command waits for a topic that is not there: a person is waiting too."""
PATIENCE = millis(15_000)
"""How long a command waits for a cluster that is not there."""


def with_client(
    bootstrap: str, work: Callable[[Client], Awaitable[Result]], **options: Any
) -> Result:
    """Run `work` with an open client; its result, or the one error that it raised."""

    async def main() -> Result:
        more = {"topic_wait_ns": TOPIC_WAIT, "call_timeout_ns": PATIENCE, **options}
        async with Client(bootstrap, **more) as client:
            return await work(client)

    return run(main)


def run(main: Callable[[], Awaitable[Result]]) -> Result:
    """`trio.run`, with the one error out of nested groups."""
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
