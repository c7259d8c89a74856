"""Creates, registers, recovers, starts, stops, reopens and deletes the replicas of this broker.

Laws:
1. A replica is created or deleted only for an explicit delta that names its replica id, never
   because of a message and never because an image lacks it. A delta about an older id than the
   one that runs is late and ignored; so is one about the id that runs already.
2. The registration is durable before the replica exists in memory, so before its first vote or
   ack. A replica that is registered but has no files is lost: the broker reports it, and it gets a
   new id. It never starts empty a second time.
3. A replica whose write failed, or whose files proved bad, is closed and comes back only through
   recovery, after a pause that grows while that does not help.

One replica moves through: opening (a job creates or recovers its files), registering (only when
new), running, closing, waiting; or it ends as lost or poisoned.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol, cast, final

import attrs

from raftlog.base.entries import HardState, Membership
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import METADATA_GROUP, GroupId, ReplicaId, Term, TopicId
from raftlog.base.limits import REOPEN_BACKOFF_MS_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos, millis
from raftlog.broker.replicas.directory_moves import DirectoryMoves
from raftlog.broker.replicas.hosts import FOR_GOOD, Host, HostState
from raftlog.broker.replicas.replica_deletions import RemovalWatcher, ReplicaDeletions
from raftlog.broker.replicas.throttles import Throttles
from raftlog.broker.replicas.volume import Volume
from raftlog.broker.topic_settings import log_options, partition_config, topic_values
from raftlog.broker.turn import Turn
from raftlog.metadata.broker_image import Removal
from raftlog.metadata.delta import ClusterDelta, Retarget, StartReplica
from raftlog.partition.boot import restored_machine
from raftlog.partition.config import PartitionConfig
from raftlog.partition.machine.applied import AppliedMachine, MachineFactory, MachineStates
from raftlog.partition.maintenance.clocks import PeerClocks
from raftlog.partition.producing.producer_snapshot import check_producers
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.options import RaftOptions
from raftlog.storage.boot.recovery import (
    RecoveredReplica,
    ReplicaState,
    create_replica,
    recover_replica,
    salvage_replica,
)
from raftlog.storage.directories.log_directories import DirectoryFailed, directory_of
from raftlog.storage.ops import CloseGroup
from raftlog.storage.replica import LogOptions, Registration, ReplicaSpec, replica_path

METADATA_TOPIC_ID: Final = TopicId(bytes(16))
"""Names group 0's directory; no topic has this id."""
_BACKOFF_MS_MIN: Final = 100
_SALVAGE_AFTER: Final = 3
"""Failed attempts to open before unreadable data counts as damage: disks have bad moments."""
_STEADY_NS: Final = millis(60_000)
"""A replica that ran this long since it was opened counts as recovered."""
_HOLD_BACK_ELECTIONS: Final = 2
"""How many election times a new replica that is not the first choice for leader waits longer."""


class ReplicaReports(RemovalWatcher, Protocol):
    """Passes on to the controller which replicas are removed or lost."""

    def report_lost(self, group: GroupId, replica: ReplicaId) -> None: ...


