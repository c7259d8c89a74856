"""A data directory: formatted once, opened at every boot, before there is a broker.

The format file fixes what never changes: cluster, node, directory id, layout version, and for
founders the controllers' replica ids. It is written last, so a directory with one is whole. Layout
(big-endian), two equal copies of 2,048 bytes:

      0  magic "rlformat"          8  format version u16         10  minimum reader version u16
     12  layout version u16 = 1   14  flags u16
     16  cluster id, 16 bytes     32  node u32                   36  directory id u64
     44  count u32, then the controllers' replica ids, sorted
     ..  zeros                  2044  CRC-32C of bytes 0 to 2043, u32

Version 1 has no flags. Version 2 has flag 1: brokers of this cluster seal their links, and refuse
plain ones unless a setting says otherwise. It is written only with a flag, so that a directory of
an older cluster stays readable for the release that formatted it.
"""

from typing import Final, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.checksum import crc32c
from raftlog.base.entries import (
    REPLICA_ID_BYTES,
    HardState,
    read_replica_id,
    write_replica_id,
)
from raftlog.base.errors import CorruptData, FutureFormat, OperatingError
from raftlog.base.ids import BootNumber, ClusterId, DirectoryId, GroupId, NodeId, ReplicaId
from raftlog.base.limits import STORE_BYTES_INITIAL, VOTERS_MAX
from raftlog.base.ports import Disk, Entropy
from raftlog.base.units import Nanos
from raftlog.storage.directories.incarnations import NONE, Incarnation, IncarnationBook
from raftlog.storage.directories.store_file import (
    STORE_FILES,
    StoreFiles,
    StoreOwner,
    format_store,
    read_store,
)
from raftlog.storage.directories.store_records import StoreState, boot_record
from raftlog.storage.directories.unfinished import refuse_unfinished
from raftlog.storage.files import read_whole, remove_if_there, write_whole
from raftlog.storage.replica import GROUPS_DIRECTORY, Mark, Registration

FORMAT_FILE: Final = "raftlog.format"
VERSION: Final = 2
_VERSION_WITHOUT_FLAGS: Final = 1
_SEALED: Final = 1
LAYOUT_VERSION: Final = 1
_MAGIC: Final = b"rlformat"
_COPY_BYTES: Final = 2048
_CRC_AT: Final = _COPY_BYTES - 4


@final
@attrs.frozen(kw_only=True)
class DirectoryIdentity:
    """The facts that a format command fixes.

    `directory` is random and never 0. `controllers` are group 0's founding voters, () for a
    directory that joins. `sealed`: brokers of this cluster refuse plain links unless a setting
    allows them.
    """

    cluster: ClusterId
    node: NodeId
    directory: DirectoryId
    controllers: tuple[ReplicaId, ...] = ()
    sealed: bool = False

    @property
    def owner(self) -> StoreOwner:
        return StoreOwner(self.cluster, self.node, self.directory)


@final
@attrs.frozen(kw_only=True)
class DirectoryImage:
    """A data directory as a boot finds it; `boot` is already this boot's number, and durable.

    `lease_ns` is how long a voter of this boot may promise to elect no other replica. `promised_ns`
    is the longest such promise of this boot or an earlier one.
    """

    identity: DirectoryIdentity
    boot: BootNumber
    registrations: dict[GroupId, Registration]
    hard_states: dict[GroupId, HardState]
    marks: dict[GroupId, Mark]
    promised_ns: Nanos = Nanos(0)
    lease_ns: Nanos = Nanos(0)
    incarnation: Incarnation = NONE
    """The incarnation that this boot drew; NONE when it drew none, and so tells peers of none."""
    incarnations: IncarnationBook = attrs.Factory(IncarnationBook)


def is_formatted(disk: Disk) -> bool:
    """Whether the directory has an identity; a format that was cut short does not count.

    `CorruptData` when replicas lie there but no format file does: then the directory is not empty.
    """
    if disk.exists(FORMAT_FILE):
        return True
    if disk.list(GROUPS_DIRECTORY):
        raise CorruptData(
            "the format file is missing beside the replicas of this directory",
            on=FORMAT_FILE,
            do="put it back, or move the directory away and let the broker join as new",
        )
    return False


def format_directory(
    disk: Disk, identity: DirectoryIdentity, *, store_bytes: int = STORE_BYTES_INITIAL
) -> None:
    """Give an empty directory its identity, durably. `OperatingError` when it has one already."""
    assert identity.directory > 0, identity
    assert list(identity.controllers) == sorted(identity.controllers), identity
    if is_formatted(disk):
        raise OperatingError(
            "the data directory is already formatted",
            on=FORMAT_FILE,
            do="start the broker on it, or name an empty directory",
        )
    for leftover in STORE_FILES:
        remove_if_there(disk, leftover)
    if disk.exists(GROUPS_DIRECTORY):  # left by an attempt whose sync failed: its name may be lost
        disk.remove(GROUPS_DIRECTORY)
    disk.make_dir(GROUPS_DIRECTORY)
    format_store(disk, identity.owner, bytes_initial=store_bytes)
    write_whole(disk, FORMAT_FILE, _format_bytes(identity))


