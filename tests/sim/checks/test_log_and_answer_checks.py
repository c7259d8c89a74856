"""Each check of answers, of producers and of the ends of logs fails on a broken product, or on a
memory that was tampered with."""

import attrs
import pytest
from raftlog_sim.base.violation import Violation
from raftlog_sim.checks import replica_checks
from raftlog_sim.checks.replica_checks import _Terms
from raftlog_sim.facts import truth
from raftlog_sim.facts.outline import NOTHING
from raftlog_sim.facts.producer_twin import ProducerTwin
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step

from raftlog.base.entries import EntryKind, LogPosition
from raftlog.base.ids import NodeId, Offset, RaftIndex, SessionId, Term
from raftlog.base.units import NEVER, millis
from raftlog.broker.events import LinkDown, PeerMessages, Request
from raftlog.broker.front.answers import TurnAnswers
from raftlog.broker.front.clients import Clients
from raftlog.kafka.codec import encode_request
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.metadata.broker_image import Removal
from raftlog.partition import replica as replica_module
from raftlog.partition.in_sync import InSyncSet
from raftlog.partition.output import ProduceAnswer
from raftlog.partition.producing.produce_path import ProducePath
from raftlog.partition.producing.producers import ProducerTable
from raftlog.partition.tracker import LogTracker
from raftlog.raft import following, node, proposals
from raftlog.raft.messages import NO_CHAIN, Append
from raftlog.records.batch import read_header
from raftlog.storage.partition_log import PartitionLog
from raftlog.storage.read_plan import ReadPlanner

WRITES = tuple(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 300, 20))


def schedule(*some, **options):
    return Schedule(SimOptions(**{"seed": 3, "safety_ms": 400, **options}), (*WRITES, *some))


def middle(**options):
    """A run in its safety phase, with something committed, and the leader of the partition."""
    run = Run(schedule(**options))
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(100)
    while run.world.now < end:
        run.advance()
    one = run.world.nodes[NodeId(1)]
    group = one.broker.context.image.topic("t").partitions[0].group
    replicas = [each.broker.context.replicas[group] for each in run.world.running()]
    return run, run.onlooker.invariants, next(each for each in replicas if each.is_leader)


def violated(run):
    return run.play().partition(":")[0]


# --- who begins to lead ---------------------------------------------------------------------------


def test_a_new_leader_that_counts_only_who_answered(monkeypatch):
    real = InSyncSet.lead

    def lead(self, me, voters, last, now):
        real(self, me, voters, last, now)
        self._put_out([voter.node for voter in voters if voter != me])

    monkeypatch.setattr(InSyncSet, "lead", lead)
    crashes = [step(100 + 100 * number, "crash", 50, node="leader:0") for number in range(3)]
    assert simulate(schedule(*crashes)).failure_class == "in-sync-at-first"


def test_a_new_leader_may_count_out_who_is_fenced_or_whose_link_just_ended():
    run, _, leader = middle()
    node = run.world.nodes[leader.me.node]
    other = next(voter for voter in leader.membership.voters if voter != leader.me)
    assert replica_checks._in_sync_at_first(node, leader, ()) == ""
    leader._serving.in_sync._put_out([other.node])
    assert f"group {leader.group}" in replica_checks._in_sync_at_first(node, leader, ())
    down = LinkDown(other.node, SessionId(1))
    assert replica_checks._in_sync_at_first(node, leader, (down,)) == ""
    session = node.broker.context.sessions.pop(other.node)
    assert replica_checks._in_sync_at_first(node, leader, ()) == "", "a later boot ends a link, too"
    node.broker.context.sessions[other.node] = session
    brokers = node.broker.context.image.brokers
    brokers[other.node] = attrs.evolve(brokers[other.node], fenced=True)
    assert replica_checks._in_sync_at_first(node, leader, ()) == ""


# --- answers --------------------------------------------------------------------------------------


def test_an_answer_that_is_given_twice(monkeypatch):
    real = TurnAnswers.reply

    def reply(self, request, parts, answers=1):
        real(self, request, parts, answers)
        replies = self.turn.effects.replies
        replies.append(replies[-1])

    monkeypatch.setattr(TurnAnswers, "reply", reply)
    assert simulate(schedule()).failure_class == "answered-once"


