"""Faults of disks: errors, no space, slowness, failed syncs, stops in mid-call, disks that lie.

Rot is in `rot_faults`, the loss of whole disks and files in `loss_faults`. A fault that may destroy
something promised asks the atlas first, and does nothing when a quorum could not repair it. A disk
that lies does not ask: no protocol survives it, so no seed draws it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.units import millis
from raftlog_sim.faults.loss_faults import replaced
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.world.disk import Keep
from raftlog_sim.world.node import Node

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis


def _disk_error(nemesis: "SimNemesis", step: Step) -> bool:
    """Let the next calls of a kind fail and change nothing.

    Reads that keep failing are damage to a replica that is being opened, so they are rationed.
    """
    call, nodes = str(step.argument("call")), nemesis.nodes(step, "node")
    if call == "read":
        nodes = [node for node in nodes if nemesis.atlas.allow(node.number)]
    for node in nodes:
        node.disk.fail(call, count=int(step.argument("count")))
    return bool(nodes)


def _late_error(nemesis: "SimNemesis", step: Step) -> bool:
    """Let the next calls of a kind do their work and report an error all the same.

    A retry then finds the work done.
    """
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        node.disk.fail(str(step.argument("call")), count=int(step.argument("count")), late=True)
    return bool(nodes)


def _failed_sync(nemesis: "SimNemesis", step: Step) -> bool:
    """Let the next sync fail; the pages are then clean and gone.

    The supervisor restarts the broker. The broker then finds bytes in the page cache that the disk
    does not have.
    """
    nodes = [node for node in nemesis.nodes(step, "node") if nemesis.atlas.allow(node.number)]
    for node in nodes:
        nemesis.note("failed-sync", node.number)
        node.disk.fail("sync")
    return bool(nodes)


def _failed_name_sync(nemesis: "SimNemesis", step: Step) -> bool:
    """Let the next sync of a directory, or of everything, fail.

    A file that was created or renamed is seen under its name, and is gone after a power failure. A
    removed file is back then.
    """
    call = f"sync_{step.argument('call')}"
    nodes = [node for node in nemesis.nodes(step, "node") if nemesis.atlas.allow(node.number)]
    for node in nodes:
        nemesis.note("failed-sync", node.number)
        node.disk.fail(call)
    return bool(nodes)


def _disk_full(nemesis: "SimNemesis", step: Step) -> bool:
    nodes = [node for node in nemesis.nodes(step, "node") if node.disk.free is None]
    for node in nodes:
        nemesis.note("start-disk-full", node.number)
        node.disk.free = int(step.argument("bytes"))
        nemesis.later(step, _room, nemesis, node)
    return bool(nodes)


def _room(nemesis: "SimNemesis", node: Node) -> None:
    if node.disk.free is not None:
        nemesis.note("stop-disk-full", node.number)
        node.disk.free = None


def _slow_disk(nemesis: "SimNemesis", step: Step) -> bool:
    nodes, more_ns = nemesis.nodes(step, "node"), millis(int(step.argument("ms")))
    for node in nodes:
        node.slower_ns += more_ns
        nemesis.later(step, _faster, node, more_ns)
    return bool(nodes)


def _faster(node: Node, less_ns: int) -> None:
    node.slower_ns = max(0, node.slower_ns - less_ns)


def _crash_at(nemesis: "SimNemesis", step: Step) -> bool:
    """Stop the machine at one of its next disk calls; it boots again by itself."""
    nodes = [node for node in nemesis.nodes(step, "node") if node.up]
    for node in nodes:
        node.disk.crash_at = node.disk.mutations + 1 + int(step.argument("calls"))
        node.disk.crash_tears = step.argument("tear") == "yes"
        node.keep_at_crash = Keep(step.argument("keep"))
        node.only_killed = False
    return bool(nodes)


def _kill_at(nemesis: "SimNemesis", step: Step) -> bool:
    """End the process at one of its next disk calls; its unsynced bytes stay."""
    nodes = [node for node in nemesis.nodes(step, "node") if node.up]
    for node in nodes:
        node.disk.crash_at = node.disk.mutations + 1 + int(step.argument("calls"))
        node.disk.crash_tears = step.argument("tear") == "yes"
        node.only_killed = True
    return bool(nodes)


def _lying_sync(nemesis: "SimNemesis", step: Step) -> bool:
    """Let syncs report success and make nothing durable."""
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        nemesis.note("start-lying-sync", node.number)
        node.disk.lying_sync = True
        nemesis.later(step, _honest, nemesis, node)
    return bool(nodes)


def _honest(nemesis: "SimNemesis", node: Node) -> None:
    if node.disk.lying_sync:
        nemesis.note("stop-lying-sync", node.number)
        node.disk.lying_sync = False


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "disk-error": _disk_error,
    "late-error": _late_error,
    "failed-sync": _failed_sync,
    "failed-name-sync": _failed_name_sync,
    "disk-full": _disk_full,
    "slow-disk": _slow_disk,
    "crash-at": _crash_at,
    "kill-at": _kill_at,
    "lying-sync": _lying_sync,
}


def heal(nemesis: "SimNemesis", node: Node) -> None:
    """Let the disk work again; what is rotten stays so."""
    if node.rolled_back:
        if node.up:
            node.stop_process()
        replaced(node)
    node.slower_ns = 0
    node.disk.crash_at = None
    node.disk.forget_faults()
    _honest(nemesis, node)
    _room(nemesis, node)
