"""Faults of log directories: replicas move between them, and one of them breaks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.units import millis
from raftlog.client.core.admin_asks import alter_replica_log_dirs
from raftlog.client.core.values import TopicPartition
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.world.more_disks import FurtherSimDisk, further_of
from raftlog_sim.world.node import Node

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis

_PATIENCE: Final = millis(3_000)


def _move_replicas(nemesis: "SimNemesis", step: Step) -> bool:
    """An administrator asks the broker to move what it has of the topic; the answer is not waited
    for. A replica that lies there already stays."""
    struck, to = False, int(step.argument("to"))
    for node in nemesis.nodes(step, "node"):
        directories = node.broker.context.log_directories.all if node.up else []
        if to >= len(directories):
            continue
        partitions = range(nemesis.workload.options.partitions)
        paths = {TopicPartition(TOPIC, each): directories[to].name for each in partitions}
        ask = alter_replica_log_dirs(node.number, paths, timeout_ns=_PATIENCE)
        nemesis.workload.administer(ask)
        nemesis.note("move-replicas", node.number)
        struck = True
    return struck


def _break_directory(nemesis: "SimNemesis", step: Step) -> bool:
    """A directory that answers nothing, or takes no more bytes. A sync that fails may take what was
    promised, so both are damage."""
    struck, number = False, int(step.argument("number"))
    for node in nemesis.nodes(step, "node"):
        further = further_of(node)
        if number >= len(further) or further[number].root in node.broken:
            continue
        if not nemesis.atlas.allow(node.number, aware=True):
            continue
        broken = further[number]
        nemesis.note("start-broken-directory", node.number)
        node.broken[broken.root] = None
        broken.break_down(reads=step.argument("how") == "all")
        nemesis.later(step, _works_again, nemesis, node, broken)
        struck = True
    return struck


def _works_again(nemesis: "SimNemesis", node: Node, directory: FurtherSimDisk) -> None:
    if directory.root in node.broken:
        nemesis.note("stop-broken-directory", node.number)
        del node.broken[directory.root]
        directory.mend()


def heal(nemesis: "SimNemesis", node: Node) -> None:
    """All directories work again."""
    for directory in further_of(node):
        _works_again(nemesis, node, directory)


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "move-replicas": _move_replicas,
    "break-directory": _break_directory,
}
