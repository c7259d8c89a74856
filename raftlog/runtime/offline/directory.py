"""Replicas of brokers that are down: read them, extend them, copy them under other ids.

`raftlog recover` works on data directories that no broker has open. An `OfflineDirectory` is one of
them. Like a boot, it cuts torn tails, writes index files and makes durable what it reads. Each call
that writes returns when its bytes are synced.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry, EntryKind, HardState, Membership
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import GroupId, IoId, Offset, RaftIndex, ReplicaId, Term
from raftlog.base.limits import WALK_CHUNK_BYTES
from raftlog.base.ports import Disk
from raftlog.base.units import WallMillis
from raftlog.partition.machine.applied import VERSION as STATE_VERSION
from raftlog.partition.machine.applied import read_state, write_state
from raftlog.partition.producing.producer_snapshot import load_producers, write_producers
from raftlog.partition.producing.producers import ProducerTable
from raftlog.records.batch import entry_of, patch, read_header
from raftlog.records.control import (
    ForcedRecovery,
    Marker,
    build_control_entry,
    parse_control_entry,
    read_marker,
    read_term_start,
    write_forced_recovery,
    write_marker,
)
from raftlog.storage.boot.recovery import (
    RecoveredReplica,
    ReplicaState,
    create_replica,
    recover_replica,
)
from raftlog.storage.directories.data_dir import DirectoryImage, peek_directory
from raftlog.storage.directories.log_directories import directory_of
from raftlog.storage.directories.store_records import (
    hard_state_record,
    mark_record,
    register_record,
)
from raftlog.storage.ops import StoreRecords, WriteOp
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.replica import LogOptions, Registration, ReplicaSpec
from raftlog.storage.segments.cold import EntriesRead
from raftlog.storage.segments.snapshot import read_snapshot
from raftlog.storage.write_round import DirectoryWriter

NONE_GIVEN_UP: Final = write_forced_recovery(ForcedRecovery((), RaftIndex(0)))
"""The body of a forced recovery that gives up no voter."""
_VERSION_AT: Final = 4
"""Where the version of a partition's state stands, behind four bytes of magic."""


class Copied(NamedTuple):
    """The replica that a copy makes: its group, its own id, its path, and the voters with which its
    log begins."""

    group: GroupId
    replica: ReplicaId
    path: str
    founding: Membership


class OfflineReplica(NamedTuple):
    """A replica that was read, and the directory in which it lies."""

    directory: "OfflineDirectory"
    replica: RecoveredReplica

    @property
    def log(self) -> PartitionLog:
        """The log of the replica."""
        assert self.replica.log is not None, self.replica.why
        return self.replica.log

    @property
    def progress(self) -> tuple[Term, RaftIndex]:
        """By which an election compares two logs."""
        return self.log.last_term, self.log.last_index

    def entries(self, first: RaftIndex) -> Iterator[Sequence[Entry]]:
        """All entries from `first` on, about a megabyte at a time."""
        log = self.log
        while first <= log.written_index:
            read = log.plan_entries(first, WALK_CHUNK_BYTES).run(self.directory.disk)
            assert isinstance(read, EntriesRead), read
            yield read.entries
            first = RaftIndex(read.entries[-1].raft_index + 1)


