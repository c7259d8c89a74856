"""The checks of votes and of the lives of a replica fail on a broken product, or a tampered memory.

They pass where nothing is wrong.
"""

import attrs
import pytest
from raftlog_sim.base.violation import Violation
from raftlog_sim.checks.election_checks import _Request, went_back
from raftlog_sim.facts import truth
from raftlog_sim.facts.outline import NOTHING
from raftlog_sim.faults.loss_faults import empty_disk
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.world.inode import SECTOR

from raftlog.base.entries import HardState, LogPosition, Membership
from raftlog.base.errors import DiskError
from raftlog.base.ids import (
    ClusterId,
    DirectoryId,
    IoId,
    NodeId,
    RaftIndex,
    ReplicaEpoch,
    ReplicaId,
    Term,
)
from raftlog.broker.events import Effects, WriteFailed
from raftlog.raft import election
from raftlog.raft.messages import NO_CHAIN, AppendReply, PreVoteRequest, VoteReply, VoteRequest
from raftlog.storage.boot import walked_log
from raftlog.storage.directories import store
from raftlog.storage.directories.store_file import STORE_FILES
from tests.sim.checks.test_invariants import middle, schedule, step

OTHER = ReplicaId(NodeId(9), DirectoryId(9), ReplicaEpoch(9))
LONG = RaftIndex(10_000)


def voter():
    """As `middle`; a follower's node and its replica."""
    run, checks, group, leader = middle()
    node = next(node for node in run.world.running() if node.number != leader.me.node)
    return run, checks, group, node, node.broker.context.replicas[group], leader


def reasons(found):
    """Returns the errors among the checks, of which there must be some."""
    found = list(found)
    assert found
    return [(name, why) for name, why in found if why]


# --- who wins -------------------------------------------------------------------------------------


def test_a_leader_that_a_minority_voted_for():
    run, checks, group, leader = middle()
    node, elections, term = run.world.nodes[leader.me.node], checks.elections, leader.term
    assert elections.elected(node, leader) == ""
    for each in leader.membership.voters:
        elections.votes.pop((group, term, each), None)
    assert "by [" in elections.elected(node, leader)
    checks.leaders.clear()
    with pytest.raises(Violation, match="elected-by-majority"):
        checks._leader(node, leader, NOTHING, checks.outlines[group, leader.me])


def test_a_joint_configuration_votes_in_both_halves():
    run, checks, _, leader = middle()
    node, elections = run.world.nodes[leader.me.node], checks.elections
    voters = leader.membership.voters
    leader.node._state.memberships.append((LONG, Membership(voters=(OTHER,), outgoing=voters)))
    assert elections.elected(node, leader)
    elections.votes[leader.group, leader.term, OTHER] = leader.me
    assert elections.elected(node, leader) == ""


def test_who_votes_alone_has_its_vote_on_its_disk(monkeypatch):
    alone = {"brokers": 1, "controllers": 1, "replication": 1, "min_in_sync": 1}
    run = simulate(schedule(**alone))
    assert run.failure == ""
    assert run.invariants["elected-by-majority"]["checked"] > 0
    monkeypatch.setattr(truth, "vote_is_durable", lambda *of: False)
    assert simulate(schedule(**alone)).failure_class == "elected-by-majority"


def test_a_vote_in_a_store_that_rot_made_unreadable_is_no_vote_forgotten(monkeypatch):
    """Seed 9904784: a store had rotted in its last frame, which was a torn end until a vote was
    written behind it; then no boot could read it, as its next boot would have found."""
    _, _, group, node, replica, _ = voter()
    term, vote = replica.term, replica.node._state.vote
    assert truth.vote_is_durable(node, group, term, vote)
    assert not truth.vote_is_durable(node, group, Term(term + 1), vote)
    for path in STORE_FILES:
        for position in range(0, len(node.disk.content(path)), SECTOR):
            node.disk.flip_bit(path, position)
    node.looked_up = None  # as after any write
    assert truth.vote_is_durable(node, group, Term(term + 1), vote)
    monkeypatch.setattr(node.disk, "is_hurt", lambda path: False)
    assert not truth.vote_is_durable(node, group, term, vote)


