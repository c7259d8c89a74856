"""An invariant that cannot fail proves nothing: each is shown to fail, on a broken product or on a
memory that was tampered with."""

import attrs
import pytest
from raftlog_sim.base.violation import NAMES, Violation
from raftlog_sim.checks import bound_checks
from raftlog_sim.checks.invariants import Invariants
from raftlog_sim.facts import truth
from raftlog_sim.facts.convergence import is_converged
from raftlog_sim.facts.outline import Outline, Seen
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.disk import SimulatedFile

from raftlog.base.entries import HardState, LogPosition, Membership
from raftlog.base.ids import DirectoryId, NodeId, ReplicaEpoch, ReplicaId, Term
from raftlog.base.units import millis
from raftlog.metadata.image import ClusterImage
from raftlog.raft import lease
from raftlog.raft.messages import NO_CHAIN, AppendReply
from raftlog.raft.node import Role
from raftlog.raft.progress import REPLICATE
from raftlog.raft.rounds import RaftRounds
from raftlog.raft.state import RaftState
from raftlog.storage.directories import store

OTHER = ReplicaId(NodeId(9), DirectoryId(9), ReplicaEpoch(9))
WRITES = tuple(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 300, 20))


def schedule(*some, **options):
    return Schedule(SimOptions(**{"seed": 3, "safety_ms": 400, **options}), (*WRITES, *some))


def middle():
    """A run in its safety phase, with something committed, and the group of the partition."""
    run = Run(schedule())
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(100)
    while run.world.now < end:
        run.advance()
    group = run.world.nodes[NodeId(1)].broker.context.image.topic("t").partitions[0].group
    leader = next(
        node.broker.context.replicas[group]
        for node in run.world.running()
        if node.broker.context.replicas[group].is_leader
    )
    return run, run.onlooker.invariants, group, leader


def violated(run):
    return run.play().partition(":")[0]


# --- a broken product -----------------------------------------------------------------------------


def test_a_sync_that_does_nothing_is_seen_at_once(monkeypatch):
    monkeypatch.setattr(SimulatedFile, "sync", lambda self: None)
    caught = ("durable-on-disk", "promise-durable", "registered-first")
    assert simulate(schedule()).failure_class in caught


def test_an_entry_acknowledged_before_its_sync(monkeypatch):
    real = RaftRounds.begin

    def begin(self, io_id, last_index, **more):
        real(self, io_id, last_index, **more)
        self.durable = max(self.durable, last_index)

    monkeypatch.setattr(RaftRounds, "begin", begin)
    assert simulate(schedule()).failure_class in ("promise-durable", "committed-durable")


def test_a_vote_before_its_sync(monkeypatch):
    monkeypatch.setattr(RaftState, "promise", lambda self, message: self.send.append(message))
    assert simulate(schedule()).failure_class == "promise-durable"


def test_a_term_that_is_not_stored(monkeypatch):
    real = store.hard_state_record
    monkeypatch.setattr(
        store, "hard_state_record", lambda group, state: real(group, HardState(Term(0), None))
    )
    assert simulate(schedule()).failure_class == "promise-durable"


def test_images_that_differ(monkeypatch):
    monkeypatch.setattr(ClusterImage, "digest", lambda self: str(id(self)).encode())
    assert simulate(schedule()).failure_class == "image-digest"


def test_what_a_replica_said_in_its_last_turn_counts():
    """Seed 6401976: a replica acknowledged an entry and was reopened in one turn. A leader that
    committed by it was held to have counted wrongly."""
    run, invariants, group, leader = middle()
    node = next(node for node in run.world.running() if node.number != leader.me.node)
    replica = node.broker.context.replicas.pop(group)
    key, last = (group, replica.me), replica.log.durable_index
    said = AppendReply(group, replica.me, leader.me, leader.node.term, last, damaged=False)
    invariants.outlines[key] = invariants.outlines[key]._replace(durable=last - 1)
    invariants._promised(node, said)
    assert invariants.outlines[key].durable == last
    with pytest.raises(Violation, match="promise-durable"):
        invariants._promised(node, said._replace(match=last + 1))


