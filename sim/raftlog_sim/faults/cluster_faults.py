"""The actions of operators in the middle of everything.

They move partitions and leadership, stop brokers gracefully, and create, grow and delete topics.

A client of the product asks for moves, deletions of records and everything about topics; nothing
waits for the answers. Topics of the churn are `churn-0`, `churn-1` ...; no client writes to them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from raftlog.base.errors import RaftlogError
from raftlog.base.units import Instant, millis
from raftlog.broker.events import Stop
from raftlog.broker.peer_messages import ControllerKind
from raftlog.client.core import asks
from raftlog.client.core.admin_asks import (
    EVERY_BROKER,
    Change,
    Resource,
    ResourceKind,
    alter_settings,
)
from raftlog.client.core.quorum_changes import add_controller, remove_controller
from raftlog.client.core.values import TopicPartition
from raftlog.metadata.commands import UnregisterBroker
from raftlog.metadata.requests import SubmitCommand, encode_body
from raftlog.metadata.settings.broker_settings import BROKER_ONLY
from raftlog.metadata.settings.config_changes import ConfigOperation
from raftlog_sim.base.stuck import StuckError
from raftlog_sim.facts.targets import group_of, leaders_of
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.workloads.callers import CHURN, TOPIC
from raftlog_sim.world.node import Node

if TYPE_CHECKING:
    from raftlog.partition.replica import PartitionReplica
    from raftlog_sim.faults.nemesis import SimNemesis

_PATIENCE: Final = millis(3_000)
_LIFTS_MAX: Final = 10
_CHURN_TOPICS: Final = 4
_CHURN_PARTITIONS: Final = 4
_THROTTLED: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


def _reassign(nemesis: "SimNemesis", step: Step) -> bool:
    """Let an administrator ask for a move, without waiting for the answer."""
    nodes, number = nemesis.numbers(step, "nodes"), int(step.argument("partition"))
    if not nodes or number >= nemesis.workload.options.partitions:
        return False
    moves = {TopicPartition(TOPIC, number): nodes}
    nemesis.workload.administer(asks.alter_reassignments(moves, timeout_ns=_PATIENCE))
    nemesis.note("reassign", *nodes)
    return True


def _cancel_move(nemesis: "SimNemesis", step: Step) -> bool:
    """Let an administrator take a move back; one that has ended, or never began, changes
    nothing."""
    number = int(step.argument("partition"))
    if number >= nemesis.workload.options.partitions:
        return False
    moves = {TopicPartition(TOPIC, number): None}
    nemesis.workload.administer(asks.alter_reassignments(moves, timeout_ns=_PATIENCE))
    nemesis.note("cancel-move")
    return True


def _throttle(nemesis: "SimNemesis", step: Step) -> bool:
    """Let an administrator bound all moves of the topic at every broker, or lift the bounds."""
    _pace_moves(nemesis, int(step.argument("rate")))
    if step.for_ms:
        nemesis.throttled = True
        nemesis.world.after(millis(step.for_ms), lift_throttle, nemesis)
    nemesis.note("throttle")
    return True


def lift_throttle(nemesis: "SimNemesis") -> None:
    """Let the administrator lift the bounds, and ask again until the cluster has heard of it.

    At a low rate a move would take hours.
    """
    if nemesis.throttled:
        _pace_moves(nemesis, 0, tries=_LIFTS_MAX)


def _pace_moves(nemesis: "SimNemesis", rate: int, tries: int = 1) -> None:
    operation = ConfigOperation.SET if rate else ConfigOperation.DELETE
    rates = [Change(name, str(rate) if rate else None, operation) for name in BROKER_ONLY]
    lists = [Change(name, "*" if rate else None, operation) for name in _THROTTLED]
    resources = (Resource(ResourceKind.BROKER, EVERY_BROKER), Resource(ResourceKind.TOPIC, TOPIC))
    for resource, changes in zip(resources, (rates, lists), strict=True):
        call = alter_settings(resource, changes, timeout_ns=_PATIENCE)
        nemesis.workload.administer(call, tries)


def _nobody_listens(answer: Any) -> None:
    del answer


def _unregister(nemesis: "SimNemesis", step: Step) -> bool:
    """Ask through the first node that is up, as an operator does who took a machine away."""
    asker = next(iter(nemesis.world.running()), None)
    wanted = nemesis.numbers(step, "node")
    if asker is None:
        return False
    for number in wanted:
        _submit(nemesis, asker, UnregisterBroker(node=number))
    nemesis.note("unregister", *wanted)
    return bool(wanted)


def _submit(nemesis: "SimNemesis", asker: Node, command: UnregisterBroker) -> None:
    deadline = Instant(asker.live.clock.now(nemesis.world.now) + _PATIENCE)
    body = encode_body(SubmitCommand(command=command))
    asker.broker.context.controller.ask(ControllerKind.PROPOSE, body, deadline, _nobody_listens)
    asker.deliver_nothing("it asked the controller")


def _add_controller(nemesis: "SimNemesis", step: Step) -> bool:
    return _change_controller(nemesis, step, votes=True)


def _remove_controller(nemesis: "SimNemesis", step: Step) -> bool:
    return _change_controller(nemesis, step, votes=False)


def _change_controller(nemesis: "SimNemesis", step: Step, *, votes: bool) -> bool:
    """Ask for a change of controllers, as `raftlog quorum add` and `remove` do.

    The request names the directory of the newest image. Nothing waits for the answer.
    """
    images = [node.broker.context.image for node in nemesis.world.running()]
    newest = max(images, key=lambda image: image.version, default=None)
    wanted = nemesis.numbers(step, "node")[:1]
    if newest is None or not wanted:
        return False
    number, voting = wanted[0], {each.node: each for each in newest.controllers}
    broker = newest.brokers.get(number)
    if (number in voting) is votes or (votes and broker is None):
        return False
    if not nemesis.atlas.change_controllers(list(voting), number, votes=votes):
        return False
    replica = broker.metadata_replica if votes and broker is not None else voting[number]
    ask = add_controller if votes else remove_controller
    directory = replica.directory.to_bytes(16, "big")
    nemesis.workload.administer(ask(number, directory, timeout_ns=_PATIENCE))
    nemesis.note(step.kind, number)
    return True


def _transfer(nemesis: "SimNemesis", step: Step) -> bool:
    """Let the partition's leader hand over to the node, if that is a voter that may lead."""
    group = group_of(nemesis.world, TOPIC, int(step.argument("partition")))
    leading = [] if group is None else leaders_of(nemesis.world, group)[-1:]
    wanted = nemesis.numbers(step, "node")[:1]
    if group is None or not leading or not wanted:
        return False
    node = nemesis.world.nodes[leading[0]]
    replica = node.broker.context.replicas[group]
    voters = [voter for voter in replica.membership.voters if voter.node == wanted[0]]
    if not voters or node.suspended:
        return False
    try:
        replica.transfer(voters[0], node.live.clock.now(nemesis.world.now))
    except RaftlogError:
        return False
    node.broker.context.touch(group)
    node.deliver_nothing("it handed leadership over")
    nemesis.note("transfer", *wanted)
    return True


