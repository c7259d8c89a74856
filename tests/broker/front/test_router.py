"""From names and ids to replicas and leaders: the newer of what the image and a replica know."""

import pytest

from raftlog.broker.front.router import Floor, KnownLeader
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from tests.broker.cluster import Cluster
from tests.broker.whole_brokers import ask_controller


@pytest.fixture(scope="module")
def three():
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 2, 3)
    cluster.create("alone", 3, 1)
    cluster.run(0.5)
    return cluster


def router(cluster, number):
    return cluster.world.nodes[number].broker.context.router


def test_a_topic_by_name_and_by_id(three):
    found = router(three, 1)
    topic = found.topic("orders")
    assert found.topic(topic.topic_id) is topic
    assert found.topic(memoryview(topic.topic_id)) is topic
    assert found.topic("ghost") is None
    assert found.topic(bytes(16)) is None


@pytest.mark.parametrize(
    ("key", "number", "code"),
    [
        ("ghost", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (b"x" * 16, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        ("__cluster_metadata", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_not_there(three, key, number, code):
    assert router(three, 1).replica(key, number) is code
    assert router(three, 1).partition(key, number) is code
    assert router(three, 1).leader_of(key, number) is None


def test_a_partition_elsewhere_is_not_led_here(three):
    image = three.world.nodes[1].broker.context.image
    for number, partition in enumerate(image.topic("alone").partitions):
        owner = partition.target[0].node
        for node in (1, 2, 3):
            found = router(three, node).replica("alone", number)
            if node == owner:
                assert found.is_leader
            else:
                assert found is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_every_broker_names_the_same_leader(three):
    named = [router(three, node).leader_of("orders", 0) for node in (1, 2, 3)]
    assert named[0] == named[1] == named[2]
    leader = three.leader("orders")
    assert named[0].node == leader.number


def test_endpoints_are_those_of_the_listener_that_was_asked(three):
    assert router(three, 1).endpoint(2, "PLAINTEXT") == ("n2", 9092, None)
    assert router(three, 1).endpoint(2, "OTHER") is None
    assert router(three, 1).endpoint(9, "PLAINTEXT") is None


def test_a_replica_that_knows_a_newer_leader_than_the_image_is_believed():
    """The report takes a while; a client that was sent away must not be sent back."""
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    cluster.run(0.5)
    old = cluster.leader("orders")
    before = router(cluster, old.number).leader_of("orders", 0)
    replica = router(cluster, old.number).replica("orders", 0)
    heir = next(r for r in replica.in_sync if r.node != old.number)
    for node in cluster.world.running():
        node.broker.rounds.replica_changed = lambda *_: None
    replica.transfer(heir, old.broker.context.now)
    old.broker.context.touch(replica.group)
    old.deliver_nothing()
    cluster.wait(lambda: replica.leader == heir, 5.0)
    named = router(cluster, old.number).leader_of("orders", 0)
    assert (named.node, named.epoch > before.epoch) == (heir.node, True)


def test_a_dead_leader_is_no_leader(three):
    leader = three.leader("orders", 1)
    others = [n for n in (1, 2, 3) if n != leader.number]
    three.kill(leader.number)
    three.wait(lambda: not router(three, others[0]).is_alive(leader.number), 10.0, "fenced")
    assert router(three, others[0]).endpoint(leader.number, "PLAINTEXT") is None
    named = router(three, others[0]).leader_of("orders", 1)
    assert named is None or named.node != leader.number
    three.restart(leader.number)
    three.ready()


def led_anew_unreported():
    """A cluster whose one partition has a new leader of which the image knows nothing; the node
    that led before; and its replica, which knows."""
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    cluster.run(0.5)
    old = cluster.leader("orders")
    replica = router(cluster, old.number).replica("orders", 0)
    heir = next(r for r in replica.in_sync if r.node != old.number)
    for node in cluster.world.running():
        node.broker.rounds.replica_changed = lambda *_: None
    replica.transfer(heir, old.broker.context.now)
    old.broker.context.touch(replica.group)
    old.deliver_nothing()
    cluster.wait(lambda: replica.leader == heir, 5.0)
    return cluster, old, replica


def test_a_replica_that_looks_for_a_leader_tells_no_older_one():
    """Seed 800002: a replica had told of the leader of term 2, before the image heard of it. Then
    that leader was silent, and while no broker led, clients were told of the leader of term 1
    again: pairs of leader and epoch only rise."""
    cluster, old, replica = led_anew_unreported()
    heir = replica.leader
    named = router(cluster, old.number).leader_of("orders", 0)
    replica.node.link_down(heir.node, old.broker.context.now)
    replica.node._state.election_deadline = old.broker.context.now
    old.broker.context.touch(replica.group)
    old.deliver_nothing()
    cluster.wait(lambda: replica.leader is None, 5.0)
    assert router(cluster, old.number).leader_of("orders", 0) == named


def test_a_reboot_tells_no_older_leader():
    """A broker had told of the leader of term 2, before the image heard of it. After a reboot it
    told of the leader of term 1 again, which was what its image said."""
    cluster, old, _ = led_anew_unreported()
    named = router(cluster, old.number).leader_of("orders", 0)
    cluster.kill(old.number)
    cluster.restart(old.number)
    told = []

    def tells():
        told.append(router(cluster, old.number).leader_of("orders", 0))
        return told[-1] is not None

    cluster.wait(tells, 10.0)
    assert told[-1] == named
    assert len(told) > 1


def test_a_leader_is_told_when_its_term_is_durable():
    """Seed 2100072: power failed between the telling and the sync, and the next boot told of the
    leader of the term before."""
    cluster, old, replica = led_anew_unreported()
    found = router(cluster, old.number)
    named = found.leader_of("orders", 0)
    assert named.epoch == replica.term
    replica.node._state.rounds.hard_states += 1
    assert found.leader_of("orders", 0) == named, "it was told before"
    found._told.clear()
    told = found.leader_of("orders", 0)
    assert told is not None
    assert told.epoch < named.epoch
    replica.node._state.rounds.hard_states -= 1
    assert found.leader_of("orders", 0) == named


def test_a_replica_that_campaigns_alone_names_the_leader_of_the_image(three):
    leader = three.leader("orders", 0)
    other = next(node for node in three.world.running() if node is not leader)
    found = router(three, other.number)
    named = found.leader_of("orders", 0)
    state = found.replica("orders", 0).node._state
    real = state.term, state.leader
    state.term, state.leader = named.epoch + 5, None
    assert found.leader_of("orders", 0) == named
    state.term, state.leader = real


def test_the_floor_of_a_replica_that_is_out_hides_no_leader(three, monkeypatch):
    """Seed 6203439: a broker lost a replica that had campaigned alone, and got another one in its
    place. The leader's term was below what the first had stored; until the next boot clients of
    that broker were told of no leader."""
    leader = three.leader("orders", 0)
    other = next(node for node in three.world.running() if node is not leader)
    found = router(three, other.number)
    named, replica = found.leader_of("orders", 0), found.replica("orders", 0)
    ours = Floor(replica.me, named.epoch + 1)
    monkeypatch.setattr(found, "floors", {replica.group: ours})
    assert found.leader_of("orders", 0) is None, "it may have told of a later one"
    lost = ours.replica._replace(epoch=ours.replica.epoch - 1)
    monkeypatch.setattr(found, "floors", {replica.group: ours._replace(replica=lost)})
    assert found.leader_of("orders", 0) == named


def test_a_replica_that_does_not_open_hides_no_leader(three):
    """Another broker leads, and the image names it."""
    leader = three.leader("orders", 0)
    other = next(node for node in three.world.running() if node is not leader)
    context = other.broker.context
    named = context.router.leader_of("orders", 0)
    group = context.router.replica("orders", 0).group
    replica = context.replicas.pop(group)
    context.router._told.clear()
    assert context.router.leader_of("orders", 0) == named
    context.replicas[group] = replica


def test_a_reboot_names_nobody_before_the_image_is_as_new(three):
    """The image on the disk may be a day old: topics were deleted since, and leaders changed."""
    three.kill(3)
    three.restart(3)
    context = three.world.nodes[3].broker.context
    early = []

    def caught_up():
        topic = context.image.topic("orders")
        if topic is not None and not context.caught_up:
            early.append(router(three, 3).newest(topic.partitions[0]))
        return context.caught_up

    three.wait(caught_up, 10.0)
    assert early
    assert set(early) == {None}
    three.ready()
    assert router(three, 3).leader_of("orders", 0) is not None


def test_pairs_of_deleted_topics_are_forgotten():
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    cluster.run(0.5)
    found = [router(cluster, number) for number in (1, 2, 3)]
    group = found[0].turn.image.topic("orders").partitions[0].group
    for each in found:
        each._told[group] = KnownLeader(2, 99)
    request = r.SubmitCommand(command=c.DeleteTopic(topic_id=found[0].turn.image.names["orders"]))
    assert ask_controller(cluster, request).error == 0
    cluster.wait(lambda: not any(each._told for each in found), 10.0)
