"""The names of a simulated disk: the seen ones, the durable ones and the pending changes."""

from collections.abc import Callable
from typing import final

import attrs

from raftlog_sim.world.inode import Inode


@final
@attrs.frozen
class NameChange:
    """One pending step in a directory: `new` points to `inode`; `old`, if any, goes with it."""

    directory: str
    old: str | None
    new: str | None
    inode: Inode | None


@final
@attrs.define(eq=False)
class Names:
    """Files and directories by their paths.

    `lost` says that some seen change never becomes durable, because its sync failed. `staying`
    holds the removed directories whose removal is such a change.
    """

    seen: dict[str, Inode] = attrs.Factory(dict)
    durable: dict[str, Inode] = attrs.Factory(dict)
    directories: dict[str, None] = attrs.Factory(lambda: {"": None})
    durable_directories: dict[str, None] = attrs.Factory(lambda: {"": None})
    pending: list[NameChange] = attrs.Factory(list)
    pending_directories: dict[str, None] = attrs.Factory(dict)
    lost: bool = False
    staying: dict[str, None] = attrs.Factory(dict)

    def change(self, old: str | None, new: str | None, inode: Inode | None) -> None:
        """Note that a file is made, renamed or removed; the change is pending from now on."""
        directory = parent_of(new if new is not None else old or "")
        self.pending.append(NameChange(directory, old, new, inode))

    def make_directory(self, path: str) -> None:
        self.directories[path] = None
        self.pending_directories[path] = None
        self.staying.pop(path, None)

    def remove_directory(self, path: str) -> None:
        del self.directories[path]
        self.pending_directories.pop(path, None)

    def sync(self, path: str) -> None:
        """Make the names of one directory durable."""
        for change in [one for one in self.pending if one.directory == path]:
            self._promote(change)
            self.pending.remove(change)
        for name in [one for one in self.pending_directories if parent_of(one) == path]:
            self.durable_directories[name] = None
            del self.pending_directories[name]
        for name in self._removed_in(path):
            del self.durable_directories[name]

    def mount(self, root: str) -> None:
        """Add a directory that is durable from the start, as a mount point is."""
        self.directories[root] = None
        self.durable_directories[root] = None

    def on_disk(self, root: str, mounts: list[str]) -> tuple[list[Inode], list[str] | None]:
        """Returns the files and the directories below the mount `root`.

        An empty root stands for everything that lies below no mount. The directories are None when
        the machine has no mounts.
        """
        if not mounts:
            return list(self.seen.values()), None

        def of(path: str) -> bool:
            first = path.partition("/")[0]
            return (first if first in mounts else "") == root

        files = [inode for path, inode in self.seen.items() if of(path)]
        return files, [each for each in self.directories if of(each)]

    def sync_all(self, directories: list[str] | None = None) -> None:
        """Make all names durable, or those in these directories, except for the lost changes."""
        if self.lost or directories is not None:
            for directory in self.directories if directories is None else directories:
                self.sync(directory)
            return
        self.durable = dict(self.seen)
        self.durable_directories = dict(self.directories)
        self.pending.clear()
        self.pending_directories.clear()

    def lose(self, path: str) -> None:
        """Play a failed sync of one directory: its names are clean, and a crash loses them."""
        self.lost = True
        self.pending = [one for one in self.pending if one.directory != path]
        for name in [one for one in self.pending_directories if parent_of(one) == path]:
            del self.pending_directories[name]
        self.staying.update(dict.fromkeys(self._removed_in(path)))

    def lose_all(self, directories: list[str] | None = None) -> None:
        """Play a failed sync of all directories, or of these."""
        for directory in self.directories if directories is None else directories:
            self.lose(directory)

    def crash(self, keeps: Callable[[], bool]) -> None:
        """Keep or drop each pending change, as `keeps` says; then show only the durable names."""
        for name in self.pending_directories:
            if keeps():
                self.durable_directories[name] = None
        for change in self.pending:
            if keeps():
                self._promote(change)
        there = self.durable_directories = self._reached(self.durable_directories)
        self.durable = {
            name: inode for name, inode in self.durable.items() if parent_of(name) in there
        }
        self.seen, self.directories = dict(self.durable), dict(there)
        self.pending.clear()
        self.pending_directories.clear()
        self.staying.clear()
        self.lost = False

    def durable_inode(self, path: str) -> Inode | None:
        """Returns the file that has this name after a crash that keeps nothing pending."""
        there = self.durable_directories
        at = parent_of(path)
        while at in there and at:
            at = parent_of(at)
        return self.durable.get(path) if at in there else None

    def _reached(self, directories: dict[str, None]) -> dict[str, None]:
        """Returns the directories whose parents, up to the root, are all among `directories`."""
        reached: dict[str, None] = {}
        for name in sorted(directories):  # a parent sorts before its children
            if name == "" or parent_of(name) in reached:
                reached[name] = None
        return reached

    def _promote(self, change: NameChange) -> None:
        if change.old is not None:
            self.durable.pop(change.old, None)
        if change.new is not None and change.inode is not None:
            self.durable[change.new] = change.inode

    def _removed_in(self, path: str) -> list[str]:
        """Returns the durable directories in `path` that were removed since."""
        return [
            name
            for name in self.durable_directories
            if parent_of(name) == path
            and name
            and name not in self.directories
            and name not in self.staying
        ]


def parent_of(path: str) -> str:
    """Returns the directory of a path; "" for the root."""
    return path.rpartition("/")[0]