def _stop(nemesis: "SimNemesis", step: Step) -> bool:
    """Stop brokers gracefully: leadership goes first, then the process."""
    nodes = [node for node in nemesis.nodes(step, "node") if node.up and not node.suspended]
    for node in nodes:
        stop(nemesis, step, node)
    return bool(nodes)


def stop(nemesis: "SimNemesis", step: Step, node: Node) -> None:
    """Ask a running broker to stop; it starts again when the step ends."""
    nemesis.note("stop", node.number)
    node.leaves = True
    node.deliver(Stop(Instant(node.live.clock.now(nemesis.world.now) + _PATIENCE)))
    nemesis.later(step, _back, nemesis, node, node.boots)


def _back(nemesis: "SimNemesis", node: Node, boots: int) -> None:
    """Start a broker again; one that has not finished stopping is killed first."""
    if node.boots != boots:
        return
    if node.up:
        node.stop_process()
    nemesis.note("restart", node.number)
    node.start()


def _trim(nemesis: "SimNemesis", step: Step) -> bool:
    """Let an administrator delete all records of a partition; the leader proposes a log start."""
    number = int(step.argument("partition"))
    if number >= nemesis.workload.options.partitions:
        return False
    place = TopicPartition(TOPIC, number)
    nemesis.workload.administer(asks.delete_records(place, timeout_ns=_PATIENCE))
    return True


def _must_be_led(nemesis: "SimNemesis", step: Step) -> bool:
    partition, wanted = int(step.argument("partition")), nemesis.numbers(step, "nodes")
    found = _leading(nemesis, partition)
    if found is None or found[0].number not in wanted or not found[1].node.ready:
        names = ", ".join(f"n{number}" for number in wanted)
        raise StuckError(f"partition {partition} is not led by any of {names}")
    return True


def _leading(nemesis: "SimNemesis", partition: int) -> "tuple[Node, PartitionReplica] | None":
    group = group_of(nemesis.world, TOPIC, partition)
    leading = [] if group is None else leaders_of(nemesis.world, group)[-1:]
    if group is None or not leading:
        return None
    node = nemesis.world.nodes[leading[0]]
    return node, node.broker.context.replicas[group]


# --- topics ---------------------------------------------------------------------------------------


def _create_topic(nemesis: "SimNemesis", step: Step) -> bool:
    name, count = _churn(step), 1 + int(step.argument("partitions")) % _CHURN_PARTITIONS
    replication = nemesis.workload.options.replication
    topic = asks.new_topic(name, count, replication)
    nemesis.workload.administer(asks.create_topics([topic], timeout_ns=_PATIENCE))
    return True


def _grow_topic(nemesis: "SimNemesis", step: Step) -> bool:
    count = 1 + int(step.argument("partitions")) % _CHURN_PARTITIONS
    nemesis.workload.administer(asks.create_partitions({_churn(step): count}, timeout_ns=_PATIENCE))
    return True


def _delete_topic(nemesis: "SimNemesis", step: Step) -> bool:
    nemesis.workload.administer(asks.delete_topics([_churn(step)], timeout_ns=_PATIENCE))
    return True


def _churn(step: Step) -> str:
    return f"{CHURN}{int(step.argument('topic')) % _CHURN_TOPICS}"


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "reassign": _reassign,
    "cancel-move": _cancel_move,
    "throttle": _throttle,
    "unregister": _unregister,
    "add-controller": _add_controller,
    "remove-controller": _remove_controller,
    "transfer": _transfer,
    "stop": _stop,
    "trim": _trim,
    "must-be-led": _must_be_led,
    "create-topic": _create_topic,
    "grow-topic": _grow_topic,
    "delete-topic": _delete_topic,
}


def heal(nemesis: "SimNemesis", node: Node) -> None:
    """End the stop of a broker that was stopping."""
    del nemesis
    if node.leaves and node.up:
        node.stop_process()
    node.leaves = False
