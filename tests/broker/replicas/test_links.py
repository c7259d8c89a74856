"""A message over a link counts only in its session, from its node, for a replica that runs here."""

from types import SimpleNamespace

import attrs
import pytest
from raftlog_sim.world.client import ConnectionLostError

from raftlog.base.errors import DiskError, ProtocolError
from raftlog.base.ids import METADATA_GROUP
from raftlog.base.probes import fired, reset
from raftlog.broker.control.metadata_log import MetadataLog
from raftlog.broker.events import (
    JobDone,
    LinkDown,
    LinkUp,
    PeerAddress,
    PeerMessages,
    Persisted,
    Written,
)
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.versions import ApiKey
from raftlog.metadata.command_codec import Proposal, encode_proposal
from raftlog.metadata.commands import DeleteTopic
from raftlog.raft.messages import AppendRefused, TimeoutNow, VoteRequest
from tests.broker.cluster import Cluster


@pytest.fixture
def three():
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    cluster.run(0.2)
    reset()
    return cluster


def parts(cluster):
    """The leader's node, a follower's node, and their replicas."""
    leader = cluster.leader("orders")
    follower = next(n for n in cluster.world.running() if n is not leader)
    return (
        leader,
        follower,
        leader.broker.context.router.replica("orders", 0),
        follower.broker.context.router.replica("orders", 0),
    )


def session(node, peer):
    return node.broker.context.sessions[peer.number].session


def vote_request(sender, to, term):
    return VoteRequest(to.group, sender.me, to.me, term, 1000, term - 1, True)


def test_a_message_of_another_session_changes_nothing(three):
    leader, follower, mine, theirs = parts(three)
    other = session(follower, leader) + 1000
    message = vote_request(mine, theirs, theirs.term + 5)
    before = theirs.term
    follower.deliver(PeerMessages(leader.number, other, [message]))
    three.run(0.01)
    assert theirs.term == before
    assert fired()["message-of-another-session-dropped"] == 1


def test_a_message_in_the_name_of_another_node_changes_nothing(three):
    leader, follower, mine, theirs = parts(three)
    third = next(n for n in three.world.running() if n not in (leader, follower))
    message = vote_request(mine, theirs, theirs.term + 5)
    before = theirs.term
    follower.deliver(PeerMessages(third.number, session(follower, third), [message]))
    three.run(0.01)
    assert theirs.term == before
    assert fired()["message-with-a-false-sender-dropped"] == 1


def test_a_message_for_an_older_replica_id_changes_nothing(three):
    leader, follower, mine, theirs = parts(three)
    old = theirs.me._replace(epoch=theirs.me.epoch - 1)
    message = TimeoutNow(theirs.group, mine.me, old, theirs.term)
    before = theirs.term
    follower.deliver(PeerMessages(leader.number, session(follower, leader), [message]))
    three.run(0.3)
    assert theirs.term == before


def test_a_message_for_a_group_that_is_not_here_is_dropped(three):
    leader, follower, mine, theirs = parts(three)
    message = vote_request(mine, theirs, 9)._replace(group=4711)
    follower.deliver(PeerMessages(leader.number, session(follower, leader), [message]))
    three.run(0.01)
    assert fired()["message-for-no-replica-dropped"] == 1


def test_nobody_votes_on_the_metadata_before_the_image_is_what_is_committed(three):
    """Seed 8201837: a broker booted on a slow disk and read its metadata log for half a second.
    Its log said that a peer had booted six times, its image knew of one boot: an old copy of that
    peer's disk voted for it."""
    leader = three.world.running()[0]
    follower = next(n for n in three.world.running() if n is not leader)
    mine, theirs = (n.broker.context.replicas[METADATA_GROUP] for n in (leader, follower))
    message = vote_request(mine, theirs, theirs.term + 5)
    links, before = follower.broker.links, theirs.term
    links.knowledge = SimpleNamespace(behind=True)
    follower.deliver(PeerMessages(leader.number, session(follower, leader), [message]))
    three.run(0.01)
    assert theirs.term == before
    assert fired()["word-before-the-image-dropped"] == 1
    links.knowledge = SimpleNamespace(behind=False)
    follower.deliver(PeerMessages(leader.number, session(follower, leader), [message]))
    three.run(0.01)
    assert theirs.term >= before + 5


