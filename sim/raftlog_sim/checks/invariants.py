"""Checks the invariants after every turn, over the real state of all brokers and disks.

The ghost log holds every entry ever seen committed: per group, raft index -> (term, chain). No
crash can hurt it, since it belongs to the simulator. A turn's checks cover only the node's replicas
whose outline changed. Every thousand events, and at the end, the checks cover all replicas. For
durable state they trust only the simulated disk: the bytes that a bare crash would leave there.
"""

from functools import partial
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import GroupId, NodeId, RaftIndex, ReplicaId
from raftlog.broker.events import JobDone, WriteFailed
from raftlog.broker.peer_messages import ControllerReply
from raftlog.groups.machine import GroupsMachine
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import AppendReply, PreVoteRequest, VoteReply, VoteRequest
from raftlog.verify.judging.run_checks import counted
from raftlog_sim.base.violation import NAMES, Violation
from raftlog_sim.checks import (
    bound_checks,
    controller_checks,
    election_checks,
    file_checks,
    membership_checks,
    replica_checks,
)
from raftlog_sim.checks.age_checks import AgeChecks
from raftlog_sim.checks.answer_checks import AnswerChecks
from raftlog_sim.checks.boot_checks import BootChecks
from raftlog_sim.checks.cluster_checks import ClusterChecks
from raftlog_sim.checks.election_checks import ElectionChecks
from raftlog_sim.checks.group_statics import StaticMembers
from raftlog_sim.checks.hearing_checks import HearingChecks
from raftlog_sim.checks.life_checks import LifeChecks
from raftlog_sim.checks.membership_checks import MembershipChecks
from raftlog_sim.checks.metadata_checks import MetadataChecks
from raftlog_sim.checks.replica_checks import ReplicaChecks
from raftlog_sim.checks.topic_checks import TopicChecks
from raftlog_sim.facts import truth
from raftlog_sim.facts.committed import CommittedFacts, logs_of
from raftlog_sim.facts.group_log import GroupLog, Walls
from raftlog_sim.facts.group_rest import beyond_bounds
from raftlog_sim.facts.outline import NOTHING, Outline, Seen, outline_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from raftlog.broker.events import Effects, Event
    from raftlog_sim.world.faces import SimNode
    from raftlog_sim.world.node import Node

WHOLE_EVERY: Final = 1_000
_PROMISES: Final = {VoteReply: None, VoteRequest: None, AppendReply: None}


