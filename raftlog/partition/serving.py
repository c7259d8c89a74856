"""The leader's side of a partition: everything that serves clients while the replica leads.

Every replica has a `Serving`. The raft node decides who leads, and `follow_role` follows it. A
replica notices the loss of leadership before it looks at any later commit. At the same index the
next leader may commit another batch than the one for which a client waits here.
"""

from collections.abc import Iterable, Sequence
from typing import final

from raftlog.base.ids import NodeId, RaftIndex, ReplicaId, Term
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, WallMillis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.partition.high_watermark import HighWatermark
from raftlog.partition.in_sync import InSyncSet
from raftlog.partition.machine.machine_feed import MachineFeed
from raftlog.partition.maintenance.clocks import PeerClocks
from raftlog.partition.maintenance.leader_duties import LeaderDuties
from raftlog.partition.output import Completion, DeleteAnswer, ReadAnswer
from raftlog.partition.producing.produce_path import ProducePath
from raftlog.partition.tracker import LogTracker
from raftlog.partition.waiters import FetchWaiters, Then
from raftlog.raft.node import RaftNode
from raftlog.raft.output import ReadState
from raftlog.storage.partition_log import PartitionLog


@final
class Serving:
    """The waiting requests, the in-sync set and the high watermark of one replica.

    * `completed`: collects answers until they are taken.
    * `_led_term`: the term in which this replica is known to lead, else None.
    * `_published_term`: the term in which it led and committed, so that its high watermark is the
      partition's.
    """

    __slots__ = (
        "_feed",
        "_led_term",
        "_log",
        "_members_told",
        "_next_read",
        "_node",
        "_published_term",
        "_reads",
        "_role_key",
        "_served_machine",
        "completed",
        "duties",
        "failed",
        "fetches",
        "in_sync",
        "mark",
        "produces",
    )

    def __init__(
        self,
        *,
        node: RaftNode,
        log: PartitionLog,
        tracker: LogTracker,
        feed: MachineFeed | None,
        clocks: PeerClocks,
        config: PartitionConfig,
    ) -> None:
        self._node = node
        self._log = log
        self._feed = feed
        committed = log.offset_at(node.commit)
        self.mark = HighWatermark(log.log_start if committed is None else committed)
        self.in_sync = InSyncSet(config.replica_lag_ns)
        self.fetches = FetchWaiters()
        self.failed = False
        self.completed: list[Completion] = []
        self.produces = ProducePath(
            node=node,
            log=log,
            tracker=tracker,
            mark=self.mark,
            in_sync=self.in_sync,
            config=config,
            completed=self.completed,
        )
        self.duties = LeaderDuties(
            node=node,
            log=log,
            producers=tracker.producers,
            feed=feed,
            mark=self.mark,
            clocks=clocks,
            config=config,
            completed=self.completed,
        )
        self._reads: dict[int, Then] = {}
        self._next_read = 0
        self._role_key: tuple[object, ...] = ()
        self._led_term: Term | None = None
        self._published_term: Term | None = None
        self._served_machine = False
        self._members_told: tuple[ReplicaId, ...] = ()

    @property
    def publishing(self) -> bool:
        """Whether this replica leads and has committed in its own term."""
        node = self._node
        return node.leading and self._published_term == node.term

    @property
    def serves_machine(self) -> bool:
        """See `PartitionReplica.serves_machine`."""
        feed = self._feed
        return feed is not None and self.publishing and feed.is_level(self._node.commit)

    @property
    def waiting(self) -> int:
        """Requests that will be answered later, of all kinds."""
        reads, deletes = len(self._reads), self.duties.waiting
        return self.produces.waiting + len(self.fetches) + reads + deletes

    @property
    def deadline(self) -> Instant:
        """When time alone changes something here; NEVER while the replica does not lead."""
        if self._led_term is None:
            return NEVER
        return min(self.produces.deadline, self.in_sync.deadline, self.duties.deadline)

    def not_leading(self) -> ErrorCode:
        """The error for a client that should ask another broker."""
        if self.failed or self._node.stopped_why is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def configure(self, config: PartitionConfig, now: Instant) -> None:
        """Take changed settings of the topic or the broker."""
        self.produces.configure(config)
        self.produces.held_back = True
        self.duties.config = config
        self.in_sync.lag_ns = config.replica_lag_ns
        if self._node.leading:
            self.in_sync.watch(now)
            self.duties.check_at = now

    def fence(self, nodes: Sequence[NodeId], now: Instant) -> None:
        """Take the whole set of fenced nodes."""
        self.in_sync.fence(nodes)
        if self._node.leading:
            self.in_sync.watch(now)

    def follow_role(self, now: Instant) -> bool:
        """Follow the node's role, term, leader and readiness; whether one of them changed."""
        node = self._node
        role_key = (node.term, node.role, node.leader, node.ready)
        if role_key == self._role_key:
            return False
        self._role_key = role_key
        led_term = node.term if node.leading else None
        if led_term == self._led_term:
            return True
        if self._led_term is not None:
            self._lose_leadership()
        self._led_term = led_term
        if led_term is not None:
            self.in_sync.lead(node.me, node.membership.voters, self._log.last_index, now)
        return True

    def produce_path(self, now: Instant) -> ProducePath | ErrorCode:
        """See `PartitionReplica.produces`."""
        if not self._node.leading:
            return self.not_leading()
        if self._log.gaps and self._node.membership.decides_alone:
            # A segment is damaged and no other replica can fill the gap. Records appended behind it
            # would be lost once an operator gives up the damaged part.
            probe("produce-refused-behind-a-gap")
            return ErrorCode.KAFKA_STORAGE_ERROR
        self.follow_term(now)
        return self.produces

    def follow_term(self, now: Instant) -> None:
        """Follow the role if the term changed, before anything is appended in this turn."""
        if self._led_term != self._node.term:
            self.follow_role(now)

    def follow_membership(self, now: Instant) -> None:
        """Follow a change of the membership in force."""
        if self._led_term is not None:
            node = self._node
            voters = node.membership.voters
            self.in_sync.follow_membership(node.me, voters, self._log.last_index, now)

    def follow_commit(self, commit: RaftIndex, now: Instant) -> None:
        """Let the high watermark follow the commit, and answer the requests that wait for it."""
        log, node = self._log, self._node
        committed = log.offset_at(commit)
        if committed is None:
            # A follower catches up: the offset of this commit is on disk only. No client asks a
            # follower for it.
            assert not node.leading, (commit, log.first_index)
            return
        old = self.mark.published
        ours = node.leading and log.term_at(commit) == node.term
        moved = self.mark.advance(committed, may_publish=ours or not node.leading)
        if not ours:
            return
        if self._published_term != node.term:
            self._published_term = node.term
            self.wake_fetches()
        elif moved and len(self.fetches):
            for waiter in self.fetches.published(old, committed, log.available_bytes):
                self.completed.append(Completion(waiter.then, waiter))
        self.duties.committed(commit)
        self.duties.arm(now)

    def settle(self, now: Instant, *, commit_moved: bool) -> bool:
        """Update the in-sync set and answer the produces that are decided; whether the set
        changed."""
        if self._led_term is None and not self._members_told:
            return False
        node, in_sync = self._node, self.in_sync
        if now >= in_sync.deadline or in_sync.someone_is_out:
            last = self._log.last_index
            in_sync.refresh(node.progress, last=last, commit=node.commit, now=now)
        before, self._members_told = self._members_told, in_sync.members
        changed = before != self._members_told
        if (commit_moved or changed or self.produces.held_back) and self.publishing:
            self.produces.settle()
        return changed

    def machine_turned(self, now: Instant) -> bool:
        """Whether `serves_machine` changed since the last call."""
        served, self._served_machine = self._served_machine, self.serves_machine
        if self._served_machine and not served:
            self.duties.arm(now)  # entries applied by a replay may wait to be compared
        return served != self._served_machine

    def propose(self, now: Instant, wall_ms: WallMillis) -> None:
        """Propose what waits for a ready leader: parked produces, and a log start behind a new
        snapshot."""
        if self.produces.parked:
            self.produces.resume(now, wall_ms)
        if self._feed is not None and self.publishing:
            self.duties.trim(self._feed.covered, now, wall_ms)

    def propose_records(
        self, batch: bytes, deadline: Instant, then: Then, now: Instant, wall_ms: WallMillis
    ) -> ErrorCode | None:
        """See `PartitionReplica.propose_records`."""
        if not self.serves_machine:
            return self.not_leading()
        self.follow_term(now)
        return self.produces.propose(batch, deadline, then, now, wall_ms)

    def delete_records(
        self, offset: int, deadline: Instant, then: Then, now: Instant, wall_ms: WallMillis
    ) -> DeleteAnswer | None:
        """See `PartitionReplica.delete_records`."""
        if not self._node.leading:
            return DeleteAnswer(self.not_leading())
        if self._feed is not None:
            # An internal topic: only a durable snapshot of the machine may remove its records.
            return DeleteAnswer(ErrorCode.POLICY_VIOLATION)
        self.follow_term(now)
        if not (self.publishing and self._node.ready):
            return DeleteAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.duties.delete_records(offset, deadline, then, now, wall_ms)

    def read_index(self, then: Then, now: Instant) -> ReadAnswer | None:
        """Confirm that this replica still leads: an error now, or None and `then` later."""
        if not self._node.leading:
            return ReadAnswer(self.not_leading())
        self._next_read += 1
        self._reads[self._next_read] = then
        self._node.read_index(self._next_read, now)
        return None

    def answer_reads(self, states: Iterable[ReadState]) -> None:
        """Answer the read indexes that the node decided."""
        for state in states:
            error = ErrorCode.NONE
            if state.raft_index is None:
                # The leadership was lost, or the leader refuses because too many reads wait.
                error = ErrorCode.REQUEST_TIMED_OUT if self._node.leading else self.not_leading()
            self.completed.append(Completion(self._reads.pop(state.token), ReadAnswer(error)))

    def wake_fetches(self) -> None:
        """Wake every waiting fetch, so that it looks again."""
        for waiter in self.fetches.wake_all():
            self.completed.append(Completion(waiter.then, waiter))

    def take_completed(self) -> list[Completion]:
        """The answers so far. The list object stays, for produces and duties append to it too."""
        taken = self.completed.copy()
        self.completed.clear()
        return taken

    def _lose_leadership(self) -> None:
        failed = ErrorCode.KAFKA_STORAGE_ERROR if self.failed else None
        error = failed or ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.produces.fail(error)
        self.duties.fail(error)
        self.wake_fetches()
        self.in_sync.clear()
        self._published_term = None
