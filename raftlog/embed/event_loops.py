"""Blocking calls from an event loop (trio or asyncio): each runs in a thread of its own.

A task waits for a call that changes something even if the task is cancelled. The cancellation
arrives when the call is over, so that no cluster is left half started or half stopped. A task does
not wait for a read: it is cancelled at once, and the thread ends with the read.
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
    """Run a blocking function in a thread; return its result or raise its error."""
    call = partial(function, *args, **more)
    if inside_trio():
        return await trio.to_thread.run_sync(call)
    return await _in_asyncio(call)


async def in_thread_abandoned(function: Callable[..., Result], *args: Any) -> Result:
    """Run a bounded read in a thread. A cancellation does not wait for it."""
    call = partial(function, *args)
    if inside_trio():
        return await trio.to_thread.run_sync(call, abandon_on_cancel=True)
    _, done = _begun(call)
    return await done


async def enter_in_thread(enter: Callable[[], Result], leave: Callable[[], None]) -> Result:
    """Run the function that enters a block. A block that is cancelled while it is being entered is
    never left, so `leave` then undoes `enter` here."""
    if inside_trio():
        # trio raises a cancellation inside the block or before it, never here
        return await in_thread(enter)
    try:
        return await _in_asyncio(enter)
    except asyncio.CancelledError:
        await _in_asyncio(leave)
        raise


async def in_thread_shielded(function: Callable[..., Result], *args: Any) -> Result:
    """Run a function in a thread even if the task is cancelled already, as when it leaves a
    block."""
    if inside_trio():
        with trio.CancelScope(shield=True):
            return await in_thread(function, *args)
    return await in_thread(function, *args)


async def _in_asyncio(call: Callable[[], Result]) -> Result:
    """Wait for the call, then raise a cancellation that came meanwhile. asyncio reports each
    cancellation to a task only once, and its timeouts count their own, so none is requested
    again."""
    thread, done = _begun(call)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait([done])  # `await done` would pass a cancellation on to the call
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    thread.join()  # the thread has nothing left to do
    if cancelled is not None:
        raise cancelled from done.exception()
    return done.result()


def _begun(call: Callable[[], Result]) -> tuple[threading.Thread, "asyncio.Future[Result]"]:
    """Begin a call in a new thread, as trio does. The threads that the loop shares may all be
    busy."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    done: asyncio.Future[Result] = loop.create_future()

    def work() -> None:
        result: Result | None = None
        failure: BaseException | None = None
        try:
            result = context.run(call)
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the read was abandoned and its loop may be closed
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
