"""Strikes the faults of a schedule, and undoes them.

`fault_kinds` collects the effects of all kinds, from a module for each family. All faults of the
safety phase leave a quorum that can repair everything (`atlas`). So every failure of such a run is
a bug.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.base.ids import GroupId, NodeId, ReplicaId
from raftlog.base.units import millis
from raftlog_sim.facts.targets import resolve
from raftlog_sim.faults.atlas import Atlas
from raftlog_sim.schedules.fault_pairs import NearFaults
from raftlog_sim.schedules.options import DEAF, STALLED
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.workloads.workload import SimWorkload
from raftlog_sim.world.disk import SimulatedDisk
from raftlog_sim.world.node import Node
from raftlog_sim.world.releases import level_of

if TYPE_CHECKING:
    from raftlog_sim.world.world import World

Strike = Callable[["SimNemesis", Step], bool]
"""Performs a step; returns whether it did something."""
Waiting = Callable[["SimNemesis", Step], None]
"""Performs a step when its moment comes, and counts it then."""
_TRIES: Final = 6
_TRY_AGAIN_NS: Final = millis(60)
_OF_LEADERS: Final = ("transfer",)
_ROLES: Final = ("leader:", "follower:", "coordinator:", "controller", "most-led")


def _needs_a_role(step: Step) -> bool:
    """Whether a step does something only where a replica leads."""
    named = [each for each in step.arguments if isinstance(each, str) and each.startswith(_ROLES)]
    return bool(named) or step.kind in _OF_LEADERS


@final
@attrs.frozen(kw_only=True)
class FaultKinds:
    """The effects of all kinds of faults, handed to a nemesis, so that it need not know them."""

    strikes: Mapping[str, Strike]
    waiting: Mapping[str, Waiting]
    heal_node: Sequence[Callable[["SimNemesis", Node], None]]
    """Undo, in this order, the faults of one family on a node."""
    heal_clock: Callable[["SimNemesis", Node], None]
    """The function of `heal_node` that nodes outside a core need too."""
    reboot: Callable[["SimNemesis", Node], None]
    heal_cluster: Callable[["SimNemesis"], None]
    """Undo the requests that changed the cluster as a whole."""


@final
@attrs.define(eq=False)
class SimNemesis:
    """Strikes steps until `heal`, which undoes the faults that last. `done` counts, by kind, the
    steps that did something."""

    world: "World"
    workload: SimWorkload
    kinds: FaultKinds
    churn: bool = False
    """Whether placements change during the run (`atlas`)."""
    planned: tuple[tuple[NodeId, ...], ...] = ()
    """The nodes to which partitions move during the run (`atlas`)."""
    done: dict[str, int] = attrs.Factory(dict)
    in_vain: list[str] = attrs.Factory(list)
    """Steps, as texts, that did nothing: their target was not there, or already struck."""
    due: list[tuple[int, Step]] = attrs.Factory(list)
    """All steps, those of clients too, with their instants."""
    near: NearFaults = attrs.Factory(NearFaults)
    healed: bool = False
    throttled: bool = False
    """Whether moves were ever throttled; healing then lifts the bounds."""
    images: dict[NodeId, SimulatedDisk] = attrs.Factory(dict)
    """Copies of disks that were put aside."""
    imaged_in: dict[NodeId, int] = attrs.Factory(dict)
    """The boot of its node in which each copy was made."""
    urged: dict[tuple[GroupId, ReplicaId], None] = attrs.Factory(dict)
    """Replicas that the nemesis let campaign."""
    put_aside: dict[NodeId, SimulatedDisk] = attrs.Factory(dict)
    """Disks of nodes that run on an empty one."""
    remembered: dict[NodeId, dict[str, bytes]] = attrs.Factory(dict)
    """The earlier content of a disk's files, by path, for `old-chunk`."""
    atlas: Atlas = attrs.field(init=False)
    level_asked: int = attrs.field(init=False)
    """The highest feature level that the cluster may have."""

    def __attrs_post_init__(self) -> None:
        self.atlas = Atlas(self.world, self.churn, self.planned)
        self.world.tear_bytes = self.workload.options.tear_bytes
        for node in self.world.nodes.values():
            node.disk.tear_bytes = self.world.tear_bytes
        self.level_asked = level_of(self.workload.options.release)

    def strike(self, step: Step, patience: int = _TRIES) -> None:
        """Perform a step now, and undo it later; a missing or already struck target is left alone.

        A step that needs a node in some role is tried again for a little while.
        """
        if self.healed:
            if patience < _TRIES:  # no target came in time; `_heal` notes others
                self.in_vain.append(str(step))
            return
        if step.kind in self.kinds.waiting:
            self.kinds.waiting[step.kind](self, step)
        elif self.kinds.strikes[step.kind](self, step):
            self.struck(step)
        elif patience > 1 and _needs_a_role(step):
            self.world.after(_TRY_AGAIN_NS, self.strike, step, patience - 1)
        else:
            self.in_vain.append(str(step))

    def struck(self, step: Step) -> None:
        """Count a step that did something."""
        self.done[step.kind] = self.done.get(step.kind, 0) + 1
        self.near.struck(step.kind, self.world.now)

    def heal(self) -> None:
        """Let everything work again from here on.

        Nodes that may not know of their damage boot once more, to find out.
        """
        self._heal(sorted(self.world.nodes))

    def heal_core(self, core: Sequence[NodeId], rest: str) -> None:
        """Let everything within the core work again, and let all other nodes fail for good.

        `rest` (`options.RESTS`) says how they fail.
        """
        self._heal(core)
        others = [number for number in sorted(self.world.nodes) if number not in core]
        pairs = [(one, other) for one in core for other in others]
        for number in others:  # a client may ask them; a wrong clock refuses for good
            self.kinds.heal_clock(self, self.world.nodes[number])
        if rest == DEAF:
            return  # `deafen` follows, when links that were away are back
        if rest == STALLED:
            self.note("start-stall", *others)
            for number in others:
                self.world.nodes[number].stalled = True
        else:
            self.world.network.part(pairs)
            for number in [number for number in others if self.world.nodes[number].up]:
                self.world.nodes[number].suspend()
            self.note("start-freeze", *others)

    def deafen(self, core: Sequence[NodeId]) -> None:
        """Keep all messages of the core from the nodes outside it."""
        others = [number for number in sorted(self.world.nodes) if number not in core]
        self.note("start-deaf", *others)
        self.world.network.deafen([(one, other) for one in core for other in others])

    def _heal(self, numbers: Sequence[NodeId]) -> None:
        if not self.healed:  # `events_max` may have ended the safety phase before its time
            late = [step for at, step in self.due if at > self.world.now]
            self.in_vain += [f"{step} (after events_max)" for step in late]
        self.healed = True
        self.world.network.heal()
        for number in numbers:
            for heal in self.kinds.heal_node:
                heal(self, self.world.nodes[number])
        for number in [number for number in self.atlas.unaware if number in numbers]:
            self.kinds.reboot(self, self.world.nodes[number])
        self.kinds.heal_cluster(self)

    # --- for the kinds ----------------------------------------------------------------------------

    def nodes(self, step: Step, name: str) -> list[Node]:
        """Returns the nodes that an argument means now, except those with an old copy of their
        disk.

        With each boot such a copy's number would come nearer to the one that the others know. While
        there is no leader, it cannot be refused for good (seed 261).
        """
        found = [self.world.nodes[number] for number in self.numbers(step, name)]
        return [node for node in found if not node.rolled_back]

    def numbers(self, step: Step, name: str) -> tuple[NodeId, ...]:
        """Returns the numbers of the nodes that an argument means now."""
        return resolve(self.world, str(step.argument(name)), TOPIC)

    def later(self, step: Step, undo: Callable[..., None], *arguments: Any) -> None:
        """Schedule the undoing for the step's end, if it has one."""
        if step.for_ms:
            self.world.after(millis(step.for_ms), self._undo, undo, arguments)

    def _undo(self, undo: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Undo one step, unless healing undid all; a node outside a core has failed for good."""
        if not self.healed:
            undo(*arguments)

    def note(self, what: str, *nodes: NodeId) -> None:
        """Add a line to the history, for pictures."""
        value: dict[str, Any] = {"nodes": [f"n{number}" for number in nodes]} if nodes else {}
        self.workload.history.nemesis(what, time_ns=self.world.now, value=value)