@pytest.mark.parametrize("damaged", [True, False])
def test_what_was_said_before_a_disk_was_damaged_counts(damaged):
    """Seed 6800700: a replica had acknowledged an entry to a paused leader, then a file of it
    rotted away; then the leader heard the acknowledgement and committed by it."""
    run, invariants, group, leader = middle()
    node = next(node for node in run.world.running() if node.number != leader.me.node)
    replica = node.broker.context.replicas[group]
    key, term = (group, replica.me), replica.node.term
    invariants.damaged = {node.number} if damaged else ()
    invariants.outlines[key] = invariants.outlines[key]._replace(durable=10_000)
    del invariants.lives[key]
    invariants.drawn.clear()
    invariants._look(node, {group: replica}, ())
    assert invariants._has(*key, term) == (10_000 if damaged else replica.log.durable_index)
    assert invariants._has(*key, term + 1) == replica.log.durable_index


# --- a memory that was tampered with --------------------------------------------------------------


def test_two_leaders_of_one_term():
    run, invariants, group, leader = middle()
    invariants.leaders[group, leader.node.term] = OTHER
    assert violated(run) == "election-safety"


def test_a_report_that_gives_way_to_an_older_one():
    run, invariants, group, _ = middle()
    version, place = invariants.metadata.reports[group]
    invariants.metadata.reports[group] = (version, (place[0] + 100, *place[1:]))
    invariants.metadata.images.clear()
    assert violated(run) == "reports-ascend"


def test_a_leader_that_went_back():
    run, invariants, group, leader = middle()
    before = invariants.outlines[group, leader.me]
    invariants.outlines[group, leader.me] = before._replace(last_index=10_000)
    assert violated(run) == "leader-append-only"


def test_a_commit_that_fell():
    run, invariants, group, leader = middle()
    before = invariants.outlines[group, leader.me]
    invariants.outlines[group, leader.me] = before._replace(commit=10_000)
    assert violated(run) == "order"


def test_a_directory_that_is_out_without_a_reason():
    run, invariants, _group, _leader = middle()
    one, two = (run.world.nodes[NodeId(number)] for number in (1, 2))
    context = one.broker.context
    brokers = context.image.brokers
    condemned = attrs.evolve(brokers[NodeId(2)], condemned=True)
    context.image = attrs.evolve(context.image, brokers={**brokers, NodeId(2): condemned})
    found = dict(invariants.metadata.after_turn(one))
    assert "never rolled back" in found["condemned-rightly"]
    two.rolled_back = True
    invariants.metadata.images.clear()
    assert dict(invariants.metadata.after_turn(one))["condemned-rightly"] == ""


def test_a_replica_on_a_broker_that_is_forgotten():
    run, invariants, _group, _leader = middle()
    one = run.world.nodes[NodeId(1)]
    context = one.broker.context
    assert dict(invariants.metadata.after_turn(one)).get("image-names-brokers", "") == ""
    left = {node: each for node, each in context.image.brokers.items() if node != 2}
    context.image = attrs.evolve(context.image, brokers=left)
    assert "on no broker" in dict(invariants.metadata.after_turn(one))["image-names-brokers"]
    context.image = attrs.evolve(context.image, topics={}, settings={NodeId(2): (("a", "1"),)})
    assert "broker 2" in dict(invariants.metadata.after_turn(one))["image-names-brokers"]


def test_a_high_watermark_that_fell():
    run, invariants, group, leader = middle()
    invariants.published[group, leader.me.node] = 10_000
    assert violated(run) == "high-watermark-monotone"


def test_a_committed_entry_that_changed():
    run, invariants, group, leader = middle()
    invariants.ghost[group][leader.commit] = Seen(77, 1)
    with pytest.raises(Violation, match="committed-immutable"):
        invariants.whole(run.world.running())


def test_two_chains_of_one_entry():
    run, invariants, group, leader = middle()
    for index in range(leader.log.last_index, leader.log.last_index + 50):
        invariants.ends.setdefault((group, index + 1, leader.node.term), 1)
    assert violated(run) == "log-matching"


