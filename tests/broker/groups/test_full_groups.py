"""Produces to a group that commits nothing: what it holds is bounded, for any client."""

import attrs
import pytest
from raftlog_sim.world.client import HeapClient

from raftlog.base.units import KIB
from raftlog.broker.config import BrokerLimits
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster, batch

LIMIT = 256 * KIB
VALUE = "v" * 50_000


@pytest.fixture
def cluster():
    limits = BrokerLimits(uncommitted_bytes=LIMIT)
    made = Cluster(configure=lambda config: attrs.evolve(config, limits=limits)).ready()
    made.create("orders", 1, 3)
    return made


def stalled(cluster):
    """The leader, whose followers take what it sends; their answers are held up until `heal`."""
    leader = cluster.leader("orders")
    others = [node.number for node in cluster.world.running() if node is not leader]
    cluster.world.network.hold((other, leader.number) for other in others)
    return leader


def produce(client, count=1, timeout_ms=30_000):
    data = PartitionProduceData(0, batch([VALUE]))
    body = ProduceRequest(None, -1, timeout_ms, [TopicProduceData("orders", b"", [data])])
    return [client.request(ApiKey.PRODUCE, body, 9) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 3], ids=["one by one", "in runs"])
def test_those_who_come_anew_cannot_fill_a_group(cluster, count):
    """A client that had produced to the group was paused at the limit. A client that came, produced
    and went was not, so with each connection the group held more."""
    leader = stalled(cluster)
    replica = leader.broker.context.router.replica("orders", 0)
    for _ in range(60):
        client = HeapClient(leader).connect()
        produce(client, count)
        cluster.run(0.001)
        client.close()
        assert replica.uncommitted_bytes <= 2 * LIMIT + count * 60_000
    assert replica.uncommitted_bytes > 2 * LIMIT


def test_who_is_refused_hears_it_and_is_served_later(cluster):
    leader = stalled(cluster)
    replica = leader.broker.context.router.replica("orders", 0)
    taken = []
    while replica.uncommitted_bytes <= 2 * LIMIT:
        taken += produce(HeapClient(leader).connect())
        cluster.run(0.001)
    client = HeapClient(leader).connect()
    (refused,) = produce(client)
    cluster.run(0.001)
    found = refused.answer.responses[0].partition_responses[0]
    assert found.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.world.network.heal()
    cluster.wait(lambda: all(each.done for each in taken))
    (again,) = produce(client)
    cluster.wait(lambda: again.done)
    codes = [each.answer.responses[0].partition_responses[0].error_code for each in [*taken, again]]
    assert codes == [0] * len(codes)
    assert len(cluster.read_all("orders")) == len(codes)


def test_what_runs_out_of_time_before_the_leader_is_ready_pauses_nobody(cluster):
    """Seed 6301893: a leader that had committed nothing yet held what was produced to it, and
    paused who had sent it. Their time was up before the leader was ready, and they stayed paused:
    only a commit looked at how much a group holds."""
    old = cluster.leader("orders")
    others = [node for node in cluster.world.running() if node is not old]
    cluster.kill(old.number)

    def led():
        replicas = [node.broker.context.router.replica("orders", 0) for node in others]
        return [replica.is_leader for replica in replicas]

    cluster.wait(lambda: any(led()), 10.0)
    leader = others[led().index(True)]
    replica = leader.broker.context.router.replica("orders", 0)
    assert not replica.ready
    cluster.world.network.hold(
        (other.number, leader.number) for other in others if other is not leader
    )
    client = HeapClient(leader).connect()
    sent = produce(client, 6, timeout_ms=10)
    cluster.run(0.003)
    assert replica.uncommitted_bytes > LIMIT
    assert leader.broker.context.ledger.has_groups_over
    cluster.run(0.010)
    assert [each.answer.responses[0].partition_responses[0].error_code for each in sent] == [7] * 6
    assert not replica.ready
    assert not leader.broker.context.ledger.has_groups_over