def test_a_leader_is_not_being_installed():
    _, checks, group, leader = middle()
    now = checks.outlines[group, leader.me]
    assert went_back(leader, now, now) == ""
    leader.node._state.receiving = object()
    assert "installed" in went_back(leader, now, now)


# --- who gets a vote ------------------------------------------------------------------------------


def granted(checks, node, replica, end, *, damaged=False):
    """Let the node's replica have voted for OTHER, whose log ended there."""
    state = replica.node._state
    state.vote, state.term = OTHER, Term(state.term + 1)
    request = VoteRequest(replica.group, OTHER, replica.me, state.term, end[1], end[0], False)
    assert list(checks.elections.asks(node, request, damaged=False)) == []
    return reasons(checks.elections.granted(node, checks.outlines, damaged=damaged))


@pytest.mark.parametrize(("terms", "more", "fine"), [(0, 0, True), (0, -1, False), (1, -9, True)])
def test_a_vote_goes_to_a_log_that_is_as_new(terms, more, fine):
    _, checks, _, node, replica, _ = voter()
    log = replica.log
    found = granted(checks, node, replica, (log.last_term + terms, log.last_index + more))
    assert [name for name, _ in found] == ([] if fine else ["vote-up-to-date"])


def test_the_last_term_decides_before_the_length():
    _, checks, _, node, replica, _ = voter()
    assert granted(checks, node, replica, (replica.log.last_term - 1, LONG))


def test_a_damaged_voter_compares_with_its_mark():
    _, checks, group, node, replica, _ = voter()
    log, mark = replica.log, truth.stored_mark(node, replica.group)
    end = (log.last_term, log.last_index)
    replica.node._state.damaged = LogPosition(LONG, log.last_term, NO_CHAIN)
    assert granted(checks, node, replica, end)
    replica.node._state.damaged = None
    assert granted(checks, node, replica, end, damaged=True) == []
    shorter = (mark.term, mark.raft_index - 1)
    checks.outlines[group, replica.me] = NOTHING
    assert granted(checks, node, replica, shorter) == [], "its log may have been as short"
    assert granted(checks, node, replica, shorter, damaged=True), "it has forgotten its mark"


def test_what_was_not_granted_waits_or_is_forgotten():
    _, checks, group, node, replica, _ = voter()
    asked, state = checks.elections.asked, replica.node._state
    later = _Request(group, state.term + 1, OTHER)
    asked[node.number] = {later: (0, 0), _Request(group, state.term - 1, OTHER): (0, 0)}
    assert list(checks.elections.granted(node, checks.outlines, damaged=False)) == []
    assert asked[node.number] == {later: (0, 0)}
    state.term, state.vote = Term(state.term + 1), replica.me
    assert list(checks.elections.granted(node, checks.outlines, damaged=False)) == []
    assert asked[node.number] == {}


def test_votes_for_old_logs_are_caught(monkeypatch):
    """A follower that was cut off campaigns, and the others have more."""
    monkeypatch.setattr(election, "_is_up_to_date", lambda state, term, index: True)
    cut = step(100, "partition", 100, side="n3", how="loud")
    elect = step(205, "elect", node="n3", partition=0)
    crash = step(201, "crash", 300, node="leader:0")
    found = {simulate(schedule(cut, crash, elect, seed=seed)).failure_class for seed in range(6)}
    assert "vote-up-to-date" in found


# --- who campaigns --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [VoteRequest, PreVoteRequest])
def test_a_damaged_replica_that_campaigns(kind):
    _, checks, group, node, replica, leader = voter()
    place = (replica.term, RaftIndex(1), Term(1))
    more = (False,) if kind is VoteRequest else ()
    message = kind(group, replica.me, leader.me, *place, *more)
    assert reasons(checks.elections.asks(node, message, damaged=True)) == []
    replica.node._state.damaged = LogPosition(RaftIndex(1), Term(1), NO_CHAIN)
    found = reasons(checks.elections.asks(node, message, damaged=False))
    assert [name for name, _ in found] == ["damaged-never-campaigns"]