def test_a_new_leader_that_misses_something():
    _run, invariants, group, leader = middle()
    end = invariants.ghost_end[group]
    invariants.ghost[group][end] = Seen(77, 1)
    invariants.ghost_ends[group] = {leader.node.term - 1: end}
    with pytest.raises(Violation, match="leader-completeness"):
        invariants._complete(group, leader)


def test_a_leader_of_an_older_term_may_miss_what_later_ones_committed():
    """Seed 300205: a pause held up the votes of term 1 until term 4 had committed. To lead term 1
    was still its right, with nothing that it could commit."""
    _run, invariants, group, leader = middle()
    end = invariants.ghost_end[group]
    invariants.ghost[group][end] = Seen(77, 1)
    invariants.ghost_ends[group] = {leader.node.term + 1: end}
    invariants._complete(group, leader)


def test_a_commit_that_too_few_disks_hold():
    _run, invariants, group, leader = middle()
    for replica in leader.membership.voters:
        if replica != leader.me:
            known = invariants.outlines[group, replica]
            invariants.outlines[group, replica] = known._replace(durable=0)
    with pytest.raises(Violation, match="committed-durable"):
        invariants._commit_rule(group, leader, 0)


def test_a_commit_counts_in_a_configuration_that_was_in_force_in_its_turn():
    """Seed 655: an acknowledgement committed an entry, and in the same turn its leader appended a
    joint configuration, of whose halves one did not hold the entry yet. That was judged."""
    _, invariants, group, leader = middle()
    log, voters = leader.log, leader.membership.voters
    later = Membership(voters=(OTHER,), outgoing=voters)
    log.memberships.append((leader.commit + 1, later))
    invariants._commit_rule(group, leader, 0)
    with pytest.raises(Violation, match=r"committed-durable: .* durable on 0 of 1"):
        invariants._commit_rule(group, leader, leader.commit + 1)


def test_a_commit_of_an_older_term(monkeypatch):
    _, invariants, group, leader = middle()
    monkeypatch.setattr(type(leader.log), "term_at", lambda self, index: Term(0))
    with pytest.raises(Violation, match="commit-rule"):
        invariants._commit_rule(group, leader, 0)


def test_an_acknowledgement_above_every_high_watermark():
    _, invariants, group, leader = middle()
    invariants.acknowledged(group, leader.high_watermark - 1)
    with pytest.raises(Violation, match="acknowledged-committed"):
        invariants.acknowledged(group, leader.high_watermark)


def test_a_linearizable_read_that_misses_something():
    _, invariants, group, _ = middle()
    invariants.read(group, 5, 5)
    with pytest.raises(Violation, match="linearizable-read"):
        invariants.read(group, 5, 4)


def test_leaders_that_ask_nobody_before_they_read_are_caught(monkeypatch):
    """A leader that stood still answers, before it knows that others lead, reads that began while
    they led."""
    monkeypatch.setattr(lease, "holds", lambda state: state.role is Role.LEADER)
    late = tuple(step(at, "produce", slot=at, partition=0, count=1) for at in range(400, 680, 20))
    writes = (step(9, "produce", slot=0, partition=0, count=9), *late)
    reads = tuple(step(at, "read", partition=0) for at in (20, 40, 60, 80, 210, 480, 690))
    caught = set()
    for seed in range(4):
        options = SimOptions(seed=seed, safety_ms=900, linearizable=True, lease=True)
        cut = step(190, "partition", 600, side="leader:0", how="silent")
        pause = step(195, "pause", 520, node="leader:0")
        caught.add(simulate(Schedule(options, (*writes, *reads, cut, pause))).failure_class)
    assert "linearizable-read" in caught


def test_a_directory_whose_boots_go_back():
    run, invariants, _, _ = middle()
    node = run.world.nodes[NodeId(1)]
    invariants.cluster.numbers[node.directory] = 99
    with pytest.raises(Violation, match="boot-numbers"):
        invariants.judge(invariants.cluster.booted(node))