def test_an_answer_that_is_never_given():
    run, invariants, _ = middle()
    invariants.at_rest([])
    one = run.world.nodes[NodeId(1)]
    desk = invariants.answers._desks[NodeId(1)]
    connection = next(iter(desk.waiting))
    parts = encode_request(3, 12, 0, "c", MetadataRequest())
    frame = b"".join(bytes(part) for part in parts)[4:]
    invariants.answers.hear(one, [Request(connection, 10_000, frame)])
    with pytest.raises(Violation, match=r"answered-once: node 1 owes .*10000"):
        invariants.at_rest([one])


def test_a_producer_that_hears_nothing_in_its_time(monkeypatch):
    monkeypatch.setattr(ProducePath, "deadline", property(lambda self: NEVER))
    monkeypatch.setattr(ProducePath, "expire", lambda self, now: None)
    case = scenario_files.load("parked-until-time-is-up").case
    assert simulate(case.schedule).failure_class == "answered-in-time"


def test_an_answer_out_of_an_image_of_an_earlier_boot(monkeypatch):
    monkeypatch.setattr(Clients, "_serves", property(lambda self: True))
    case = scenario_files.load("requests-wait-for-the-boot").case
    assert simulate(case.schedule).failure_class == "answered-by-this-boot"


def test_a_producer_that_is_told_the_wrong_place(monkeypatch):
    real = ProducePath._success

    def success(self, base_offset, *others):
        answer = real(self, base_offset, *others)
        return answer._replace(base_offset=Offset(max(0, base_offset - 1)))

    monkeypatch.setattr(ProducePath, "_success", success)
    assert simulate(schedule()).failure_class == "produce-promise"


def test_a_producer_that_is_told_of_what_is_not_committed(monkeypatch):
    real = ProducePath.submit

    def submit(self, *arguments):
        offset = self._log.next_offset
        answer = real(self, *arguments)
        return ProduceAnswer(0, offset, -1, Offset(0)) if answer is None else answer

    monkeypatch.setattr(ProducePath, "submit", submit)
    monkeypatch.setattr(ProducePath, "settle", lambda self: None)
    assert simulate(schedule()).failure_class == "produce-promise"


def test_a_producer_that_is_told_before_enough_replicas_in_sync_hold_it(monkeypatch):
    monkeypatch.setattr(InSyncSet, "held_by", lambda self, *_: 2**62)
    slow = step(50, "stall", 200, node="follower:0")
    assert simulate(schedule(slow, min_in_sync=3)).failure_class == "produce-promise"


def test_a_slow_replica_alone_violates_nothing():
    slow = step(50, "stall", 200, node="follower:0")
    result = simulate(schedule(slow, min_in_sync=3))
    assert result.failure == ""
    assert result.invariants["produce-promise"]["checked"] > 10


# --- producers ------------------------------------------------------------------------------------


def test_a_batch_that_is_stored_twice(monkeypatch):
    monkeypatch.setattr(ProducerTable, "check", lambda self, header: None)
    hangups = tuple(step(at, "hangup", node="all") for at in range(25, 300, 17))
    slow = {"sync_us": 9_000, "latency_us": 3_000}
    assert simulate(schedule(*hangups, **slow)).failure_class == "producers-ascend"


def test_sequences_that_leave_a_gap():
    run, invariants, leader = middle()
    producers = invariants.committed[leader.group].after[-1].producers.states
    for number, known in producers.items():
        first, last, offset = known.spans[-1]
        producers[number] = ProducerTwin(known.epoch, ((first, last + 5, offset),), 0)
    assert violated(run) == "producers-ascend"


def test_a_follower_that_forgets_a_producer(monkeypatch):
    monkeypatch.setattr(LogTracker, "_take", lambda self, entry: self._step(*entry[:2]))
    assert simulate(schedule()).failure_class == "producers-equal"


CUT_OFF = (
    step(300, "elect", node="n1", partition=0),
    step(405, "partition", 500, side="n1", how="silent"),
    step(480, "elect", node="n2", partition=0),
)
"""n1 takes records that no other node gets, and they are taken back from it."""


