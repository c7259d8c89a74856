"""A `Cluster` whose faults are noted in the history, so that the report shows them."""

from typing import Any, Final, final

from raftlog.embed.async_face import AsyncFace
from raftlog.embed.cluster import Cluster
from raftlog.embed.recording.door import by_value
from raftlog.embed.recording.history import Recording
from raftlog.embed.recording.wrapper import Recorded

_NOTED: Final = {
    "kill": "kill",
    "shut_down": "kill",
    "restart": "restart",
    "pause": "pause",
    "resume": "resume",
}


@final
class RecordedCluster(Recorded):
    """A `Cluster` that notes faults when they begin and repairs when they are done."""

    def __init__(self, original: Cluster, history: Recording) -> None:
        super().__init__(original, history, by_value)

    @property
    def aio(self) -> AsyncFace:
        """The awaitable methods."""
        return AsyncFace(self)

    def kill(self, node: int) -> None:
        """As the original's, noted."""
        self._noted("kill", node)

    def shut_down(self, node: int) -> None:
        """As the original's, noted."""
        self._noted("shut_down", node)

    def pause(self, node: int) -> None:
        """As the original's, noted."""
        self._noted("pause", node)

    def restart(self, node: int, **more: Any) -> None:
        """As the original's, noted."""
        self._raftlog_original.restart(node, **more)
        self._raftlog_history.fault("restart", node)

    def resume(self, node: int) -> None:
        """As the original's, noted."""
        self._raftlog_original.resume(node)
        self._raftlog_history.fault("resume", node)

    def start_all(self) -> None:
        """As the original's, noted."""
        dead = sorted(set(self._raftlog_original.nodes) - set(self._raftlog_original.alive))
        self._raftlog_original.start_all()
        for node in dead:
            self._raftlog_history.fault("restart", node)

    def partition(self, *groups: Any, **more: Any) -> Any:
        """As the original's, noted."""
        self._raftlog_history.fault("partition", groups=[sorted(each) for each in groups])
        return self._raftlog_original.partition(*groups, **more)

    def isolate(self, node: int) -> Any:
        """As the original's, noted."""
        self._raftlog_history.fault("partition", node)
        return self._raftlog_original.isolate(node)

    def heal(self) -> None:
        """As the original's, noted."""
        self._raftlog_original.heal()
        self._raftlog_history.fault("heal")

    def recover(self, **more: Any) -> str:
        """As the original's, noted."""
        dead = sorted(set(self._raftlog_original.nodes) - set(self._raftlog_original.alive))
        told: str = self._raftlog_original.recover(**more)
        self._raftlog_history.fault("heal")
        for node in dead:
            self._raftlog_history.fault("restart", node)
        return told

    def _noted(self, method: str, node: int) -> None:
        self._raftlog_history.fault(_NOTED[method], node)
        getattr(self._raftlog_original, method)(node)