@final
@attrs.define(eq=False)
class OfflineDirectory:
    """The data directory of a broker that is down. `image` is the store as it was found, `further`
    the broker's further log directories by prefix."""

    disk: Disk
    image: DirectoryImage
    further: Mapping[str, Disk] = attrs.Factory(dict)
    _writer: DirectoryWriter | None = None
    _rounds: int = 0

    @classmethod
    def open(cls, disk: Disk) -> "OfflineDirectory":
        """Raises what `peek_directory` raises."""
        return cls(disk, peek_directory(disk))

    def look(self, group: GroupId) -> OfflineReplica | None:
        """The replica of the group, when it is registered here and whole."""
        registration = self.image.registrations.get(group)
        if registration is None or directory_of(registration.path):
            return None
        spec = self.spec_of(group, registration)
        mark = self.image.marks.get(group)
        try:
            replica = recover_replica(self.disk, spec, mark, LogOptions())
        except FutureFormat:
            return None
        return OfflineReplica(self, replica) if replica.state is ReplicaState.INTACT else None

    def spec_of(self, group: GroupId, registration: Registration) -> ReplicaSpec:
        """The spec of a replica in this directory, for its log."""
        return ReplicaSpec(
            cluster=self.image.identity.cluster,
            group=group,
            replica=registration.replica,
            path=registration.path,
        )

    def term_of(self, group: GroupId) -> int:
        """The term that the store names, 0 for none."""
        state = self.image.hard_states.get(group)
        return state.term if state else 0

    # --- writing ----------------------------------------------------------------------------------

    def write(self, group: GroupId, ops: Sequence[WriteOp]) -> None:
        """Perform a round; raises what failed in it."""
        self._begin(group, ops)

    def _begin(self, group: GroupId, ops: Sequence[WriteOp]) -> IoId:
        if self._writer is None:
            self._writer = DirectoryWriter(self.disk, further=dict(self.further))
        self._rounds += 1
        io_id = IoId(self._rounds)
        result = self._writer.perform(io_id, ops)
        error = result.poisoned or result.failed.get(group)
        if error is not None:
            raise error
        return io_id

    def flush(self, log: PartitionLog) -> None:
        """Make durable what was added to a log of this directory."""
        io_id = IoId(self._rounds + 1)
        ops = log.take_ops(io_id)
        if ops:
            self._begin(log.spec.group, ops)
            log.written(io_id)
            log.persisted(io_id)
        log.set_commit(log.last_index)
        for job in log.take_jobs():
            job.run(self.disk)

    def settle(self, log: PartitionLog, state: HardState | None = None) -> None:
        """Say in the store that all of the log is committed; before that, term and vote."""
        group = log.spec.group
        mark = log.mark(log.last_index)
        assert mark is not None, group
        records = [] if state is None else [hard_state_record(group, state)]
        self.write(group, [StoreRecords([*records, mark_record(mark)])])

    def register(
        self, registration: Registration, log: PartitionLog, state: HardState | None = None
    ) -> None:
        """Let the directory answer for a replica whose log is written, with its term and vote."""
        group, mark = log.spec.group, log.mark(log.last_index)
        assert mark is not None, registration
        records = [register_record(group, registration)]
        if state is not None:
            records.append(hard_state_record(group, state))
        self.write(group, [StoreRecords([*records, mark_record(mark)])])

    def close(self) -> None:
        """Close all files."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


# --- extending ------------------------------------------------------------------------------------


def control_entry(
    log: PartitionLog,
    term: Term,
    kind: EntryKind,
    body: bytes,
    wall_ms: WallMillis,
    raft_index: RaftIndex | None = None,
    base_offset: Offset | None = None,
) -> Entry:
    """An entry of Raft's own for this log: its next one, or the one at this place."""
    return build_control_entry(
        kind,
        group=log.spec.group,
        term=term,
        raft_index=RaftIndex(log.last_index + 1) if raft_index is None else raft_index,
        base_offset=log.next_offset if base_offset is None else base_offset,
        timestamp_ms=wall_ms,
        body=body,
    )


def append_in_new_term(
    log: PartitionLog, term: Term, batches: Iterable[bytes], wall_ms: WallMillis
) -> None:
    """Add a forced recovery, which begins `term`, and these batches of records."""
    log.append([control_entry(log, term, EntryKind.FORCED_RECOVERY, NONE_GIVEN_UP, wall_ms)])
    for made in batches:
        batch = bytearray(made)
        patch(batch, log.next_offset, term)
        log.append([_records(log, bytes(batch))])


def align(leader: OfflineReplica, follower: OfflineReplica) -> bool:
    """Make a log equal to the leader's, as replication would; False when that needs an install."""
    log, led = follower.log, leader.log
    common = min(log.last_index, led.last_index)
    while log.term_at(common) != led.term_at(common):
        common = RaftIndex(common - 1)
        if common < max(log.first_index, led.first_index) - 1:
            return False
    if common < max(log.first_index, led.first_index) - 1:
        return False
    if common < log.last_index:
        log.truncate_from(RaftIndex(common + 1))
    for entries in leader.entries(RaftIndex(common + 1)):
        log.append(entries)
        follower.directory.flush(log)
    follower.directory.flush(log)
    return True


# --- copying --------------------------------------------------------------------------------------