def open_directory(
    disk: Disk, lease_ns: Nanos = Nanos(0), incarnation: Incarnation = NONE
) -> DirectoryImage:
    """Begin a boot: read everything, and raise the boot number, durably.

    The voters of this boot will promise for `lease_ns`, and a later boot must know that
    (raftlog.raft.lease). It must also know the `incarnation` of this boot, before any peer hears of
    it (`incarnations`).

    The kernel's memory gives back what a killed process wrote and did not sync. The replicas of
    this boot will promise it, so it is made durable first.

    The first boot also makes the name of the format file durable. Formatting may have failed in its
    last sync, although the file can be seen.

    Raises `OperatingError` when the directory is not formatted, or offline work on it was cut
    short. `CorruptData` means that its format file or store is damaged: the directory's promises
    are lost, so treat it as wiped. Raises `FutureFormat` too.
    """
    identity = read_identity(disk)
    refuse_unfinished(disk)
    disk.sync_all()
    store = StoreFiles(disk, identity.owner)
    try:
        if store.state.boot == 0:
            write_whole(disk, FORMAT_FILE, read_whole(disk, FORMAT_FILE, 2 * _COPY_BYTES))
        store.raise_promise(lease_ns)
        boot = BootNumber(store.state.boot + 1)
        store.append([boot_record(boot)])
        store.sync()
        if incarnation != NONE:
            store.begin_life(incarnation)
    finally:
        store.close()
    return attrs.evolve(_image(identity, store.state), lease_ns=lease_ns, incarnation=incarnation)


def draw_incarnation(entropy: Entropy) -> Incarnation:
    """A random number of 64 bits, never 0."""
    return Incarnation(int.from_bytes(entropy.bytes(8), "big") or 1)


def peek_directory(disk: Disk) -> DirectoryImage:
    """Read a data directory without changing anything: `boot` is the last boot's number."""
    identity = read_identity(disk)
    return _image(identity, read_store(disk, identity.owner))


def _image(identity: DirectoryIdentity, state: StoreState) -> DirectoryImage:
    return DirectoryImage(
        identity=identity,
        boot=state.boot,
        registrations=dict(state.registrations),
        hard_states=dict(state.hard_states),
        marks=dict(state.marks),
        promised_ns=state.promised_ns,
        incarnations=state.incarnations.copy(),
    )


def read_identity(disk: Disk) -> DirectoryIdentity:
    """The identity in the format file."""
    if not is_formatted(disk):
        raise OperatingError(
            "the data directory is not formatted", on=FORMAT_FILE, do="run `raftlog format`"
        )
    view = memoryview(read_whole(disk, FORMAT_FILE, 2 * _COPY_BYTES))
    for copy in (view[:_COPY_BYTES], view[_COPY_BYTES:]):
        if len(copy) == _COPY_BYTES and crc32c(copy[:_CRC_AT]) == int.from_bytes(
            copy[_CRC_AT:], "big"
        ):
            return _parse(copy[:_CRC_AT])
    raise CorruptData(
        "both copies of the format file are damaged",
        on=FORMAT_FILE,
        do="treat the data directory as lost: move it away and let the broker join as new",
    )


def _format_bytes(identity: DirectoryIdentity) -> bytes:
    version = VERSION if identity.sealed else _VERSION_WITHOUT_FLAGS
    writer = Writer().raw(_MAGIC).u16(version).u16(version).u16(LAYOUT_VERSION)
    writer.u16(_SEALED if identity.sealed else 0)
    writer.raw(identity.cluster).u32(identity.node).u64(identity.directory)
    writer.u32(len(identity.controllers))
    for controller in identity.controllers:
        write_replica_id(writer, controller)
    content = writer.raw(bytes(_CRC_AT - len(writer))).bytes()
    copy = content + crc32c(content).to_bytes(4, "big")
    return copy + copy


def _parse(copy: Buffer) -> DirectoryIdentity:
    reader = Reader(copy, CorruptData, FORMAT_FILE)
    if bytes(reader.take(len(_MAGIC))) != _MAGIC:
        raise reader.fail("not a format file")
    version, reader_min, layout = reader.u16(), reader.u16(), reader.u16()
    if reader_min > VERSION or layout > LAYOUT_VERSION:
        raise FutureFormat(
            f"data directory of version {version}, layout {layout}; this release reads "
            f"{VERSION} and {LAYOUT_VERSION}",
            on=FORMAT_FILE,
            do="use the release that wrote it, or a later one",
        )
    flags = reader.u16()
    known = 0 if version == _VERSION_WITHOUT_FLAGS else _SEALED
    if flags & ~known and version <= VERSION:
        raise reader.fail(f"flags {flags:#06x} of the format file are not all known")
    cluster, node = ClusterId(bytes(reader.take(16))), NodeId(reader.u32())
    directory = DirectoryId(reader.u64())
    count = reader.count(REPLICA_ID_BYTES, VOTERS_MAX)
    controllers = tuple(read_replica_id(reader) for _ in range(count))
    if version <= VERSION and any(reader.take(reader.remaining())):
        raise reader.fail("format file has reserved bytes that are not zero")
    return DirectoryIdentity(
        cluster=cluster,
        node=node,
        directory=directory,
        controllers=controllers,
        sealed=bool(flags & _SEALED),
    )
