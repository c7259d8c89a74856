"""Where the replicas of new partitions go: spread over racks, balanced in replicas and leaders.

Pure and deterministic: the same image and request give the same places. The controller balances
within the topic first, then over the cluster; ties go to the lower node id. For each partition it
chooses the replica set first: fewest replicas so far, a rack used less before a rack used more.
Then it chooses the preferred leader. Chains of swaps then even out leaders until no chain from the
busiest to the idlest broker is left.

Fenced brokers are used only when live ones are too few, and only if live ones are a majority of
every partition, so that a topic can be created while one broker is down and still elects leaders.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, final

import attrs

from raftlog.base.ids import DirectoryId, NodeId
from raftlog.base.limits import REMOVALS_WAITING_MAX
from raftlog.metadata.broker_image import BrokerImage
from raftlog.metadata.commands import Assignment
from raftlog.metadata.image import ClusterImage
from raftlog.metadata.topic_image import PartitionImage, TopicImage

_NO_PARTITIONS: Final[tuple[PartitionImage, ...]] = ()


@final
@attrs.frozen
class PlaceableBroker:
    """A broker that may take replicas."""

    node: NodeId
    directory: DirectoryId
    rack: str


@final
@attrs.define(eq=False)
class Load:
    """How many replicas and preferred leaders each node has so far, in the topic and elsewhere."""

    replicas: dict[NodeId, int]
    leaders: dict[NodeId, int]
    cluster_replicas: dict[NodeId, int]
    cluster_leaders: dict[NodeId, int]

    def replica_order(self, node: NodeId) -> tuple[int, int, int]:
        """The least comes first when a replica is to be placed."""
        return (self.replicas[node], self.cluster_replicas[node], node)

    def leader_order(self, node: NodeId) -> tuple[int, int, int]:
        """The least comes first when a leader is to be chosen."""
        return (self.leaders[node], self.cluster_leaders[node], node)


def place_partitions(
    image: ClusterImage, *, count: int, factor: int, topic: TopicImage | None = None
) -> tuple[Assignment, ...] | None:
    """Places for `count` new partitions (of `topic`, when it grows). None: too few brokers."""
    candidates = _candidates(image, factor)
    if candidates is None:
        return None
    present = _NO_PARTITIONS if topic is None else topic.partitions
    load = _load(image, present, [candidate.node for candidate in candidates])
    return place(candidates, load, count=count, factor=factor)


def place(
    candidates: Sequence[PlaceableBroker], load: Load, *, count: int, factor: int
) -> tuple[Assignment, ...]:
    """The pure choice. `candidates` are at least `factor` and in order of node; `load` is used
    up."""
    assert 1 <= factor <= len(candidates), (factor, len(candidates))
    sets = [_choose_set(candidates, load, factor) for _ in range(count)]
    led: list[list[NodeId]] = []
    for chosen in sets:
        leader = min((candidate.node for candidate in chosen), key=load.leader_order)
        load.leaders[leader] += 1
        rest = [candidate.node for candidate in chosen if candidate.node != leader]
        led.append([leader, *rest])
    _even_out(led, load)
    directories = {candidate.node: candidate.directory for candidate in candidates}
    return tuple(tuple((node, directories[node]) for node in nodes) for nodes in led)


def _choose_set(
    candidates: Sequence[PlaceableBroker], load: Load, factor: int
) -> list[PlaceableBroker]:
    chosen: list[PlaceableBroker] = []
    racks: dict[str, int] = {}
    left = list(candidates)
    for _ in range(factor):
        best = min(left, key=lambda item: (racks.get(item.rack, 0), load.replica_order(item.node)))
        left.remove(best)
        chosen.append(best)
        racks[best.rack] = racks.get(best.rack, 0) + 1
        load.replicas[best.node] += 1
    return chosen


def _even_out(led: list[list[NodeId]], load: Load) -> None:
    """Move leadership along chains from the busiest node to one with at least two fewer."""
    for _ in range(len(led)):
        busiest = max(load.leaders, key=lambda node: (load.leaders[node], -node))
        chain = _chain(led, load, busiest)
        if chain is None:
            return
        for ordinal, (taker, giver) in chain:
            nodes = led[ordinal]
            assert nodes[0] == giver, (nodes, giver)
            nodes.remove(taker)
            nodes.insert(0, taker)
            load.leaders[giver] -= 1
            load.leaders[taker] += 1


def _chain(
    led: Sequence[Sequence[NodeId]], load: Load, start: NodeId
) -> list[tuple[int, tuple[NodeId, NodeId]]] | None:
    """The shortest chain of (partition, (taker, giver)) from `start` to a node with at least two
    leaders fewer; breadth first, partitions in order."""
    by_leader: dict[NodeId, list[int]] = {}
    for ordinal, nodes in enumerate(led):
        by_leader.setdefault(nodes[0], []).append(ordinal)
    came: dict[NodeId, tuple[int, NodeId]] = {}
    queue = deque([start])
    while queue:
        giver = queue.popleft()
        for ordinal in by_leader.get(giver, ()):
            for taker in led[ordinal][1:]:
                if taker == start or taker in came:
                    continue
                came[taker] = (ordinal, giver)
                if load.leaders[taker] + 2 <= load.leaders[start]:
                    return _unwind(came, taker, start)
                queue.append(taker)
    return None


def _unwind(
    came: dict[NodeId, tuple[int, NodeId]], end: NodeId, start: NodeId
) -> list[tuple[int, tuple[NodeId, NodeId]]]:
    chain: list[tuple[int, tuple[NodeId, NodeId]]] = []
    node = end
    while node != start:
        ordinal, giver = came[node]
        chain.append((ordinal, (node, giver)))
        node = giver
    return chain


def _candidates(image: ClusterImage, factor: int) -> list[PlaceableBroker] | None:
    brokers = [image.brokers[node] for node in sorted(image.brokers)]
    live = [broker for broker in brokers if not broker.fenced]
    usable = live
    if len(live) < factor:
        spare = [broker for broker in brokers if _is_spare(image, broker)]
        if len(live) * 2 <= factor or len(live) + len(spare) < factor:
            return None
        usable = live + spare[: factor - len(live)]
    found = [PlaceableBroker(broker.node, broker.directory, broker.rack) for broker in usable]
    return sorted(found, key=lambda candidate: candidate.node)


def _is_spare(image: ClusterImage, broker: BrokerImage) -> bool:
    """Whether a broker that is away may be given replicas: not when very many are to be removed
    there, for topics that come and go while it is away would add to them without an end."""
    waiting = image.removals.get(broker.node, ())
    return broker.fenced and not broker.condemned and len(waiting) < REMOVALS_WAITING_MAX


def _load(image: ClusterImage, present: Iterable[PartitionImage], nodes: Sequence[NodeId]) -> Load:
    load = Load(*(dict.fromkeys(nodes, 0) for _ in range(4)))
    _count(present, load.replicas, load.leaders)
    for topic in image.topics.values():
        _count(topic.partitions, load.cluster_replicas, load.cluster_leaders)
    return load


def _count(
    partitions: Iterable[PartitionImage],
    replicas: dict[NodeId, int],
    leaders: dict[NodeId, int],
) -> None:
    for partition in partitions:
        if partition.target[0].node in leaders:
            leaders[partition.target[0].node] += 1
        for replica in partition.target:
            if replica.node in replicas:
                replicas[replica.node] += 1
