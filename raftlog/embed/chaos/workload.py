"""The built-in workload: producers and readers in threads of their own, all recorded.

A producer sends one record at a time and waits for its acknowledgement. An error that ends a thread
is kept, and `join` raises it. A record that was refused, or whose outcome is unknown, is no such
error: it is in the history, which the judge judges.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, final

from raftlog.base.errors import OperatingError, RaftlogError
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.values import TopicPartition
from raftlog.embed.chaos.plan import PlannedStep
from raftlog.embed.recording.history import Recording
from raftlog.embed.recording.recording import record

SEND_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.1

Due = tuple[float, int]
"""Seconds after the beginning, and a partition."""


@final
class ChaosWorkload:
    """The threads of producers and readers. Call `start`, then `join`; `stop` ends them early."""

    def __init__(
        self, servers: str, topic: str, steps: Sequence[PlannedStep], seed: int, history: Recording
    ) -> None:
        self._servers = servers
        self._topic = topic
        self._seed = seed
        self._history = history
        self._stopped = threading.Event()
        self._errors: list[BaseException] = []
        self._began = 0.0
        sends: dict[int, list[Due]] = {}
        reads: dict[int, list[Due]] = {}
        for step in steps:
            partition = step.arguments["partition"]
            if step.kind in ("produce", "load"):
                sends.setdefault(step.arguments["slot"], []).extend(_due(step))
            else:
                reads.setdefault(partition, []).extend(_due(step))
        self._threads = [
            *(self._thread(self._produce, slot, due) for slot, due in sends.items()),
            *(self._thread(self._read, partition, due) for partition, due in reads.items()),
        ]

    def _thread(
        self, work: Callable[[int, Sequence[Due]], None], number: int, due: Iterable[Due]
    ) -> threading.Thread:
        ordered = sorted(due)

        def run() -> None:
            try:
                work(number, ordered)
            except BaseException as error:  # `join` raises it in the thread that waits for this one
                self._errors.append(error)

        return threading.Thread(target=run, name=f"raftlog chaos {number}", daemon=True)

    def start(self, began: float) -> None:
        """Start the threads. The steps' instants count from `began`, a time of
        `time.perf_counter`."""
        self._began = began
        for thread in self._threads:
            thread.start()

    def join(self, deadline: float) -> None:
        """Wait until all threads are done. Raises the error that ended one, and `OperatingError`
        when they are not done by the deadline."""
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.perf_counter()))
            if thread.is_alive():
                self.stop()
                raise OperatingError("the built-in workload did not end in time")
        for error in self._errors:
            raise error

    def stop(self) -> None:
        """Let the threads begin no further operation."""
        self._stopped.set()

    def _instants(self, due: Sequence[Due]) -> Iterator[int]:
        """Yield each partition when its time has come; end early once `stop` was called."""
        for at, partition in due:
            if self._stopped.wait(max(0.0, self._began + at - time.perf_counter())):
                return
            yield partition

    def _produce(self, slot: int, due: Sequence[Due]) -> None:
        with BlockingClient(self._servers) as plain:
            client = record(plain, self._history)
            for number, partition in enumerate(self._instants(due)):
                value = b"%d-%d-%d" % (self._seed, slot, number)
                try:
                    client.produce(self._topic, value, partition=partition, timeout=SEND_SECONDS)
                except RaftlogError:
                    # The history already has this record as refused or unknown. Go on with the next
                    # one.
                    continue

    def _read(self, partition: int, due: Sequence[Due]) -> None:
        with BlockingClient(self._servers) as plain:
            client = record(plain, self._history)
            client.assign({TopicPartition(self._topic, partition): 0})
            for _ in self._instants(due):
                client.poll(seconds=_POLL_SECONDS)


def _due(step: PlannedStep) -> list[Due]:
    count, every = step.arguments.get("count", 1), step.arguments.get("every_ms", 0)
    first, partition = step.at_ms / 1000, step.arguments["partition"]
    return [(first + number * every / 1000, partition) for number in range(count)]
