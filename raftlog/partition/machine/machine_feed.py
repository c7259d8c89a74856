"""Feeds the machine of one replica: live, after a boot, after an install.

Theory of operation:
1. Live. Every take calls `advance` with the commit. The newly committed entries are still in
   memory, for the log drops only entries below a commit that `set_commit` told it, and the same
   take applied those. So a machine that was level is never behind the commit when the turn ends.
2. Boot. The machine begins with the newest snapshot of this log and is behind the commit. `advance`
   feeds it a bounded number of bytes a turn, from memory or by jobs that read the files, until it
   is level. Entries that come meanwhile may be committed and leave memory before their turn: they
   are read from the files too. Entries that the boot found on the disk (`_on_disk`) may be
   committed much later, and are then read in the same way. Before a leader serves from its machine
   it commits an entry of its own term, which lies behind them. From then on everything is live.
3. Install. The installed state replaces the machine. A job has made a machine of it
   (`install_judge`).

Snapshots. When the log begins a segment, the replica stores the state before that entry. It takes
both parts at exactly that place: the producer state when the entry is appended, the machine's state
between two entries, once everything before is committed. `covered` is the offset up to which a
snapshot of this replica is durable. The leader proposes a log start there. Each replica removes
only segments that a snapshot of its own covers (`storage.jobs.remove_segments` reads it whole
first).

Digests. A marker names the marker before it, and the leader's digest there. A replica keeps its own
digest at the last marker that it applied. When a marker names that one and the digests differ, this
replica's state is wrong or the leader's is, so the replica stops.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.buggify import buggify
from raftlog.base.entries import Entry, EntryKind, InstallPosition
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.limits import (
    LOG_READ_FAILURES_MAX,
    MACHINE_REPLAY_BYTES,
    MACHINE_REPLAY_PAUSE_MS,
    MACHINE_SNAPSHOT_BYTES_MAX,
)
from raftlog.base.ports import Tracer
from raftlog.base.probes import probe
from raftlog.base.trace import TraceEvent
from raftlog.base.units import NEVER, Instant, millis
from raftlog.partition.background_tasks import BackgroundTasks
from raftlog.partition.machine.applied import AppliedMachine, read_state, write_frozen_state
from raftlog.partition.tracker import Snapshot
from raftlog.records.control import parse_control_entry, read_marker
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.segments.cold import EntriesRead, ProducerReplay

if TYPE_CHECKING:
    from raftlog.partition.machine.install_judge import InstallJudge

_ALL_BYTES: Final = 2**62
_SLOW_REPLAY_MS: Final = 20
"""The pause after each entry when a simulator wants a replay that takes long."""
_NO_INDEX: Final = RaftIndex(0)


class _Due(NamedTuple):
    """A snapshot to be taken when everything before the entry `before` is applied."""

    before: RaftIndex
    position: InstallPosition
    producers: bytes


class _Compared(NamedTuple):
    """The digest of this replica's machine after it applied a marker."""

    marker: RaftIndex
    digest: bytes


