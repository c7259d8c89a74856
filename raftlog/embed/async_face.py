"""The blocking methods of a `Cluster`, for event loops."""

from typing import Protocol, final

from raftlog.embed.event_loops import in_thread
from raftlog.embed.health import HEALTHY_SECONDS


class WaitingCluster(Protocol):
    """The methods of a `Cluster` that wait."""

    def kill(self, node: int) -> None: ...
    def shut_down(self, node: int) -> None: ...
    def restart(self, node: int, *, wait: bool = True) -> None: ...
    def start_all(self) -> None: ...
    def pause(self, node: int) -> None: ...
    def resume(self, node: int) -> None: ...
    def recover(self, *, seconds: float = HEALTHY_SECONDS) -> str: ...
    def leader_of(
        self, topic: str, partition: int = 0, *, seconds: float = HEALTHY_SECONDS
    ) -> int: ...
    def wait_until_healthy(self, *, seconds: float = HEALTHY_SECONDS) -> None: ...


@final
class AsyncFace:
    """The blocking methods of a `Cluster`, to be awaited in trio or asyncio."""

    def __init__(self, cluster: WaitingCluster) -> None:
        self._cluster = cluster

    async def kill(self, node: int) -> None:
        await in_thread(self._cluster.kill, node)

    async def shut_down(self, node: int) -> None:
        await in_thread(self._cluster.shut_down, node)

    async def restart(self, node: int, *, wait: bool = True) -> None:
        await in_thread(self._cluster.restart, node, wait=wait)

    async def start_all(self) -> None:
        await in_thread(self._cluster.start_all)

    async def pause(self, node: int) -> None:
        await in_thread(self._cluster.pause, node)

    async def resume(self, node: int) -> None:
        await in_thread(self._cluster.resume, node)

    async def recover(self, *, seconds: float = HEALTHY_SECONDS) -> str:
        return await in_thread(self._cluster.recover, seconds=seconds)

    async def leader_of(
        self, topic: str, partition: int = 0, *, seconds: float = HEALTHY_SECONDS
    ) -> int:
        return await in_thread(self._cluster.leader_of, topic, partition, seconds=seconds)

    async def wait_until_healthy(self, *, seconds: float = HEALTHY_SECONDS) -> None:
        await in_thread(self._cluster.wait_until_healthy, seconds=seconds)