def test_configurations_whose_quorums_do_not_overlap():
    _, invariants, group, leader = middle()
    key = (group, leader.me, leader.node.term)
    for voters in ((OTHER,), tuple(sorted((OTHER, leader.me)))):
        invariants.memberships[key] = Membership(voters)
        with pytest.raises(Violation, match="membership-steps"):
            invariants._steps(group, leader)


def test_terms_and_votes_that_go_back():
    run, invariants, _group, _leader = middle()
    invariants.told_terms.update(dict.fromkeys(list(invariants.told_terms), 1000))
    assert violated(run) == "term-monotone"


def test_files_that_differ_in_the_end():
    run, _, _, _ = middle()
    assert run.play() == ""
    one = truth.Story(1, 5, 9, "aa", "")
    assert truth.difference(one, one._replace(first_index=3)) == ""
    assert truth.difference(one, one._replace(chain="bb"))
    assert "gone" in truth.difference(one, one._replace(damaged="gone"))
    node = run.world.nodes[NodeId(1)]
    path = next(p for p in node.disk.paths() if p.endswith(".log") and "-0-0/" not in p)
    node.disk.flip_bit(path, len(node.disk.content(path)) - 5)
    with pytest.raises(Violation, match="equal-files"):
        run.onlooker.invariants.finish(run.world.running())


def test_rot_that_nobody_has_read_is_excused_and_no_other():
    """A damaged node was compared with no other, though its disk had been repaired, or was another
    one."""
    run, invariants, group, _ = middle()
    assert run.play() == ""
    node = run.world.nodes[NodeId(1)]
    run.nemesis.atlas.damaged[NodeId(1)] = None
    segment = node.broker.context.replicas[group].log.segments[0]
    segment.verified = False
    compared = invariants.checked["equal-files"]
    invariants.finish(run.world.running())
    all_of_it = invariants.checked["equal-files"] - compared
    node.disk.flip_bit(segment.path, len(node.disk.content(segment.path)) - 5)
    invariants.finish(run.world.running())
    assert invariants.checked["equal-files"] - compared == 2 * all_of_it - 1, "one is excused"
    segment.verified = True
    with pytest.raises(Violation, match="equal-files"):
        invariants.finish(run.world.running())


def test_a_sector_that_cannot_be_read_keeps_no_other_replica_from_being_compared():
    run, invariants, group, _ = middle()
    assert run.play() == ""
    node = run.world.nodes[NodeId(1)]
    replicas = node.broker.context.replicas
    segment = replicas[group].log.segments[0]
    segment.verified = False
    node.disk.make_unreadable(segment.path, len(node.disk.content(segment.path)) - 5)
    invariants.finish(run.world.running())
    other = next(number for number in replicas if number != group)
    path = replicas[other].log.segments[0].path
    node.disk.flip_bit(path, len(node.disk.content(path)) - 5)
    with pytest.raises(Violation, match=f"equal-files: group {other} "):
        invariants.finish(run.world.running())


def test_a_verified_segment_that_cannot_be_read_is_told():
    """A bad sector counts as what was written there, so what is compared does not show it."""
    run, invariants, group, _ = middle()
    assert run.play() == ""
    node = run.world.nodes[NodeId(1)]
    segment = node.broker.context.replicas[group].log.segments[0]
    end = len(node.disk.content(segment.path))
    assert segment.verified
    assert segment.end_position is not None
    assert segment.end_position <= end
    node.disk.make_unreadable(segment.path, 0)
    invariants.finish(run.world.running())
    node.disk.make_unreadable(segment.path, segment.end_position - 5)
    with pytest.raises(Violation, match=f"equal-files: group {group} on node 1: .* cannot be read"):
        invariants.finish(run.world.running())


def test_a_cluster_that_has_not_repaired_what_it_knows_has_not_converged():
    run, _, group, leader = middle()
    assert run.play() == ""
    assert is_converged(run.world)
    node = next(node for node in run.world.running() if node.number != leader.me.node)
    replica = node.broker.context.replicas[group]
    replica.node._state.damaged = LogPosition(replica.log.last_index, Term(1), NO_CHAIN)
    assert not is_converged(run.world)


