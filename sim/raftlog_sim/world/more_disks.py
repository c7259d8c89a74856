"""The further log directories of a simulated machine.

A boot opens them, a crash of the machine takes all of them, and each can fail alone. They lie in
the name space of the machine's one disk. Each has a prefix with which the paths of its replicas
begin. So the disk finds every path of the broker, in whichever directory it is. An injected failure
in one directory stays there.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.errors import DiskError
from raftlog.base.ids import DirectoryId
from raftlog.base.ports import Disk, DiskFile
from raftlog.base.probes import probe
from raftlog.base.units import millis
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.directory_move import settle_moves
from raftlog.storage.directories.log_directories import (
    FurtherImage,
    LogDirectories,
    directory_of,
    further_prefix,
    open_further,
)
from raftlog.storage.replica import GROUPS_DIRECTORY
from raftlog_sim.world.boot import Boot
from raftlog_sim.world.disk import SimulatedDisk
from raftlog_sim.world.faces import SimNode

_FIRST_ID: Final = 0xF000
_MENDED_NS: Final = millis(500)
"""How long an operator takes to see a failed directory and to restart the broker."""
_WRITES: Final = ("create", "write", "truncate", "rename", "remove", "sync", "sync_dir", "sync_all")
_READS: Final = ("open", "read", "list", "exists")
_FOR_GOOD: Final = 1 << 40


@final
@attrs.frozen(eq=False)
class FurtherSimDisk:
    """One further directory: a separate Disk to the product, at `root` on the machine's disk."""

    disk: SimulatedDisk
    root: str

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """See `raftlog.base.ports.Disk`."""
        return self.disk.open(self._at(path), create=create, write=write)

    def list(self, path: str) -> list[str]:
        return self.disk.list(self._at(path))

    def exists(self, path: str) -> bool:
        return self.disk.exists(self._at(path))

    def make_dir(self, path: str) -> None:
        self.disk.make_dir(self._at(path))

    def rename(self, old: str, new: str) -> None:
        self.disk.rename(self._at(old), self._at(new))

    def remove(self, path: str) -> None:
        self.disk.remove(self._at(path))

    def sync_dir(self, path: str) -> None:
        self.disk.sync_dir(self._at(path))

    def sync_all(self) -> None:
        self.disk.sync_all(self.root)

    def free_bytes(self) -> int:
        return self.disk.free_bytes()

    def total_bytes(self) -> int:
        return self.disk.total_bytes()

    def fail(
        self, operation: str, *, error: type[DiskError] = DiskError, count: int = _FOR_GOOD
    ) -> None:
        """Let the next `count` calls of that operation fail in this directory."""
        self.disk.fail(operation, self.root, error=error, count=count)

    def break_down(self, *, reads: bool) -> None:
        """Let all writes fail here, and with `reads` all reads too, until `mend`."""
        for operation in (*_WRITES, *(_READS if reads else ())):
            self.fail(operation)

    def mend(self) -> None:
        """Withdraw all failures in this directory."""
        self.disk.forget_faults(self.root)


class OpenedDisks(NamedTuple):
    """The disks of a boot: all directories as one, the further ones, and their contents."""

    files: Disk
    further: dict[str, Disk]
    images: tuple[FurtherImage, ...]


def add_disks(node: SimNode, count: int) -> None:
    """Set how many further directories a machine has; the machine must be down."""
    assert not node.up, node.number
    node.directories = count


def further_of(node: SimNode) -> list[FurtherSimDisk]:
    """Returns the further directories of a machine, on the disk that it has now."""
    return [FurtherSimDisk(node.disk, further_prefix(each)) for each in _ids(node)]


def as_one(node: SimNode, disk: SimulatedDisk) -> Disk:
    """Returns the machine's disk, or a copy of it, joined with the further directories.

    The product finds each directory at its prefix.
    """
    prefixes = [further_prefix(each) for each in _ids(node)]
    if not prefixes:
        return disk
    return LogDirectories(disk, {each: FurtherSimDisk(disk, each) for each in prefixes})


def _ids(node: SimNode) -> list[DirectoryId]:
    first = _FIRST_ID + 0x100 * node.number
    return [DirectoryId(first + number) for number in range(node.directories)]


def _check_alone(files: LogDirectories, path: str, usable: Sequence[str]) -> None:
    """Assert that a registered replica lies in one directory at the most after a boot.

    The broker uses the `usable` directories alone. It deletes nothing in the others, and nothing
    elsewhere while one of those is the directory that counts. Nor does it while that one has no
    files of the replica.
    """
    name = path.rpartition("/")[2]
    if directory_of(path) not in usable or not files.list(path):
        return
    for prefix in usable:
        home = f"{prefix}/{GROUPS_DIRECTORY}" if prefix else GROUPS_DIRECTORY
        assert f"{home}/{name}" == path or name not in files.list(home), (path, home)


def look_after(node: SimNode, boot: Boot) -> None:
    """Play the operator who restarts a broker with a failed directory once the disk answers.

    Until then the broker uses nothing of that directory.
    """
    if boot.mending or not any(each.error for each in node.broker.context.log_directories.further):
        return
    boot.mending = True
    node.world.after(_MENDED_NS, _mend, node, boot)


def _mend(node: SimNode, boot: Boot) -> None:
    if node.boot_state is not boot:
        return
    if node.broken or node.suspended or node.stalled:
        node.world.after(_MENDED_NS, _mend, node, boot)
        return
    probe("broker-restarted-for-a-directory")
    node.stop_process()
    node.start()


def open_disks(node: SimNode, image: DirectoryImage) -> OpenedDisks:
    """Open the further directories, as the runtime does, and finish interrupted moves."""
    if not node.directories:
        return OpenedDisks(node.disk, {}, ())
    found: list[FurtherImage] = []
    further: dict[str, Disk] = {}
    for number, new_id in enumerate(_ids(node)):
        root = further_prefix(new_id)
        node.disk.mount(root)
        disk = FurtherSimDisk(node.disk, root)
        one = open_further(disk, image.identity, f"further-{number}", new_id)
        found.append(one)
        if one.prefix:
            further[one.prefix] = disk
    files = LogDirectories(node.disk, further)
    here = FurtherImage(name="first", replicas=tuple(node.disk.list(GROUPS_DIRECTORY)))
    paths = [each.path for each in image.registrations.values()]
    found = settle_moves(files, paths, [here, *found]).directories[1:]
    usable = ["", *(each.prefix for each in found if each.error is None)]
    for path in paths:
        _check_alone(files, path, usable)
    return OpenedDisks(files, further, tuple(found))
