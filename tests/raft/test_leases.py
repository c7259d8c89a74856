"""Goal: a read by lease is as linearizable as one by read index, or is not given.

Each hazard of raftlog.raft.lease has a test that fails without its remedy: the last test takes the
remedies away one by one.
"""

import random

import attrs
import pytest

from raftlog.base.entries import HardState, LogPosition
from raftlog.base.ids import RaftIndex, Term
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.raft import election, lease
from raftlog.raft.messages import (
    NO_CHAIN,
    Append,
    PreVoteReply,
    ReadEcho,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from raftlog.raft.node import Role
from raftlog.raft.options import RaftOptions
from tests.raft.chaos import Chaos
from tests.raft.cluster import ELECTION, OPTIONS, WALL, Cluster, rid, voters

LEASED = attrs.evolve(OPTIONS, lease_ns=ELECTION)
LASTS = ELECTION * (1000 - lease.DRIFT_PERMILLE) // 1000


def led(count=3, options=LEASED):
    """A cluster that 1 leads, with one entry and a lease that began now."""
    c = Cluster(count, options=options)
    c.elect(1)
    c.write(1, b"a")
    assert read(c, 1) == c.node(1).commit
    return c


def read(c, number, token=None):
    """The answer of a read after everything has settled."""
    token = token or c.now * 1000 + len(c[number].reads)
    c.node(number).read_index(token, c.now)
    c.settle()
    return c[number].reads.get(token, "unanswered")


def rounds(c):
    """Appends on the wire so far that carry a read round."""
    return sum(isinstance(m, Append) and m.read_context > 0 for m in c.sent)


def wait(c, nanos):
    """Time passes for the clocks alone; nothing ticks."""
    c.now = Instant(c.now + nanos)


def test_a_read_within_the_lease_costs_no_message():
    c = led()
    before = len(c.sent)
    wait(c, LASTS - 1)
    c.node(1).read_index(7, c.now)
    out = c[1].take()
    assert [answer.raft_index for answer in out.reads] == [c.node(1).commit]
    assert out.send == []
    assert len(c.sent) == before


def test_without_the_option_every_read_costs_a_round():
    c = led(options=OPTIONS)
    before = rounds(c)
    assert read(c, 1) == c.node(1).commit
    assert rounds(c) > before


def test_the_lease_ends_by_itself_before_the_promises_do():
    c = led()
    before = rounds(c)
    wait(c, LASTS)
    assert read(c, 1) == c.node(1).commit
    assert rounds(c) > before
    assert LASTS < ELECTION


def test_the_lease_counts_from_the_sending_not_from_the_answer():
    c = led()
    wait(c, 2 * ELECTION)
    c.node(1).read_index(9, c.now)
    c.flush(1)
    wait(c, LASTS)
    c.settle()
    assert c[1].reads[9] == c.node(1).commit, "the round itself is as good as ever"
    before = rounds(c)
    read(c, 1)
    assert rounds(c) > before, "the lease was over when its confirmation came"


def test_a_cut_off_leader_reads_nothing_after_somebody_else_could_have_committed():
    c = led()
    c.isolate(1)
    wait(c, ELECTION + 2 * LEASED.heartbeat_ns)
    for number in (2, 3):
        c.node(number)._state.election_deadline = c.now
    c.node(2).tick(c.now)
    c.settle()
    assert c[2].role is Role.LEADER
    c.write(2, b"newer")
    assert read(c, 1) == "unanswered"


def test_a_voter_that_echoed_elects_nobody_until_its_promise_ends():
    c = led()
    for number in (2, 3):
        c.node(number)._state.leader_contact = Instant(0)
        c.node(number)._state.leader = None
    request = VoteRequest(1, c[3].me, c[2].me, c.node(2).term + 1, 99, 99, False)
    c.node(2).receive([request], c.now)
    wait(c, ELECTION - 1)
    c.node(2).receive([request], c.now)
    c.settle()
    assert not c.on_wire(VoteReply)
    assert c.node(2).vote == c[1].me
    wait(c, 1)
    c.node(2).receive([request], c.now)
    assert c.node(2).vote == c[3].me


def test_a_voter_whose_term_was_raised_keeps_its_promise():
    """The leader was silent for a while. 3 had become a candidate and refused the pre-vote of 2,
    telling its term; before that word arrived, 2 heard its leader again, echoed a read round and so
    promised to elect no other. The word raised the term of 2, and the request of 3, now of an equal
    term, passed by the promise: 3 led and committed while 1 answered reads by its lease."""
    c = led()
    term = c.node(2).term + 1
    refused = PreVoteReply(1, c[3].me, c[2].me, term, False)
    request = VoteRequest(1, c[3].me, c[2].me, term, 99, 99, False)
    c.node(2).receive([refused, request], c.now)
    c.flush(2)
    assert (c.node(2).term, c.node(2).vote) == (term, None)
    assert c.now < c.node(1)._state.lease_until
    wait(c, ELECTION)
    c.node(2).receive([request], c.now)
    assert c.node(2).vote == c[3].me


def test_who_is_the_only_voter_by_an_uncommitted_entry_keeps_its_promise_at_boot():
    """1 led 1 and 2 and went over to 2 alone. Replica 2 had echoed a round of 1 and synced the
    entry when it crashed. It booted as the only voter, campaigned at once and committed. Meanwhile
    1, which had heard the echo and not the acknowledgement, answered reads by its lease."""
    c = Cluster(2, options=LEASED)
    c.elect(1)
    c.node(1).change_membership(voters(2), c.now, WALL)
    c.settle()
    assert c.node(2).membership == voters(2)
    c.crash(2)
    c.flush(2)
    assert c[2].deadline >= c.now + ELECTION


def test_a_fallen_link_makes_no_follower_campaign_before_its_promise_ends():
    """Without leases it waits for a heartbeat only, since the pre-vote asks the others; but two
    followers whose links fell at once grant each other what they ask."""
    c = led()
    for number in (2, 3):
        c.node(number).link_down(c[1].me.node, c.now)
        assert election.campaign_deadline(c.node(number)._state) >= c.now + ELECTION


def test_a_leader_gives_up_its_lease_before_it_asks_for_an_election():
    c = led()
    c.node(1).transfer(c[2].me, c.now)
    out = c.flush(1)
    assert any(isinstance(message, TimeoutNow) for message in out.send)
    c.node(1).read_index(5, c.now)
    assert not c[1].take().reads


def test_after_a_failed_transfer_there_is_no_lease_for_the_rest_of_the_term():
    """The word may be obeyed late: its candidate is refused by no voter, promises or not."""
    c = led()
    c.drop = lambda message: isinstance(message, TimeoutNow)
    c.node(1).transfer(c[2].me, c.now)
    c.advance(3 * ELECTION)
    assert c.leader() == 1
    c.heal()
    assert read(c, 1) == c.node(1).commit
    before = rounds(c)
    read(c, 1)
    assert rounds(c) > before


def test_a_membership_change_ends_the_lease():
    c = led(4)
    assert lease.holds(c.node(1)._state)
    c.node(1).change_membership(voters(1, 2), c.now, WALL)
    assert not lease.holds(c.node(1)._state)


def test_a_read_that_the_new_quorum_has_confirmed_begins_no_lease():
    c = Cluster(2, options=LEASED)
    c.elect(1)
    c.write(1, b"a")
    c.isolate(2)
    assert read(c, 1, 77) == "unanswered"
    c.node(1).change_membership(voters(1), c.now, WALL)
    c.flush(1)
    assert c[1].reads[77] == 2
    assert not lease.holds(c.node(1)._state)


def test_a_new_leader_has_no_lease():
    c = led()
    c.node(1).transfer(c[2].me, c.now)
    c.settle()
    assert c[2].role is Role.LEADER
    assert not lease.holds(c.node(2)._state)
    assert not lease.holds(c.node(1)._state)
    assert read(c, 2) == c.node(2).commit
    assert lease.holds(c.node(2)._state)


def test_a_voter_that_boots_elects_nobody_for_one_lease():
    c = led()
    c.crash(2)
    c.crash(3)
    for number in (2, 3):
        assert election.campaign_deadline(c.node(number)._state) >= c.now + ELECTION
    request = VoteRequest(1, c[3].me, c[2].me, c.node(2).term + 1, 99, 99, False)
    c.node(2).receive([request], c.now)
    c.settle()
    assert c.node(2).vote != c[3].me


def test_a_voter_without_others_waits_for_nobody():
    c = Cluster(1, options=LEASED, membership=voters(1))
    c.advance(2 * ELECTION)
    assert c[1].role is Role.LEADER
    c.crash(1)
    c.settle()
    assert election.campaign_deadline(c.node(1)._state) <= c.now


def test_a_damaged_voter_is_not_alone_by_the_memberships_that_it_can_read():
    """Its lost entries may have named other voters. It booted as the only one and made no new
    promise. It gave its vote to a candidate while the leader that it had promised read by its
    lease."""
    voted = {1: HardState(Term(3), rid(2))}
    c = Cluster(1, options=LEASED, membership=voters(1), hard_states=voted)
    c[1].mark = LogPosition(RaftIndex(9), Term(3), NO_CHAIN)
    c.crash(1)
    request = VoteRequest(1, rid(3), rid(1), Term(4), RaftIndex(9), Term(3), False)
    c.node(1).receive([request], c.now)
    assert c.node(1).vote != rid(3)
    wait(c, ELECTION)
    c.node(1).receive([request], c.now)
    assert c.node(1).vote == rid(3)


def test_promises_that_end_together_do_not_split_the_vote():
    """They did: all voters promise in the instant of one round, and all campaigned when it ended,
    each with its own vote."""
    c = led(5)
    for number in (2, 3, 4, 5):
        c.node(number).link_down(c[1].me.node, c.now)
    at = {election.campaign_deadline(c.node(number)._state) for number in (2, 3, 4, 5)}
    assert len(at) == 4
    assert max(at) <= c.now + ELECTION + 2 * LEASED.heartbeat_ns


def test_an_echo_is_a_promise_and_nothing_else_is():
    c = Cluster(3, options=LEASED)
    c.elect(1)
    c.write(1, b"a")
    assert not lease.binds(c.node(2)._state)
    read(c, 1)
    assert any(isinstance(message, ReadEcho) for message in c.sent)
    assert lease.binds(c.node(2)._state)
    assert lease.campaign_from(c.node(2)._state, NEVER) == NEVER


def test_a_lease_is_no_longer_than_an_election():
    with pytest.raises(AssertionError):
        RaftOptions(heartbeat_ns=millis(10), election_ns=millis(50), lease_ns=Nanos(millis(60)))


# --- walks ----------------------------------------------------------------------------------------


class Walk:
    """Episodes of one kind: a leader gets a lease and is cut off, perhaps after it sent a word that
    others obey; the others elect and write as soon as they may; meanwhile the old leader is asked
    to read. Every answer is compared with what was committed anywhere when the read arrived."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.c = Cluster(3, options=LEASED)
        self.tokens = 0
        self.by_lease = 0

    def episode(self):
        c, rng = self.c, self.rng
        c.heal()
        c.advance(5 * ELECTION)
        old = c.leader()
        assert old is not None
        c.write(old, b"x")
        if rng.random() < 0.4:  # one of the others hears nothing, so it promises nothing either
            c.isolate(rng.choice([number for number in c.peers if number != old]))
            wait(c, ELECTION)
        self.begin_lease(old)
        others = [number for number in c.peers if number != old]
        c.heal()
        if rng.random() < 0.3:
            c.node(old).transfer(c[rng.choice(others)].me, c.now)
            c.flush(old)
            c.deliver()
        c.isolate(old)
        for number in others:
            if rng.random() < 0.3:
                c.crash(number)
            c.node(number).link_down(c[old].me.node, c.now)
        for _ in range(25):
            self.pass_time(old, others)
            self.read(old)

    def begin_lease(self, old):
        """A read round whose echoes are a while on their way."""
        self.read(old)
        self.c.deliver()
        for number in self.c.peers:
            if number != old:
                self.c.flush(number)
        wait(self.c, millis(self.rng.choice((0, 100, 500))))
        self.c.deliver()

    def pass_time(self, old, others):
        c = self.c
        wait(c, millis(self.rng.choice((20, 60, 150))))
        for number in others:
            if c.now >= c[number].deadline:
                c.node(number).tick(c.now)
        c.settle()
        leader = c.leader()
        if leader is not None and leader != old and c.node(leader).ready:
            c.write(leader, b"newer")

    def read(self, number):
        self.tokens += 1
        seen = max(peer.node.commit for peer in self.c.peers.values())
        self.c.node(number).read_index(self.tokens, self.c.now)
        for answer in self.c.flush(number).reads:
            if answer.token == self.tokens and answer.raft_index is not None:
                self.by_lease += 1
                assert answer.raft_index >= seen, (answer, seen)


def walk(seed, episodes=6):
    walked = Walk(seed)
    for _ in range(episodes):
        walked.episode()
    return walked.by_lease


@pytest.mark.parametrize("seed", range(20))
def test_no_walk_reads_what_is_out_of_date(seed):
    assert walk(seed) > 0


class LeasedChaos(Chaos):
    """The walk of test_chaos, with leases."""

    def __init__(self):
        super().__init__()
        options = attrs.evolve(self.c.options, lease_ns=self.c.options.election_ns)
        self.c = Cluster(5, membership=voters(1, 2, 3), options=options)


@pytest.mark.parametrize("seed", range(4))
def test_random_misfortune_does_not_mislead_a_lease(seed):
    """Joint configurations, transfers, crashes and resets in any order."""
    rng, chaos = random.Random(seed), LeasedChaos()
    for _ in range(400):
        n = rng.randint(1, 5)
        step = rng.choice(("turn", "turn", "turn", "read", "propose", "tick", "links", "rare"))
        if step == "turn":
            chaos.turn(rng.randint(1, 9))
        elif step == "read":
            chaos.read(n)
            chaos.flush(n)
        elif step == "propose":
            chaos.propose(n, 1)
        elif step == "tick":
            chaos.tick(n)
        elif step == "links":
            chaos.reset_links(n)
        else:
            rare = rng.choice((chaos.transfer, chaos.change, None))
            if rare is None:
                chaos.crash(n)
            elif rare == chaos.transfer:
                chaos.transfer(n, rng.randint(1, 5))
            else:
                chaos.change(n, rng.randint(1, 31), rng.randint(0, 31))
        chaos.check()


def forget(state):
    """Forget what a replica must remember."""


def from_the_answer(state, context):
    """The lease begins when its confirmation arrives, and lasts as long as the promise."""
    state.reads.sent_at.clear()
    state.lease_until = Instant(state.now + state.options.lease_ns)


def say_and_forget(state):
    """The voter says that it promises, and does as it likes."""
    return state.options.lease_ns


REMEDIES = [
    ("promise", say_and_forget),
    ("boot", forget),
    ("give_up", forget),
    ("round_echoed", from_the_answer),
]


@pytest.mark.parametrize(("name", "without"), REMEDIES)
def test_the_walks_catch_a_missing_remedy(name, without, monkeypatch):
    monkeypatch.setattr(lease, name, without)
    with pytest.raises(AssertionError, match="ReadState"):
        walks(100)


def walks(count):
    for seed in range(count):
        walk(seed)