def keep_truncated(monkeypatch):
    """A planted bug: what truncated batches said of their producers is not taken back."""
    monkeypatch.setattr(ProducerTable, "truncated_from", lambda self, index: None)
    writes = tuple(
        step(20 * n, "produce", slot=n % 2, partition=0, count=1) for n in range(60)
    )  # of few batches at a time, so that later ones do not hide it at once
    return Schedule(SimOptions(seed=6, safety_ms=1_600), (*writes, *CUT_OFF))


def test_producers_are_looked_at_after_a_truncation(monkeypatch):
    assert simulate(keep_truncated(monkeypatch)).failure_class == "producers-equal"


def test_later_batches_would_hide_it(monkeypatch):
    plan = keep_truncated(monkeypatch)
    monkeypatch.setattr(replica_checks.ReplicaChecks, "_follow", lambda *_: iter(()))
    assert simulate(plan).failure == ""


def remember_otherwise(table):
    for number, state in table.states():
        table._states[number] = state._replace(last_seen_ms=state.last_seen_ms + 1)


def test_producers_are_looked_at_after_an_install(monkeypatch):
    """A planted bug: producers are taken to have been heard later than they were. Nothing else
    notices."""
    installed = LogTracker.installed

    def later(self, index, snapshot):
        installed(self, index, snapshot)
        remember_otherwise(self.producers)

    monkeypatch.setattr(LogTracker, "installed", later)
    plan = scenario_files.load("install-of-a-laggard").case.schedule
    assert simulate(plan).failure_class == "producers-equal"
    monkeypatch.setattr(replica_checks.ReplicaChecks, "_follow", lambda *_: iter(()))
    assert simulate(plan).failure == ""


def test_producers_are_looked_at_after_a_boot(monkeypatch):
    """A planted bug: the same, of a boot."""
    booted = replica_module.booted_tracker

    def later(*arguments, **named):
        tracker = booted(*arguments, **named)
        remember_otherwise(tracker.producers)
        return tracker

    monkeypatch.setattr(replica_module, "booted_tracker", later)
    plan = scenario_files.load("power-loss-all").case.schedule
    assert simulate(plan).failure_class == "producers-equal"


def test_tables_that_differ_where_logs_are_equal():
    run, invariants, leader = middle()
    key = (leader.group, leader.log.last_index, leader.log.last_term)
    invariants.replicas.tables[key] = b"other"
    with pytest.raises(Violation, match="producers-equal"):
        invariants.whole(run.world.running())


def test_a_membership_that_was_committed_unseen_is_asked_of_the_log():
    """Seed 6303549: the last entries of a move were in nobody's memory when they were committed,
    and the replica that had left was held to be removed too early."""
    _, invariants, leader = middle()
    committed = invariants.committed[leader.group]
    committed.membership, committed.end = None, leader.commit
    committed.follow(leader.log, leader.commit, tuple)
    assert not committed.whole
    assert committed.membership == leader.membership


# --- where entries lie ----------------------------------------------------------------------------


def misplaced(**changes):
    """Returns the error for the last committed entry with these changes; None changes the state
    before it."""
    _, invariants, leader = middle()
    committed = invariants.committed[leader.group]
    entry = leader.log.entries(leader.commit, 1)[0]
    committed.next_offset, committed.last_term = entry.base_offset, entry.term
    for name in [name for name in changes if name in ("next_offset", "last_term")]:
        setattr(committed, name, changes.pop(name))
    header = read_header(entry.batch)
    return committed._misplaced(entry._replace(**changes), header)


def test_offsets_are_dense():
    assert misplaced() == ""
    assert "before it: 1, term" in misplaced(next_offset=1)
    assert misplaced(next_offset=None) == "", "what was before it is not known"
    assert "offsets 0 to" in misplaced(base_offset=Offset(0))
    assert misplaced(next_offset=None, base_offset=Offset(0)), "its batch says another offset"
    assert misplaced(kind=EntryKind.MARKER), "Raft's own entries take no offset"


def test_an_epoch_is_the_term_of_the_entry_that_began_it():
    assert misplaced(term=Term(77)), "its batch says another epoch"
    assert misplaced(last_term=0), "no entry began that term"


def test_a_committed_offset_that_is_given_twice():
    run, invariants, leader = middle()
    invariants.committed[leader.group].next_offset += 1
    assert violated(run) == "offsets-dense"


