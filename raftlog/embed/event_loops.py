"""Blocking calls from an event loop, trio's or asyncio's: each runs in a thread of its own.

A call that changes something is waited for once it was begun. A cancellation that comes meanwhile
arrives when the call is over, so that no cluster is left half started or half stopped. A read is
left alone: its task is cancelled at once, and its thread ends with the read.
"""

import asyncio  # noqa: TID251 - the user's event loop, which may be asyncio's
import contextlib
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


async def in_thread_abandoned(function: Callable[..., Result], *args: Any) -> Result:
    """The same for a bounded read: a cancellation does not wait for it."""
    call = partial(function, *args)
    if inside_trio():
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)
    _, done = _begun(call)
    return await done


async def enter_in_thread(enter: Callable[[], Result], leave: Callable[[], None]) -> Result:
    """Run what a block begins with. A block that is cancelled while it is entered is not left, so
    `leave` takes back here what `enter` has done."""
    if inside_trio():
        return await in_thread(enter)  # trio raises a cancellation inside the block, or before
    try:
        return await _in_asyncio(enter)
    except asyncio.CancelledError:
        await _in_asyncio(leave)
        raise


async def in_thread_shielded(function: Callable[..., Result], *args: Any) -> Result:
    """The same for what must be done in a task that is cancelled already: leaving a block."""
    if inside_trio():
        with trio.CancelScope(shield=True):
            return await in_thread(function, *args)
    return await in_thread(function, *args)


async def _in_asyncio(call: Callable[[], Result]) -> Result:
    """Wait for the call, then raise the cancellation that came meanwhile: asyncio tells a task of
    each only once. Its timeouts count what they asked for themselves; nothing is asked again."""
    thread, done = _begun(call)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])  # a cancellation of `await done` would reach the call
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    thread.join()  # it has nothing left to do
    if cancelled is not None:
        raise cancelled from done.exception()
    return done.result()


def _begun(call: Callable[[], Result]) -> tuple[threading.Thread, "asyncio.Future[Result]"]:
    """A thread of its own, as trio has it: the loop's shared ones may all be busy."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    done: asyncio.Future[Result] = loop.create_future()

    def work() -> None:
        result: Result | None = None
        failure: BaseException | None = None
        try:
            result = context.run(call)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop of an abandoned read may be closed
            loop.call_soon_threadsafe(_settle, done, result, failure)

    thread = threading.Thread(target=work, name="raftlog call", daemon=True)
    thread.start()
    return thread, done


def _settle(done: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
    if done.cancelled():
        return
    if failure is not None:
        done.set_exception(failure)
    else:
        done.set_result(result)
