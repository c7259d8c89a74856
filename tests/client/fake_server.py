"""The brokers of a `FakeCluster` on real sockets of the loopback interface."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from raftlog.kafka.frames import FrameBuffer, FrameCutter
from tests.client.fake_cluster import FakeCluster, Later


@asynccontextmanager
async def serving(cluster: FakeCluster) -> AsyncIterator[str]:
    """Serve; gives the bootstrap list."""
    async with trio.open_nursery() as nursery:
        for node in range(1, cluster.nodes + 1):
            listeners = await nursery.start(
                partial(trio.serve_tcp, host="127.0.0.1"), partial(_serve, cluster, node), 0
            )
            cluster.addresses[node] = listeners[0].socket.getsockname()[:2]
        yield ",".join(f"{host}:{port}" for host, port in cluster.addresses.values())
        nursery.cancel_scope.cancel()


async def _serve(cluster: FakeCluster, node: int, stream: trio.SocketStream) -> None:
    frames = FrameBuffer(FrameCutter.for_requests())
    try:
        async for piece in stream:
            for frame in frames.feed(piece):
                while node in cluster.paused:  # noqa: ASYNC110 - a test says so from outside
                    await trio.sleep(0.01)
                given: list[list[Any]] = []
                parts, cut = cluster.answer(node, frame, given.append)
                while isinstance(parts, Later) and not given:  # noqa: ASYNC110 - as above
                    await trio.sleep(0.01)
                if given:
                    parts = given[0]
                if cut is not None:
                    await stream.aclose()
                    return
                if parts is not None:
                    await stream.send_all(b"".join(bytes(part) for part in parts))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