def test_who_does_not_know_that_it_is_damaged_campaigns():
    _, checks, group, node, replica, leader = voter()
    message = PreVoteRequest(group, replica.me, leader.me, replica.term, RaftIndex(1), Term(1))
    replica.log.last_index, replica.log.last_term = RaftIndex(1), Term(0)
    assert reasons(checks.elections.asks(node, message, damaged=False)) == []
    assert reasons(checks.elections.asks(node, message, damaged=True))


# --- one life after another -----------------------------------------------------------------------


def begun(checks, node, replica, before, *, excused=False):
    return reasons(checks.life.began_again(node, replica, before, excused=excused))


def test_what_was_durable_is_there_again():
    _, checks, group, node, replica, _ = voter()
    before = checks.outlines[group, replica.me]
    assert begun(checks, node, replica, before) == []
    more = before._replace(durable=replica.log.last_index + 1)
    assert "durable entries, and begins with" in begun(checks, node, replica, more)[0][1]
    assert begun(checks, node, replica, more, excused=True) == []
    checks.lives[group, replica.me] = None
    checks.drawn.clear()
    checks.outlines[group, replica.me] = more
    with pytest.raises(Violation, match="kept-across-lives"):
        checks._look(node, {group: replica}, ())


def test_an_id_never_starts_empty_twice(monkeypatch):
    _, checks, group, node, replica, _ = voter()
    monkeypatch.setattr(truth, "stored_mark", lambda *of: None)
    before = checks.outlines[group, replica.me]
    replica.log.last_index = RaftIndex(0)
    assert "empty and whole" in begun(checks, node, replica, before, excused=True)[0][1]
    assert begun(checks, node, replica, before._replace(durable=0), excused=True) == []
    replica.node._state.damaged = LogPosition(LONG, Term(1), NO_CHAIN)
    assert begun(checks, node, replica, before, excused=True) == []
    replica.node._state.damaged, node.rolled_back = None, True
    assert list(checks.life.began_again(node, replica, before, excused=True)) == []


def test_an_id_whose_log_was_cut_to_nothing_begins_empty(monkeypatch):
    """The most that was ever durable is no measure there, for no truncation lowers it."""
    _, checks, group, node, replica, _ = voter()
    monkeypatch.setattr(truth, "stored_mark", lambda *of: None)
    before = checks.outlines[group, replica.me]
    list(checks.life.held(node, replica, before._replace(durable=0)))
    assert (group, replica.me) in checks.life.emptied
    assert begun(checks, node, replica, before, excused=True) == [], "it has entries again"
    length, replica.log.last_index = replica.log.last_index, RaftIndex(0)
    assert "empty and whole" in begun(checks, node, replica, before, excused=True)[0][1]
    list(checks.life.held(node, replica, before._replace(durable=0)))
    assert begun(checks, node, replica, before, excused=True) == []
    replica.log.last_index = length
    list(checks.life.held(node, replica, before))
    replica.log.last_index = RaftIndex(0)
    assert "empty and whole" in begun(checks, node, replica, before, excused=True)[0][1]


def test_what_a_mark_covers_is_not_cut(monkeypatch):
    _, checks, group, node, replica, _ = voter()
    before, mark = checks.outlines[group, replica.me], replica.log.mark(replica.commit)
    more = mark._replace(raft_index=replica.log.last_index + 1)
    monkeypatch.setattr(truth, "stored_mark", lambda *of: more)
    assert "begins whole" in begun(checks, node, replica, before, excused=True)[0][1]
    replica.node._state.damaged = LogPosition(LONG, Term(1), NO_CHAIN)
    assert begun(checks, node, replica, before, excused=True) == []
    replica.node._state.damaged = None
    for other in (mark, more._replace(file_sequence=99), None):
        monkeypatch.setattr(truth, "stored_mark", lambda *of, other=other: other)
        assert begun(checks, node, replica, before, excused=True) == []


