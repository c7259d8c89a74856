"""Blocking calls from an event loop, trio's or asyncio's: each runs in a thread of its own.

A call that was begun is always waited for. A cancellation that comes meanwhile is delivered when
the call is over, so that no cluster is left half started or half stopped.
"""

import asyncio  # noqa: TID251 - the user's event loop, which may be asyncio's
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import trio

from raftlog.client.system import inside_trio

Result = TypeVar("Result")


async def in_thread(function: Callable[..., Result], *args: Any, **more: Any) -> Result:
    """Run a blocking function in a thread; its result, or what it raised."""
    call = partial(function, *args, **more)
    if inside_trio():
        return await trio.to_thread.run_sync(call)
    return await _in_asyncio(call)


async def in_thread_shielded(function: Callable[..., Result], *args: Any) -> Result:
    """The same for what must be done in a task that is cancelled already: leaving a block."""
    if inside_trio():
        with trio.CancelScope(shield=True):
            return await in_thread(function, *args)
    return await in_thread(function, *args)


async def _in_asyncio(call: Callable[[], Result]) -> Result:
    """A thread of its own, as trio has it: the loop's shared ones may all be busy, with `follow`
    for instance."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    done: asyncio.Future[Result] = loop.create_future()

    def work() -> None:
        try:
            result = context.run(call)
        except BaseException as error:
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, result)

    thread = threading.Thread(target=work, name="raftlog call", daemon=True)
    thread.start()
    cancelled = 0
    while not done.done():
        try:
            await asyncio.wait([done])  # a cancellation of `await done` would reach the call
        except asyncio.CancelledError:
            cancelled += 1
    thread.join()  # it has nothing left to do
    task = asyncio.current_task()
    assert task is not None, "asyncio runs coroutines in tasks"
    for _ in range(cancelled):
        # Taken back and asked for once more: the next wait of this task raises, as it would have.
        task.uncancel()
    for _ in range(cancelled):
        task.cancel()
    return done.result()
