"""When a broker needs what its followers acknowledge, and when that may wait for any turn."""

from raftlog.base.ids import GroupId
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


def test_a_broker_tells_when_acknowledgements_may_wait():
    """They may while it leads nothing that is open; a produce that lacks a majority opens it."""
    three = Cluster(brokers=3, controllers=3).ready()
    three.create("orders", 1, 3)
    three.put("orders", ["a"])
    three.run(1)
    leader = three.leader("orders")
    assert leader.broker.context.effects.acks_may_wait
    others = [node.number for node in three.world.running() if node is not leader]
    three.world.network.partition(others)
    three.client(leader.number).request(ApiKey.PRODUCE, three.produce_body("orders", ["b"]), 11)
    three.run(0.1)
    assert not leader.broker.context.effects.acks_may_wait
    three.world.network.heal()
    three.put("orders", ["c"])
    three.run(3)
    assert all(node.broker.context.effects.acks_may_wait for node in three.world.running())


def test_who_waits_for_more_replicas_than_a_majority_needs_their_acknowledgements():
    """A produce that two of three have committed waits for the third where `min.insync.replicas`
    is 3. Its acknowledgement was left to whatever turn came next: a heartbeat later, each time."""
    three = Cluster(brokers=3, controllers=3).ready()
    three.create("orders", 1, 3, configs=[("min.insync.replicas", "3")])
    three.put("orders", ["a"])
    three.run(1)
    leader = three.leader("orders")
    assert leader.broker.context.effects.acks_may_wait
    third = next(node for node in reversed(three.world.running()) if node is not leader)
    three.world.network.hold([(third.number, leader.number)])
    before = leader.broker.context.replicas[GroupId(1)].commit
    asked = three.client(leader.number).request(
        ApiKey.PRODUCE, three.produce_body("orders", ["b"]), 11
    )
    replica = leader.broker.context.replicas[GroupId(1)]
    three.wait(lambda: replica.commit > before, 2, "two of three hold it")
    assert not asked.done
    assert not leader.broker.context.effects.acks_may_wait
