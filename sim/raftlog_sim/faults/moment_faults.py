"""Strikes a fault at a moment of a partition's life, which no draw of an instant would hit.

The step waits for the moment, then does what another step does:

    membership   the leader has proposed a membership that is not committed
    learner      a replica is in the membership that is to vote, and does not yet
    caught-up    the same, and it holds all that the leader has
    joint        a proposed membership of which two halves must agree
    final        the membership that ends a joint one is proposed and not committed
    transfer     the leader has begun to hand over
    marker       a log start is proposed and not committed
    install      a follower has received a log that replaces its own, and it is not durable
    roll         a new segment was begun
    lease        the leader answers reads by its lease
    level        the controller has proposed a higher feature level, and it is not committed
    controllers  the controller has proposed other controllers, and they are not committed

The fault strikes the leader, at an install the follower, at a level and at controllers the
controller. `cut-old` cuts a majority of the old configuration off from all others, if there is an
old one. `crash-new`, `power-new` and `cut-new` strike the nodes that join, if any. `cancel` takes
the move back.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.ids import METADATA_GROUP, GroupId, ReplicaId
from raftlog.base.units import NANOS_PER_MICRO, millis
from raftlog.partition.replica import PartitionReplica
from raftlog_sim.facts.targets import group_of
from raftlog_sim.faults import cluster_faults, network_faults, process_faults
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.schedules.schedule import step as make_step
from raftlog_sim.workloads.callers import TOPIC

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis
    from raftlog_sim.world.node import Node

KIND: Final = "at-moment"
_LOOK_NS: Final = 100 * NANOS_PER_MICRO
_PATIENCE_NS: Final = millis(1_500)


def strike_when(nemesis: "SimNemesis", step: Step) -> None:
    """Look for the moment again and again for a while."""
    _look(nemesis, step, nemesis.world.now + _PATIENCE_NS, {})


def _look(
    nemesis: "SimNemesis", step: Step, until: int, rolled: dict[PartitionReplica, int]
) -> None:
    """Look once. `rolled` holds how many segments each replica had begun at the last look."""
    if nemesis.healed:  # the moment did not come in time
        nemesis.in_vain.append(str(step))
        return
    world = nemesis.world
    group = group_of(world, TOPIC, int(step.argument("partition")))
    found = None if group is None else _found(nemesis, group, str(step.argument("when")), rolled)
    if found is not None and _strike(nemesis, step, *found):
        nemesis.struck(step)
    elif world.now < until:
        world.after(_LOOK_NS, _look, nemesis, step, until, rolled)
    else:
        nemesis.in_vain.append(str(step))


def _found(
    nemesis: "SimNemesis", group: GroupId, when: str, rolled: dict[PartitionReplica, int]
) -> tuple["Node", PartitionReplica] | None:
    """Returns a replica that is at the moment, and its node."""
    for node in nemesis.world.running():
        of_controllers = when in ("level", "controllers")
        replica = node.broker.context.replicas.get(METADATA_GROUP if of_controllers else group)
        if replica is None or node.rolled_back or node.suspended:
            continue
        if when == "roll":
            segments = len(replica.log.segments)
            if segments > rolled.setdefault(replica, segments) and replica.is_leader:
                return node, replica
        elif when == "level":
            if _level_rises(node):
                return node, replica
        elif _MOMENTS[when](replica):
            return node, replica
    return None


def _strike(nemesis: "SimNemesis", step: Step, node: "Node", replica: PartitionReplica) -> bool:
    """Strike the node, or most of the old configuration, or the nodes that join it."""
    what, numbers = str(step.argument("what")), [node.number]
    if what == "cancel":
        back = make_step(step.at_ms, "cancel-move", partition=step.argument("partition"))
        return cluster_faults.STRIKES["cancel-move"](nemesis, back)
    if what == "cut-old":
        old = replica.membership.outgoing or replica.membership.voters
        numbers = sorted(voter.node for voter in old)[: len(old) // 2 + 1]
    elif what.endswith("-new"):
        numbers = sorted(each.node for each in _joining(replica)) or numbers
    side = "+".join(f"n{number}" for number in numbers)
    kind, target, more = _FAULTS[what]
    return _STRIKES[kind](
        nemesis, make_step(step.at_ms, kind, step.for_ms, **{target: side}, **more)
    )


def _level_rises(node: "Node") -> bool:
    controller = node.broker.controller
    committed = node.broker.context.image.feature_level
    return controller.active and controller.projected.feature_level > committed > 0


def _membership(replica: PartitionReplica) -> bool:
    return replica.is_leader and replica.node.standing()[3] > replica.commit


def _joining(replica: PartitionReplica) -> list[ReplicaId]:
    """Returns the replicas that a move adds, as far as the membership in force shows them."""
    now = replica.membership
    voters = [each for each in now.voters if now.outgoing and each not in now.outgoing]
    return [*now.learners, *voters]


def _learner(replica: PartitionReplica) -> bool:
    return replica.is_leader and bool(replica.membership.learners)


def _caught_up(replica: PartitionReplica) -> bool:
    progress, last = replica.node.progress, replica.log.last_index
    learners = replica.membership.learners
    return replica.is_leader and any(
        each in progress and progress[each].match == last for each in learners
    )


def _final(replica: PartitionReplica) -> bool:
    held = replica.node._state.memberships
    return _membership(replica) and len(held) > 1 and held[-2][1].joint


def _controllers(replica: PartitionReplica) -> bool:
    held = replica.node._state.memberships
    return _membership(replica) and len(held) > 1 and held[-2][1].voters != held[-1][1].voters


def _lease(replica: PartitionReplica) -> bool:
    state = replica.node._state
    return replica.is_leader and state.lease_until > state.now


_MOMENTS: Final[dict[str, Callable[[PartitionReplica], bool]]] = {
    "membership": _membership,
    "learner": _learner,
    "caught-up": _caught_up,
    "final": _final,
    "controllers": _controllers,
    "joint": lambda replica: _membership(replica) and replica.membership.joint,
    "transfer": lambda replica: replica.is_leader and replica.node._state.transferring is not None,
    "marker": lambda replica: replica.is_leader and bool(replica._tracker._log_starts),
    "install": lambda replica: replica.log.durable_end is None,
    "lease": _lease,
}
"""The moments that a replica's state shows; `roll` and `level` need more to be told."""
_FAULTS: Final[dict[str, tuple[str, str, dict[str, str | int]]]] = {
    "crash": ("crash", "node", {}),
    "power": ("power", "node", {"keep": "some"}),
    "pause": ("pause", "node", {}),
    "stall": ("stall", "node", {}),
    "cut": ("partition", "side", {"how": "silent"}),
    "deaf": ("one-way", "side", {"way": "in"}),
    "mute": ("one-way", "side", {"way": "out"}),
    "cut-old": ("partition", "side", {"how": "silent"}),
    "crash-new": ("crash", "node", {}),
    "power-new": ("power", "node", {"keep": "none"}),
    "cut-new": ("partition", "side", {"how": "silent"}),
    "relay": ("relay", "sender", {"receiver": "all", "what": "any", "one_in": 1}),
}
_STRIKES: Final = process_faults.STRIKES | network_faults.STRIKES
