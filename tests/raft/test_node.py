"""RaftNode from outside: a group elects, replicates, commits, and goes on after losses."""

import attrs
import pytest

from raftlog.base import probes
from raftlog.base.entries import EntryKind
from raftlog.base.errors import LocalMisuse
from raftlog.raft.node import Role
from tests.raft.cluster import BEAT, ELECTION, OPTIONS, WALL, Cluster, make_batch, rid, voters


def test_a_group_elects_and_commits():
    c = Cluster(3)
    c.elect(1)
    assert c.node(1).ready
    c.write(1, b"a", b"b")
    assert [p.payloads for p in c.peers.values()] == [[b"a", b"b"]] * 3
    assert [p.node.commit for p in c.peers.values()] == [3, 3, 3]


def test_one_voter_commits_on_its_own_persist():
    c = Cluster(1)
    c.flush(1)
    c.tick(1, c.now)
    c.settle()
    assert c.node(1).ready
    c.propose(1, b"a")
    c.flush(1)
    assert c.node(1).commit == 1
    c[1].persist(c.now)
    assert c.node(1).commit == 2


def test_time_alone_elects_a_leader_and_keeps_it():
    c = Cluster(3)
    c.settle()
    c.advance(4 * ELECTION)
    leader = c.leader()
    assert leader is not None
    term = c.node(leader).term
    c.advance(10 * ELECTION)
    assert (c.leader(), c.node(leader).term) == (leader, term)


def test_a_dead_leader_is_replaced_and_follows_when_it_is_back():
    c = Cluster(3)
    c.elect(1)
    c.write(1, b"a")
    c.isolate(1)
    c.propose(1, b"lost")
    c.advance(5 * ELECTION)
    leader = c.leader()
    assert leader in (2, 3)
    c.write(leader, b"b")
    c.heal()
    c.advance(2 * ELECTION)
    assert c[1].role is Role.FOLLOWER
    assert [p.payloads for p in c.peers.values()] == [[b"a", b"b"]] * 3


def test_proposals_are_refused_by_who_does_not_lead():
    c = Cluster(3)
    c.elect(1)
    with pytest.raises(LocalMisuse):
        c.propose(2, b"a")
    with pytest.raises(LocalMisuse):
        c.node(2).propose_control(EntryKind.MARKER, b"", c.now, WALL)


@pytest.mark.parametrize(
    "batch",
    [make_batch(5, 1), make_batch(0, 2), b"short", make_batch(0, 1)[:-1]],
    ids=["offset", "term", "short", "cut"],
)
def test_a_batch_that_does_not_fit_changes_nothing(batch):
    c = Cluster(3)
    c.elect(1)
    with pytest.raises(LocalMisuse):
        c.node(1).propose([make_batch(0, 1), batch], c.now, WALL)
    assert c[1].log.last_index == 1
    c.write(1, b"a")
    assert c.node(3).commit == 2


def test_what_is_not_addressed_to_exactly_me_changes_nothing():
    c = Cluster(3)
    c.elect(1)
    c.propose(1, b"a")
    c.flush(1)
    (message,) = c.appends_to(2)
    probes.reset()
    wiped = rid(2)._replace(directory=9)
    wrong = [message._replace(to=to) for to in (rid(2, epoch=1), wiped)]
    for each in (*wrong, message._replace(group=9)):
        c.node(2).receive([each], c.now)
    assert c[2].log.last_index == 1
    assert probes.fired()["message-not-addressed-to-me"] == 3
    assert probes.fired()["message-to-a-wiped-directory-dropped"] == 1


def settled_leader(**options) -> Cluster:
    """Peer 1 leads two others, and all three know of all that is committed."""
    c = Cluster(3, options=attrs.evolve(OPTIONS, **options))
    c.elect(1)
    c.write(1, b"settled")
    c.advance(2 * BEAT)
    assert not c.node(1).awaits_answers
    return c


def test_a_leader_awaits_answers_until_its_entry_is_committed():
    c = settled_leader(eager_commit=False)
    c.drop = lambda message: message.sender == rid(3)  # its acknowledgement is late
    c.propose(1, b"a")
    assert c.node(1).awaits_answers
    c.settle()
    assert c.node(1).commit == c[1].log.last_index
    assert not c.node(1).awaits_answers, "the third was sent everything and is not needed"
    assert not c.node(2).awaits_answers, "who follows waits for nobody's acknowledgement"


def test_a_leader_that_tells_of_commits_at_once_awaits_all_answers():
    """The late answer brings about a message: the commit, for its sender."""
    c = settled_leader(eager_commit=True)
    c.drop = lambda message: message.sender == rid(3)
    c.write(1, b"a")
    assert c.node(1).awaits_answers
    c.heal()
    c.advance(2 * BEAT)
    assert not c.node(1).awaits_answers


def test_a_leader_awaits_answers_while_a_read_or_a_transfer_waits():
    c = settled_leader(eager_commit=False)
    c.node(1).read_index(7, c.now)
    c.flush(1)
    assert c.node(1).awaits_answers
    c.settle()
    assert not c.node(1).awaits_answers
    c.drop = lambda message: True
    c.node(1).transfer(rid(2), c.now)
    c.flush(1)
    assert c.node(1).awaits_answers


def test_a_read_is_answered_when_the_quorum_shrinks_to_those_who_echoed():
    """It was looked at only with the next read or echo: of a sole voter there are no echoes, and
    its client waited without end."""
    c = Cluster(2)
    c.elect(1)
    c.write(1, b"a")
    commit = c.node(1).commit
    c.isolate(2)
    c.node(1).read_index(77, c.now)
    c.settle()
    assert 77 not in c[1].reads
    c.node(1).change_membership(voters(1), c.now, WALL)
    c.settle()
    assert c[1].reads[77] == commit


def test_a_committed_membership_is_told_at_once():
    """Every other commit travels with the next entries or heartbeat."""
    c = settled_leader(eager_commit=False)
    c.write(1, b"a")
    assert c.node(2).commit < c.node(1).commit
    c.node(1).change_membership(voters(1, 2, 3, learners=[4]), c.now, WALL)
    c.settle()
    index = c.node(1).membership_index
    assert [c.node(number).commit for number in (1, 2, 3)] == [index] * 3


def test_a_leader_awaits_the_answers_of_who_lags():
    """All is committed, but one follower has not been sent everything."""
    c = settled_leader(eager_commit=False)
    c.isolate(3)
    for number in range(3 * OPTIONS.appends_in_flight_max):
        c.write(1, b"%d" % number)
    assert c.node(1).commit == c[1].log.last_index
    assert c.node(1).awaits_answers
    c.heal()
    c.links_reset(3)
    c.advance(5 * BEAT)
    assert c[3].payloads == c[1].payloads
    assert not c.node(1).awaits_answers
