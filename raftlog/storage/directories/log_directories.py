"""Gives a broker further log directories: disks that hold replicas beside its data directory.

The data directory is the first one. It alone holds the store: the identity, boot number, terms,
votes, registrations and marks of everything that this broker answers for, group 0 included. A
further directory holds segment files and no promise, so a broker that loses it forgets no vote.

A replica's path, relative to the data directory, says where it lies:

    groups/<replica>                                 in the data directory
    directory-<id, 16 hex digits>/groups/<replica>   in the further directory of that id

`LogDirectories` is a Disk over all of them. The registration in the store holds the whole path. So
a replica is found where it was registered and nowhere else, in whatever order `log.dirs` names the
further directories.

Each further directory has an identity file, `raftlog.directory`, written once (big-endian), in two
equal copies of 512 bytes:

      0  magic "rlfurthr"      8  format version u16 = 1   10  minimum reader version u16 = 1
     12  cluster id, 16 bytes  28  node u32                32  id of the data directory u64
     40  own id u64            ..  zeros                  508  CRC-32C of bytes 0 to 507, u32
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.checksum import crc32c
from raftlog.base.errors import CorruptData, DiskError, FutureFormat, OperatingError, RaftlogError
from raftlog.base.ids import ClusterId, DirectoryId, NodeId
from raftlog.base.ports import Disk, DiskFile
from raftlog.storage.directories.data_dir import FORMAT_FILE, DirectoryIdentity
from raftlog.storage.files import read_whole, write_whole
from raftlog.storage.replica import GROUPS_DIRECTORY

FURTHER_FILE: Final = "raftlog.directory"
_PREFIX: Final = "directory-"
_VERSION: Final = 1
_MAGIC: Final = b"rlfurthr"
_COPY_BYTES: Final = 512
_CRC_AT: Final = _COPY_BYTES - 4


def further_prefix(directory: DirectoryId) -> str:
    """The beginning of the paths of replicas in that further directory."""
    return f"{_PREFIX}{directory:016x}"


def directory_of(path: str) -> str:
    """The prefix of the further directory in which a path lies; "" for the data directory."""
    return path.partition("/")[0] if path.startswith(_PREFIX) else ""


class DirectoryFailed(DiskError):
    """A further directory failed a write or a sync: nothing of it may be promised in this boot.

    `directory` is its prefix.
    """

    def __init__(self, directory: str, cause: RaftlogError) -> None:
        super().__init__(cause.what, on=cause.on, do="check the disk and restart the broker")
        self.directory = directory


@final
@attrs.frozen(kw_only=True)
class FurtherImage:
    """A further directory as a boot finds it. `name` is its path, for operators.

    * `prefix` is "" when the directory could not even say which one it is.
    * `replicas`: the names in its `groups`.
    * `error`: why nothing of it can be used in this boot.
    """

    name: str
    prefix: str = ""
    replicas: tuple[str, ...] = ()
    error: RaftlogError | None = None


def open_further(
    disk: Disk, owner: DirectoryIdentity, name: str, new_id: DirectoryId
) -> FurtherImage:
    """Begin a boot in a further directory; an empty one gets its identity, with `new_id`.

    A disk that fails is reported in `error`. Raises `OperatingError` for a data directory or a
    directory of another broker: an operator has to correct `log.dirs` first. `CorruptData` and
    `FutureFormat` are for an identity file that cannot be read.
    """
    prefix = ""
    try:
        if disk.exists(FORMAT_FILE):
            raise OperatingError(
                "this is the data directory of a broker, not a further one",
                on=name,
                do="write it first in log.dirs, or name an empty directory",
            )
        if not disk.exists(FURTHER_FILE):
            _format(disk, owner, name, new_id)
        content = read_whole(disk, FURTHER_FILE, 2 * _COPY_BYTES)
        prefix = further_prefix(_judged(content, owner, name))
        # As in `open_directory`: the writes of a killed process are made durable before replicas
        # promise them. So is the name of the identity file, which also shows that the disk takes
        # writes.
        disk.sync_all()
        write_whole(disk, FURTHER_FILE, content)
        found = tuple(disk.list(GROUPS_DIRECTORY))
    except DiskError as error:
        return FurtherImage(name=name, prefix=prefix, error=error)
    return FurtherImage(name=name, prefix=prefix, replicas=found)


def refuse_further(disk: Disk, name: str) -> None:
    """Raise `OperatingError` when a future data directory is a further directory already."""
    if disk.exists(FURTHER_FILE):
        raise OperatingError(
            "this is a further log directory of a broker, not its data directory",
            on=name,
            do="write the data directory, which holds raftlog.format, first in log.dirs",
        )


def _format(disk: Disk, owner: DirectoryIdentity, name: str, new_id: DirectoryId) -> None:
    assert new_id not in (0, owner.directory), new_id
    if disk.list(GROUPS_DIRECTORY):
        raise CorruptData(
            f"{FURTHER_FILE} is missing beside the replicas of this directory",
            on=name,
            do="put it back, or name an empty directory",
        )
    disk.make_dir(GROUPS_DIRECTORY)
    disk.sync_dir("")
    writer = Writer().raw(_MAGIC).u16(_VERSION).u16(_VERSION)
    writer.raw(owner.cluster).u32(owner.node).u64(owner.directory).u64(new_id)
    content = writer.raw(bytes(_CRC_AT - len(writer))).bytes()
    copy = content + crc32c(content).to_bytes(4, "big")
    write_whole(disk, FURTHER_FILE, copy + copy)


def _judged(content: bytes, owner: DirectoryIdentity, name: str) -> DirectoryId:
    """The id in an identity file; raises where the directory is not one of this broker's."""
    view = memoryview(content)
    for copy in (view[:_COPY_BYTES], view[_COPY_BYTES:]):
        if len(copy) == _COPY_BYTES and crc32c(copy[:_CRC_AT]) == int.from_bytes(
            copy[_CRC_AT:], "big"
        ):
            return _parsed(copy[:_CRC_AT], owner, name)
    raise CorruptData(
        f"both copies of {FURTHER_FILE} are damaged",
        on=name,
        do="take it out of log.dirs and reassign its replicas, or put the file back",
    )