def test_a_leader_that_leaves_an_offset_out(monkeypatch):
    """Followers refuse what it sends, so one that leads alone commits it."""
    real = proposals.entry_of

    def entry_of(*of):
        entry = real(*of)
        return entry._replace(next_offset=entry.next_offset + 1)

    monkeypatch.setattr(proposals, "entry_of", entry_of)
    alone = {"brokers": 1, "controllers": 1, "replication": 1, "min_in_sync": 1}
    assert simulate(schedule(**alone)).failure_class == "offsets-dense"


# --- where logs begin -----------------------------------------------------------------------------


def test_a_log_start_that_no_marker_says(monkeypatch):
    real = PartitionLog.set_log_start
    monkeypatch.setattr(
        PartitionLog, "set_log_start", lambda self, offset, at: real(self, offset - 1, at)
    )
    assert simulate(schedule(step(150, "trim", partition=0))).failure_class == "log-start-committed"


def test_a_log_start_that_is_not_applied(monkeypatch):
    monkeypatch.setattr(PartitionLog, "set_log_start", lambda self, offset, at: None)
    assert simulate(schedule(step(150, "trim", partition=0))).failure_class == "log-start-committed"


def test_a_log_start_that_went_back():
    run, invariants, leader = middle()
    invariants.replicas.starts[leader.group] = (leader.term, 10_000)
    assert violated(run) == "log-start-monotone"


@pytest.mark.parametrize("by", ["boot", "directory"])
def test_epochs_that_went_back(by):
    run, invariants, leader = middle()
    one = run.world.nodes[NodeId(1)]
    key = (one.number, one.boots) if by == "boot" else one.broker.context.directory
    invariants.replicas.epochs[leader.group, key] = 99
    found = dict(invariants.replicas.routes_changed(one))
    assert "published epoch 99" in found["leader-epoch-monotone"]


def test_an_epoch_that_went_back_while_the_replica_was_opened():
    run, invariants, leader = middle()
    one = run.world.nodes[NodeId(1)]
    del one.broker.context.replicas[leader.group]
    invariants.replicas.epochs[leader.group, one.broker.context.directory] = 99
    found = dict(invariants.replicas.routes_changed(one))
    assert "published epoch 99" in found["leader-epoch-monotone"]


def test_a_replica_that_runs_where_a_younger_one_ran():
    run, invariants, leader = middle()
    one = run.world.nodes[NodeId(1)]
    context = one.broker.context
    younger = context.replicas[leader.group].me._replace(epoch=99)
    invariants.replicas.ids[leader.group, context.directory] = younger
    found = dict(invariants.replicas.routes_changed(one))
    assert "ran before" in found["replica-begins-once"]
    one.rolled_back = True
    assert dict(invariants.replicas.routes_changed(one))["replica-begins-once"] == ""


def test_two_leaders_of_one_epoch_that_clients_hear_of():
    run, invariants, leader = middle()
    invariants.replicas.leaders[leader.group, leader.term] = NodeId(9)
    found = dict(invariants.replicas.routes_changed(run.world.nodes[NodeId(1)]))
    assert "published as leaders" in found["leader-epoch-monotone"]


# --- what is cut and removed ----------------------------------------------------------------------


def test_a_follower_that_cuts_what_no_conflict_disproved(monkeypatch):
    real = following.on_append

    def on_append(state, message):
        last = state.log.last_index
        if message.prev_index == last > state.commit:
            following.truncate(state, last)
        real(state, message)

    monkeypatch.setitem(node._HANDLERS, Append, on_append)
    assert simulate(schedule()).failure_class == "truncation-proven"


@pytest.mark.parametrize(("durable", "last", "fine"), [
    (-1, 0, True), (-2, 0, False), (-1, -1, True), (0, -1, True), (0, -2, False), (0, 0, True),
])  # fmt: skip
def test_a_log_is_cut_from_its_first_conflict_on(durable, last, fine):
    """The last entry is taken to be of another term before. The entries below it equal the
    leader's, and were cut all the same where the durable end or the end itself fell further."""
    run, invariants, leader = middle()
    replicas = invariants.replicas
    one = next(node for node in run.world.running() if node.number != leader.me.node)
    replica = one.broker.context.replicas[leader.group]
    end = replica.log.last_index
    entry = replica.log.entries(end, 1)[0]
    replicas._terms[replica] = _Terms([0, end], [entry.term, entry.term + 9])
    place = (replica.term, RaftIndex(end - 1), entry.term, end, 0, NO_CHAIN, (entry,))
    append = Append(leader.group, leader.me, replica.me, *place)
    events = (PeerMessages(leader.me.node, 1, (append,)),)
    before = NOTHING._replace(last_index=end, durable=end, commit=end - 3)
    now = before._replace(last_index=end + last, durable=end + durable)
    found = dict(replicas._cut(replica, before, now, events))
    assert ("a conflict is" not in found["truncation-proven"]) is fine
    silent = dict(replicas._cut(replica, before, now, ()))
    assert ("conflict is None" in silent["truncation-proven"]) is (last < 0), "nobody told of one"


