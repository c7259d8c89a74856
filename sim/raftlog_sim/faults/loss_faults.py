"""Losses of whole disks and files: disks that come back empty or as an old copy, files of a
replica.

All of them ask the atlas first.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from raftlog.base.errors import CorruptData
from raftlog.base.ids import METADATA_GROUP, GroupId, NodeId
from raftlog.base.probes import probe
from raftlog.base.units import millis
from raftlog.storage.directories.data_dir import (
    DirectoryIdentity,
    DirectoryImage,
    draw_incarnation,
    open_directory,
    peek_directory,
    read_identity,
)
from raftlog_sim.facts.targets import group_of
from raftlog_sim.faults.process_faults import restart_later
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.world.disk import Keep, SimulatedDisk
from raftlog_sim.world.node import Node

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis

_OLD_DISK_WAITS_NS: Final = millis(6_000)
_OLD_DISK_LOOKS_NS: Final = millis(20)
_BOOTS_ALONE_MAX: Final = 3


def _wipe(nemesis: "SimNemesis", step: Step) -> bool:
    """Bring the machine back with an empty disk, formatted to join the same cluster."""
    struck = False
    for node in nemesis.nodes(step, "node"):
        if not nemesis.atlas.allow(node.number):
            continue
        nemesis.note("wipe", node.number)
        cluster = read_identity(node.disk.durable_copy()).cluster
        if node.up:
            node.stop_process()
            restart_later(nemesis, step, node)
        node.disk = empty_disk(node, cluster)
        struck = True
    return struck


def replaced(node: Node) -> None:
    """Replace a directory whose store cannot be read, as an operator does; the node joins as
    new."""
    cluster = read_identity(node.disk.durable_copy()).cluster  # failures were for the broker
    node.disk = empty_disk(node, cluster)
    node.store_rotten = node.rolled_back = False


def _image(nemesis: "SimNemesis", step: Step) -> bool:
    """Copy the durable content of the disk, as a backup of the machine finds it."""
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        nemesis.images[node.number] = node.disk.durable_copy()
        nemesis.imaged_in[node.number] = node.boots
    return bool(nodes)


def _old_disk(nemesis: "SimNemesis", step: Step) -> bool:
    """Bring the machine back with the copy that was put aside, now or as soon as that is allowed.

    It is allowed after one later life, once enough other nodes have synced that life: each majority
    that holds the copy needs one of them (`Atlas.tells`). The copy boots up to three times alone
    before, so its boot number may be any. It is put back once in a run (seed 200285).
    """
    end = nemesis.world.now + _OLD_DISK_WAITS_NS
    put_back = [_put_back(nemesis, step, node, end) for node in nemesis.nodes(step, "node")]
    return any(put_back)


def _put_back(nemesis: "SimNemesis", step: Step, node: Node, end: int) -> bool:
    """Put the copy back if that is allowed now; returns whether it was.

    Otherwise the step tries again for a while, for the node that it meant at first.
    """
    image = nemesis.images.get(node.number)
    if image is None or node.rolled_back or nemesis.healed:
        return False
    if not _is_told(nemesis, node, image):
        if nemesis.world.now < end:
            nemesis.world.after(_OLD_DISK_LOOKS_NS, _put_back_late, nemesis, step, node, end)
        return False
    if not nemesis.atlas.allow(node.number):
        return False
    nemesis.note("old-disk", node.number)
    del nemesis.images[node.number]
    node.stop_process()
    restart_later(nemesis, step, node)
    _boot_alone(node, image)
    node.disk, node.looked_up, node.rolled_back = image, None, True
    return True


def _put_back_late(nemesis: "SimNemesis", step: Step, node: Node, end: int) -> None:
    if _put_back(nemesis, step, node, end):
        nemesis.struck(step)


def _is_told(nemesis: "SimNemesis", node: Node, image: SimulatedDisk) -> bool:
    """Whether the copy has missed a life of its node that enough others know of."""
    if not node.up or node.boots <= nemesis.imaged_in[node.number]:
        return False
    copy = peek_directory(image.durable_copy())
    return nemesis.atlas.tells(node.number, copy.identity.directory, copy.incarnations)


def _boot_alone(node: Node, image: SimulatedDisk) -> None:
    """Boot the copy a few times, each time until it would meet other nodes."""
    draws = node.world.stream(f"old-disk/{node.number}/{node.boots}")
    for _ in range(draws.below(_BOOTS_ALONE_MAX + 1)):
        probe("old-copy-booted-alone")
        open_directory(image, node.config.lease_ns, draw_incarnation(draws))


def empty_disk(node: Node, cluster: object) -> SimulatedDisk:
    """Returns a disk formatted as a joiner's, under a fresh directory id."""
    number = NodeId(node.number)
    disk = node.world.new_disk(number)
    identity = DirectoryIdentity(
        cluster=cluster,  # type: ignore[arg-type]
        node=number,
        directory=node.world.new_directory(number),
        controllers=(),
    )
    node.world.format(disk, identity)
    return disk