def metadata_parts(cluster):
    """The controller's node, another one, and their replicas of the metadata."""
    leader = next(n for n in cluster.world.running() if n.broker.metadata_log.leading_term)
    other = next(n for n in cluster.world.running() if n is not leader)
    return (leader, other, *(n.broker.context.replicas[METADATA_GROUP] for n in (leader, other)))


def test_who_is_behind_takes_no_leadership_over(three):
    """It would have deposed the leader, and heard no vote: the group had no leader for nothing."""
    leader, other, mine, theirs = metadata_parts(three)
    other.broker.links.knowledge = SimpleNamespace(behind=True)
    before = mine.term
    mine.transfer(theirs.me, leader.broker.context.now)
    leader.broker.context.touch(METADATA_GROUP)
    three.wait(lambda: fired().get("transfer-aborted"), 5.0, "the end of the transfer")
    assert mine.is_leader
    assert mine.term == before
    other.broker.links.knowledge = SimpleNamespace(behind=False)
    mine.transfer(theirs.me, leader.broker.context.now)
    leader.broker.context.touch(METADATA_GROUP)
    three.wait(lambda: theirs.is_leader, 5.0, "a leadership that was taken over")


def test_a_leader_that_is_behind_counts_no_acknowledgement_until_it_is_not(three):
    """A follower that is an old copy of its disk may forget what it acknowledged, and what it
    echoed to a leader that others deposed meanwhile."""
    leader, _, mine, _ = metadata_parts(three)
    leader.broker.links.knowledge = knowledge = SimpleNamespace(behind=True)
    heard = []
    now, commit = leader.broker.context.now, mine.commit
    nothing = Proposal(mine.term + 1, 1, DeleteTopic(topic_id=bytes(15) + b"x"))
    assert leader.broker.metadata_log.propose([encode_proposal(nothing)], now, 0)
    mine.read_index(heard.append, now)
    three.run(0.3)
    assert mine.commit == commit
    assert heard == []
    knowledge.behind = False
    three.run(0.3)
    assert mine.is_leader
    assert mine.commit > commit
    assert len(heard) == 1


def test_a_leader_that_is_behind_hears_that_it_is_deposed(three):
    leader, other, mine, theirs = metadata_parts(three)
    leader.broker.links.knowledge = SimpleNamespace(behind=True)
    message = AppendRefused(METADATA_GROUP, theirs.me, mine.me, mine.term + 3, 0, 1, 1, 1)
    leader.deliver(PeerMessages(other.number, session(leader, other), [message]))
    three.run(0.01)
    assert not mine.is_leader


def test_who_is_behind_does_not_grow_patient(three, monkeypatch):
    """It campaigned in vain, each time waiting longer, and when it had read on it slept."""
    _, other, _, theirs = metadata_parts(three)
    behind = True
    monkeypatch.setattr(
        MetadataLog,
        "behind",
        property(lambda engine: behind and engine is other.broker.metadata_log),
    )
    for node in three.world.running():
        if node is not other:
            three.kill(node.number)
    three.run(5.0)
    assert not theirs.is_campaigning
    assert theirs.node._state.campaigns == 0
    behind = False
    three.run(other.broker.context.config.heartbeat_ns / 1e9)
    assert theirs.is_campaigning


def test_a_new_session_ends_the_old_one(three):
    leader, follower, _, _ = parts(three)
    link = follower.broker.context.sessions[leader.number]
    follower.deliver(LinkUp(leader.number, link.session + 1000, link.directory, link.boot))
    three.run(0.001)
    assert session(follower, leader) == link.session + 1000
    follower.deliver(LinkDown(leader.number, link.session))
    three.run(0.001)
    assert session(follower, leader) == link.session + 1000, "that one was over before"


def test_late_completions_change_nothing(three):
    leader, _, replica, _ = parts(three)
    directory = leader.directory
    before = replica.log.durable_index
    leader.deliver(Written(10**12, directory))
    leader.deliver(Persisted(10**12, directory))
    three.run(0.01)
    assert replica.log.durable_index == before
    assert fired()["completion-of-no-round-dropped"] == 1