def test_a_term_or_vote_that_was_forgotten():
    _, checks, group, node, replica, _ = voter()
    before, state, term = checks.outlines[group, replica.me], replica.node._state, replica.term
    vote, other = state.vote, (ReplicaId(*OTHER[:2], ReplicaEpoch(1)), OTHER)
    state.term = Term(term - 1)
    assert "begins in term" in begun(checks, node, replica, before)[0][1]
    state.term, state.vote = term, next(each for each in other if each != vote)
    checks.elections.votes[group, term, replica.me] = OTHER
    assert "voted for" in begun(checks, node, replica, before)[0][1]
    state.vote = OTHER
    assert begun(checks, node, replica, before) == []


def test_no_vote_in_a_term_that_only_the_log_knew():
    _, checks, group, node, replica, _ = voter()
    before, state = checks.outlines[group, replica.me], replica.node._state
    state.term = replica.log.last_term = Term(state.term + 1)
    state.vote = OTHER
    assert begun(checks, node, replica, before) == [], "its last entry came in this very turn"
    rounds = replica.log._rounds
    end = rounds.durable.end._replace(term=state.term)
    rounds.durable = rounds.durable._replace(end=end)
    for vote, wrong in ((OTHER, True), (None, False), (replica.me, False)):
        state.vote = vote
        assert bool(begun(checks, node, replica, before)) is wrong


def test_hard_states_that_are_not_stored_are_missed_at_the_next_boot(monkeypatch):
    real = store.hard_state_record
    monkeypatch.setattr(
        store, "hard_state_record", lambda group, state: real(group, HardState(Term(0), None))
    )
    monkeypatch.setattr(truth, "vote_is_durable", lambda *of: True)
    crash = step(150, "crash", 80, node="follower:0")
    assert simulate(schedule(crash)).failure_class == "kept-across-lives"


def test_a_replica_that_complains_for_nothing():
    _, checks, group, node, replica, _ = voter()
    before = checks.outlines[group, replica.me]
    assert begun(checks, node, replica, before) == []
    replica.node._state.damaged = LogPosition(replica.log.last_index, Term(1), NO_CHAIN)
    found = begun(checks, node, replica, before)
    assert [name for name, _ in found] == ["damaged-rightly"]
    assert begun(checks, node, replica, before, excused=True) == []


def test_a_boot_that_holds_a_whole_log_to_more_than_its_mark_says(monkeypatch):
    real = walked_log._Walker._judge_last

    def judge(self, opened_file, file, end):
        if self._mark is not None:
            self._mark = self._mark._replace(raft_index=LONG)
        return real(self, opened_file, file, end)

    monkeypatch.setattr(walked_log._Walker, "_judge_last", judge)
    crash = step(150, "power", 80, node="follower:0", keep="none")
    assert simulate(schedule(crash)).failure_class == "damaged-rightly"


def test_a_reboot_is_compared_with_before():
    result = simulate(schedule(step(150, "power", 80, node="follower:0", keep="none")))
    assert result.failure == ""
    assert result.invariants["kept-across-lives"]["checked"] >= 4


# --- of which cluster -----------------------------------------------------------------------------


def test_a_directory_of_another_cluster():
    _, checks, _, node, *_ = voter()
    assert checks.cluster.differs(node) == ""
    checks.finish([node])
    own, node.disk = node.disk, empty_disk(node, ClusterId(b"another cluster!"))
    assert "directory of cluster" in checks.cluster.differs(node)
    checks.cluster.boots.clear()
    with pytest.raises(Violation, match="one-cluster"):
        checks.judge(checks.cluster.booted(node))
    node.disk = own
    assert checks.cluster.differs(node) == ""


def test_an_image_of_another_cluster():
    _, checks, _, node, *_ = voter()
    context = node.broker.context
    context.image = attrs.evolve(context.image, cluster_id=ClusterId(b"another cluster!"))
    assert "an image of" in checks.cluster.differs(node)
    with pytest.raises(Violation, match="one-cluster"):
        checks.finish([node])


