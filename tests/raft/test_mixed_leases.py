"""Goal: leases stay safe while brokers are restarted, one by one, into other settings and releases.

The leader counted on its own setting: whatever the voters had promised, or nothing.
"""

import attrs
import pytest

from raftlog.base.entries import Membership
from raftlog.base.units import Nanos
from raftlog.raft import election, lease, node, replication
from raftlog.raft.messages import ReadEcho, VoteRequest
from raftlog.raft.node import Role
from tests.raft.cluster import ELECTION, OPTIONS, Cluster, rid
from tests.raft.test_leases import LEASED, led, read, wait


def mixed(*others):
    """A cluster that 1 leads, which has leases on and has read once; the others have these lease
    times."""
    c = Cluster(1 + len(others), options=LEASED)
    for number, lasts in enumerate(others, 2):
        election_ns, lasts_ns = Nanos(max(ELECTION, lasts)), Nanos(lasts)
        options = attrs.evolve(OPTIONS, election_ns=election_ns, lease_ns=lasts_ns)
        c.node(number)._state.options = options
    c.elect(1)
    c.write(1, b"a")
    assert read(c, 1) == c.node(1).commit
    return c


def test_the_leases_of_one_broker_are_worth_nothing():
    """The leader had been restarted with leases on, the others not yet. It counted on its own
    setting, and read by its lease while the others had elected 2 and committed."""
    c = mixed(0, 0)
    assert not lease.holds(c.node(1)._state)
    c.isolate(1)
    for number in (2, 3):
        c.node(number).link_down(c[1].me.node, c.now)
    wait(c, 2 * LEASED.heartbeat_ns)
    c.node(2)._state.election_deadline = c.now
    c.node(2).tick(c.now)
    c.settle()
    assert c[2].role is Role.LEADER
    c.write(2, b"newer")
    assert read(c, 1) == "unanswered"


@pytest.mark.parametrize(
    ("others", "lasts"),
    [
        ((ELECTION // 4, ELECTION // 4), ELECTION // 4),
        ((4 * ELECTION, 4 * ELECTION), ELECTION),
        ((ELECTION, ELECTION), ELECTION),
        ((0, 0), 0),
    ],
)
def test_a_lease_is_as_long_as_voters_promised_and_no_longer_than_our_own(others, lasts):
    c = mixed(*others)
    state = c.node(1)._state
    assert state.lease_until == (c.now + lasts * 9 // 10 if lasts else lease.NO_LEASE)


def test_an_echo_that_says_nothing_is_no_promise(monkeypatch):
    """The echo is that of a release that spoke peer protocol 1."""

    def silent(state, echo):
        on_read_echo(state, echo._replace(promised_ns=Nanos(0)))

    on_read_echo = replication.on_read_echo
    monkeypatch.setitem(node._HANDLERS, ReadEcho, silent)
    c = mixed(ELECTION, ELECTION)
    assert lease.binds(c.node(2)._state)
    assert not lease.holds(c.node(1)._state)


def test_the_longest_promise_that_a_quorum_has_given_counts():
    """A voter that has not echoed the round does not count, and both halves of a joint one
    decide."""
    state = Cluster(5, options=LEASED).elect(1).node._state
    for number, (echoed, lasts) in {2: (7, 0), 3: (7, 500), 4: (8, 300), 5: (6, 900)}.items():
        follower = state.progress[rid(number)]
        follower.echoed, follower.promised_ns = echoed, Nanos(lasts)
    assert lease._promised(state, 7) == 300
    assert lease._promised(state, 8) == 0
    for number in (2, 3, 4):
        state.progress[rid(number)].promised_ns = Nanos(2 * ELECTION)
    assert lease._promised(state, 7) == ELECTION, "no longer than we would promise ourselves"
    for number, lasts in {2: 0, 3: 500, 4: 300}.items():
        state.progress[rid(number)].promised_ns = Nanos(lasts)
    joint = Membership(tuple(map(rid, (1, 2, 3))), tuple(map(rid, (1, 4, 5))))
    state.memberships.append((state.log.last_index, joint))
    assert lease._promised(state, 7) == 300
    state.progress[rid(3)].promised_ns = Nanos(200)
    assert lease._promised(state, 7) == 200


@pytest.mark.parametrize("now_ns", [0, ELECTION // 10])
def test_a_voter_keeps_at_boot_what_an_earlier_boot_may_have_promised(now_ns):
    """2 had echoed a round with leases on, and was restarted without them or with a tenth of the
    election time: it forgot the promise. An echo of the new boot does not shorten it either."""
    c = led()
    c[2].options = attrs.evolve(
        OPTIONS,
        heartbeat_ns=Nanos(ELECTION // 20),
        election_ns=Nanos(ELECTION // 10),
        lease_ns=Nanos(now_ns),
        earlier_lease_ns=ELECTION,
    )
    c.crash(2)
    began = c.now
    wait(c, 1)
    lease.end(c.node(1)._state)
    read(c, 1)
    assert now_ns in [m.promised_ns for m in c.sent if isinstance(m, ReadEcho)]
    c.node(2).link_down(c[1].me.node, c.now)
    assert election.campaign_deadline(c.node(2)._state) >= began + ELECTION
    request = VoteRequest(1, c[3].me, c[2].me, c.node(2).term + 1, 99, 99, False)
    wait(c, ELECTION - 2)
    c.node(2).receive([request], c.now)
    assert c.node(2).vote != c[3].me
    wait(c, 1)
    c.node(2).receive([request], c.now)
    assert c.node(2).vote == c[3].me