def test_a_sender_beyond_its_window_is_seen():
    _, invariants, _, leader = middle()
    assert bound_checks.senders(leader) == ""
    state = leader.node._state
    follower = next(iter(state.progress.values()))
    assert follower.state is REPLICATE
    follower.in_flight.extend([(follower.next - 1, 10)] * 5)
    follower.in_flight_bytes += 50
    assert "at most" in bound_checks.senders(leader)
    follower.in_flight_bytes += 1
    follower.in_flight.clear()
    assert "counted" in bound_checks.senders(leader)
    follower.in_flight_bytes = 0
    follower.waiting = True
    assert "probe" in bound_checks.senders(leader)
    follower.waiting, follower.next = False, leader.log.last_index + 2
    assert "next" in bound_checks.senders(leader)
    state.progress[OTHER] = follower
    assert "has senders for" in bound_checks.senders(leader)
    with pytest.raises(Violation, match="bounded"):
        invariants.judge((("bounded", bound_checks.senders(leader)),))


def test_a_ledger_that_counts_wrong_is_seen():
    run, invariants, _, leader = middle()
    node = run.world.nodes[leader.me.node]
    ledger = node.broker.context.ledger
    assert bound_checks.queues(node) == ""
    ledger.waiting_bytes += 1
    with pytest.raises(Violation, match="bounded"):
        invariants.whole([node])
    ledger.waiting_bytes -= 1
    ledger.pinned_bytes += 1
    assert "pinned bytes" in bound_checks.queues(node)
    ledger.pinned_bytes -= 1
    account = next(iter(ledger._accounts.values()))
    account.output_bytes = ledger.limits.output_bytes
    assert "over a limit" in bound_checks.queues(node)
    account.output_bytes, account.over = 0, True
    assert "held to be over one" in bound_checks.queues(node)
    account.over, account.paused = False, True
    assert "paused for nothing" in bound_checks.queues(node)
    account.groups_over[leader.group] = None
    assert "does not know" in bound_checks.queues(node)
    ledger._group_producers[leader.group] = {account.connection: None}
    assert "pauses producers" in bound_checks.queues(node)


@pytest.mark.parametrize("which", ["pinned", "held", "waiting"])
def test_a_process_over_a_limit_is_held_to_be(which):
    run, _, _, leader = middle()
    node = run.world.nodes[leader.me.node]
    ledger = node.broker.context.ledger
    account = next(iter(ledger._accounts.values()))
    setattr(ledger, f"{which}_over", True)
    assert "the process is below half" in bound_checks.queues(node)
    limit = getattr(ledger.limits, f"{which}_bytes")
    setattr(ledger, f"{which}_bytes", limit)
    setattr(account, "request_bytes" if which == "waiting" else f"{which}_bytes", limit)
    account.over = which == "waiting"
    assert "should be paused" in bound_checks.queues(node)
    setattr(ledger, f"{which}_over", False)
    assert "the process is over a limit" in bound_checks.queues(node)


def test_a_run_compares_what_it_says():
    shares = step(0, "consume", member=0, group=0, how="eager", id="dynamic", every_ms=5)
    result = simulate(schedule(shares, step(150, "crash", 80, node="leader:0")))
    assert result.failure == ""
    rare = {"membership-steps", "one-change-at-a-time", "linearizable-read", "peer-protocol"}
    rare |= {"truncation-proven", "removed-rightly", "same-after-reboot"}
    rare |= {"failed-write-is-the-end", "offsets-told", "epoch-ends-told", "kept-by-age"}
    rare |= {"times-told", "kept-by-size", "moves-paced", "directories-apart"}
    rare |= {"controllers-wanted", "copied-exactly"}
    rare |= {"answers-in-order", "back-pressure", "records-followed", "nothing-left"}
    rare |= {"group-fences", "group-static-stays", "rot-found"}
    idle = {name for name, row in result.invariants.items() if not row["checked"]}
    assert idle <= rare
    assert set(NAMES) == set(Invariants().checked)
    assert Outline(*range(9)).membership_index == 8