def test_conflicts_are_told_from_cuts_without_a_reason():
    cut = step(60, "partition", 250, side="leader:0", how="silent")
    result = simulate(schedule(cut, safety_ms=1_200))
    assert result.failure == ""
    assert result.invariants["truncation-proven"]["checked"] > 0


def test_segments_that_are_still_needed(monkeypatch):
    real = ReadPlanner.plan_removal
    monkeypatch.setattr(
        ReadPlanner, "plan_removal", lambda self, start, *more: real(self, 2**60, *more)
    )
    monkeypatch.setattr(ReadPlanner, "_tells", lambda *_: True)
    result = simulate(schedule(step(150, "trim", partition=0), segment_bytes=5_000))
    assert result.failure_class in ("removed-rightly", "log-start-committed")


def test_a_replica_that_is_deleted_without_a_delta():
    run, _, leader = middle()
    one = run.world.nodes[NodeId(1)]
    topic = one.broker.context.image.topic("t")
    me = one.broker.context.replicas[leader.group].me
    removal = Removal(group=leader.group, replica=me, topic_id=topic.topic_id, partition=0)
    one.broker.manager.delete(removal)
    one.deliver_nothing()
    assert violated(run) == "removed-rightly"


def test_a_member_that_is_deleted_though_a_delta_names_it():
    run, invariants, leader = middle()
    one = run.world.nodes[NodeId(1)]
    context = one.broker.context
    topic_id = context.image.topic("t").topic_id
    replica = context.replicas[leader.group]
    removal = Removal(group=leader.group, replica=replica.me, topic_id=topic_id, partition=0)
    context.image = attrs.evolve(context.image, removals={NodeId(1): (removal,)})
    home = invariants.replicas._homes[NodeId(1), replica.log.spec.path]
    assert invariants.replicas._deleted(one, home, "f") == ""  # the founders are no entry
    invariants.committed[leader.group].membership = replica.membership
    assert "is a member" in invariants.replicas._deleted(one, home, "f")
    context.image = attrs.evolve(context.image, topics={})
    assert invariants.replicas._deleted(one, home, "f") == ""


def test_a_mark_that_speaks_of_what_is_not_synced(monkeypatch):
    run, _, leader = middle()
    one = run.world.nodes[leader.me.node]
    assert replica_checks.marks_ahead(one) == ""
    marks = {leader.group: leader.log.mark(leader.commit)._replace(end_position=2**40)}
    monkeypatch.setattr(truth, "durable_marks", lambda _: marks)
    assert "speaks of" in replica_checks.marks_ahead(one)
    run.nemesis.atlas.damaged[one.number] = None
    with pytest.raises(Violation, match="mark-synced"):
        run.onlooker.invariants.whole([one])
    one.disk.flip_bit(leader.log.segments[-1].path, 9)
    assert replica_checks.marks_ahead(one) == "", "what was synced there may be gone"


def test_a_commit_hint_beyond_what_is_durable(monkeypatch):
    run, _, leader = middle()
    one = run.world.nodes[leader.me.node]
    mark = leader.log.mark(leader.commit)
    marks = {leader.group: mark._replace(commit=leader.log.durable_index + 1)}
    monkeypatch.setattr(truth, "durable_marks", lambda _: marks)
    assert "entries up to" in replica_checks.marks_ahead(one)
    state = leader.node._state
    state.damaged = LogPosition(mark.raft_index, mark.term, mark.chain)
    assert replica_checks.marks_ahead(one) == "", "it knows that it has lost that"
    state.damaged, leader.log._rounds.durable = None, None  # an install is under way
    assert replica_checks.marks_ahead(one) == ""