@final
@attrs.define(eq=False)
class PartitionManager:
    """All hosts of one data directory. `dropped` hears of every group that stops running."""

    turn: Turn
    volume: Volume
    raft: RaftOptions
    reports: ReplicaReports
    dropped: Callable[[GroupId], None]
    clocks: PeerClocks
    machine_for: Callable[[str], MachineFactory | None]
    throttles: Throttles
    hosts: dict[GroupId, Host] = attrs.Factory(dict)
    deletions: ReplicaDeletions = attrs.field(init=False)
    moves: DirectoryMoves = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.deletions = ReplicaDeletions(self.turn, self.volume, self.reports)
        self.moves = DirectoryMoves(
            self.turn, self.volume, self.throttles.copies, self.hosts, self._stop, self._open
        )

    # --- what the metadata wants ---

    def apply(self, delta: ClusterDelta) -> None:
        """Start, configure and delete what a delta names."""
        for start in delta.start:
            self.start(start)
        for topic_id in delta.configured:
            self._configure(topic_id)
        for removal in delta.delete:
            self.delete(removal)
        for start in delta.start:  # a deleted younger one stood in its way
            if start.group not in self.hosts:
                self.volume.when_durable(partial(self._start_again, start))
        for retarget in delta.retarget:
            self._look_for_lost(retarget)

    def start(self, wanted: StartReplica) -> None:
        """Run this replica of a topic."""
        topic = self.turn.image.topics.get(wanted.topic_id)
        if topic is None:
            return
        values = topic_values(topic.configs, self.turn.defaults)
        self._host(
            wanted.group,
            wanted.replica,
            topic_id=wanted.topic_id,
            partition=wanted.partition,
            label=f"{topic.name}-{wanted.partition}",
            founding=wanted.founding,
            preferred=wanted.preferred,
            config=partition_config(values, self.turn.config, internal=topic.internal),
            options=log_options(values, self.turn.config),
            # A topic of a user may have had such a name before this release: it has no machine.
            make_machine=self.machine_for(topic.name) if topic.internal else None,
        )

    def _start_again(self, wanted: StartReplica) -> None:
        """Start the replica, unless it left: then it has no registration, and would start empty."""
        topic = self.turn.image.topics.get(wanted.topic_id)
        if topic is not None and wanted.replica in topic.partitions[wanted.partition].replicas:
            self.start(wanted)

    def start_metadata(self, replica: ReplicaId, founders: tuple[ReplicaId, ...]) -> None:
        """Run this replica of the metadata group, a founder's or a granted one. The first founder
        is the first choice for leader: all brokers of a new cluster wait for that election."""
        first = bool(founders) and replica == min(founders)
        self._host(
            METADATA_GROUP,
            replica,
            topic_id=METADATA_TOPIC_ID,
            partition=0,
            label="__cluster_metadata-0",
            founding=Membership(tuple(sorted(founders))),
            preferred=first and self.turn.config.eager_founder,
            config=PartitionConfig(replica_lag_ns=self.turn.config.replica_lag_ns),
            options=LogOptions(segment_bytes=self.turn.config.metadata_segment_bytes),
        )

    def _host(
        self,
        group: GroupId,
        replica: ReplicaId,
        *,
        topic_id: TopicId,
        partition: int,
        label: str,
        founding: Membership,
        preferred: bool,
        config: PartitionConfig,
        options: LogOptions,
        make_machine: MachineFactory | None = None,
    ) -> None:
        here = (self.turn.node, self.volume.directory)
        assert (replica.node, replica.directory) == here, (replica, here)
        if self._is_late(group, replica):
            probe("late-start-ignored")
            return
        old = self.hosts.get(group)
        host = Host(
            ReplicaSpec(
                cluster=self.turn.cluster,
                group=group,
                replica=replica,
                path=self._path_of(group, replica, topic_id, partition),
                check_state=check_producers
                if make_machine is None
                else MachineStates(make_machine),
                serves_gaps=make_machine is None and group != METADATA_GROUP,
            ),
            label,
            founding,
            preferred,
            topic_id,
            config,
            options,
            make_machine,
        )
        self.hosts[group] = host
        if old is None or old.replica is None:
            self._open(host)
            return
        probe("replica-superseded")
        self._stop(old)
        self._close_files(host, self._open)

    def _path_of(self, group: GroupId, replica: ReplicaId, topic: TopicId, number: int) -> str:
        plain, known = replica_path(topic, number, replica.epoch), self.volume.store.registrations
        return self.turn.log_directories.path_of(group, replica, plain, known)

    def _look_for_lost(self, retarget: Retarget) -> None:
        """Report a lost replica again if the image wants it: the first report had no effect."""
        group = retarget.group
        for replica in retarget.target:
            if (replica.node, replica.directory) != (self.turn.node, self.volume.directory):
                continue
            host = self.hosts.get(group)
            if host is not None and host.spec.replica == replica:
                gone = host.state is HostState.LOST
            else:
                gone = self._is_late(group, replica)
            if gone:
                probe("lost-replica-wanted-again")
                self.reports.report_lost(group, replica)

    def _is_late(self, group: GroupId, replica: ReplicaId) -> bool:
        """Whether this id, or a younger one of the group, is known here already."""
        host = self.hosts.get(group)
        if host is not None:
            return host.spec.replica.epoch >= replica.epoch
        known = self.volume.store.registrations.get(group)
        return known is not None and known.replica.epoch > replica.epoch

    def _configure(self, topic_id: TopicId) -> None:
        topic = self.turn.image.topics.get(topic_id)
        if topic is None:
            return
        values = topic_values(topic.configs, self.turn.defaults)
        config = partition_config(values, self.turn.config, internal=topic.internal)
        for partition in topic.partitions:
            host = self.hosts.get(partition.group)
            if host is None or host.config == config:
                continue
            host.config, host.options = config, log_options(values, self.turn.config)
            if host.replica is not None:
                host.replica.configure(config, self.turn.now)
                self.turn.touch(partition.group)

    def delete(self, removal: Removal) -> None:
        """Stop and delete exactly that replica id, whether it is known here or not."""
        group, replica = removal.group, removal.replica
        host = self.hosts.get(group)
        if host is not None and host.spec.replica == replica:
            self._stop(host)
            del self.hosts[group]
            self.turn.log_directories.forget(group)
            host = None
        self.deletions.begin(removal, close=host is None)

    # --- opening ---

    def _open(self, host: Host) -> None:
        """Create or recover the files, off the loop."""
        if self.volume.poisoned is not None:
            host.state, host.why = HostState.POISONED, str(self.volume.poisoned)
            return
        if (failed := self.turn.log_directories.error_of(host.spec.path)) is not None:
            self._take_offline(host, failed)
            return
        host.state = HostState.OPENING
        registered = self.volume.store.registrations.get(host.spec.group)
        known = registered is not None and registered.replica == host.spec.replica
        done = partial(self._opened, host, not known)
        if known:
            mark = self.volume.store.marks.get(host.spec.group)
            recover = salvage_replica if host.attempts >= _SALVAGE_AFTER else recover_replica
            self._job(recover, (host.spec, mark, host.options), done)
        else:
            self._job(create_replica, (host.spec, host.founding, host.options), done)

    def _job(self, function: Callable[..., Any], args: tuple[Any, ...], then: Any) -> None:
        self.turn.job(self.volume.directory, function, args, then)

    def _opened(self, host: Host, new: bool, value: object) -> None:
        if not self._is_present(host):
            return
        if isinstance(value, RaftlogError):
            self._wait(host, value)
            return
        assert isinstance(value, RecoveredReplica), value
        for each in value.mended:
            self.turn.trace(each.what, host.label, file=each.file, why=each.why)
        if value.state is ReplicaState.DAMAGED:
            self.turn.trace("replica-damaged", host.label, why=value.why)
        elif value.why and value.state is ReplicaState.INTACT:
            self.turn.trace("replica-for-reading-only", host.label, why=value.why)
        if value.state is ReplicaState.LOST:
            probe("replica-lost")
            host.state, host.why = HostState.LOST, value.why
            self.turn.trace("replica-lost", host.label, why=value.why)
            self.reports.report_lost(host.spec.group, host.spec.replica)
        elif new:
            host.state = HostState.REGISTERING
            registration = Registration(host.spec.replica, host.spec.path)
            self.volume.records += self.volume.store.register(host.spec.group, registration)
            self.volume.when_durable(partial(self._run_new, host, value))
        else:
            self._mark_tail(value)
            self._restore(host, value)

    def _restore(self, host: Host, recovered: RecoveredReplica) -> None:
        """Give a machine the state of the snapshot, off the loop; then run."""
        replay = recovered.producers
        if host.make_machine is None or replay is None or replay.snapshot is None:
            self._run(host, recovered)
            return
        probe("machine-restored-by-a-job")
        args = (host.make_machine, host.spec.group, replay.snapshot)
        self._job(restored_machine, args, partial(self._restored, host, recovered))

    def _restored(self, host: Host, recovered: RecoveredReplica, value: object) -> None:
        if not self._is_present(host):
            return
        if isinstance(value, RaftlogError):
            self._wait(host, value)
        else:
            self._run(host, recovered, cast("AppliedMachine", value))

    def _mark_tail(self, recovered: RecoveredReplica) -> None:
        """Mark the entries that a boot found behind the last mark: they are durable, and may have
        been acknowledged. On an idle log no round would ever mark them."""
        log = recovered.log
        if recovered.state is ReplicaState.INTACT and log is not None:
            self.volume.store.note_mark(log.mark(recovered.commit_hint), self.turn.now)

    def _run_new(self, host: Host, recovered: RecoveredReplica) -> None:
        """Run a replica whose registration is durable. The first choice for leader campaigns soon.
        The others hold back: when hundreds of groups begin at once, that one may be late."""
        self._run(host, recovered)
        if host.replica is None:
            return
        config = self.turn.config
        if host.preferred:
            host.replica.node.hasten(Instant(self.turn.now + config.heartbeat_ns))
        else:
            host.replica.node.defer(Nanos(_HOLD_BACK_ELECTIONS * config.election_ns))

    def _raft_of(self, group: GroupId) -> RaftOptions:
        """The Raft options of a group. Brokers hear at once what the metadata group has committed,
        because they act on it. No client reads it by lease, so its elections need not wait."""
        if group == METADATA_GROUP:
            none = Nanos(0)
            return attrs.evolve(self.raft, eager_commit=True, lease_ns=none, earlier_lease_ns=none)
        return attrs.evolve(self.raft, throttling=self.throttles.of(group))

    def _run(
        self, host: Host, recovered: RecoveredReplica, restored: AppliedMachine | None = None
    ) -> None:
        """Run the replica, with the machine that was `restored` from its snapshot; when there is
        none, with an empty machine."""
        if not self._is_present(host):
            return
        machine = restored
        if machine is None and host.make_machine is not None:
            machine = host.make_machine()
        turn, group = self.turn, host.spec.group
        replica = PartitionReplica(
            group=group,
            me=host.spec.replica,
            where=f"{host.label}@n{turn.node}",
            config=host.config,
            recovered=recovered,
            store=self.volume.store,
            hard_state=self.volume.store.hard_states.get(group, HardState(Term(0), None)),
            commit_hint=recovered.commit_hint,
            raft=self._raft_of(group),
            entropy=turn.entropy.fork(f"group {group}"),
            tracer=turn.tracer,
            clocks=self.clocks,
            machine=machine,
            restored=restored is not None,
            now=turn.now,
        )
        host.state, host.replica, host.why = HostState.RUNNING, replica, ""
        host.opened_at = turn.now
        turn.replicas[group] = replica
        turn.routes += 1
        replica.fence(self._fenced(), turn.now)
        for node in turn.sessions:
            replica.link_up(node, turn.now)
        turn.touch(group)
        turn.count("replicas_opened")

    def _fenced(self) -> list[Any]:
        return [node for node, each in sorted(self.turn.image.brokers.items()) if each.fenced]

    def fence(self) -> None:
        """Tell every replica which brokers are fenced now."""
        fenced = self._fenced()
        for group, replica in self.turn.replicas.items():
            replica.fence(fenced, self.turn.now)
            self.turn.touch(group)

    def _is_present(self, host: Host) -> bool:
        """Whether the host is still wanted: not deleted, superseded, refused or poisoned."""
        return self.hosts.get(host.spec.group) is host and host.state not in FOR_GOOD

    # --- failures ---

    def failed(self, group: GroupId, replica: PartitionReplica, error: RaftlogError) -> None:
        """Close a replica after a failed write or read, and reopen it through recovery."""
        host = self.hosts.get(group)
        if host is None or host.replica is not replica:
            return
        probe("replica-reopened-after-failure")
        self.turn.trace("replica-failed", host.label, why=str(error))
        if self.turn.now - host.opened_at > _STEADY_NS:
            host.attempts = 0
        replica.io_failed(self.turn.now)
        self._leave(host, replica)
        host.state, host.why = HostState.CLOSING, str(error)
        self._close_files(host, partial(self._wait, error=error))

    def differs(self, group: GroupId, replica: PartitionReplica, why: str) -> None:
        """Stop a replica whose machine differs from its leader's. It takes part in nothing until
        the next boot; other replicas go on."""
        host = self.hosts.get(group)
        if host is None or host.replica is not replica:
            return
        probe("replica-with-another-state-stopped")
        self.turn.trace("replica-state-differs", host.label, why=why)
        self.turn.count("replicas_that_differ")
        self._stop(host)
        host.state, host.why = HostState.REFUSED, why

    def poisoned(self, error: RaftlogError) -> None:
        """Stop all replicas after a failed sync: this directory promises nothing until a boot."""
        probe("data-directory-poisoned")
        self.turn.trace("directory-poisoned", f"node {self.turn.config.node}", why=str(error))
        for host in list(self.hosts.values()):
            self._poison(host, error)

    def _poison(self, host: Host, error: RaftlogError) -> None:
        if host.replica is not None:
            host.replica.io_failed(self.turn.now)
            self._leave(host, host.replica)
        host.state, host.why = HostState.POISONED, str(error)

    def directory_failed(self, error: DirectoryFailed) -> None:
        """Take the replicas of a failed further directory offline until the next boot."""
        if not self.turn.log_directories.fail(error.directory, error):
            return
        probe("replicas-of-a-failed-directory-go-offline")
        self.turn.trace("log-directory-failed", error.directory, why=str(error))
        self.turn.count("log_directories_failed")
        for host in list(self.hosts.values()):
            if directory_of(host.spec.path) == error.directory and host.state not in FOR_GOOD:
                self._take_offline(host, error)

    def _take_offline(self, host: Host, error: RaftlogError) -> None:
        self._poison(host, error)
        self.turn.log_directories.offline[host.spec.group] = None

    def refused(self, why: str) -> None:
        """Stop all replicas, group 0 included: the cluster goes on without this directory."""
        probe("directory-takes-part-in-nothing")
        for host in list(self.hosts.values()):
            self._stop(host)
            host.state, host.why = HostState.REFUSED, why

    def _wait(self, host: Host, error: RaftlogError) -> None:
        """Reopen later: after 100 ms, then twice that, up to the bound."""
        if not self._is_present(host):
            return
        host.state, host.why = HostState.WAITING, str(error)
        pause = min(_BACKOFF_MS_MIN << min(host.attempts, 16), REOPEN_BACKOFF_MS_MAX)
        host.attempts += 1
        self.turn.at(Instant(self.turn.now + millis(pause)), self._reopen, host)

    def _reopen(self, host: Host) -> None:
        if self._is_present(host) and host.state is HostState.WAITING:
            self._open(host)

    def _stop(self, host: Host) -> None:
        """End the replica in memory; its waiting clients are answered in this turn."""
        if host.replica is not None:
            host.replica.stop(self.turn.now)
            self._leave(host, host.replica)

    def _leave(self, host: Host, replica: PartitionReplica) -> None:
        """Remove the replica from all tables; only the end of this turn still takes its output."""
        group = host.spec.group
        host.replica = None
        self.turn.replicas.pop(group, None)
        self.turn.routes += 1
        self.turn.touched[group] = replica
        self.dropped(group)

    def _close_files(self, host: Host, then: Callable[[Host], None]) -> None:
        """Have the writer forget the group's files, then go on, if the host is still wanted."""
        self.volume.ops.append(CloseGroup(host.spec.group))
        self.volume.when_durable(partial(self._closed, host, then))

    def _closed(self, host: Host, then: Callable[[Host], None]) -> None:
        if self._is_present(host):
            then(host)
