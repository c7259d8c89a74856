"""Builds a replica's state at a boot from what recovery found on disk."""

from typing import final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.entries import LogPosition
from raftlog.base.errors import CorruptData
from raftlog.base.ids import GroupId, Offset, RaftIndex
from raftlog.base.ports import Tracer
from raftlog.base.trace import TraceEvent
from raftlog.partition.background_tasks import BackgroundTasks
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
    """The last log position that a damaged replica once held; None when it has no damage.

    The chain at that position is lost with the damaged bytes.
    """
    if recovered.claimed is None:
        return None
    index, term = recovered.claimed
    return LogPosition(index, term, NO_CHAIN)


def naming_damage(tracer: Tracer, recovered: RecoveredReplica) -> Tracer:
    """A tracer for the raft node that adds the damage to its `healed` event.

    The raft node knows entries and no files, so it cannot name the damaged file itself.
    """
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
    """The tracker at the log's end, with producers replayed and log-start markers noted.

    A marker at or below `commit` sets the log start now; a later one waits for its commit. Recovery
    has judged the snapshot. With a machine the snapshot holds producer state and machine state.
    """
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
    """A machine with the state of a partition's snapshot, which recovery has judged.

    It runs as a job, because a large state takes seconds. It needs no disk.
    """
    del disk
    machine = make()
    machine.restore(read_state(group, snapshot).machine)
    return machine


def booted_feed(
    machine: AppliedMachine | None,
    log: PartitionLog,
    tasks: BackgroundTasks,
    tracer: Tracer,
    where: str,
    recovered: RecoveredReplica,
    restored: bool,
) -> MachineFeed | None:
    """The feed of a machine, which begins with the newest snapshot; None without a machine.

    `restored`: a job has restored the machine from that snapshot already. Else it is empty.
    """
    if machine is None:
        return None
    assert recovered.producers is not None, recovered.state
    feed = MachineFeed(machine, log, tasks, tracer, where)
    if isinstance(log.spec.check_state, MachineStates):
        feed.judge = InstallJudge(log.spec.check_state.make, log, tasks)
    feed.booted(recovered.producers, restored=restored)
    return feed


def replay_producers(
    table: ProducerTable, replay: ProducerReplay, group: GroupId, commit: RaftIndex
) -> None:
    """Fill the table from the nearest snapshot and then from batch headers.

    The table can still take back the changes of entries above `commit`.
    """
    if replay.snapshot is not None:
        load_producers(table, replay.snapshot, group=group, before=replay.before, error=CorruptData)
    for item in replay.items:
        if item.control is None:
            table.appended(item.header, Offset(item.header.base_offset), item.raft_index)
        else:
            note_control(table, item.control, item.header.max_timestamp)
        if item.raft_index <= commit:
            table.committed(item.raft_index)
