"""Rot of bytes at rest, and writes that go astray.

Bytes flip, are zeros, are those of another place, are older, unreadable or gone. Damage lies below
durable marks, where the mark tells it from a torn tail, and asks the atlas first.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import GroupId
from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.records.batch import CONTROL, read_header
from raftlog.records.control import parse_control_entry
from raftlog.storage.directories.store_file import STORE_FILES
from raftlog.storage.replica import Mark
from raftlog_sim.base.streams import Stream
from raftlog_sim.facts.targets import group_of
from raftlog_sim.faults.loss_faults import readable, replaced
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.world.disk import SimulatedDisk
from raftlog_sim.world.inode import SECTOR
from raftlog_sim.world.node import Node

if TYPE_CHECKING:
    from raftlog_sim.faults.nemesis import SimNemesis

_HEADER_BYTES: Final = 4096
_CHUNK_SECTORS_MAX: Final = 8
_ASTRAY_BATCHES_MAX: Final = 3
_BASE_OFFSET_BYTES: Final = 8
"""The size of the base offset, with which a batch begins."""
_NAMES: Final = {"index": ".index", "snapshot": ".snapshot"}


def _rot(nemesis: "SimNemesis", step: Step) -> bool:
    struck = False
    for node in nemesis.nodes(step, "node"):
        stream = node.world.stream(f"rot/{node.number}/{node.world.now}")
        damage = _WHOLE.get(str(step.argument("how")), _bytes)
        struck = damage(nemesis, node, step, stream) or struck
    return struck


def _allowed(nemesis: "SimNemesis", node: Node, step: Step) -> bool:
    """Ask the atlas and count the damage; index files need not ask, since they are rebuilt."""
    if step.argument("file") != "index" and not nemesis.atlas.allow(node.number):
        return False
    nemesis.note("rot", node.number)
    if step.argument("file") == "store":
        node.store_rotten, node.replace_disk = True, replaced
    return True


def _bytes(nemesis: "SimNemesis", node: Node, step: Step, stream: Stream) -> bool:
    """Damage one byte, or the sector around it."""
    place, how = _place(node.disk, step, stream), str(step.argument("how"))
    if place is None or not _allowed(nemesis, node, step):
        return False
    if step.argument("file") == "headers":
        _damage(node.disk, place[0], place[1] + _HEADER_BYTES // 2, how, stream)
    if step.argument("file") == "store":
        how = "flip" if how == "unreadable" else how
    _damage(node.disk, *place, how, stream)
    return True


def _gone(nemesis: "SimNemesis", node: Node, step: Step, stream: Stream) -> bool:
    place = _place(node.disk, step, stream)
    if node.up or place is None or not _allowed(nemesis, node, step):
        return False
    node.disk.vanish(place[0])
    return True


def _cut(nemesis: "SimNemesis", node: Node, step: Step, stream: Stream) -> bool:
    """Cut a file short; a segment in half of the cases where a batch ends, so that the rest is
    whole.

    A running process is killed for that. It holds the lost entries to be durable, and the checks
    would take it for a liar.
    """
    place, disk, file = _place(node.disk, step, stream), node.disk, step.argument("file")
    if place is None or file == "store" or node.suspended or not _allowed(nemesis, node, step):
        return False
    path, end = place
    starts = [start for start, _ in _batches(disk.content(path)) if start <= end]
    if file != "segment":
        disk.shorten(path, end)
        return True
    with _killed(node):
        disk.shorten(path, starts[-1] if starts and stream.chance(1, 2) else end)
    return True


@contextmanager
def _killed(node: Node) -> Iterator[None]:
    """A context in which a running process is dead; it starts again after."""
    was_up = node.up
    if was_up:
        node.stop_process()
    yield
    if was_up:
        node.start()


def _before_membership(nemesis: "SimNemesis", node: Node, step: Step, stream: Stream) -> bool:
    """Cut a segment right before the last membership entry that a mark covers.

    Every batch that is left is whole, and the file ends with an older membership.
    """
    found = [
        (path, start)
        for path, end in _ends_below_marks(node.disk)
        for start, batch in _batches(node.disk.content(path)[:end])
        if _is_membership(batch)
    ]
    if step.argument("file") != "segment" or node.suspended or not found:
        return False
    if not _allowed(nemesis, node, step):
        return False
    del stream
    with _killed(node):
        node.disk.shorten(*found[-1])
    return True


def _is_membership(batch: bytes) -> bool:
    if not read_header(batch).attributes & CONTROL:
        return False
    return parse_control_entry(batch, CorruptData, "rot").kind is EntryKind.MEMBERSHIP


def _old_chunk(nemesis: "SimNemesis", node: Node, step: Step, stream: Stream) -> bool:
    """Give some sectors of a file their remembered content, or zeros where the file had none.

    A store gets one old sector only: each of its frames lies there twice, in sectors of its own.
    """
    found = _older_sectors(nemesis.remembered.get(node.number, {}), node.disk, step)
    if not found or not _allowed(nemesis, node, step):
        return False
    path, sectors, old = found[stream.below(len(found))]
    first = stream.below(len(sectors))
    most = 1 if step.argument("file") == "store" else stream.between(1, _CHUNK_SECTORS_MAX)
    for sector in sectors[first : first + most]:
        start, end = sector * SECTOR, min((sector + 1) * SECTOR, len(node.disk.content(path)))
        node.disk.overwrite(path, start, old[start:end].ljust(end - start, b"\0"))
    return True


def _older_sectors(
    remembered: dict[str, bytes], disk: SimulatedDisk, step: Step
) -> list[tuple[str, list[int], bytes]]:
    """Returns files of that kind with whole sectors that may rot and had other content once."""
    found = []
    for path, end in _rottable(disk, str(step.argument("file"))):
        old, now = remembered.get(path), disk.content(path)
        if old is None:
            continue
        sectors = [
            sector
            for sector in range(end // SECTOR)
            if now[sector * SECTOR : (sector + 1) * SECTOR]
            != old[sector * SECTOR : (sector + 1) * SECTOR].ljust(SECTOR, b"\0")
        ]
        if sectors:
            found.append((path, sectors, old))
    return found


def _rottable(disk: SimulatedDisk, kind: str) -> list[tuple[str, int]]:
    """Returns the files of a kind, and up to where they may rot."""
    if kind == "store":
        durable = [(path, disk.durable_content(path) or b"") for path in STORE_FILES]
        return [(path, len(content.rstrip(b"\0"))) for path, content in durable]
    if kind in _NAMES:
        paths = [path for path in disk.paths() if _NAMES[kind] in path]
        return [(path, len(disk.content(path))) for path in paths]
    return _ends_below_marks(disk)


def _misdirect(nemesis: "SimNemesis", step: Step) -> bool:
    """Let a write of one to three batches go astray on its way to the medium, unnoticed.

    Its place has the zeros from before, and another place has its bytes (an overlay pair). The
    write is chosen afterwards, among those that a durable mark covers, and reads now show what the
    medium has.

    A replica whose last write is missing and not yet marked would take it for a torn tail. It would
    vote for a candidate that lacks an entry that the replica acknowledged. Two such replicas need
    not even meet, and no protocol survives that: only the mark tells damage from a torn tail. So
    such a choice could fail without any bug. A store that misses its last frame could too, hence no
    vote goes astray.

    The victim's bytes also lie below the mark of their replica, or in a file that is checked as a
    whole. Both places are on one node, which counts as damaged: as after other rot nothing there is
    taken for granted. Where the bytes begin exactly at a batch, the process is killed, as for a
    `twin`.
    """
    struck = False
    for node in nemesis.nodes(step, "node"):
        stream = node.world.stream(f"misdirect/{node.number}/{node.world.now}")
        pair = None if node.suspended else _astray(node.disk, str(step.argument("to")), stream)
        if pair is None or not nemesis.atlas.allow(node.number):
            continue
        nemesis.note("misdirect", node.number)
        with _killed(node) if step.argument("to") == "batch" else nullcontext():
            node.disk.misdirect(*pair)
        struck = True
    return struck


def _astray(disk: SimulatedDisk, to: str, stream: Stream) -> tuple[str, int, int, str, int] | None:
    """Returns a stray write, as path and bytes from and to, and the place where it lies instead."""
    written = [
        (path, start, start + len(batch))
        for path, end in _ends_below_marks(disk)
        for start, batch in _batches(disk.content(path)[:end])
    ]
    if not written:
        return None
    first = stream.below(len(written))
    path, start, end = written[first]
    for other, _, other_end in written[first + 1 : first + 1 + stream.below(_ASTRAY_BATCHES_MAX)]:
        end = other_end if other == path else end
    victims = _victims(disk, to, (path, start, end), stream)
    return (path, start, end, *victims[stream.below(len(victims))]) if victims else None


def _victims(
    disk: SimulatedDisk, to: str, write: tuple[str, int, int], stream: Stream
) -> list[tuple[str, int]]:
    """Returns places, as path and position, where these bytes may lie instead."""
    if to in _NAMES:
        paths = [path for path in disk.paths() if _NAMES[to] in path and disk.content(path)]
        return [(path, stream.below(len(disk.content(path)))) for path in paths]
    path, begin, end = write
    found = []
    for other, mark_end in _ends_below_marks(disk):
        last = mark_end - (end - begin)
        places = [start for start, _ in _batches(disk.content(other)) if start <= last]
        if to == "bytes":
            places = [stream.between(_HEADER_BYTES, last)] if last >= _HEADER_BYTES else []
        found += [
            (other, place)
            for place in places
            if other != path or place >= end or place + end - begin <= begin
        ]
    return found


def _remember(nemesis: "SimNemesis", step: Step) -> bool:
    """Keep the present content of the files, for `old-chunk`."""
    nodes = nemesis.nodes(step, "node")
    for node in nodes:
        disk = node.disk
        nemesis.remembered[node.number] = {path: disk.content(path) for path in disk.paths()}
    return bool(nodes)


def _rot_everywhere(nemesis: "SimNemesis", step: Step) -> bool:
    """Rot one batch of a partition on all these nodes: the newest that a mark covers on each of
    them.

    No protocol can repair that when they are all nodes, so the atlas is told and not asked.
    """
    group = group_of(nemesis.world, TOPIC, int(step.argument("partition")))
    nodes = nemesis.nodes(step, "node")
    places = [{} if group is None else _batches_of(node.disk, group) for node in nodes]
    common = (
        [batch for batch in places[0] if all(batch in held for held in places)] if nodes else []
    )
    if not common:
        return False
    for node, held in zip(nodes, places, strict=True):
        nemesis.note("rot", node.number)
        nemesis.atlas.damaged[node.number] = None
        path, start = held[common[-1]]
        node.disk.flip_bit(path, start + len(common[-1]) - 1)
    return True


def _batches_of(disk: SimulatedDisk, group: GroupId) -> dict[bytes, tuple[str, int]]:
    """Returns the batches of records of a group below its durable mark, with their places."""
    image = readable(disk)
    registration = None if image is None else image.registrations.get(group)
    if registration is None:
        return {}
    return {
        batch: (path, start)
        for path, end in _ends_below_marks(disk)
        if path.startswith(f"{registration.path}/")
        for start, batch in _batches(disk.content(path)[:end])
        if not read_header(batch).attributes & CONTROL
    }


def _place(disk: SimulatedDisk, step: Step, stream: Stream) -> tuple[str, int] | None:
    """Returns a byte, as path and position, that promises rest on, or that can be rebuilt.

    Damage of whole sectors takes only sectors that lie whole before a mark.
    """
    kind = str(step.argument("file"))
    if kind == "store":
        return _store_place(disk, stream)
    if kind in _NAMES:
        paths = [path for path in disk.paths() if _NAMES[kind] in path and disk.content(path)]
        if not paths:
            return None
        chosen = paths[stream.below(len(paths))]
        return chosen, stream.below(len(disk.content(chosen)))
    ends = _ends_below_marks(disk)
    if kind == "headers" or step.argument("how") in ("gone", "cut"):
        # The end is lost, so the file must hold nothing younger than the mark (seed 302467).
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


def _twin(nemesis: "SimNemesis", node: Node, step: Step, stream: Stream) -> bool:
    """Put a batch of another partition in the place of one of equal size, offset and epoch.

    A misdirected write leaves it so: whole, with a good checksum. A running process is killed for
    it. It sends verified bytes on as slices of files, unread, and nothing in such a batch would
    tell the client.
    """
    del step
    if node.suspended:
        return False
    ends = _ends_below_marks(node.disk)
    found = [
        (path, start, batch)
        for path, end in ends
        for other, other_end in ends
        if path.rpartition("/")[0] != other.rpartition("/")[0]
        for start, batch in _batches(node.disk.content(path)[:end])
        if _is_twin(batch, node.disk.content(other)[:other_end][start : start + len(batch)])
    ]
    if not found or not nemesis.atlas.allow(node.number):
        return False
    nemesis.note("rot", node.number)
    path, start, batch = found[stream.below(len(found))]
    for other, _ in ends:
        twin = node.disk.content(other)[start : start + len(batch)]
        if other.rpartition("/")[0] != path.rpartition("/")[0] and _is_twin(batch, twin):
            with _killed(node):
                node.disk.overwrite(path, start, twin)
            return True
    return False


def _base_offset(nemesis: "SimNemesis", node: Node, step: Step, stream: Stream) -> bool:
    """Flip a bit of a batch's base offset, which lies outside its checksum.

    The batch stays whole and numbers its records otherwise. A running process is killed for it, as
    for a `twin`.
    """
    found = [
        (path, start)
        for path, end in _ends_below_marks(node.disk)
        for start, _ in _batches(node.disk.content(path)[:end])
    ]
    if step.argument("file") != "segment" or node.suspended or not found:
        return False
    if not _allowed(nemesis, node, step):
        return False
    path, start = found[stream.below(len(found))]
    with _killed(node):
        node.disk.flip_bit(path, start + stream.below(_BASE_OFFSET_BYTES), stream.below(8))
    return True


def _batches(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields position and bytes of each whole batch of a segment."""
    start = _HEADER_BYTES
    while len(content) >= start + 12:
        end = start + 12 + int.from_bytes(content[start + 8 : start + 12], "big")
        if end > len(content) or end < start + BATCH_HEADER_BYTES:
            return  # zeros, or what another fault left there
        yield start, content[start:end]
        start = end


