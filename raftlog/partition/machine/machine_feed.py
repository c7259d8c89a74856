"""Feeds the machine of one replica: live, after a boot, after an install.

Theory of operation:
1. Live. `advance` is called in every take, with the commit. The entries that it moved over are
   still in memory (the log sheds what `set_commit` was told, and that was applied in the same
   take), so the machine is never behind the commit when the turn ends.
2. Boot. The machine begins with the newest snapshot of this log and is behind the commit. `advance`
   feeds it a bounded number of bytes a turn, from memory or by jobs that read the files, until it
   is level. Entries that the boot found on the disk (`_on_disk`) may be committed much later; then
   they are read in the same way. A leader commits an entry of its own term, which lies behind
   them, before its machine is served from: from then on everything is live.
3. Install. The state that came with it takes the place of the machine: a job has made a machine of
   it (`install_judge`).

Snapshots. The log begins a segment: the state before that entry is to be stored. Both parts are
taken at exactly that place: the producer state when the entry was appended, the machine's between
two entries, once everything before is committed. `covered` is the offset up to which a snapshot of
this replica is durable. The leader proposes a log start there; and each replica removes only what
a snapshot of its own covers (`storage.jobs.remove_segments` reads it whole first).

Digests. A marker names the marker before it, and the leader's digest there. A replica keeps its own
digest at the last marker that it applied. When a marker speaks of that one and the digests
differ, the state of this replica is wrong, or the leader's is: the replica stops.
"""

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, final

from raftlog.base.binary import Buffer, Reader, Writer
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
from raftlog.partition.errands import Errands
from raftlog.partition.machine.applied import AppliedMachine, read_state, write_frozen_state
from raftlog.partition.tracker import Snapshot
from raftlog.records.control import parse_control_entry, read_marker
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.segments.cold import EntriesRead, ProducerReplay

if TYPE_CHECKING:
    from raftlog.partition.machine.install_judge import InstallJudge

_ALL_BYTES: Final = 2**62
_NO_INDEX: Final = RaftIndex(0)


class _Due(NamedTuple):
    """A snapshot that is to be taken when everything before `before` is applied."""

    before: RaftIndex
    position: InstallPosition
    producers: bytes


class _Compared(NamedTuple):
    """This replica's digest when it had applied that marker."""

    marker: RaftIndex
    digest: bytes


@final
class MachineFeed:
    """See the module.

    * `applied`: the last entry applied; at a boot it may be above the commit that is known.
    * `covered`: records below this offset are in a durable snapshot of this replica.
    * `differs`: why the machine can go on no more; None while it can.
    """

    __slots__ = (
        "_again_at",
        "_compared",
        "_due",
        "_errands",
        "_failures",
        "_installs",
        "_last_records",
        "_log",
        "_named",
        "_on_disk",
        "_reading",
        "_replaying",
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
        errands: Errands,
        tracer: Tracer,
        where: str,
    ) -> None:
        """`machine` is empty; `booted` follows."""
        self.machine = machine
        self._log = log
        self._errands = errands
        self._tracer = tracer
        self._where = where
        self.applied = RaftIndex(0)
        self.covered = Offset(0)
        self._again_at = NEVER
        self.differs: str | None = None
        self.judge: InstallJudge | None = None
        """Makes the machine of an install in a job; without it the loop restores the state."""
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
        """Begin with the snapshot that recovery found and judged, which the machine has already
        when it was `restored`; without one, the log begins with its first entry, and so does the
        machine."""
        if replay.snapshot is not None and not restored:
            self.machine.restore(read_state(self._log.spec.group, replay.snapshot).machine)
        if replay.snapshot is not None:
            # Its name may not be durable yet: a removal makes sure of that before it counts on it.
            self.covered = replay.covered
        self.applied = RaftIndex(replay.before - 1)

    def installed(self, position: InstallPosition, snapshot: Buffer) -> Buffer:
        """The log was replaced by what lies after `position`. The state before that is this
        snapshot: the log has judged it, and its file is durable before anything that comes after.
        Returns the producer state in it."""
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
        """When `advance` wants to be called at the latest."""
        return self._again_at if self.differs is None else NEVER

    # --- feeding ---

    def is_level(self, commit: RaftIndex) -> bool:
        """Whether everything up to this commit is applied, as it should be."""
        return self.differs is None and self.applied >= commit

    def advance(self, commit: RaftIndex, now: Instant) -> None:
        """Apply what is committed and at hand."""
        if self._reading or self.differs is not None or (self._failures and now < self._again_at):
            return
        left = MACHINE_REPLAY_BYTES if self._replaying else _ALL_BYTES
        self._again_at = NEVER
        while self.applied < commit and left > 0:
            first = RaftIndex(self.applied + 1)
            entries = self._log.entries(first, left)
            if entries is None:
                # Nothing live is ever read from a file: see the theory of operation.
                assert first <= self._on_disk, (first, self._on_disk, commit)
                self._replaying = True
                self._read(first, commit)
                return
            left -= self._apply(entries, commit)
        self._take_snapshots()
        if self.applied < commit:
            self._again_at = now
        elif self._replaying:
            probe("machine-is-level")
            self._replaying = False

    def _apply(self, entries: Sequence[Entry], until: RaftIndex) -> int:
        """Apply those up to the index `until`; returns how many bytes that were, and for one that
        cannot be applied, more than anybody has left."""
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
        """Go no further: wrong state is worse than old state."""
        probe("machine-stopped")
        self.differs = why
        self._due.clear()
        self._tracer.emit(TraceEvent("machine-stopped", self._where, (("why", why),)))

    # --- reading what is not in memory any more ---

    def _read(self, first: RaftIndex, commit: RaftIndex) -> None:
        probe("machine-reads-the-log")
        self._reading = True
        plan = self._log.plan_entries(first, MACHINE_REPLAY_BYTES)
        self._errands.start_cold(plan, partial(self._read_done, self._installs, commit))

    def _read_done(self, installs: int, until: RaftIndex, value: object, now: Instant) -> None:
        """Only what was committed when the read was asked for counts: what lay behind may have been
        cut, and another entry been committed there, before it came back."""
        if installs != self._installs:
            probe("machine-read-of-a-replaced-log")
            return
        self._reading = False
        self._errands.note_damage(value, now)
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
            # A disk has bad moments, but what cannot be read again and again is lost here.
            error = CorruptData(f"entry {self.applied + 1} cannot be read: {value}")
            self._errands.found_damage(error, now)

    # --- snapshots ---

    def snapshots_due(self, snapshots: Sequence[Snapshot]) -> None:
        """The log began segments there, and all before them is committed."""
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
            self._errands.write_made_snapshot(
                due.position,
                partial(write_frozen_state, due.producers, frozen),
                partial(self._covers, due.position.next_offset),
            )

    def _covers(self, offset: Offset, value: object, now: Instant) -> None:
        """A snapshot was written, durably, or not: then the next segment brings another one."""
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
        """Whether records were applied behind the last marker whose digest was told: then a leader
        writes another marker now and then. So each change is compared, with two markers at the
        most after the last one, and a group at rest costs nothing."""
        return self._last_records > self._named

    def comparison(self) -> bytes:
        """What the next marker says: the digest here at the last one; empty when that is not
        known."""
        if self._compared is None:
            return b""
        return Writer().u64(self._compared.marker).raw(self._compared.digest).bytes()