@final
@attrs.define(eq=False)
class Invariants:
    """Checks every turn. `checked` counts, per invariant, how often it really compared things."""

    checked: dict[str, int] = attrs.Factory(lambda: dict.fromkeys(NAMES, 0))
    ghost: dict[GroupId, dict[RaftIndex, Seen]] = attrs.Factory(dict)
    ghost_end: dict[GroupId, RaftIndex] = attrs.Factory(dict)
    ghost_ends: dict[GroupId, dict[int, RaftIndex]] = attrs.Factory(dict)
    """The last entry that the leader of each term committed, in the order of terms."""
    leaders: dict[tuple[GroupId, int], ReplicaId] = attrs.Factory(dict)
    told_terms: dict[tuple[GroupId, ReplicaId], int] = attrs.Factory(dict)
    ends: dict[tuple[GroupId, int, int], int] = attrs.Factory(dict)
    published: dict[tuple[GroupId, NodeId], int] = attrs.Factory(dict)
    shown: dict[GroupId, int] = attrs.Factory(dict)
    """The highest watermark that any node showed."""
    outlines: dict[tuple[GroupId, ReplicaId], Outline] = attrs.Factory(dict)
    lives: dict[tuple[GroupId, ReplicaId], PartitionReplica] = attrs.Factory(dict)
    """The last life of each replica id; a recovery begins another one, in the same boot too."""
    before_damage: dict[tuple[GroupId, ReplicaId], Outline] = attrs.Factory(dict)
    """The furthest outline of each replica before its disk was damaged or made an old copy."""
    drawn: dict[PartitionReplica, tuple[object, ...]] = attrs.Factory(dict)
    """The outline of each replica object as it was last seen; only looked up, never iterated."""
    memberships: dict[tuple[GroupId, ReplicaId, int], Membership] = attrs.Factory(dict)
    """The membership that a leader last worked with, per term."""
    committed: dict[GroupId, CommittedFacts] = attrs.Factory(dict)
    metadata: MetadataChecks = attrs.field(init=False)
    replicas: ReplicaChecks = attrs.field(init=False)
    answers: AnswerChecks = attrs.field(init=False)
    elections: ElectionChecks = attrs.Factory(ElectionChecks)
    hearing: HearingChecks = attrs.Factory(HearingChecks)
    life: LifeChecks = attrs.field(init=False)
    recovered: BootChecks = attrs.field(init=False)
    changes: MembershipChecks = attrs.Factory(MembershipChecks)
    cluster: ClusterChecks = attrs.Factory(ClusterChecks)
    ages: AgeChecks = attrs.Factory(AgeChecks)
    walls: Walls = attrs.Factory(Walls)
    statics: StaticMembers = attrs.Factory(StaticMembers)
    damaged: "Collection[NodeId]" = ()
    """Nodes whose disks the run itself has damaged."""
    _events: int = 0
    _whole_at: int = WHOLE_EVERY

    def __attrs_post_init__(self) -> None:
        topics = TopicChecks()
        self.metadata = MetadataChecks(topics)
        self.replicas = ReplicaChecks(self.committed)
        self.life = LifeChecks(self.elections.votes, self.told_terms)
        self.recovered = BootChecks(self.judge, self._is_excused)
        self.answers = AnswerChecks(self.committed, self.shown, self._has, topics, self._is_excused)

    def after_turn(self, node: "Node", events: "Sequence[Event]", effects: "Effects") -> None:
        """Check the node's replicas and what it sent. Raises `Violation`."""
        for send in effects.sends:
            if node.rolled_back and not truth.is_heard(node, send.peer):
                continue
            for message in send.messages:
                if type(message) in _PROMISES:
                    self._promised(node, message)
                elif type(message) is PreVoteRequest:
                    self._asked(node, message)
                elif type(message) is ControllerReply:
                    self.judge((controller_checks.told(node, message),))
        if (order := node.world.network.order) is not None:
            order.after_turn(node, events, effects)
        for event in events:
            if type(event) is WriteFailed:
                self.judge(self.life.write_failed(node, event, self.lives))
            elif type(event) is JobDone:
                self.judge(self.recovered.heard(node, event.value))
        if self.elections.asked.get(node.number):
            damaged = node.number in self.damaged
            self.judge(self.elections.granted(node, self.outlines, damaged=damaged))
        context = node.broker.context
        if self.walls.retention_ms:
            self.walls.look(node.number, context.wall)
            self.judge(self.statics.after_turn(node))
        if events or effects.writes or effects.sends:
            self._look(node, context.replicas, events)
        self.judge(self.hearing.after_turn(node, events, effects))
        if self.metadata.has_news(node):
            self.judge(self.metadata.after_turn(node))
        if self.replicas.has_news(node):
            self.judge(self.replicas.after_turn(node))
        if context.ledger.has_groups_over:
            self.judge((("bounded", bound_checks.producers_paused(node)),))
        overdue = self.answers.hear(node, events)
        if overdue or effects.replies or effects.hangups:
            self.judge(self.answers.after_turn(node, effects))
        self._events += len(events)
        if self._events >= self._whole_at:
            self._whole_at = self._events + WHOLE_EVERY
            self.whole(node.world.running())

    def _look(
        self,
        node: "Node",
        replicas: "dict[GroupId, PartitionReplica]",
        events: "Sequence[Event]",
    ) -> None:
        """Check those of a node's replicas whose outline changed."""
        drawn, boots = self.drawn, node.boots
        for group, replica in replicas.items():
            outline = outline_of(boots, replica)
            if drawn.get(replica) == outline:
                continue
            drawn[replica] = outline
            key, now = (group, replica.me), Outline._make(outline)
            before = self.outlines.get(key, NOTHING)
            self.outlines[key] = now
            if self.lives.get(key) is not replica:
                self._begun(node, replica, before)
                before = NOTHING
            elif now.durable != before.durable:
                self.judge(self.life.held(node, replica, now))
            self._replica(node, group, replica, before, now)
            if replica_checks.concerns(before, now):
                self.judge(self.replicas.looked(node, replica, before, now, events))
            if membership_checks.concerns(replica, before, now):
                self.judge(self.changes.looked(replica, before, now, node.broker.context.image))

    def _is_excused(self, node: "SimNode") -> bool:
        return node.rolled_back or node.number in self.damaged

    def _begun(self, node: "Node", replica: PartitionReplica, before: Outline) -> None:
        """Note that a life of a replica begins; `before` is its outline when it was last seen."""
        key = (replica.group, replica.me)
        excused = self._is_excused(node)
        if excused:
            known = self.before_damage.get(key, NOTHING)
            before = self.before_damage[key] = max(known, before, key=lambda each: each.durable)
        if key in self.lives:
            self.judge(self.life.began_again(node, replica, before, excused=excused))
        self.lives[key] = replica

    # --- what a node says -------------------------------------------------------------------------

    def _promised(self, node: "Node", message: VoteReply | VoteRequest | AppendReply) -> None:
        """Check that promises never go back in term, across crashes too, and lie on the disk."""
        self.checked["term-monotone"] += 1
        key = (message.group, message.sender)
        if self.life.is_news(node, key):
            self.judge(self.life.speaks(node, key))
        before = self.told_terms.get(key, 0)
        if message.term < before:
            raise Violation(
                "term-monotone",
                f"{message.sender} promised in term {before} of group {message.group} and now in "
                f"term {message.term}",
            )
        self.told_terms[key] = message.term
        if isinstance(message, AppendReply):
            self._acknowledged_entries(node, message)
        elif isinstance(message, VoteRequest):
            self._asked(node, message)
            self.judge(self.elections.voted(node, message, message.sender))
        elif message.granted:
            self.judge(self.elections.voted(node, message, message.to))

    def _asked(self, node: "Node", message: VoteRequest | PreVoteRequest) -> None:
        damaged = node.number in self.damaged
        self.judge(self.elections.asks(node, message, damaged=damaged))

    def _acknowledged_entries(self, node: "Node", message: AppendReply) -> None:
        """Check that acknowledged entries are durable."""
        replica, sender = node.broker.context.replicas.get(message.group), message.sender
        self.checked["promise-durable"] += 1
        if replica is not None and replica.me == sender:
            durable = truth.durable_index(node, replica)
        else:  # it may have ended in the turn in which it acknowledged (seed 6401976)
            durable = truth.after_a_crash(node, sender, message.match)
            seen = self.outlines.get((message.group, sender), NOTHING)
            held = max(seen.durable, min(durable, message.match))
            self.outlines[message.group, sender] = seen._replace(durable=held)
        if message.match > durable:
            raise Violation(
                "promise-durable",
                f"{sender} acknowledged entry {message.match} of group {message.group}, "
                f"durable are {durable}",
            )

    def acknowledged(self, group: GroupId, offset: int) -> None:
        """Note that a producer heard that its record is stored at this offset."""
        self.checked["acknowledged-committed"] += 1
        if offset >= self.shown.get(group, 0):
            raise Violation(
                "acknowledged-committed",
                f"offset {offset} of group {group} is acknowledged, no leader showed a high "
                f"watermark above {self.shown.get(group, 0)}",
            )

    def read(self, group: GroupId, floor: int, high_watermark: int) -> None:
        """Check a linearizable read: it knows everything that was acknowledged before it began."""
        self.checked["linearizable-read"] += 1
        if high_watermark < floor:
            raise Violation(
                "linearizable-read",
                f"a read of group {group} was answered up to {high_watermark}; records up to "
                f"{floor} had been acknowledged before it began",
            )

    # --- what a replica is ------------------------------------------------------------------------

    def _replica(
        self,
        node: "Node",
        group: GroupId,
        replica: PartitionReplica,
        before: Outline,
        now: Outline,
    ) -> None:
        if now.boot != before.boot:
            self.judge(self.cluster.booted(node))
        if now.leading:
            self._leader(node, replica, before, now)
        if now.term == before.term + 1 and replica.node.vote == replica.me:
            self.judge((("leader-left-in-peace", self.hearing.campaigned(node, replica, before)),))
        self.checked["order"] += 1
        if not (now.commit <= now.last_index and now.durable <= now.last_index):
            what = f"commit {now.commit}, durable {now.durable}, last {now.last_index}"
            raise Violation("order", f"group {group}: {what}")
        if now.commit < before.commit or now.term < before.term:
            raise Violation(
                "order",
                f"group {group}: commit {before.commit} in term {before.term}, now {now.commit} in "
                f"{now.term}",
            )
        if now.durable > before.durable:
            self._durable(node, group, replica)
        if (now.last_index, now.last_term) != (before.last_index, before.last_term):
            self._matching(group, replica)
        if replica.commit > self.ghost_end.get(group, 0):
            self._commit(node, group, replica)
        elif now.commit != before.commit and replica.commit:
            self._same_as_ghost(group, replica, replica.commit)
        self._published(group, replica)

    def _durable(self, node: "Node", group: GroupId, replica: PartitionReplica) -> None:
        """Check that entries that a log holds to be durable are synced, under a durable name."""
        self.checked["durable-on-disk"] += 1
        real, held = truth.durable_index(node, replica), replica.log.durable_index
        if real < held:
            raise Violation(
                "durable-on-disk",
                f"{replica.me} holds entry {held} of group {group} to be durable, its disk has "
                f"less than {real + 1}",
            )

    def _leader(
        self, node: "Node", replica: PartitionReplica, before: Outline, now: Outline
    ) -> None:
        self.checked["election-safety"] += 1
        group = replica.group
        known = self.leaders.get((group, now.term))
        if known is None:
            self.leaders[(group, now.term)] = replica.me
            self._complete(group, replica)
            self.judge((("elected-by-majority", self.elections.elected(node, replica)),))
        elif known != replica.me:
            raise Violation(
                "election-safety",
                f"{known} and {replica.me} lead group {group} in term {now.term}",
            )
        same = before.leading and before.term == now.term
        went_back = election_checks.went_back(replica, before if same else now, now)
        self.judge((("leader-append-only", went_back),))
        if same and now.commit > before.commit:
            self._commit_rule(group, replica, before.membership_index)
        self._steps(group, replica)
        self.judge((("bounded", bound_checks.senders(replica)),))

    def _commit_rule(self, group: GroupId, replica: PartitionReplica, since: int) -> None:
        """Check that a leader commits only durable entries, and counts only those of its own term.
        They lie on the synced disks of a majority of a configuration in force in this turn, of both
        halves when joint. Before the turn, the configuration of entry `since` was in force."""
        self.checked["commit-rule"] += 1
        index, term = replica.commit, replica.node.term
        found = replica.log.term_at(index)
        if found not in (None, term):
            raise Violation(
                "commit-rule",
                f"{replica.me} leads group {group} in term {term} and committed entry {index} "
                f"of term {found}",
            )
        self.checked["committed-durable"] += 1
        in_force = [each for at, each in replica.log.memberships if at >= since]
        short = [self._short(group, each, index, term) for each in in_force]
        if all(short):
            what = f"entry {index} of group {group} is committed, {short[-1]}"
            raise Violation("committed-durable", what)

    def _short(self, group: GroupId, membership: Membership, index: RaftIndex, term: int) -> str:
        """Returns why an entry is not durable on a majority, for a leader of that term, or ""."""
        for voters in (membership.voters, membership.outgoing):
            have = [voter for voter in voters if self._has(group, voter, term) >= index]
            if voters and len(have) <= len(voters) // 2:
                return f"durable on {len(have)} of {len(voters)} voters"
        return ""

    def _has(self, group: GroupId, replica: ReplicaId, term: int) -> int:
        """Returns the last entry that this replica was seen to hold durably, for that leader. Its
        words from before its disk was damaged hold, since they may be on their way (seeds 3000884,
        6800700). It votes for no candidate that lacks the entry; an old copy votes for none."""
        seen = self.outlines.get((group, replica), NOTHING).durable
        said = self.before_damage.get((group, replica), NOTHING)
        return max(seen, said.durable) if term <= said.term else seen

    def _steps(self, group: GroupId, replica: PartitionReplica) -> None:
        """Check that the quorums of a leader's successive configurations overlap."""
        key, now = (group, replica.me, replica.node.term), replica.membership
        before = self.memberships.get(key)
        self.memberships[key] = now
        if before is None or before == now:
            return
        self.checked["membership-steps"] += 1
        entered = now.joint and now.outgoing == before.voters and not before.joint
        left = before.joint and not now.joint and now.voters == before.voters
        kept = now.voters == before.voters and now.outgoing == before.outgoing
        one = not (now.joint or before.joint) and len({*now.voters} ^ {*before.voters}) <= 1
        if not (entered or left or kept or one):
            raise Violation("membership-steps", f"group {group}: from {before} to {now}")

    def _complete(self, group: GroupId, replica: PartitionReplica) -> None:
        """Check that a new leader holds the commits of earlier terms (Raft, figure 3). One whose
        votes came late may lack the commits of later terms."""
        ends, mine = self.ghost_ends.get(group, {}), replica.node.term
        end = next((ends[term] for term in reversed(ends) if term < mine), RaftIndex(0))
        if end == 0:
            return
        self.checked["leader-completeness"] += 1
        term, chain = replica.log.term_at(end), replica.log.chain_at(end)
        seen = self.ghost[group][end]
        if term != seen.term or (chain is not None and seen.chain not in (-1, chain)):
            raise Violation(
                "leader-completeness",
                f"{replica.me} leads group {group} in term {replica.node.term} with term {term} at "
                f"committed entry {end}, which had term {seen.term}",
            )

    def _matching(self, group: GroupId, replica: PartitionReplica) -> None:
        """Check that equal index and term mean an equal chain, on every replica and at any time."""
        log = replica.log
        chain = log.chain_at(log.last_index)
        if chain is None or log.last_index == 0:
            return
        self.checked["log-matching"] += 1
        key = (group, log.last_index, log.last_term)
        before = self.ends.setdefault(key, chain)
        if before != chain:
            raise Violation(
                "log-matching",
                f"entry {log.last_index} of term {log.last_term} in group {group} has two chains",
            )

    def _commit(self, node: "Node", group: GroupId, replica: PartitionReplica) -> None:
        ghost = self.ghost.setdefault(group, {})
        end = self.ghost_end.get(group, RaftIndex(0))
        log = replica.log
        for number in range(max(end + 1, log.first_index), replica.commit + 1):
            index = RaftIndex(number)
            term, chain = log.term_at(index), log.chain_at(index)
            if term is not None:
                ghost[index] = Seen(term, -1 if chain is None else chain)
        self.ghost_end[group] = replica.commit
        committed = self.committed.setdefault(group, CommittedFacts())
        if not committed.end and isinstance(replica.machine, GroupsMachine):
            committed.groups = GroupLog(self.walls)
        self.judge(committed.follow(log, replica.commit, partial(logs_of, node, group)))
        self.judge(self.ages.look(node, replica, committed))
        # Only an entry of its own term ends what a leader commits.
        if (term := log.term_at(replica.commit)) is not None:
            self.ghost_ends.setdefault(group, {})[term] = replica.commit

    def _same_as_ghost(self, group: GroupId, replica: PartitionReplica, index: RaftIndex) -> None:
        seen = self.ghost[group].get(index)
        term, chain = replica.log.term_at(index), replica.log.chain_at(index)
        if seen is None or term is None:
            return
        self.checked["committed-immutable"] += 1
        if term != seen.term or (chain is not None and seen.chain not in (-1, chain)):
            raise Violation(
                "committed-immutable",
                f"{replica.me} committed entry {index} of group {group} with term {term}, it had "
                f"term {seen.term} when it was first committed",
            )

    def _published(self, group: GroupId, replica: PartitionReplica) -> None:
        """Check that no node shows clients a high watermark below one that it showed before."""
        if not (replica.node.leading and replica.publishing):
            return
        self.checked["high-watermark-monotone"] += 1
        key, now = (group, replica.me.node), replica.high_watermark
        before = self.published.get(key, 0)
        if now < before or now < replica.log_start:
            raise Violation(
                "high-watermark-monotone",
                f"node {key[1]} showed {before} of group {group}, now {now}, log start "
                f"{replica.log_start}",
            )
        self.published[key] = now
        self.shown[group] = max(now, self.shown.get(group, 0))

    def judge(self, found: "Iterable[tuple[str, str]]") -> None:
        """Count checks, given as (invariant, error or ""). Raises `Violation` for an error."""
        for name, problem in found:
            self.checked[name] += 1
            if problem:
                raise Violation(name, problem)

    # --- all of it --------------------------------------------------------------------------------

    def whole(self, nodes: "list[Node]") -> None:
        """Check these nodes whole: committed entries equal the ghost's, and durable ones are
        durable."""
        for node in nodes:
            self.judge(self.replicas.whole(node))
            self.judge((("bounded", bound_checks.queues(node)), ("bounded", beyond_bounds(node))))
            self.judge((("mark-synced", replica_checks.marks_ahead(node)),))
            for group, replica in node.broker.context.replicas.items():
                self._durable(node, group, replica)
                self.judge((("membership-in-force", self.changes.in_force(replica)),))
                if replica.is_leader:
                    self.judge((("bounded", bound_checks.senders(replica)),))
                if group not in self.ghost:
                    continue
                for number in range(replica.log.first_index, replica.commit + 1):
                    self._same_as_ghost(group, replica, RaftIndex(number))

    def finish(self, nodes: "list[Node]") -> None:
        """Check a cluster that has converged: all files hold the same too."""
        self.whole(nodes)
        self.judge(("one-cluster", self.cluster.differs(node)) for node in nodes)
        self.judge(file_checks.equal_files(nodes))

    def at_rest(self, nodes: "list[Node]") -> None:
        """Check that no broker owes an answer once every client has stopped waiting."""
        self.judge(("answered-once", self.answers.unanswered(node)) for node in nodes)

    def document(self, violated: str = "") -> dict[str, object]:
        """Returns the counts for verdict.json."""
        return counted(self.checked, violated)
