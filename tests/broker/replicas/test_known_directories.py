"""A partition's group takes terms from directories that the cluster is known to have; the metadata
group hears every directory."""

import attrs
import pytest

from raftlog.base.entries import Membership
from raftlog.base.ids import METADATA_GROUP
from raftlog.base.probes import fired, reset
from raftlog.broker.control import controller_requests
from raftlog.broker.events import LinkUp, PeerMessages
from raftlog.raft.messages import Append, PreVoteRequest, TimeoutNow, VoteReply, VoteRequest
from tests.broker.cluster import Cluster
from tests.broker.whole_brokers import group_zero, image, join, wait_settled

LATER = 40


@pytest.fixture
def three():
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    wait_settled(cluster, "orders")
    cluster.run(0.2)
    reset()
    return cluster


def two_replicas(cluster):
    """A leader and a follower of the partition: nodes, then replicas."""
    leader = cluster.leader("orders")
    follower = next(n for n in cluster.world.running() if n is not leader)
    return (
        leader,
        follower,
        *(n.broker.context.router.replica("orders", 0) for n in (leader, follower)),
    )


def stranger(node, peer):
    """A session of `node` with a peer whose data directory is one that its image does not name."""
    link = node.broker.context.sessions[peer]
    other = LinkUp(peer, link.session + 1000, link.directory + 1, 1)
    node.deliver(other)
    return other


def asking(kind, theirs, sender):
    term = theirs.term + LATER
    if kind is TimeoutNow:
        return TimeoutNow(theirs.group, sender, theirs.me, term)
    if kind is PreVoteRequest:
        return PreVoteRequest(theirs.group, sender, theirs.me, term, 1000, term)
    return VoteRequest(theirs.group, sender, theirs.me, term, 1000, term, True)


def say(node, link, message):
    node.deliver(PeerMessages(link.peer, link.session, [message]))


@pytest.mark.parametrize("kind", [VoteRequest, TimeoutNow])
def test_a_campaign_waits_until_the_image_names_the_directory(three, kind):
    leader, follower, mine, theirs = two_replicas(three)
    link = stranger(follower, leader.number)
    sender = mine.me._replace(directory=link.directory)
    before = theirs.term
    for _ in range(3):  # the newest one waits, and not all of them
        say(follower, link, asking(kind, theirs, sender))
    three.run(0.01)
    assert theirs.term == before
    assert len(follower.broker.links.known._waiting) == 1
    context = follower.broker.context
    broker = attrs.evolve(context.image.brokers[leader.number], directory=link.directory)
    context.image = attrs.evolve(
        context.image, brokers={**context.image.brokers, leader.number: broker}
    )
    follower.broker.links.recheck()
    assert theirs.term >= before + LATER
    assert not follower.broker.links.known


def test_what_waited_ends_with_its_session(three):
    leader, follower, mine, theirs = two_replicas(three)
    link = stranger(follower, leader.number)
    say(follower, link, asking(VoteRequest, theirs, mine.me._replace(directory=link.directory)))
    three.run(0.01)
    assert follower.broker.links.known
    stranger(follower, leader.number)
    three.run(0.01)
    assert not follower.broker.links.known


def test_no_other_message_of_such_a_directory_moves_a_term(three):
    leader, follower, mine, theirs = two_replicas(three)
    link = stranger(follower, leader.number)
    sender, term = mine.me._replace(directory=link.directory), theirs.term
    later = term + LATER
    say(follower, link, Append(theirs.group, sender, theirs.me, later, 0, 0, 0, 0, 0, ()))
    say(follower, link, VoteReply(theirs.group, sender, theirs.me, later, False))
    three.run(0.01)
    assert theirs.term == term
    assert not follower.broker.links.known


def test_a_directory_that_only_the_groups_log_names_is_heard(three):
    """The image is older than the log of the group: a membership entry names the sender."""
    leader, follower, mine, theirs = two_replicas(three)
    context = follower.broker.context
    others = {n: b for n, b in context.image.brokers.items() if n != leader.number}
    context.image = attrs.evolve(context.image, brokers=others)
    link, before = context.sessions[leader.number], theirs.term
    say(follower, link, asking(VoteRequest, theirs, mine.me))
    three.run(0.001)
    assert theirs.term >= before + LATER


def test_a_replica_on_another_directory_than_the_link_speaks_for_is_not_heard(three):
    leader, follower, mine, theirs = two_replicas(three)
    link, before = follower.broker.context.sessions[leader.number], theirs.term
    other = mine.me._replace(directory=link.directory + 1)
    say(follower, link, asking(VoteRequest, theirs, other))
    three.run(0.001)
    assert theirs.term == before
    assert fired()["message-with-a-false-sender-dropped"] == 1


def test_the_metadata_group_hears_every_directory(three):
    leader, follower, _, _ = two_replicas(three)
    theirs = follower.broker.context.replicas[METADATA_GROUP]
    link = stranger(follower, leader.number)
    sender = theirs.me._replace(node=leader.number, directory=link.directory)
    before = theirs.term
    say(follower, link, asking(VoteRequest, theirs, sender))
    three.run(0.001)
    assert theirs.term >= before + LATER


def test_a_controller_that_was_away_follows_controllers_that_it_did_not_know(monkeypatch):
    """Controllers 1, 2, 3 become 4, 5, 6, which joined while 3 was cut off. Its log and its image
    name none of them, and no image but that of the metadata group itself could ever tell it."""
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    wait_settled(cluster, "orders")
    others = [1, 2, 4, 5, 6]
    network = cluster.world.network
    network.part([(3, n) for n in others] + [(n, 3) for n in others])
    for number in (4, 5, 6):
        join(cluster, number)
    cluster.wait(lambda: len(image(cluster, 1).brokers) == 6, 20.0, "three more brokers")
    replicas = [image(cluster, 1).brokers[n].metadata_replica for n in range(1, 7)]
    wanted = Membership(tuple(sorted(replicas[3:])), learners=tuple(sorted(replicas[:3])))
    monkeypatch.setattr(controller_requests, "metadata_target", lambda image: wanted)
    for _ in range(300):
        leads = group_zero(cluster)
        if leads is not None and leads.me.node > 3 and leads.membership == wanted:
            break
        for node in cluster.world.running():
            node.broker.controller._move_metadata_group()
            node._turn_soon(node.live)
        cluster.run(0.1)
    else:
        raise AssertionError("the controllers did not move")
    cluster.create("later", 1, 3, at=4)
    three = cluster.world.nodes[3].broker.context
    assert sorted(three.image.brokers) == [1, 2, 3]
    network.heal()
    caught_up = lambda: "later" in three.image.names  # noqa: E731
    cluster.wait(caught_up, 20.0, "the image of broker 3")
    assert three.replicas[METADATA_GROUP].term == group_zero(cluster).term
    assert three.replicas[METADATA_GROUP].membership == wanted
