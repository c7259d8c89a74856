"""Open segment files, shared by the slices that are on their way out.

A slice opens its file when its effect is performed and holds it until the bytes have left; a file
that retention or truncation removes meanwhile still yields the old bytes.
"""

import os
from collections import OrderedDict
from typing import Final, Protocol, final

import attrs
import trio

from raftlog.base.errors import DiskError
from raftlog.base.ids import DirectoryId
from raftlog.base.ports import Disk
from raftlog.records.slices import FileSlice
from raftlog.runtime.regular_files import open_regular

IDLE_FILES_MAX: Final = 256
"""Unpinned descriptors kept for the next fetch of the same file."""
REMOVED_LOOK_SECONDS: Final = 30.0
"""How long a removed segment may keep its space after the last fetch from it."""


class Descriptors(Protocol):
    """How files of a data directory are opened to be sent by `ByteStream.send_file_nowait`."""

    def open(self, path: str) -> int:
        """Raises `DiskError` when it cannot be opened."""
        ...

    def close(self, fd: int) -> None: ...

    def is_removed(self, fd: int) -> bool:
        """Whether the file has no name any more."""
        ...


@final
@attrs.frozen
class PosixDescriptors:
    """Those of the operating system, below a directory of it."""

    root: str

    def open(self, path: str) -> int:
        """See `Descriptors`."""
        try:
            return open_regular(os.path.join(self.root, path), os.O_RDONLY)
        except OSError as error:
            raise DiskError(str(error.strerror or error), on=path) from error

    def close(self, fd: int) -> None:
        os.close(fd)

    def is_removed(self, fd: int) -> bool:
        return os.fstat(fd).st_nlink == 0


@final
@attrs.define(eq=False)
class OpenFile:
    """One descriptor and how many slices hold it. `stale` files close with their last pin."""

    fd: int
    descriptors: Descriptors
    pins: int = 0
    stale: bool = False

    def close(self) -> None:
        self.descriptors.close(self.fd)


@final
class PinnedSlice:
    """A file range on its way out. `release` exactly once; `advance` as bytes leave."""

    __slots__ = ("_file", "_files", "position", "size")

    def __init__(self, files: "OpenFiles", file: OpenFile, position: int, size: int) -> None:
        self._files = files
        self._file = file
        self.position = position
        self.size = size
        file.pins += 1

    def __len__(self) -> int:
        return self.size

    @property
    def fd(self) -> int:
        return self._file.fd

    def advance(self, sent: int) -> None:
        self.position += sent
        self.size -= sent

    def release(self) -> None:
        self._files.unpin(self._file)


@final
@attrs.define(eq=False)
class OpenFiles:
    """The descriptors of all data directories of a process, the least recently used closed
    first."""

    descriptors: dict[DirectoryId, Descriptors]
    test_disks: dict[DirectoryId, Disk] | None = None
    """With a test disk the bytes may be in its memory only, so slices are read through it."""
    _files: OrderedDict[tuple[DirectoryId, str], OpenFile] = attrs.field(
        factory=OrderedDict, init=False
    )

    def pin(self, wanted: FileSlice) -> PinnedSlice | bytes:
        """Open the file of a slice and hold it. Raises `DiskError` when it cannot be opened."""
        if self.test_disks is not None:
            return _read_whole(self.test_disks[wanted.directory], wanted)
        key = (wanted.directory, wanted.path)
        file = self._files.get(key)
        if file is None:
            descriptors = self.descriptors[wanted.directory]
            file = self._files[key] = OpenFile(descriptors.open(wanted.path), descriptors)
        self._files.move_to_end(key)
        pinned = PinnedSlice(self, file, wanted.position, wanted.size)
        self._close_idle()
        return pinned

    def _close_idle(self) -> None:
        if len(self._files) <= IDLE_FILES_MAX:
            return
        for key, file in list(self._files.items()):
            if file.pins == 0:
                file.close()
                del self._files[key]
                return

    def unpin(self, file: OpenFile) -> None:
        """One slice fewer holds the file."""
        assert file.pins > 0, file.pins
        file.pins -= 1
        if file.stale and file.pins == 0:
            file.close()

    async def close_removed_for_ever(self) -> None:
        """Look now and then which files were removed: an open descriptor keeps their space."""
        while True:
            await trio.sleep(REMOVED_LOOK_SECONDS)
            self.close_removed()

    def close_removed(self) -> None:
        """Forget the files that no directory names any more."""
        for (directory, path), file in list(self._files.items()):
            if file.descriptors.is_removed(file.fd):
                self.forget(directory, path)

    def forget(self, directory: DirectoryId, path: str) -> None:
        """The file was removed: close it once its last slice has left."""
        file = self._files.pop((directory, path), None)
        if file is None:
            return
        file.stale = True
        if file.pins == 0:
            file.close()

    def close(self) -> None:
        """Close all; slices must have been released."""
        for file in self._files.values():
            assert file.pins == 0, file.pins
            file.close()
        self._files.clear()


def _read_whole(disk: Disk, wanted: FileSlice) -> bytes:
    file = disk.open(wanted.path, write=False)
    try:
        data = file.read_at(wanted.position, wanted.size)
    finally:
        file.close()
    if len(data) < wanted.size:
        raise DiskError(f"{len(data)} of {wanted.size} bytes are there", on=wanted.path)
    return data