def _parsed(copy: Buffer, owner: DirectoryIdentity, name: str) -> DirectoryId:
    reader = Reader(copy, CorruptData, name)
    if bytes(reader.take(len(_MAGIC))) != _MAGIC:
        raise reader.fail(f"{FURTHER_FILE} is no identity of a log directory")
    version, reader_min = reader.u16(), reader.u16()
    if reader_min > _VERSION:
        raise FutureFormat(
            f"log directory of version {version}; this release reads {_VERSION}",
            on=name,
            do="use the release that wrote it, or a later one",
        )
    cluster, node = ClusterId(bytes(reader.take(16))), NodeId(reader.u32())
    first, own = DirectoryId(reader.u64()), DirectoryId(reader.u64())
    if (cluster, node, first) != (owner.cluster, owner.node, owner.directory):
        raise OperatingError(
            f"the log directory belongs to data directory {first:016x} of node {node}, and this "
            f"is {owner.directory:016x} of node {owner.node}",
            on=name,
            do="put that data directory first in log.dirs, or name an empty directory",
        )
    return own


def found_twice(
    paths: Mapping[str, str], directories: Sequence[FurtherImage]
) -> list[tuple[str, str]]:
    """Both paths of each registered replica that also lies in another directory.

    The registered path comes first. `paths`: name of a registered replica -> its whole path. The
    data directory is one of the `directories`, without a prefix.
    """
    found: list[tuple[str, str]] = []
    for image in directories:
        for name in image.replicas:
            path, plain = paths.get(name), f"{GROUPS_DIRECTORY}/{name}"
            if path is not None and directory_of(path) != image.prefix:
                found.append((path, f"{image.prefix}/{plain}" if image.prefix else plain))
    return found


class _Place(NamedTuple):
    disk: Disk
    path: str


@final
class LogDirectories:
    """The Disk over a data directory and the further ones, by prefix.

    `sync_all` and the free bytes are those of the data directory; `further` has the other disks.
    """

    __slots__ = ("first", "further")

    def __init__(self, first: Disk, further: Mapping[str, Disk]) -> None:
        self.first = first
        self.further = dict(further)

    def disk_of(self, prefix: str) -> Disk:
        """The disk of one directory; "" is the data directory.

        Raises `DiskError` when it is missing.
        """
        disk = self.further.get(prefix) if prefix else self.first
        if disk is None:
            raise DiskError(
                "the log directory is not there",
                on=prefix,
                do="name it in log.dirs and restart the broker",
            )
        return disk

    def _at(self, path: str) -> _Place:
        prefix = directory_of(path)
        return _Place(self.disk_of(prefix), path[len(prefix) + 1 :] if prefix else path)

    def open(self, path: str, *, create: bool = False, write: bool = True) -> DiskFile:
        """See `raftlog.base.ports.Disk`."""
        disk, inner = self._at(path)
        return disk.open(inner, create=create, write=write)

    def list(self, path: str) -> list[str]:
        disk, inner = self._at(path)
        return disk.list(inner)

    def exists(self, path: str) -> bool:
        disk, inner = self._at(path)
        return disk.exists(inner)

    def make_dir(self, path: str) -> None:
        disk, inner = self._at(path)
        disk.make_dir(inner)

    def rename(self, old: str, new: str) -> None:
        assert directory_of(old) == directory_of(new), (old, new)
        disk, inner = self._at(old)
        disk.rename(inner, self._at(new).path)

    def remove(self, path: str) -> None:
        disk, inner = self._at(path)
        disk.remove(inner)

    def sync_dir(self, path: str) -> None:
        disk, inner = self._at(path)
        disk.sync_dir(inner)

    def sync_all(self) -> None:
        self.first.sync_all()

    def free_bytes(self) -> int:
        return self.first.free_bytes()

    def total_bytes(self) -> int:
        return self.first.total_bytes()
