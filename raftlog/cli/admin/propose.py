"""Proposes places for `reassign generate`: on these brokers, evenly, with few moves. Pure.

1. A replica stays where it is when its broker is among those that may hold some.
2. A replica that must go, or is missing, goes to a rack that the partition uses least, there to
   the broker with the fewest replicas.
3. While one broker holds at least two replicas more than another, one moves between them, where
   that makes no rack of the partition fuller.
4. Each partition's first replica is the one on the broker that leads the fewest so far; where
   several do, the present leader stays.

The same input gives the same plan: ties go to the lower broker, partitions are taken in order.
"""

from collections.abc import Mapping, Sequence
from typing import final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.cli.admin.plan_files import Moves
from raftlog.client.core.values import TopicPartition


def propose(
    current: Mapping[TopicPartition, Sequence[int]],
    racks: Mapping[int, str],
    factor: int | None = None,
) -> Moves:
    """A plan for all these partitions on these brokers (number -> rack).

    Each keeps its number of replicas unless `factor` gives another. Raises `OperatingError` when
    there are too few brokers.
    """
    most = factor or max((len(nodes) for nodes in current.values()), default=1)
    if most > len(racks):
        raise OperatingError(
            f"{amount(most, 'replica')} of a partition need as many brokers, not {len(racks)}",
            on="brokers " + ",".join(map(str, sorted(racks))),
            do="name more brokers, or ask for fewer replicas",
        )
    plan = _Plan(dict(racks))
    for place, nodes in sorted(current.items()):
        plan.keep(place, nodes, factor or len(nodes))
    for place in sorted(current):
        plan.fill(place)
    plan.even_out()
    return plan.with_leaders(current)


@final
@attrs.define(eq=False)
class _Plan:
    """The plan as it grows. `load` counts the replicas of each broker."""

    racks: dict[int, str]
    wanted: dict[TopicPartition, int] = attrs.Factory(dict)
    nodes: dict[TopicPartition, list[int]] = attrs.Factory(dict)
    load: dict[int, int] = attrs.field(init=False)

    @load.default
    def _no_load(self) -> dict[int, int]:
        return dict.fromkeys(sorted(self.racks), 0)

    def keep(self, place: TopicPartition, nodes: Sequence[int], count: int) -> None:
        """Keep the replicas that may stay (step 1)."""
        kept = [node for node in nodes if node in self.racks][:count]
        self.wanted[place], self.nodes[place] = count, kept
        for node in kept:
            self.load[node] += 1

    def fill(self, place: TopicPartition) -> None:
        """Add missing replicas (step 2)."""
        nodes = self.nodes[place]
        while len(nodes) < self.wanted[place]:
            best = min(
                (node for node in self.load if node not in nodes),
                key=lambda node: (self._in_rack(nodes, node), self.load[node], node),
            )
            nodes.append(best)
            self.load[best] += 1

    def _in_rack(self, nodes: Sequence[int], node: int) -> int:
        """The number of these brokers that share the rack of this one."""
        return sum(self.racks[each] == self.racks[node] for each in nodes)

    def even_out(self) -> None:
        """Even out the loads (step 3). It ends, since each move lowers the sum of their squares."""
        while True:
            pairs = sorted(
                (self.load[low] - self.load[high], high, low)
                for high in self.load
                for low in self.load
                if self.load[high] - self.load[low] >= 2
            )
            if not any(self._move(high, low) for _, high, low in pairs):
                return

    def _move(self, high: int, low: int) -> int:
        """Move replicas from one broker to the other until they are even; returns how many."""
        moved = 0
        for nodes in self.nodes.values():
            if self.load[high] - self.load[low] < 2:
                break
            if high not in nodes or low in nodes:
                continue
            others = [node for node in nodes if node != high]
            if self._in_rack(others, low) > self._in_rack(others, high):
                continue
            nodes[nodes.index(high)] = low
            self.load[high] -= 1
            self.load[low] += 1
            moved += 1
        return moved

    def with_leaders(self, current: Mapping[TopicPartition, Sequence[int]]) -> Moves:
        """Choose the leaders (step 4)."""
        leads = dict.fromkeys(self.load, 0)
        found: Moves = {}
        for place, nodes in self.nodes.items():
            present = current[place][0] if current[place] else None

            def order(node: int, present: int | None = present) -> tuple[int, bool, int]:
                return leads[node], node != present, node

            first = min(nodes, key=order)
            leads[first] += 1
            found[place] = (first, *(node for node in nodes if node != first))
        return found
