"""What befalls disks: errors, no space, slowness, failed syncs, rot, a crash in mid-call, loss.

What may destroy something that was promised asks the atlas first, and does nothing when that would
be more than a quorum can repair.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from raftlog.base.ids import NodeId
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.base.units import millis
from raftlog.records.batch import CONTROL, read_header
from raftlog.storage.data_dir import DirectoryIdentity, peek_directory, read_identity
from raftlog.storage.replica import Mark
from raftlog.storage.store_file import STORE_FILES
from raftlog_sim.disk import Keep, SimulatedDisk
from raftlog_sim.inode import SECTOR
from raftlog_sim.node import Node
from raftlog_sim.process_faults import restart_later
from raftlog_sim.schedule import Step
from raftlog_sim.streams import Stream
from raftlog_sim.targets import group_of
from raftlog_sim.truth import image_at_boot
from raftlog_sim.workload import TOPIC

if TYPE_CHECKING:
    from raftlog_sim.nemesis import Nemesis

_HEADER_BYTES: Final = 4096


def _disk_error(nemesis: "Nemesis", step: Step) -> bool:
    """The next calls of a kind fail and change nothing. Reads that go on failing are damage to a
    replica that is being opened, so they are rationed."""
    call, nodes = str(step.argument("call")), nemesis.nodes(step, "node")
    if call == "read":
        nodes = [node for node in nodes if nemesis.atlas.allow(node.number)]
    for node in nodes:
        node.disk.fail(call, count=int(step.argument("count")))
    return bool(nodes)


def _failed_sync(nemesis: "Nemesis", step: Step) -> bool:
    """The next sync fails, and the pages are then clean and gone. The supervisor restarts the
    broker, which finds in the page cache what the disk does not have."""
    nodes = [node for node in nemesis.nodes(step, "node") if nemesis.atlas.allow(node.number)]
    for node in nodes:
        nemesis.note("failed-sync", node.number)
        node.disk.fail("sync")
    return bool(nodes)


def _disk_full(nemesis: "Nemesis", step: Step) -> bool:
    nodes = [node for node in nemesis.nodes(step, "node") if node.disk.free is None]
    for node in nodes:
        nemesis.note("start-disk-full", node.number)
        node.disk.free = int(step.argument("bytes"))
        nemesis.later(step, _room, nemesis, node)
    return bool(nodes)


def _room(nemesis: "Nemesis", node: Node) -> None:
    if node.disk.free is not None:
        nemesis.note("stop-disk-full", node.number)
        node.disk.free = None


def _slow_disk(nemesis: "Nemesis", step: Step) -> bool:
    nodes, more_ns = nemesis.nodes(step, "node"), millis(int(step.argument("ms")))
    for node in nodes:
        node.slower_ns += more_ns
        nemesis.later(step, _faster, node, more_ns)
    return bool(nodes)


def _faster(node: Node, less_ns: int) -> None:
    node.slower_ns = max(0, node.slower_ns - less_ns)


def _crash_at(nemesis: "Nemesis", step: Step) -> bool:
    """The machine stops at one of its next disk calls; it boots again by itself."""
    nodes = [node for node in nemesis.nodes(step, "node") if node.up]
    for node in nodes:
        node.disk.crash_at = node.disk.mutations + 1 + int(step.argument("calls"))
        node.disk.crash_tears = step.argument("tear") == "yes"
        node.keep_at_crash = Keep(step.argument("keep"))
        node.only_killed = False
    return bool(nodes)


def _kill_at(nemesis: "Nemesis", step: Step) -> bool:
    """The process ends at one of its next disk calls: what it wrote and did not sync is there."""
    nodes = [node for node in nemesis.nodes(step, "node") if node.up]
    for node in nodes:
        node.disk.crash_at = node.disk.mutations + 1 + int(step.argument("calls"))
        node.disk.crash_tears = step.argument("tear") == "yes"
        node.only_killed = True
    return bool(nodes)


# --- damage ---------------------------------------------------------------------------------------


def _rot(nemesis: "Nemesis", step: Step) -> bool:
    struck = False
    for node in nemesis.nodes(step, "node"):
        stream = node.world.stream(f"rot/{node.number}/{node.world.now}")
        place = _place(node.disk, step, stream)
        if step.argument("how") == "twin":
            struck = _twin(nemesis, node, stream) or struck
            continue
        harmless = step.argument("file") == "index"
        if place is None or (node.up and step.argument("how") == "gone"):
            continue
        if not (harmless or nemesis.atlas.allow(node.number)):
            continue
        nemesis.note("rot", node.number)
        how = str(step.argument("how"))
        if how == "gone":
            node.disk.vanish(place[0])
            struck = True
            continue
        if step.argument("file") == "headers":
            _damage(node.disk, place[0], place[1] + _HEADER_BYTES // 2, how, stream)
        if step.argument("file") == "store":
            how = "flip" if how == "unreadable" else how
            node.store_rotten, node.replace_disk = True, _replaced
        _damage(node.disk, *place, how, stream)
        struck = True
    return struck


def _place(disk: SimulatedDisk, step: Step, stream: Stream) -> tuple[str, int] | None:
    """A byte that what was promised stands on, or that can be rebuilt: path and position. What
    damages whole sectors takes only those that lie whole before a mark."""
    kind = str(step.argument("file"))
    if kind == "store":
        return _store_place(disk, stream)
    names = {"index": ".index", "snapshot": ".snapshot"}
    if kind in names:
        paths = [path for path in disk.paths() if names[kind] in path and disk.content(path)]
        if not paths:
            return None
        chosen = paths[stream.below(len(paths))]
        return chosen, stream.below(len(disk.content(chosen)))
    ends = _ends_below_marks(disk)
    if kind == "headers" or step.argument("how") == "gone":
        # All of the file is lost: what is younger than the mark must not be in it (seed 302467).
        ends = [(path, end) for path, end in ends if end == len(disk.content(path))]
    if not ends:
        return None
    path, end = ends[stream.below(len(ends))]
    if kind in ("header", "headers"):
        return path, stream.below(_HEADER_BYTES // 2)
    if step.argument("how") in ("zero", "alien"):
        end = end // SECTOR * SECTOR
    span = end - _HEADER_BYTES
    return (path, _HEADER_BYTES + stream.below(span)) if span > 0 else None


def _twin(nemesis: "Nemesis", node: Node, stream: Stream) -> bool:
    """In the place of a batch lies one of another partition, of equal size, offset and epoch, as a
    misdirected write leaves it: whole, with a good checksum. A process that runs is killed for it:
    what it has verified it sends on as slices of files, unread, and nothing in such a batch would
    tell the client."""
    if node.suspended:
        return False
    ends = _ends_below_marks(node.disk)
    found = [
        (path, start, batch)
        for path, end in ends
        for other, other_end in ends
        if path.rpartition("/")[0] != other.rpartition("/")[0]
        for start, batch in _batches(node.disk.content(path)[:end])
        if _is_twin(batch, node.disk.content(other)[start : min(start + len(batch), other_end)])
    ]
    if not found or not nemesis.atlas.allow(node.number):
        return False
    nemesis.note("rot", node.number)
    path, start, batch = found[stream.below(len(found))]
    for other, _ in ends:
        twin = node.disk.content(other)[start : start + len(batch)]
        if other.rpartition("/")[0] != path.rpartition("/")[0] and _is_twin(batch, twin):
            was_up = node.up
            if was_up:
                node.stop_process()
            node.disk.overwrite(path, start, twin)
            if was_up:
                node.start()
            return True
    return False


def _batches(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Position and bytes of each whole batch of a segment."""
    start = _HEADER_BYTES
    while len(content) >= start + 12:
        end = start + 12 + int.from_bytes(content[start + 8 : start + 12], "big")
        if end > len(content) or end < start + BATCH_HEADER_BYTES:
            return  # zeros, or what another fault left there
        yield start, content[start:end]
        start = end


