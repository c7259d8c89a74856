"""The further disks of a simulated machine: opened at boot, crashed with it, failing on their own.

A machine without them has its one disk, as `Disk`, and nothing here is done.
"""

from typing import TYPE_CHECKING, NamedTuple

from raftlog.base.ids import DirectoryId
from raftlog.base.ports import Disk
from raftlog.storage.data_dir import DirectoryImage
from raftlog.storage.directory_move import settle_moves
from raftlog.storage.log_directories import FurtherImage, LogDirectories, open_further
from raftlog.storage.replica import GROUPS_DIRECTORY
from raftlog_sim.world.disk import Keep, SimulatedDisk

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node

_FIRST_ID = 0xF000


class OpenedDisks(NamedTuple):
    """What a boot works on: all disks as one, and what it found on the further ones."""

    files: Disk
    further: dict[str, Disk]
    images: tuple[FurtherImage, ...]


def add_disk(node: "Node", disk: SimulatedDisk) -> None:
    """Give a machine that is down one more disk."""
    assert not node.up, node.number
    node.further.append(disk)


def open_disks(node: "Node", image: DirectoryImage) -> OpenedDisks:
    """Open the further disks, as the runtime does, and settle what moves left."""
    if not node.further:
        return OpenedDisks(node.disk, {}, ())
    found: list[FurtherImage] = []
    further: dict[str, Disk] = {}
    for number, disk in enumerate(node.further):
        new_id = DirectoryId(_FIRST_ID + 0x100 * node.number + number)
        one = open_further(disk, image.identity, f"further-{number}", new_id)
        found.append(one)
        if one.prefix:
            further[one.prefix] = disk
    files = LogDirectories(node.disk, further)
    here = FurtherImage(name="first", replicas=tuple(node.disk.list(GROUPS_DIRECTORY)))
    settle_moves(files, [each.path for each in image.registrations.values()], [here, *found])
    return OpenedDisks(files, further, tuple(found))


def crash_further(node: "Node", keep: Keep) -> None:
    """The power goes: all disks of a machine lose it together."""
    for disk in node.further:
        disk.crash(keep)
