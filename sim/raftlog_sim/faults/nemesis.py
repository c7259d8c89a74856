"""The faults of a schedule, struck and undone. `fault_kinds` puts together what each kind does,
from a module for each family.

All faults of the safety phase leave a quorum able to repair everything (`atlas`). So every failure
of such a run is a bug.
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
"""Performs a step; whether it did something."""
Waiting = Callable[["SimNemesis", Step], None]
"""Performs a step when its moment comes, and counts it then."""
_TRIES: Final = 6
_TRY_AGAIN_NS: Final = millis(60)
_OF_LEADERS: Final = ("transfer",)
_ROLES: Final = ("leader:", "follower:", "coordinator:", "controller", "most-led")


def _needs_a_role(step: Step) -> bool:
    """Whether it does something only where somebody leads."""
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
    """The one of `heal_node` that also nodes outside a core need."""
    reboot: Callable[["SimNemesis", Node], None]
    heal_cluster: Callable[["SimNemesis"], None]
    """Undo what was asked of the cluster as a whole."""


@final
@attrs.define(eq=False)
class SimNemesis:
    """Strikes steps until `heal`, which undoes what still stands. `done` counts, by kind, the steps
    that did something."""

    world: "World"
    workload: SimWorkload
    kinds: FaultKinds
    churn: bool = False
    """Placements change during the run, see `atlas`."""
    planned: tuple[tuple[NodeId, ...], ...] = ()
    """Where to, see `atlas`."""
    done: dict[str, int] = attrs.Factory(dict)
    in_vain: list[str] = attrs.Factory(list)
    """Steps, as texts, that did nothing: their target was not there, or already struck."""
    due: list[tuple[int, Step]] = attrs.Factory(list)
    """All steps, those of clients too, with their instants."""
    near: NearFaults = attrs.Factory(NearFaults)
    healed: bool = False
    throttled: bool = False
    """Moves were throttled for a while; what is left of that ends with the faults."""
    images: dict[NodeId, SimulatedDisk] = attrs.Factory(dict)
    """Copies of disks that were put aside."""
    imaged_in: dict[NodeId, int] = attrs.Factory(dict)
    """In which boot of its node each was made."""
    urged: dict[tuple[GroupId, ReplicaId], None] = attrs.Factory(dict)
    """Replicas whose time to campaign it let come."""
    put_aside: dict[NodeId, SimulatedDisk] = attrs.Factory(dict)
    """Disks of nodes that run on an empty one."""
    remembered: dict[NodeId, dict[str, bytes]] = attrs.Factory(dict)
    """What the files of a disk held once, by path."""
    atlas: Atlas = attrs.field(init=False)
    level_asked: int = attrs.field(init=False)
    """The highest feature level that the cluster may be at."""

    def __attrs_post_init__(self) -> None:
        self.atlas = Atlas(self.world, self.churn, self.planned)
        self.world.tear_bytes = self.workload.options.tear_bytes
        for node in self.world.nodes.values():
            node.disk.tear_bytes = self.world.tear_bytes
        self.level_asked = level_of(self.workload.options.release)

    def strike(self, step: Step, patience: int = _TRIES) -> None:
        """Do it, and undo it later; a target that is not there, or already struck, is left. Whoever
        has a role is waited for a little."""
        if self.healed:
            if patience < _TRIES:  # its target did not come in time; others are told by `_heal`
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
        """Everything works again from here on. Who may not know of its damage boots once more, to
        find out."""
        self._heal(sorted(self.world.nodes))

    def heal_core(self, core: Sequence[NodeId], rest: str) -> None:
        """Everything within the core works again; all other nodes have failed for ever, as `rest`
        (`options.RESTS`) says."""
        self._heal(core)
        others = [number for number in sorted(self.world.nodes) if number not in core]
        pairs = [(one, other) for one in core for other in others]
        for number in others:  # a clock that is wrong refuses a client for good, and may be asked
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
        """All nodes outside the core hear nothing of it from now on."""
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
        """Whom an argument means now. Machines with an old copy of their disk are let alone: with
        each boot its number would come nearer to the one that the others know, and while nobody
        leads nobody can say for good that it is out (seed 261)."""
        found = [self.world.nodes[number] for number in self.numbers(step, name)]
        return [node for node in found if not node.rolled_back]

    def numbers(self, step: Step, name: str) -> tuple[NodeId, ...]:
        """Whom an argument means now, by number."""
        return resolve(self.world, str(step.argument(name)), TOPIC)

    def later(self, step: Step, undo: Callable[..., None], *arguments: Any) -> None:
        """Undo it when the step ends, if it has an end."""
        if step.for_ms:
            self.world.after(millis(step.for_ms), self._undo, undo, arguments)

    def _undo(self, undo: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Healing undoes everything at once; who is outside a core has failed for ever."""
        if not self.healed:
            undo(*arguments)

    def note(self, what: str, *nodes: NodeId) -> None:
        """A line in the history, for pictures."""
        value: dict[str, Any] = {"nodes": [f"n{number}" for number in nodes]} if nodes else {}
        self.workload.history.nemesis(what, time_ns=self.world.now, value=value)