def _is_twin(one: bytes, other: bytes) -> bool:
    """Equal in size, base offset, length and epoch, a batch of records, and not the same."""
    control = read_header(one).attributes & CONTROL
    return len(one) == len(other) and one[:16] == other[:16] and not control and one != other


def _store_place(disk: SimulatedDisk, stream: Stream) -> tuple[str, int] | None:
    """A byte of a store file in front of its unused end."""
    path = STORE_FILES[stream.below(len(STORE_FILES))]
    used = len((disk.durable_content(path) or b"").rstrip(b"\0"))
    return (path, stream.below(used)) if used else None


def _ends_below_marks(disk: SimulatedDisk) -> list[tuple[str, int]]:
    """Segment files that a durable mark covers, and up to which position."""
    found = []
    image = peek_directory(disk.durable_copy())
    for group, mark in sorted(image.marks.items()):
        registration = image.registrations.get(group)
        if registration is not None:
            found += _covered(disk, registration.path, mark)
    return found


def _covered(disk: SimulatedDisk, folder: str, mark: Mark) -> list[tuple[str, int]]:
    found = []
    for path in disk.paths():
        if not (path.startswith(f"{folder}/") and path.endswith(".log")):
            continue
        size = len(disk.durable_content(path) or b"")
        sequence = int(path.removesuffix(".log").rpartition("-")[2])
        end = min(size, mark.end_position) if sequence == mark.file_sequence else size
        if sequence <= mark.file_sequence and end >= _HEADER_BYTES:
            found.append((path, end))
    return found


