"""A replica's state from what recovery found on disk."""

from typing import final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.entries import LogPosition
from raftlog.base.errors import CorruptData
from raftlog.base.ids import GroupId, Offset, RaftIndex
from raftlog.base.ports import Tracer
from raftlog.base.trace import TraceEvent
from raftlog.partition.errands import Errands
from raftlog.partition.machine.applied import (
    AppliedMachine,
    MachineFactory,
    MachineStates,
    read_state,
)
from raftlog.partition.machine.install_judge import InstallJudge
from raftlog.partition.machine.machine_feed import MachineFeed
from raftlog.partition.producing.producer_snapshot import load_producers
from raftlog.partition.producing.producers import ProducerTable
from raftlog.partition.tracker import LogTracker, note_control
from raftlog.raft.following import HEALED
from raftlog.raft.messages import NO_CHAIN
from raftlog.storage.boot.recovery import RecoveredReplica
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.segments.cold import ProducerReplay


def claimed_position(recovered: RecoveredReplica) -> LogPosition | None:
    """What a damaged replica once held; its chain there is not known any more."""
    if recovered.claimed is None:
        return None
    index, term = recovered.claimed
    return LogPosition(index, term, NO_CHAIN)


def naming_damage(tracer: Tracer, recovered: RecoveredReplica) -> Tracer:
    """The tracer for raft, which knows entries and no files: `healed` says what was damaged."""
    return _NamingDamage(tracer, recovered.why) if recovered.claimed is not None else tracer


@final
@attrs.frozen
class _NamingDamage:
    _tracer: Tracer
    _why: str

    def emit(self, event: TraceEvent) -> None:
        if event.name == HEALED:
            event = event._replace(fields=(*event.fields, ("damage", self._why)))
        self._tracer.emit(event)


def booted_tracker(
    group: GroupId,
    log: PartitionLog,
    recovered: RecoveredReplica,
    commit: RaftIndex,
    *,
    machine: bool,
) -> LogTracker:
    """The tracker at the log's end: producers replayed, log-start markers noted. Markers that are
    committed already set the log start; the later ones wait. Recovery has judged the snapshot,
    which of a replica with a machine is the state of both."""
    tracker = LogTracker(group, log, commit)
    assert recovered.producers is not None, recovered.state
    replay = recovered.producers
    if machine and replay.snapshot is not None:
        replay = replay._replace(snapshot=bytes(read_state(group, replay.snapshot).producers))
    replay_producers(tracker.producers, replay, group, commit)
    for index, offset in recovered.log_starts:
        if index <= commit:
            log.set_log_start(offset, index)
        else:
            tracker.note_log_start(index, offset)
    return tracker


def restored_machine(
    disk: object, make: MachineFactory, group: GroupId, snapshot: Buffer
) -> AppliedMachine:
    """Job, for it takes seconds of a large state and needs no disk: a machine with the state of a
    partition's snapshot, which recovery has judged."""
    del disk
    machine = make()
    machine.restore(read_state(group, snapshot).machine)
    return machine


def booted_feed(
    machine: AppliedMachine | None,
    log: PartitionLog,
    errands: Errands,
    tracer: Tracer,
    where: str,
    recovered: RecoveredReplica,
    restored: bool,
) -> MachineFeed | None:
    """The feed of a machine with the newest snapshot, of one that is empty unless it was `restored`
    from that; None without a machine."""
    if machine is None:
        return None
    assert recovered.producers is not None, recovered.state
    feed = MachineFeed(machine, log, errands, tracer, where)
    if isinstance(log.spec.check_state, MachineStates):
        feed.judge = InstallJudge(log.spec.check_state.make, log, errands)
    feed.booted(recovered.producers, restored=restored)
    return feed


def replay_producers(
    table: ProducerTable, replay: ProducerReplay, group: GroupId, commit: RaftIndex
) -> None:
    """Nearest snapshot, then headers; what is above commit can still be taken back."""
    if replay.snapshot is not None:
        load_producers(table, replay.snapshot, group=group, before=replay.before, error=CorruptData)
    for item in replay.items:
        if item.control is None:
            table.appended(item.header, Offset(item.header.base_offset), item.raft_index)
        else:
            note_control(table, item.control, item.header.max_timestamp)
        if item.raft_index <= commit:
            table.committed(item.raft_index)