def test_a_job_of_a_replica_that_was_closed_is_dropped(three):
    leader, _, replica, _ = parts(three)
    rounds = leader.broker.rounds
    leader.broker.manager.failed(replica.group, replica, DiskError("a write failed", on="a test"))
    rounds._job_done(replica, 77, None)
    three.run(2.0)
    assert fired()["job-of-a-closed-replica-dropped"] == 1
    assert leader.broker.context.replicas[replica.group] is not replica


def test_an_answer_that_nobody_waits_for_is_a_bug(three):
    leader = three.leader("orders")
    with pytest.raises(KeyError):
        leader.broker.handle([JobDone(10**9, None)], leader.broker.context.now, 0)


def test_a_handler_that_refuses_ends_the_connection(three, monkeypatch):
    def refuse(request):
        raise ProtocolError("the inside lies", on="a test")

    node = three.world.nodes[1]
    monkeypatch.setattr(node.broker.clients, "handle", refuse)
    pending = three.client(1).request(ApiKey.METADATA, MetadataRequest(None))
    three.wait(lambda: pending.done)
    assert isinstance(pending.answer, ConnectionLostError)
    assert fired()["handler-refused-request"] == 1


def test_links_are_kept_to_all_registered_brokers(three):
    for node in three.world.running():
        wanted = [address.node for address in node.live.peers]
        assert wanted == [n for n in (1, 2, 3) if n != node.number]
        assert METADATA_GROUP in node.broker.context.replicas


def test_a_route_wins_over_where_a_peer_is_registered():
    """A proxy or a NAT between two brokers: the image names one address for all, the route is this
    broker's own."""

    def configure(config):
        routes = (PeerAddress(3, "proxy", 7),)
        return attrs.evolve(config, routes=routes if config.node == 1 else ())

    cluster = Cluster(3, 3, configure=configure).ready()
    one, two = (cluster.world.nodes[number].broker for number in (1, 2))
    assert PeerAddress(3, "proxy", 7) in one.links.peers
    registered = two.context.image.brokers[3]
    assert PeerAddress(3, registered.peer_host, registered.peer_port) in two.links.peers


def moved(node, numbers):
    """The same node, which is told at its next boot that these nodes listen elsewhere now."""
    config = node.config
    controllers = tuple(
        each._replace(host=f"moved{each.node}") if each.node in numbers else each
        for each in config.controllers
    )
    peer = config.peer
    if node.number in numbers:
        peer = peer._replace(host=f"moved{node.number}")
    node.config = attrs.evolve(config, controllers=controllers, peer=peer)


@pytest.mark.parametrize(
    ("who", "told"),
    [
        ((1, 2, 3), (1, 2, 3, 4)),
        ((1, 3), (1, 2, 3, 4)),
        ((1, 2, 3, 4), (1, 2, 3, 4)),
        ((2,), (1, 2, 3, 4)),
        ((2,), (2,)),
        ((4,), (4,)),
    ],
)
def test_brokers_that_come_back_at_other_addresses_find_each_other(who, told):
    """The address under which a controller was registered took the place of the configured one.
    When all brokers had moved, each dialled only where the others had been, and no leader was there
    to tell the new addresses: the cluster never became ready."""
    cluster = Cluster(4, 3).ready()
    cluster.create("orders", 1, 3)
    cluster.put("orders", [b"before"])
    nodes = [cluster.world.nodes[number] for number in (1, 2, 3, 4)]
    for node in nodes:
        node.crash()
        if node.number in told:
            moved(node, who)
    alone = cluster.world.network.part(
        [(one.number, other.number) for one in nodes for other in nodes if one is not other]
    )
    for node in nodes:
        node.start()
    cluster.run(1.0)  # each reads on its own disk where the others were registered
    cluster.world.network.mend(alone)
    cluster.ready()
    cluster.put("orders", [b"after"])
    image = cluster.world.nodes[1].broker.context.image
    for number in who:
        assert image.brokers[number].peer_host == f"moved{number}"