def _damage(disk: SimulatedDisk, path: str, position: int, how: str, stream: Stream) -> None:
    if how == "flip":
        disk.flip_bit(path, position, stream.below(8))
    elif how == "unreadable":
        disk.make_unreadable(path, position)
    else:
        start = position // SECTOR * SECTOR
        size = min(SECTOR, len(disk.content(path)) - start)
        other = [name for name in disk.paths() if name.endswith(".log") and name != path]
        alien = bytes(size)
        if how == "alien" and other:
            alien = disk.content(other[stream.below(len(other))])[start : start + size]
        disk.overwrite(path, start, alien.ljust(size, b"\0"))


def _wipe(nemesis: "Nemesis", step: Step) -> bool:
    """The machine comes back with an empty disk, formatted to join the same cluster."""
    struck = False
    for node in nemesis.nodes(step, "node"):
        if not nemesis.atlas.allow(node.number):
            continue
        nemesis.note("wipe", node.number)
        cluster = peek_directory(node.disk.durable_copy()).identity.cluster
        if node.up:
            node.stop_process()
            restart_later(nemesis, step, node)
        node.disk = empty_disk(node, cluster)
        struck = True
    return struck


def _replaced(node: Node) -> None:
    """What an operator does with a directory whose store cannot be read: the node joins as new."""
    cluster = read_identity(node.disk.durable_copy()).cluster  # failures were for the broker
    node.disk = empty_disk(node, cluster)
    node.store_rotten = node.rolled_back = False


def _image(nemesis: "Nemesis", step: Step) -> bool:
    """As a backup of the machine finds the disk: what is durable."""
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        nemesis.images[node.number] = node.disk.durable_copy()
        nemesis.imaged_in[node.number] = node.boots
    return bool(nodes)


def _old_disk(nemesis: "Nemesis", step: Step) -> bool:
    """The machine comes back with the copy that was put aside. It has lived twice since, and every
    node knows by the metadata of a boot with a higher number than its next one will have: a copy of
    the same life cannot be told from a crash that lost what was not synced, and lives in which it
    could not register are known to nobody, though it voted in them (seed 454): a disk that was put
    back is refused, and is not put back once more (seed 200285). Controllers must know it for good:
    one that was away meanwhile, or that would have forgotten it after a power loss, makes a
    majority with the copy, and no two disks of three tell what they acknowledged (seed 421440)."""
    struck = False
    for node in nemesis.nodes(step, "node"):
        image = nemesis.images.get(node.number)
        if image is None or node.rolled_back or not node.up:
            continue
        if node.boots < nemesis.imaged_in[node.number] + 2:
            continue
        known = peek_directory(image.durable_copy()).boot + 2
        if not all(_registered_boot(other, node) >= known for other in node.world.running()):
            continue
        if not all(_boot_on_disk(other, node) >= known for other in _other_controllers(node)):
            continue
        if not nemesis.atlas.allow(node.number):
            continue
        nemesis.note("old-disk", node.number)
        del nemesis.images[node.number]
        node.stop_process()
        restart_later(nemesis, step, node)
        node.disk, node.looked_up, node.rolled_back = image, None, True
        struck = True
    return struck


def _registered_boot(witness: Node, node: Node) -> int:
    """The boot of a node that another one knows of."""
    broker = witness.broker.context.image.brokers.get(node.number)
    return 0 if broker is None else broker.boot


def _other_controllers(node: Node) -> list[Node]:
    numbers = [address.node for address in node.config.controllers]
    return [node.world.nodes[number] for number in numbers if number != node.number]


def _boot_on_disk(witness: Node, node: Node) -> int:
    """The boot of a node that another one would know of after a power loss."""
    broker = image_at_boot(witness).brokers.get(node.number)
    return 0 if broker is None else broker.boot


def empty_disk(node: Node, cluster: object) -> SimulatedDisk:
    """A disk formatted as a joiner's, under a fresh directory id."""
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


def _lose_replica(nemesis: "Nemesis", step: Step) -> bool:
    """All files of one partition's replica are gone."""
    group = group_of(nemesis.world, TOPIC, int(step.argument("partition")))
    struck = False
    for node in nemesis.nodes(step, "node"):
        registration = None
        if group is not None:
            registration = peek_directory(node.disk.durable_copy()).registrations.get(group)
        if registration is None or not nemesis.atlas.allow(node.number):
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


STRIKES: Final[dict[str, Callable[["Nemesis", Step], bool]]] = {
    "disk-error": _disk_error,
    "failed-sync": _failed_sync,
    "disk-full": _disk_full,
    "slow-disk": _slow_disk,
    "crash-at": _crash_at,
    "kill-at": _kill_at,
    "image": _image,
    "old-disk": _old_disk,
    "rot": _rot,
    "wipe": _wipe,
    "lose-replica": _lose_replica,
}


def heal(nemesis: "Nemesis", node: Node) -> None:
    """The disk works again; what is rotten stays so."""
    if node.rolled_back:
        if node.up:
            node.stop_process()
        _replaced(node)
    node.slower_ns = 0
    node.disk.crash_at = None
    node.disk.forget_faults()
    _room(nemesis, node)
