"""One replica of one partition: raft node, log, producers, waiters; driven by the broker.

Rules:
1. Nothing here touches a file, socket or clock. Events change memory; `take` says what to do.
2. Only committed records are readable, and only from a leader that committed in its own term. Until
   then the leader parks produces and publishes nothing.
3. Every waiting request gets exactly one answer: success by a commit, REQUEST_TIMED_OUT by time,
   NOT_LEADER_OR_FOLLOWER by the loss of leadership, NOT_ENOUGH_REPLICAS_AFTER_APPEND by a shrunken
   in-sync set, KAFKA_STORAGE_ERROR by a failed disk.
4. A follower's log takes no batch that fails its CRC. Stored bytes that differ from those written
   end this replica's leadership, and the broker recovers it.

Theory of operation: the broker calls events and data-path methods in the order of the turn, then
`take` once. `take` follows the node's role, appends parked produces, drains the node, and acts on
newly committed entries. The broker calls the completions after all replicas were taken.
"""

from collections.abc import Hashable, Sequence
from typing import Final, final

from raftlog.base.binary import Buffer
from raftlog.base.entries import EntryKind, HardState, Membership
from raftlog.base.errors import CorruptData
from raftlog.base.ids import (
    DirectoryId,
    GroupId,
    IoId,
    NodeId,
    Offset,
    RaftIndex,
    ReplicaId,
    Term,
)
from raftlog.base.ports import Entropy, Tracer
from raftlog.base.units import Instant, WallMillis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.background_tasks import BackgroundTasks
from raftlog.partition.boot import booted_feed, booted_tracker, claimed_position, naming_damage
from raftlog.partition.config import PartitionConfig
from raftlog.partition.content import heard
from raftlog.partition.fetch_plan import FetchView, Part, epoch_error, view_of
from raftlog.partition.machine.applied import AppliedMachine
from raftlog.partition.machine.machine_feed import MachineFeed
from raftlog.partition.maintenance.clocks import UNKNOWN_CLOCKS, PeerClocks
from raftlog.partition.maintenance.upkeep import Upkeep
from raftlog.partition.output import DeleteAnswer, HardStateStore, ReadAnswer, ReplicaOutput
from raftlog.partition.producing.appending import stamped
from raftlog.partition.producing.produce_path import ProducePath
from raftlog.partition.producing.producers import ProducerTable
from raftlog.partition.serving import Serving
from raftlog.partition.waiters import FetchWaiters, Then
from raftlog.raft.messages import RaftMessage
from raftlog.raft.node import RaftNode, Role
from raftlog.raft.options import RaftOptions
from raftlog.raft.output import Output
from raftlog.records.batch import read_header
from raftlog.storage.boot.recovery import RecoveredReplica
from raftlog.storage.segments.cold import ColdRead

_NO_WALL: Final = WallMillis(-1)


