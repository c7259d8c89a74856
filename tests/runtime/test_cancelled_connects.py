"""A client that was closed while it connected left its socket open: between taking the socket over
from trio and returning it stood an await, where the cancellation struck.

Each of these is cancelled at every step that its task takes, and must leave no socket behind.
"""

import contextlib
import gc
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest
import trio

from raftlog.broker.events import PeerAddress
from raftlog.client import system
from raftlog.runtime.network.streams import TcpNetwork
from tests.runtime.test_peer_links import End

STEPS_MAX = 1_000


class _CancelsAt(trio.abc.Instrument):
    """Cancels `scope` when the task of this name begins its step number `at`."""

    def __init__(self, scope: trio.CancelScope, at: int, name: str) -> None:
        self.scope, self.at, self.name = scope, at, name

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name == self.name:
            self.at -= 1
            if self.at == 0:
                self.scope.cancel()


def _open_sockets() -> int:
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder's own descriptor is gone again
            found += str(each.readlink()).startswith("socket:")
    return found


async def _client_connects(port: int) -> list[system.ClientSocket]:
    return [await system.connect("localhost", port)]


async def _broker_connects(port: int) -> list[object]:
    return [await TcpNetwork().connect("localhost", port)]


async def _broker_listens(port: int) -> list[object]:
    del port
    return list(await TcpNetwork().listen("localhost", 0))


@pytest.mark.parametrize("opens", [_client_connects, _broker_connects, _broker_listens])
def test_a_cancelled_task_leaves_no_socket_open(opens: Callable[[int], Awaitable[list]]):
    """Its last round ends without a cancellation, so every step was struck."""

    async def strike(port: int, step: int) -> bool:
        """Whether the task came to its end."""
        before = _open_sockets()
        result: list = []
        with trio.CancelScope() as scope:
            instrument = _CancelsAt(scope, step, trio.lowlevel.current_task().name)
            trio.lowlevel.add_instrument(instrument)
            try:
                result = await opens(port)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        for each in result:
            each.close()
        assert _open_sockets() == before, f"cancelled at step {step}"
        return instrument.at > 0

    async def main(port: int) -> int:
        for step in range(1, STEPS_MAX):
            if await strike(port, step):
                return step
        raise AssertionError("it never came to its end")

    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        assert trio.run(main, server.getsockname()[1]) > 1


@pytest.mark.parametrize("side", ["dials", "accepts"])
def test_a_broker_that_ends_while_it_shakes_hands_leaves_no_socket_open(side: str):
    """An end that accepts left its stream to the collector. Each round strikes a later step, until
    the link is up before the strike."""

    async def strike(step: int) -> bool:
        """Whether the link was up before this step."""
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                one, two = End(1, nursery), End(2, nursery)
                (listening,) = await TcpNetwork().listen("127.0.0.1", 0)
                with closing(listening):
                    address = PeerAddress(one.node, "127.0.0.1", listening.port)
                    instrument = _CancelsAt(scope, step, f"peer {side}")
                    trio.lowlevel.add_instrument(instrument)
                    try:
                        nursery.start_soon(two.links._dial_once, address, name="peer dials")
                        stream, _ = await listening.accept()
                        nursery.start_soon(one.links.accept, stream, "two", name="peer accepts")
                        await one.linked()
                        await two.linked()
                    finally:
                        trio.lowlevel.remove_instrument(instrument)
                nursery.cancel_scope.cancel()
        return instrument.at > 0

    async def main() -> int:
        before = _open_sockets()
        for step in range(1, STEPS_MAX):
            done = await strike(step)
            assert _open_sockets() == before, f"cancelled at step {step}"
            if done:
                return step
        raise AssertionError("the link never came up")

    gc.disable()  # it would close what was left open
    try:
        assert trio.run(main) > 1
    finally:
        gc.enable()