@final
class MachineFeed:
    """Feeds committed entries to one machine (see the module).

    * `applied`: the last entry applied; at a boot it may be above the known commit.
    * `covered`: records below this offset are in a durable snapshot of this replica.
    * `differs`: why the machine cannot go on; None while it can.
    """

    __slots__ = (
        "_again_at",
        "_compared",
        "_due",
        "_failures",
        "_installs",
        "_last_records",
        "_log",
        "_named",
        "_on_disk",
        "_reading",
        "_replaying",
        "_tasks",
        "_tracer",
        "_where",
        "applied",
        "covered",
        "differs",
        "judge",
        "machine",
    )

    def __init__(
        self,
        machine: AppliedMachine,
        log: PartitionLog,
        tasks: BackgroundTasks,
        tracer: Tracer,
        where: str,
    ) -> None:
        """Make the feed of a machine that is empty; the caller then calls `booted`."""
        self.machine = machine
        self._log = log
        self._tasks = tasks
        self._tracer = tracer
        self._where = where
        self.applied = RaftIndex(0)
        self.covered = Offset(0)
        self._again_at = NEVER
        self.differs: str | None = None
        self.judge: InstallJudge | None = None
        """Makes the machine of an install in a job; None: the event loop restores the state."""
        self._on_disk = log.last_index
        self._replaying = True
        self._reading = False
        self._installs = 0
        self._failures = 0
        self._due: deque[_Due] = deque()
        self._compared: _Compared | None = None
        self._named = _NO_INDEX
        self._last_records = _NO_INDEX

    def booted(self, replay: ProducerReplay, *, restored: bool = False) -> None:
        """Begin with the snapshot that recovery found and judged.

        `restored`: the machine has that state already. Without a snapshot the log has its very
        first entry, and the machine begins empty.
        """
        if replay.snapshot is not None and not restored:
            self.machine.restore(read_state(self._log.spec.group, replay.snapshot).machine)
        if replay.snapshot is not None:
            # The snapshot's name may not be durable after a crash. A removal of segments makes it
            # durable before it relies on the snapshot.
            self.covered = replay.covered
        self.applied = RaftIndex(replay.before - 1)

    def installed(self, position: InstallPosition, snapshot: Buffer) -> Buffer:
        """Take the state of an install, which replaced the log by one that begins after `position`.

        The log has judged the snapshot, and its file is durable before any later write. Returns the
        producer state in the snapshot.
        """
        probe("machine-installed")
        state = read_state(self._log.spec.group, snapshot)
        made = None if self.judge is None else self.judge.machine_of(snapshot)
        if made is None:
            self.machine.restore(state.machine)
        else:
            self.machine = made
        self.applied, self.covered = position.raft_index, position.next_offset
        self._installs += 1
        self._due.clear()
        self._reading = False
        self._failures = 0
        self._compared = None
        self._on_disk = position.raft_index
        self._again_at = NEVER
        return state.producers

    @property
    def deadline(self) -> Instant:
        """When `advance` must be called at the latest."""
        return self._again_at if self.differs is None else NEVER

    # --- feeding ---

    def is_level(self, commit: RaftIndex) -> bool:
        """Whether the machine has applied everything up to this commit and has not stopped."""
        return self.differs is None and self.applied >= commit

    def advance(self, commit: RaftIndex, now: Instant) -> None:
        """Apply committed entries that are in memory, and start a read of those that are not."""
        if self._reading or self.differs is not None or now < self._again_at < NEVER:
            return
        slow = self._replaying and buggify("slow-replay")
        left = (1 if slow else MACHINE_REPLAY_BYTES) if self._replaying else _ALL_BYTES
        self._again_at = NEVER
        while self.applied < commit and left > 0:
            first = RaftIndex(self.applied + 1)
            entries = self._log.entries(first, left)
            if entries is None:
                # A machine that was level finds live entries in memory. One that replays does not:
                # the log may have dropped what was committed while it did, which is durable.
                assert self._replaying or first <= self._on_disk, (first, self._on_disk, commit)
                self._replaying = True
                self._read(first, commit)
                return
            left -= self._apply(entries, commit)
        self._take_snapshots()
        if self.applied < commit:
            self._again_at = Instant(now + millis(_SLOW_REPLAY_MS)) if slow else now
        elif self._replaying:
            probe("machine-is-level")
            self._replaying = False

    def _apply(self, entries: Sequence[Entry], until: RaftIndex) -> int:
        """Apply the entries up to the index `until`; returns their size in bytes.

        When an entry cannot be applied, it returns more bytes than any turn has left, so that the
        caller ends its loop.
        """
        size = 0
        for entry in entries:
            if entry.raft_index > until:
                break
            assert entry.raft_index == self.applied + 1, (entry.raft_index, self.applied)
            self._take_snapshots()
            try:
                self._apply_one(entry)
            except (CorruptData, FutureFormat) as error:
                self._stop(f"entry {entry.raft_index}: {error}")
                return _ALL_BYTES
            self.applied = entry.raft_index
            size += len(entry.batch)
        return size

    def _apply_one(self, entry: Entry) -> None:
        if entry.kind is EntryKind.RECORDS:
            self.machine.apply(entry.batch, entry.base_offset, entry.raft_index)
            self._last_records = entry.raft_index
        elif entry.kind is EntryKind.MARKER:
            self._compare(entry)

    def _stop(self, why: str) -> None:
        """Stop the machine for good, because wrong state is worse than old state."""
        probe("machine-stopped")
        self.differs = why
        self._due.clear()
        self._tracer.emit(TraceEvent("machine-stopped", self._where, (("why", why),)))

    # --- reading what is not in memory any more ---

    def _read(self, first: RaftIndex, commit: RaftIndex) -> None:
        probe("machine-reads-the-log")
        self._reading = True
        plan = self._log.plan_entries(first, MACHINE_REPLAY_BYTES)
        self._tasks.start_cold(plan, partial(self._read_done, self._installs, commit))

    def _read_done(self, installs: int, until: RaftIndex, value: object, now: Instant) -> None:
        """Apply the entries that a read brought, up to `until`, the commit when it was started.

        Entries behind that commit do not count. A new leader may have cut them and committed others
        at their place before the read came back.
        """
        if installs != self._installs:
            probe("machine-read-of-a-replaced-log")
            return
        self._reading = False
        self._tasks.note_damage(value, now)
        if isinstance(value, EntriesRead):
            self._failures = 0
            self._log.cold_done(value)
            self._apply(value.entries, until)
            self._take_snapshots()
            self._again_at = now
            return
        probe("machine-read-failed")
        self._failures += 1
        self._again_at = Instant(now + millis(MACHINE_REPLAY_PAUSE_MS))
        if self._failures >= LOG_READ_FAILURES_MAX:
            # A disk may have a bad moment, but an entry that fails every read is lost here.
            error = CorruptData(f"entry {self.applied + 1} cannot be read: {value}")
            self._tasks.found_damage(error, now)

    # --- snapshots ---

    def snapshots_due(self, snapshots: Sequence[Snapshot]) -> None:
        """Plan snapshots where the log began segments; everything before them is committed."""
        for one in snapshots:
            position = self._log.position_before(one.before)
            self._due.append(_Due(one.before, position, one.body))

    def _take_snapshots(self) -> None:
        while self._due and self._due[0].before <= self.applied + 1:
            due = self._due.popleft()
            assert due.before == self.applied + 1, (due.before, self.applied)
            frozen = self.machine.frozen()
            if frozen.size > MACHINE_SNAPSHOT_BYTES_MAX:
                probe("machine-snapshot-too-large")
                fields = (("bytes", frozen.size), ("bytes_max", MACHINE_SNAPSHOT_BYTES_MAX))
                self._tracer.emit(TraceEvent("machine-snapshot-too-large", self._where, fields))
                continue
            self._tasks.write_made_snapshot(
                due.position,
                partial(write_frozen_state, due.producers, frozen),
                partial(self._covers, due.position.next_offset),
            )

    def _covers(self, offset: Offset, value: object, now: Instant) -> None:
        """Note how far a snapshot reaches once its write is durable."""
        # After a failed write, the next segment brings another snapshot.
        if not isinstance(value, BaseException):
            self.covered = max(self.covered, offset)

    # --- digests ---

    def _compare(self, entry: Entry) -> None:
        control = parse_control_entry(entry.batch, CorruptData, self._where)
        told = read_marker(control.body).digest
        if told:
            reader = Reader(told, CorruptData, self._where)
            index, digest = RaftIndex(reader.u64()), bytes(reader.take(reader.remaining()))
            self._named = max(self._named, index)
            ours = self._compared
            if ours is not None and ours.marker == index:
                probe("machine-digest-compared")
                if ours.digest != digest:
                    raise CorruptData(
                        f"at entry {index} the digest of the machine is {ours.digest.hex()}, "
                        f"the leader's {digest.hex()}",
                        on=self._where,
                    )
        self._compared = _Compared(entry.raft_index, self.machine.digest())

    @property
    def comparison_due(self) -> bool:
        """Whether records were applied after the last marker whose digest another marker told.

        A leader then writes another marker at its next check. So each change is compared, with at
        most two markers after the last one, and a group at rest costs nothing.
        """
        return self._last_records > self._named

    def comparison(self) -> bytes:
        """The comparison that the next marker carries: the last marker and this replica's digest
        there; empty when that is not known."""
        if self._compared is None:
            return b""
        return Writer().u64(self._compared.marker).raw(self._compared.digest).bytes()