def _empty_disk(nemesis: "SimNemesis", step: Step) -> bool:
    """Start the process again at once on an empty disk, formatted to join the same cluster.

    Even a majority of the controllers may be struck, since all get their disks back in the end.
    Until then they know nothing, and must not make anything up.
    """
    nodes = [node for node in nemesis.nodes(step, "node") if node.number not in nemesis.put_aside]
    for node in nodes:
        nemesis.note("empty-disk", node.number)
        own = nemesis.put_aside[node.number] = node.disk
        cluster = peek_directory(own.durable_copy()).identity.cluster
        _start_on(node, empty_disk(node, cluster))
        nemesis.later(step, _own_disk, nemesis, node)
    return bool(nodes)


def _own_disk(nemesis: "SimNemesis", node: Node) -> None:
    own = nemesis.put_aside.pop(node.number, None)
    if own is not None:
        nemesis.note("own-disk", node.number)
        _start_on(node, own)


def _start_on(node: Node, disk: SimulatedDisk) -> None:
    if node.up:
        node.stop_process()
    node.disk = disk
    node.start()


def heal(nemesis: "SimNemesis", node: Node) -> None:
    """Give the machine its own disk back."""
    _own_disk(nemesis, node)


def _lose_replica(nemesis: "SimNemesis", step: Step) -> bool:
    """Lose all files of one partition's replica."""
    group = group_of(nemesis.world, TOPIC, int(step.argument("partition")))
    return group is not None and _lose(nemesis, step, group)


def _lose_metadata(nemesis: "SimNemesis", step: Step) -> bool:
    """Lose all files of the metadata."""
    return _lose(nemesis, step, METADATA_GROUP)


def readable(disk: SimulatedDisk) -> DirectoryImage | None:
    """Returns the durable content of the directory.

    It is None when the store has rotted beyond reading, as the process will find too (seed
    7800338).
    """
    try:
        return peek_directory(disk.durable_copy())
    except CorruptData:
        return None


def _lose(nemesis: "SimNemesis", step: Step, group: GroupId) -> bool:
    """Remove a group's files and boot the process, which then finds them missing."""
    struck = False
    for node in nemesis.nodes(step, "node"):
        image = readable(node.disk)
        registration = None if image is None else image.registrations.get(group)
        if registration is None or not nemesis.atlas.allow(node.number, aware=True):
            continue
        nemesis.note("lost-replica", node.number)
        if node.up:
            node.stop_process()
            restart_later(nemesis, step, node)
        node.disk.crash(Keep.ALL)
        for path in node.disk.paths():
            if path.startswith(f"{registration.path}/"):
                node.disk.vanish(path)
        struck = True
    return struck


STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "image": _image,
    "old-disk": _old_disk,
    "wipe": _wipe,
    "empty-disk": _empty_disk,
    "lose-replica": _lose_replica,
    "lose-metadata": _lose_metadata,
}