def copy_replica(
    source: OfflineReplica,
    target: OfflineDirectory,
    copied: Copied,
    options: LogOptions,
    wall_ms: WallMillis,
) -> None:
    """Write the records of a log, with their offsets, as the log of another group, in one term, and
    register it. The files of an earlier attempt at the path go first."""
    log = _founded(source, target, copied, options)
    term = Term(log.last_term + 1)
    log.append([control_entry(log, term, EntryKind.FORCED_RECOVERY, NONE_GIVEN_UP, wall_ms)])
    for entries in source.entries(source.log.first_index):
        for entry in entries:
            log.append(_under_other_ids(log, term, entry))
        target.flush(log)
    target.flush(log)
    target.register(Registration(copied.replica, copied.path), log)


def copy_as_it_is(
    source: OfflineReplica,
    target: OfflineDirectory,
    registration: Registration,
    state: HardState | None,
) -> None:
    """Write a log entry by entry into a directory of another cluster id, for the replica of the
    registration, with its term and vote. Only the chain differs, which begins with the cluster."""
    group, position = source.log.spec.group, source.log.snapshot_position
    copied = Copied(group, registration.replica, registration.path, position.membership)
    log = begin_log(target, copied, LogOptions())
    if position.raft_index > 0:
        _, body = read_snapshot(source.directory.disk, source.log.spec, source.log.first_index)
        log.install(position, body)
        target.flush(log)
    for entries in source.entries(source.log.first_index):
        log.append(entries)
        target.flush(log)
    target.flush(log)
    target.register(registration, log, state)


def begin_log(target: OfflineDirectory, copied: Copied, options: LogOptions) -> PartitionLog:
    """An empty log with its first voters, in place of what lies at the path."""
    spec = target.spec_of(copied.group, Registration(copied.replica, copied.path))
    log = create_replica(target.disk, spec, copied.founding, options).log
    assert log is not None, copied
    return log


def _founded(
    source: OfflineReplica, target: OfflineDirectory, copied: Copied, options: LogOptions
) -> PartitionLog:
    """An empty log that begins where the source begins."""
    log = begin_log(target, copied, options)
    first = source.log.first_index
    if first > 1:
        _, body = read_snapshot(source.directory.disk, source.log.spec, first)
        position = attrs.evolve(
            source.log.snapshot_position,
            term=Term(1),
            membership=copied.founding,
            membership_index=RaftIndex(0),
        )
        log.install(position, _state_of(body, source.log.spec.group, copied.group, first))
        target.flush(log)
    return log


def _state_of(body: Buffer, old: GroupId, new: GroupId, before: RaftIndex) -> bytes:
    """The state before an entry, as the state of the new group: producers carry the group's id."""
    version = int.from_bytes(memoryview(body)[_VERSION_AT : _VERSION_AT + 2], "big")
    machine: Buffer | None = None
    producers = body
    if version == STATE_VERSION:
        producers, machine = read_state(old, body)
    table = ProducerTable()
    load_producers(table, producers, group=old, before=before, error=CorruptData)
    renamed = write_producers(table, group=new, before=before)
    return renamed if machine is None else write_state(renamed, bytes(machine))


def _under_other_ids(log: PartitionLog, term: Term, entry: Entry) -> list[Entry]:
    """The entry as the log's next one. Memberships and terms are those of the old group, and go;
    what else a control entry says is kept."""
    if entry.kind is EntryKind.RECORDS:
        batch = bytearray(entry.batch)
        patch(batch, entry.base_offset, term)
        return [_records(log, bytes(batch))]
    told = parse_control_entry(entry.batch, CorruptData, log.spec.path)
    wall_ms = WallMillis(read_header(entry.batch).max_timestamp)
    if entry.kind is EntryKind.LOG_START:
        return [control_entry(log, term, EntryKind.LOG_START, told.body, wall_ms)]
    cut_off = _CUT_OFFS.get(entry.kind)
    if cut_off is None or cut_off(told.body) < 0:
        return []
    body = write_marker(Marker(cut_off(told.body), b""))
    return [control_entry(log, term, EntryKind.MARKER, body, wall_ms)]


def _records(log: PartitionLog, batch: bytes) -> Entry:
    return entry_of(RaftIndex(log.last_index + 1), batch, CorruptData, log.spec.path)


_CUT_OFFS: Final[Mapping[EntryKind, Callable[[bytes], WallMillis]]] = {
    EntryKind.TERM_START: lambda body: read_term_start(body).producers_expire_before_ms,
    EntryKind.MARKER: lambda body: read_marker(body).producers_expire_before_ms,
}
