"""Clients whose requests wait: what those weigh is bounded over all of them; others go on."""

import attrs
import pytest
from raftlog_sim.world.client import HeapClient

from raftlog.base.limits import RECORD_COPY_BYTES_MAX, REQUEST_ITEM_BYTES
from raftlog.base.units import KIB
from raftlog.broker.config import BrokerLimits
from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster, batch

WAITING = 4_096 * KIB


@pytest.fixture
def one():
    limits = BrokerLimits(waiting_bytes=WAITING)
    cluster = Cluster(configure=lambda c: attrs.evolve(c, limits=limits)).ready()
    cluster.create("orders", 1, 1)
    cluster.run(1)
    return cluster


def long_poll(weight: int, wait_ms: int = 3_600_000) -> FetchRequest:
    """A fetch that waits and weighs about so much: topics without partitions are objects too."""
    wanted = [FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])]
    wanted += [FetchTopic("", partitions=())] * (weight // REQUEST_ITEM_BYTES)
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1_000_000, max_bytes=1_000_000, topics=wanted
    )


def waiting(cluster, weight: int, wait_ms: int = 3_600_000) -> HeapClient:
    """A new client with one such request."""
    client = HeapClient(cluster.world.nodes[1]).connect()
    client.request(ApiKey.FETCH, long_poll(weight, wait_ms), 12)
    cluster.run(0.001)
    return client


def served(cluster, client) -> bool:
    pending = client.request(ApiKey.METADATA, MetadataRequest([]), 12)
    cluster.run(0.01)
    return pending.done and client.connection is not None


def test_what_waits_on_many_connections_cannot_fill_the_memory(one):
    """Each may have 8 MiB of unanswered requests: two thousand of them were 16 GiB."""
    ledger = one.world.nodes[1].broker.context.ledger
    other = one.client(1)
    clients = []
    for _ in range(60):
        clients.append(waiting(one, 256 * KIB))
        assert ledger.waiting_bytes <= 2 * WAITING
        assert served(one, other)
    assert ledger.waiting_bytes > WAITING, "it came to the bound"
    assert sum(each.connection is not None for each in clients) > 25
    replica = one.world.nodes[1].broker.context.router.replica("orders", 0)
    assert len(replica.fetches) == sum(each.connection is not None for each in clients)


def test_who_holds_most_for_longest_goes(one):
    """Weight times time: neither the many that hold a little for an hour push out an honest client
    with a large request, nor one huge request those who wait for half a second."""
    for _ in range(28):
        waiting(one, 256 * KIB)
    one.run(5)
    young = waiting(one, 512 * KIB)
    for _ in range(8):
        waiting(one, 256 * KIB)
    assert young.connection is not None
    huge = waiting(one, 4_000 * KIB)
    assert huge.connection is not None, "one of any size is let in"
    one.run(1)
    waiting(one, 1_024 * KIB)
    assert huge.connection is None
    assert young.connection is not None


def test_who_holds_little_is_left_alone(one):
    small = waiting(one, 2 * KIB)
    one.run(60)
    for _ in range(60):
        waiting(one, 256 * KIB)
    assert small.connection is not None


def test_who_holds_much_pauses_before_anybody_goes(one):
    node = one.world.nodes[1]
    much = waiting(one, WAITING // 2, wait_ms=1_000)
    little = waiting(one, 2 * KIB, wait_ms=1_000)
    assert not node.live.paused
    more = waiting(one, WAITING // 2, wait_ms=1_000)
    assert set(node.live.paused) == {much.connection, more.connection}
    assert served(one, one.client(1))
    one.run(2)
    assert not node.live.paused
    assert None not in (much.connection, little.connection, more.connection)
    assert node.broker.context.ledger.waiting_bytes == 0


def test_large_requests_that_wait_pin_no_receive_memory_and_stop_nobody():
    """Whatever was larger than 64 KiB counted for receive memory until it was answered. Eight
    clients whose fetches waited for an hour stopped every other client for as long."""
    cluster = Cluster(
        configure=lambda c: attrs.evolve(
            c, limits=BrokerLimits(pinned_bytes=4 * RECORD_COPY_BYTES_MAX)
        )
    ).ready()
    cluster.create("orders", 1, 1)
    other = cluster.client(1)
    for _ in range(8):
        client = HeapClient(cluster.world.nodes[1]).connect()
        body = long_poll(0)._replace(rack_id="x" * 30_000)
        padding = [FetchTopic("y" * 20_000, partitions=()) for _ in range(4)]
        body = body._replace(topics=[*body.topics, *padding])
        client.request(ApiKey.FETCH, body, 12)
        cluster.run(0.001)
        assert served(cluster, other)
    assert cluster.world.nodes[1].broker.context.ledger.pinned_bytes == 0


@pytest.mark.parametrize(("value_bytes", "pins"), [(60_000, False), (70_000, True)])
def test_what_pins_receive_memory_is_a_large_produce_request(value_bytes, pins):
    """Its records stay where they were received until their group has them."""
    cluster = Cluster(brokers=3).ready()
    cluster.create("orders", 1, 3)
    leader = cluster.leader("orders")
    client = cluster.client(leader.number)
    ledger = leader.broker.context.ledger
    data = PartitionProduceData(0, batch(["v" * value_bytes]))
    body = ProduceRequest(None, -1, 30_000, [TopicProduceData("orders", b"", [data])])
    others = [node.number for node in cluster.world.running() if node is not leader]
    cluster.world.network.partition(others)
    pending = client.request(ApiKey.PRODUCE, body, 9)
    cluster.run(0.001)
    assert not pending.done
    assert (ledger.pinned_bytes > value_bytes) is pins
    assert ledger.waiting_bytes > value_bytes
    cluster.world.network.heal()
    cluster.wait(lambda: pending.done)
    assert (ledger.pinned_bytes, ledger.waiting_bytes) == (0, 0)