def _is_twin(one: bytes, other: bytes) -> bool:
    """Whether two different batches of records are equal in size, base offset, length and epoch."""
    control = read_header(one).attributes & CONTROL
    return len(one) == len(other) and one[:16] == other[:16] and not control and one != other


def _store_place(disk: SimulatedDisk, stream: Stream) -> tuple[str, int] | None:
    """Returns a byte of a store file in front of its unused end."""
    path = STORE_FILES[stream.below(len(STORE_FILES))]
    used = len((disk.durable_content(path) or b"").rstrip(b"\0"))
    return (path, stream.below(used)) if used else None


def _ends_below_marks(disk: SimulatedDisk) -> list[tuple[str, int]]:
    """Returns the segment files that a durable mark covers, and up to which position."""
    found = []
    image = readable(disk)
    if image is None:
        return []
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


_WHOLE: Final[dict[str, Callable[["SimNemesis", Node, Step, Stream], bool]]] = {
    "twin": _twin,
    "gone": _gone,
    "cut": _cut,
    "before-membership": _before_membership,
    "base-offset": _base_offset,
    "old-chunk": _old_chunk,
}
"""The kinds of rot that do more than damage a byte or its sector."""

STRIKES: Final[dict[str, Callable[["SimNemesis", Step], bool]]] = {
    "rot": _rot,
    "remember": _remember,
    "rot-everywhere": _rot_everywhere,
    "misdirect": _misdirect,
}