@final
class PartitionReplica:
    """One replica (see the module). A handler reaches all of it through methods and properties."""

    __slots__ = (
        "_commit_seen", "_feed", "_membership_seen", "_refusals", "_serving", "_store",
        "_tasks", "_tracker", "_upkeep", "config", "group", "log", "me", "node", "where",
    )  # fmt: skip

    def __init__(
        self,
        *,
        group: GroupId,
        me: ReplicaId,
        where: str,
        config: PartitionConfig,
        recovered: RecoveredReplica,
        store: HardStateStore,
        hard_state: HardState,
        commit_hint: RaftIndex,
        raft: RaftOptions,
        entropy: Entropy,
        tracer: Tracer,
        now: Instant,
        clocks: PeerClocks = UNKNOWN_CLOCKS,
        machine: AppliedMachine | None = None,
        restored: bool = False,
    ) -> None:
        """Make the replica from what recovery found, which must have a log (not LOST).

        The log's spec checks with `check_producers`, or with `check_state` when there is a machine.
        The machine is empty, or `restored` from the judged snapshot."""
        log = recovered.log
        assert log is not None, recovered.state
        self.group = group
        self.me = me
        self.where = where
        self.config = config
        self.log = log
        self.node = RaftNode(
            group=group,
            me=me,
            log=log,
            hard_state=hard_state,
            memberships=recovered.memberships,
            commit_hint=commit_hint,
            damaged=claimed_position(recovered),
            options=raft,
            entropy=entropy,
            tracer=naming_damage(tracer, recovered),
            now=now,
        )
        self._tasks = BackgroundTasks(log, self.node, tracer, where)
        self._feed = booted_feed(machine, log, self._tasks, tracer, where, recovered, restored)
        self._tracker = booted_tracker(
            group, log, recovered, self.node.commit, machine=machine is not None
        )
        self._serving = Serving(
            node=self.node,
            log=log,
            tracker=self._tracker,
            feed=self._feed,
            clocks=clocks,
            config=config,
        )
        self._tasks.remove_files(recovered.obsolete)
        self._store = store
        self._refusals: list[RaftMessage] = []
        self._membership_seen = self.node.membership_index
        self._commit_seen = self.node.commit
        self._upkeep = Upkeep(log, config, self._feed)

    # --- what it is -------------------------------------------------------------------------------

    @property
    def directory(self) -> DirectoryId:
        return self.me.directory

    @property
    def role(self) -> Role:
        return self.node.role

    @property
    def term(self) -> Term:
        return self.node.term

    @property
    def leader(self) -> ReplicaId | None:
        return self.node.leader

    @property
    def is_leader(self) -> bool:
        return self.node.leading

    @property
    def ready(self) -> bool:
        """Whether it takes proposals: it leads, committed in its term, and is not handing over."""
        return self.node.ready

    @property
    def is_campaigning(self) -> bool:
        """Whether it asks for votes, or asks whether it would get them (pre-vote)."""
        return self.node.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)

    def wants_to_campaign(self, now: Instant) -> bool:
        """Whether `tick` would begin a campaign now."""
        return self.node.wants_to_campaign(now)

    @property
    def needs_peers(self) -> bool:
        """Whether it leads and cannot commit alone, because other replicas vote too."""
        return self.node.leading and not self.node.membership.decides_alone

    @property
    def transferring(self) -> ReplicaId | None:
        return self.node.transferring

    @property
    def commit(self) -> RaftIndex:
        return self.node.commit

    @property
    def publishing(self) -> bool:
        """Whether its high watermark is the partition's: it leads and committed in its own term."""
        return self._serving.publishing

    @property
    def machine(self) -> AppliedMachine | None:
        """The state machine of an internal topic's partition, for reading; else None."""
        return None if self._feed is None else self._feed.machine

    @property
    def applied_index(self) -> RaftIndex:
        """The last entry that the machine has applied; 0 without a machine.

        At the end of a turn it is the commit, unless the machine still replays after a boot."""
        return RaftIndex(0) if self._feed is None else self._feed.applied

    @property
    def serves_machine(self) -> bool:
        """Whether a coordinator may use the machine: this replica leads, committed in its own term,
        and its machine has applied every committed entry. True until the leadership is lost."""
        return self._serving.serves_machine

    @property
    def high_watermark(self) -> Offset:
        """The published high watermark, which never goes back."""
        return self._serving.mark.published

    @property
    def log_start(self) -> Offset:
        return self.log.log_start

    @property
    def membership(self) -> Membership:
        return self.node.membership

    @property
    def membership_index(self) -> RaftIndex:
        return self.node.membership_index

    @property
    def in_sync(self) -> tuple[ReplicaId, ...]:
        """The in-sync set, sorted; empty unless this replica leads."""
        return self._serving.in_sync.members

    @property
    def fetches(self) -> FetchWaiters:
        """The waiting fetches of this partition: `FetchWaiter.join(replica.fetches, offset)`."""
        return self._serving.fetches

    @property
    def uncommitted_bytes(self) -> int:
        """Produced bytes that are parked, or appended by this leader and not committed."""
        produces = self._serving.produces
        return produces.uncommitted_bytes + produces.parked_bytes

    @property
    def producers(self) -> ProducerTable:
        """The table of idempotent producers, on a follower too; for reading only."""
        return self._tracker.producers

    @property
    def waiting(self) -> int:
        """Requests that will be answered later, of all kinds."""
        return self._serving.waiting

    @property
    def awaits_in_sync(self) -> bool:
        """Whether a committed produce with acks=all waits for more in-sync replicas to hold it."""
        produces = self._serving.produces
        return produces.held_back and produces.waiting > 0

    @property
    def failed(self) -> bool:
        """Whether a write failed: it decides nothing, and the broker recovers it as a new one."""
        return self._serving.failed

    @property
    def stopped(self) -> bool:
        return self.node.role is Role.STOPPED

    # --- what happens -----------------------------------------------------------------------------

    def receive(self, messages: Sequence[RaftMessage], now: Instant) -> None:
        """Hear messages from peers, in order; the batches of appends are checked first."""
        self._refusals += heard(self.node, self._feed, messages, now)
        self._tracker.look()

    def tick(self, now: Instant, wall_ms: WallMillis) -> None:
        """Let time pass: the deadline of the last output has come (earlier or later is fine)."""
        self.node.wall_ms = wall_ms
        self.node.tick(now)
        self._serving.produces.expire(now)
        self._serving.duties.tick(now, wall_ms)
        self._tracker.look()
        self._upkeep.tick(now)

    def written(self, io_id: IoId) -> None:
        """Note that a write round can be read from the files."""
        self.log.written(io_id)
        self.node.written(io_id)

    def persisted(self, io_id: IoId, now: Instant) -> None:
        """Note that a write round is durable, and counts."""
        self.log.persisted(io_id)
        self.node.persisted(io_id, now)
        self._tasks.remove_segments(now)

    def io_failed(self, now: Instant) -> None:
        """Note that a write failed; the next take answers the waiting requests with an error."""
        self._serving.failed = True
        self.node.io_failed(now)

    def link_up(self, node: NodeId, now: Instant) -> None:
        """Note that a new link session with the node began."""
        self._serving.in_sync.link_up(node, now)
        self.node.link_up(node, now)

    def link_down(self, node: NodeId, now: Instant) -> None:
        """Note that the link session with the node ended."""
        self._serving.in_sync.link_down(node)
        self.node.link_down(node, now)

    def fence(self, nodes: Sequence[NodeId], now: Instant) -> None:
        """Take the whole set of nodes that group 0 has fenced, whenever it changes."""
        self._serving.fence(nodes, now)

    def cover(self, peer: ReplicaId, now: Instant) -> bool:
        """Let heartbeats of the pair of nodes stand for this group's; False if they may not."""
        return self.node.cover(peer, now)

    def uncover(self, peer: ReplicaId, now: Instant, last_contact: Instant) -> None:
        """End `cover`: the peer was last heard at `last_contact`."""
        self.node.uncover(peer, now, last_contact)
        if self.node.leading:
            self._serving.in_sync.watch(now)

    def configure(self, config: PartitionConfig, now: Instant) -> None:
        """Take changed settings of the topic or the broker."""
        self.config = config
        self.node.wall_ms = _NO_WALL  # the node must compute its cut-off again
        self._upkeep.configure(config)
        self._serving.configure(config, now)

    def transfer(self, to: ReplicaId, now: Instant) -> None:
        """Hand leadership over; LocalMisuse as `RaftNode.transfer`."""
        self.node.transfer(to, now)

    def change_membership(self, target: Membership, now: Instant, wall_ms: WallMillis) -> None:
        """Move the group toward the target; LocalMisuse as `RaftNode.change_membership`."""
        self.node.change_membership(target, now, wall_ms)
        self._tracker.look()

    def job_done(self, token: int, value: object, now: Instant) -> None:
        """Take the result of a job: the value that it returned or the exception that it raised."""
        self._tasks.done(token, value, now)

    def damage_found(self, error: CorruptData, now: Instant) -> None:
        """Note that a handler's cold read found stored bytes that are not what was written."""
        self._tasks.found_damage(error, now)

    def client_read_done(self, what: Hashable, value: object, now: Instant) -> None:
        """Take the result of a handler's cold read: its value or the exception that it raised.

        The log may know more now, so a turn is due. Equal values of `what` name the same place."""
        self._tasks.client_read_done(what, value, now)

    def stop(self, now: Instant) -> None:
        """Stop for good (deleted or closing); the next take answers every waiting request."""
        self.node.stop(now)

    # --- the data path ----------------------------------------------------------------------------

    def produces(self, now: Instant) -> ProducePath | ErrorCode:
        """The produce path of this replica; an error when it does not lead or only serves reads."""
        return self._serving.produce_path(now)

    def leader_error(self, epoch: int) -> ErrorCode:
        """NONE if a client with this leader epoch (-1: none) may be served here, else why not."""
        if not self.node.leading:
            return self._serving.not_leading()
        return epoch_error(epoch, self.node.term)

    def view(self, offset: int) -> FetchView:
        """The view of a fetch at this offset; the caller has checked `leader_error`."""
        return view_of(self.log, offset, self.high_watermark if self.publishing else None)

    def read(self, offset: Offset, bytes_max: int) -> Sequence[Part] | ColdRead:
        """Committed batches from the one that holds `offset` on, or a cold read to be done first.

        At least one batch when `view` says that some are available; about `bytes_max` bytes."""
        return self.log.plan_read(offset, bytes_max, self.high_watermark)

    def read_index(self, then: Then, now: Instant) -> ReadAnswer | None:
        """Confirm that this replica still leads: `then(ReadAnswer)` later, or an error at once."""
        return self._serving.read_index(then, now)

    def delete_records(
        self, offset: int, deadline: Instant, then: Then, now: Instant, wall_ms: WallMillis
    ) -> DeleteAnswer | None:
        """Move the log start to `offset` (-1: the high watermark); answered once that is
        committed."""
        answer = self._serving.delete_records(offset, deadline, then, now, wall_ms)
        self._tracker.look()
        return answer

    def propose_batch(self, batch: Buffer, now: Instant, wall_ms: WallMillis) -> RaftIndex:
        """Append a built batch of commands, for group 0; LocalMisuse unless `ready`."""
        self._tracker.look()
        base_offset = self.log.next_offset
        placed = stamped(batch, read_header(batch), base_offset, self.node.term)
        index, _ = self.node.propose((placed,), now, wall_ms)
        self._tracker.look()
        return index

    def propose_records(
        self, batch: bytes, deadline: Instant, then: Then, now: Instant, wall_ms: WallMillis
    ) -> ErrorCode | None:
        """Append a batch that this broker built, without a producer id, as acks=all.

        Returns an error when it is not in the log. Else None, and `then(ProposalAnswer)` once:
        after the machine applied it, or with a Produce's error. With the deadline NEVER it is
        REQUEST_TIMED_OUT only if the leadership is lost before the batch is decided."""
        return self._serving.propose_records(batch, deadline, then, now, wall_ms)

    def propose_control(
        self, kind: EntryKind, body: bytes, now: Instant, wall_ms: WallMillis
    ) -> RaftIndex:
        """Append a marker; LocalMisuse unless `ready`."""
        index = self.node.propose_control(kind, body, now, wall_ms)
        self._tracker.look()
        return index

    # --- the drain --------------------------------------------------------------------------------

    def take(self, io_id: IoId, now: Instant, wall_ms: WallMillis) -> ReplicaOutput:
        """Drain everything that this turn wants done; its writes get this io_id."""
        node, serving, output = self.node, self._serving, ReplicaOutput()
        node.wall_ms = wall_ms
        self._tasks.hand_over_gap(now)
        output.leadership = serving.follow_role(now)
        if node.ready:
            serving.propose(now, wall_ms)
        drained = node.take(io_id)
        self._follow_log(drained)
        output.membership = self._follow_membership(drained, now)
        if drained.commit is not None:
            self._follow_commit(drained.commit, now)
        if self._feed is not None:
            self._feed_machine(self._feed, output, now)
        output.in_sync = serving.settle(now, commit_moved=drained.commit is not None)
        serving.answer_reads(drained.reads)
        self._tasks.run(drained, serving.duties.take_unknown(), now)
        self._fill(output, drained, io_id, now)
        return output

    def _follow_log(self, drained: Output) -> None:
        """Bring producers and log-start markers up to date with the log. The log has judged the
        state of an install before it took it."""
        if drained.installed is not None:
            position, snapshot = drained.installed
            if self._feed is not None:
                snapshot = self._feed.installed(position, snapshot)
            self._tracker.installed(position.raft_index, snapshot)
        self._tracker.look()

    def _follow_membership(self, drained: Output, now: Instant) -> bool:
        """Follow the membership; whether it changed, or the one in force was committed now."""
        index = self.node.membership_index
        if index != self._membership_seen:
            self._membership_seen = index
            self._serving.follow_membership(now)
            return True
        return drained.commit is not None and self._commit_seen < index <= drained.commit

    def _follow_commit(self, commit: RaftIndex, now: Instant) -> None:
        """Act on a new commit: first what every replica does alike, then answers to clients."""
        self._commit_seen = commit
        self.log.set_commit(commit)
        log_start = self._tracker.committed(commit)
        if log_start is not None and log_start > self.log.log_start:
            self.log.set_log_start(log_start, self._tracker.start_marker)
            self._tasks.want_removal()
        snapshots = self._tracker.take_snapshots(commit)
        if self._feed is not None:
            self._feed.snapshots_due(snapshots)
            self._feed.advance(commit, now)
        else:
            self._tasks.write_producers(snapshots)
        self._tasks.remove_segments(now)
        self._serving.follow_commit(commit, now)

    def _feed_machine(self, feed: MachineFeed, output: ReplicaOutput, now: Instant) -> None:
        """Continue a replay, and note whether the machine stopped or may serve. (`_follow_commit`
        lets the machine apply an entry before any client hears that it is committed.)"""
        feed.advance(self.node.commit, now)
        if feed.differs is not None and not self.stopped:
            self.node.stop(now)
            output.differs = feed.differs
        output.serves_machine = self._serving.machine_turned(now)

    def _fill(self, output: ReplicaOutput, drained: Output, io_id: IoId, now: Instant) -> None:
        if drained.hard_state is not None:
            output.store_records.append(self._store.set_hard_state(self.group, drained.hard_state))
        output.send = [*drained.send, *self._refusals]
        self._refusals.clear()
        output.ops = self.log.take_ops(io_id)
        self._upkeep.taken(now, wrote=bool(output.ops))
        output.jobs = self._tasks.take_jobs()
        output.completed = self._serving.take_completed()
        if drained.agreed or drained.uncovered:
            output.agreed.extend(drained.agreed)
            output.uncovered.extend(drained.uncovered)
        output.committed = drained.commit is not None
        output.installed = drained.installed is not None
        output.damage = self._tasks.damage
        output.deadline = min(drained.deadline, self._serving.deadline, self._upkeep.deadline)
