"""Plays the faults of a plan on a cluster of processes, each at its instant.

One thread plays the steps in the order of their instants. A step that takes long delays the later
ones: starting a broker takes about a second. A target is looked up when its step is played. A step
whose target does not exist does nothing; the run notes that and goes on.
"""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.errors import LocalMisuse, OperatingError, RaftlogError
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import describe_cluster
from raftlog.embed.chaos.plan import PlannedStep
from raftlog.embed.cluster import Cluster
from raftlog.embed.faults import FaultHandle
from raftlog.embed.recording.history import Recording

_LEADER_SECONDS: Final = 5.0
"""How long a step waits until the partition that it names has a leader."""
_HEALTHY_SECONDS: Final = 60.0

Undo = Callable[[], None]
Wait = Callable[[float], None]
"""A function that waits until an instant of `now`. It raises `TimeIsUp` when the run's deadline
comes first."""


@final
class TimeIsUp(Exception):
    """The run's time limit ended before the scenario did."""


@final
@attrs.define(eq=False)
class ChaosStage:
    """Plays steps on a cluster. `struck` counts the steps that did something, by kind. `in_vain`
    lists those that did nothing."""

    cluster: Cluster
    client: BlockingClient
    history: Recording
    topic: str
    wait: Wait
    struck: Counter[str] = attrs.field(factory=Counter, init=False)
    in_vain: list[str] = attrs.field(factory=list, init=False)
    _down: set[int] = attrs.field(factory=set, init=False)
    """Brokers that a step killed or stopped."""
    _paused: set[int] = attrs.field(factory=set, init=False)
    _failed: set[int] = attrs.field(factory=set, init=False)
    """Brokers that no longer serve, because a sync of their disk failed."""

    def play(self, steps: Sequence[PlannedStep], began: float) -> None:
        """Play all steps at their instants after `began`, and undo each one when its time is
        over."""
        due: list[tuple[int, int, PlannedStep, Undo | None]] = [
            (each.at_ms, number, each, None) for number, each in enumerate(steps)
        ]
        heapq.heapify(due)
        number = len(due)
        while due:
            at_ms, _, step, undo = heapq.heappop(due)
            self.wait(began + at_ms / 1000)
            if undo is not None:
                self._undone(step, undo)
                continue
            following = self._strike(step)
            if following is not None and step.for_ms:
                number += 1
                heapq.heappush(due, (step.at_ms + step.for_ms, number, step, following))

    def died(self) -> list[int]:
        """Brokers that ended by themselves."""
        alive = self.cluster.alive
        return [node for node in self.cluster.nodes if node not in (*alive, *self._down)]

    def recover(self) -> list[str]:
        """Undo everything, and wait until the cluster is healthy. Returns a line for each fault of
        the network or a disk that says how often it was used."""
        self.cluster.heal()
        for node in sorted(self._failed):
            if node in self.cluster.alive:
                self.cluster.kill(node)
        told = self.cluster.recover(seconds=_HEALTHY_SECONDS)
        self.history.fault("heal")
        for node in sorted(self._down | self._failed):
            self.history.fault("restart", node)
        for node in sorted(self._paused):
            self.history.fault("resume", node)
        return told.splitlines()

    # --- one step ---------------------------------------------------------------------------------

    def _strike(self, step: PlannedStep) -> Undo | None:
        try:
            undo = _STRIKES[step.kind](self, step)
        except (OperatingError, LocalMisuse) as error:
            self._vain(step, error)
            return None
        if undo is None:
            self._vain(step, None)
        else:
            self.struck[step.kind] += 1
        return undo

    def _undone(self, step: PlannedStep, undo: Undo) -> None:
        try:
            undo()
        except OperatingError as error:
            # A broker did not come back in time. `recover` tries again at the end of the run, and
            # reports a cluster that does not become healthy.
            self._vain(step, error)

    def _vain(self, step: PlannedStep, error: RaftlogError | None) -> None:
        why = "its target was not there" if error is None else error.what
        self.in_vain.append(f"line {step.line}: {step}: {why}")

    def _crash(self, step: PlannedStep) -> Undo | None:
        return self._end(step, self.cluster.kill)

    def _stop(self, step: PlannedStep) -> Undo | None:
        return self._end(step, self.cluster.shut_down)

    def _end(self, step: PlannedStep, end: Callable[[int], None]) -> Undo | None:
        nodes = [node for node in self._nodes(step, "node") if node in self.cluster.alive]
        for node in nodes:
            self.history.fault("kill", node)
            self._down.add(node)
            self._paused.discard(node)
            end(node)
        return partial(self._start, nodes) if nodes else None

    def _start(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            if node in self._down:
                self.cluster.restart(node, wait=False)
                self._down.discard(node)
                self.history.fault("restart", node)

    def _pause(self, step: PlannedStep) -> Undo | None:
        able = [node for node in self.cluster.alive if node not in self._paused]
        nodes = [node for node in self._nodes(step, "node") if node in able]
        for node in nodes:
            self.history.fault("pause", node)
            self.cluster.pause(node)
            self._paused.add(node)
        return partial(self._resume, nodes) if nodes else None

    def _resume(self, nodes: Sequence[int]) -> None:
        for node in nodes:
            if node in self._paused:
                self.cluster.resume(node)
                self._paused.discard(node)
                self.history.fault("resume", node)

    def _partition(self, step: PlannedStep) -> Undo | None:
        side = self._nodes(step, "side")
        return self._cut([(side, self._others(side))])

    def _one_way(self, step: PlannedStep) -> Undo | None:
        side = self._nodes(step, "side")
        pair = (side, self._others(side))
        first, second = pair if step.arguments["way"] == "out" else pair[::-1]
        return self._cut([(first, second)], one_way=True)

    def _clog(self, step: PlannedStep) -> Undo | None:
        return self._cut([self._pipe(step)], one_way=True)

    def _bridge(self, step: PlannedStep) -> Undo | None:
        rest = self._others(self._nodes(step, "hub")[:1])
        half = len(rest) // 2
        return self._cut([(rest[:half], rest[half:])])

    def _ring(self, step: PlannedStep) -> Undo | None:
        del step
        nodes = self.cluster.nodes
        count, reach = len(nodes), (len(nodes) // 2 + 1) // 2
        return self._cut(
            [
                ([nodes[one]], [nodes[other]])
                for one in range(count)
                for other in range(one + 1, count)
                if min(other - one, count - other + one) > reach
            ]
        )

    def _cut(
        self, pairs: Sequence[tuple[Collection[int], Collection[int]]], *, one_way: bool = False
    ) -> Undo | None:
        whole = [(sorted(first), sorted(second)) for first, second in pairs if first and second]
        handles: list[FaultHandle] = []
        for first, second in whole:
            self.history.fault("partition", groups=[first, second])
            handles.append(self.cluster.partition(first, second, one_way=one_way))
        return partial(self._heal, handles) if handles else None

    def _heal(self, handles: Sequence[FaultHandle]) -> None:
        for handle in handles:
            handle.remove()
        self.history.fault("heal")

    def _slow_link(self, step: PlannedStep) -> Undo | None:
        ms, (sender, receiver) = step.arguments["ms"], self._pipe(step)
        if not (sender and receiver and ms):
            return None
        return self.cluster.delay(sender, receiver, ms=ms).remove

    def _slow_disk(self, step: PlannedStep) -> Undo | None:
        ms = step.arguments["ms"]
        return self._on_each(step, partial(self.cluster.slow_disk, ms=ms)) if ms else None

    def _disk_full(self, step: PlannedStep) -> Undo | None:
        return self._on_each(step, self.cluster.full_disk)

    def _failed_sync(self, step: PlannedStep) -> Undo | None:
        undo = self._on_each(step, self.cluster.fail_sync)
        self._failed.update(self._nodes(step, "node"))
        self._down.update(self._failed)
        return undo

    def _on_each(self, step: PlannedStep, install: Callable[[int], FaultHandle]) -> Undo | None:
        handles = [install(node) for node in self._nodes(step, "node")]

        def remove() -> None:
            for handle in handles:
                handle.remove()

        return remove if handles else None

    # --- targets ----------------------------------------------------------------------------------

    def _pipe(self, step: PlannedStep) -> tuple[list[int], list[int]]:
        """The senders and the receivers of a step. No node is in both: `all` means all other
        nodes."""
        receiver = self._nodes(step, "receiver")
        sender = self._nodes(step, "sender")
        others = [node for node in sender if node not in receiver]
        return others or sender, [node for node in receiver if others or node not in sender]

    def _others(self, side: Collection[int]) -> list[int]:
        return [node for node in self.cluster.nodes if node not in side]

    def _nodes(self, step: PlannedStep, name: str) -> list[int]:
        """The nodes to which a target refers now, each once."""
        found: dict[int, None] = {}
        for word in str(step.arguments[name]).split("+"):
            found.update(dict.fromkeys(self._named(word)))
        return list(found)

    def _named(self, word: str) -> list[int]:
        role, _, number = word.partition(":")
        if role == "all":
            return self.cluster.nodes
        if role == "leader":
            return [self.cluster.leader_of(self.topic, int(number), seconds=_LEADER_SECONDS)]
        if role == "follower":
            return self._followers(int(number))[:1]
        if role == "controller":
            told = self.client.ask(describe_cluster())
            return [told.controller_id] if told.controller_id in self.cluster.nodes else []
        if role == "most-led":
            led = Counter(each.leader_id for each in self.client.describe(self.topic).partitions)
            return [node for node, _ in led.most_common(1) if node in self.cluster.nodes]
        return [int(word.removeprefix("n"))]

    def _followers(self, partition: int) -> list[int]:
        """The running followers of a partition, the lowest node id first."""
        told = self.client.describe(self.topic).partitions
        (found,) = [each for each in told if each.partition_index == partition]
        return sorted(
            node
            for node in found.replica_nodes
            if node != found.leader_id and node in self.cluster.alive
        )


_STRIKES: Final[dict[str, Callable[[ChaosStage, PlannedStep], Undo | None]]] = {
    "crash": ChaosStage._crash,
    "stop": ChaosStage._stop,
    "pause": ChaosStage._pause,
    "partition": ChaosStage._partition,
    "one-way": ChaosStage._one_way,
    "bridge": ChaosStage._bridge,
    "ring": ChaosStage._ring,
    "clog": ChaosStage._clog,
    "slow-link": ChaosStage._slow_link,
    "slow-disk": ChaosStage._slow_disk,
    "disk-full": ChaosStage._disk_full,
    "failed-sync": ChaosStage._failed_sync,
}


def now() -> float:
    """The present on the clock of a run, in seconds."""
    return time.perf_counter()