def test_a_cluster_that_is_founded_twice(monkeypatch):
    _, checks, _, node, *_ = voter()
    real = truth.identity(node)
    monkeypatch.setattr(truth, "identity", lambda _: attrs.evolve(real, controllers=()))
    assert checks.cluster.differs(node) == "", "it joined"
    monkeypatch.setattr(truth, "identity", lambda _: attrs.evolve(real, controllers=(OTHER,)))
    assert "founds with" in checks.cluster.differs(node)
    monkeypatch.setattr(truth, "identity", lambda _: None)
    assert checks.cluster.differs(node) == "", "others see what is not durable"


# --- who may speak --------------------------------------------------------------------------------


def test_who_is_not_registered_may_not_speak(monkeypatch):
    _, checks, group, node, replica, leader = voter()
    key = (group, replica.me)
    assert not checks.life.is_news(node, key), "it spoke, and was looked up then"
    checks.life.registered.clear()
    reply = VoteReply(group, replica.me, leader.me, replica.term, False)
    checks._promised(node, reply)
    checks.life.registered.clear()
    monkeypatch.setattr(truth, "is_registered", lambda *of: False)
    with pytest.raises(Violation, match="registered-first"):
        checks._promised(node, reply)


def test_a_replica_that_runs_before_its_registration_is_durable(monkeypatch):
    real = store.register_record
    monkeypatch.setattr(
        store, "register_record", lambda group, named: real(group, named._replace(replica=OTHER))
    )
    assert simulate(schedule()).failure_class == "registered-first"


def test_who_failed_to_write_is_silent_until_it_begins_again():
    _, checks, group, node, replica, leader = voter()
    match = RaftIndex(1)
    reply = AppendReply(group, replica.me, leader.me, replica.term, match, damaged=False)
    checks._promised(node, reply)
    failure = WriteFailed(IoId(1), node.directory, (group,), DiskError("full", on="x"))
    checks.after_turn(node, (failure,), Effects())
    with pytest.raises(Violation, match="failed-write-is-the-end"):
        checks._promised(node, reply)
    before = checks.outlines[group, replica.me]
    ended = checks.life.failed[group, replica.me]
    assert begun(checks, node, replica, before) == []
    checks.life.failed[group, replica.me] = (ended[0], ended[1] - 1)
    assert "took entries" in begun(checks, node, replica, before)[0][1]


def test_when_a_directory_is_poisoned_all_its_replicas_are_silent():
    _, checks, group, node, replica, leader = voter()
    failure = WriteFailed(IoId(1), node.directory, None, DiskError("sync", on="x"))
    checks.after_turn(node, (failure,), Effects())
    concerned = set(checks.life.failed)
    assert (group, replica.me) in concerned
    assert {me.node for _, me in concerned} == {node.number}
    assert (group, leader.me) not in concerned


@pytest.mark.parametrize("call", ["write", "sync"])
def test_who_failed_to_write_and_began_again_may_speak(call):
    faults = (step(120, "disk-error", node="follower:0", call="write", count=2),
              step(150, "failed-sync", node="n2"))  # fmt: skip
    result = simulate(schedule(faults[call == "sync"], safety_ms=900))
    assert result.failure == ""
    assert result.invariants["failed-write-is-the-end"]["checked"] > 0


# --- the two books of rounds ----------------------------------------------------------------------


def test_raft_and_storage_that_disagree_on_what_is_durable():
    _, checks, _, node, replica, _ = voter()
    rounds = replica.node._state.rounds
    now = NOTHING._replace(durable=replica.log.durable_index)

    def wrong() -> list[str]:
        return [why for name, why in checks.life.held(node, replica, now) if why]

    assert rounds.durable == replica.log.durable_index > 0
    assert wrong() == []
    rounds.durable += 1
    assert len(wrong()) == 1
    rounds.durable -= 2
    assert len(wrong()) == 1
    node.broker.context.config = attrs.evolve(node.broker.context.config, strict_mark=True)
    assert wrong() == [], "a round counts later than it is durable"
    replica.log._rounds.overtake()
    rounds.durable = RaftIndex(replica.commit)
    assert wrong() == [], "an install is under way"
    rounds.durable += 1
    assert len(wrong()) == 1
