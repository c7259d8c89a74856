"""Screens of user interfaces while a broker is dead; `test_user_interfaces` has those of all."""

import time
from contextlib import ExitStack

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.embed.cluster import Cluster
from raftlog.kafka.messages import describe_cluster
from raftlog.kafka.versions import ApiKey
from tests.embed.test_user_interfaces import (
    NODES,
    PARTITIONS,
    SECONDS,
    TOPIC,
    Wire,
    dialects,
)

DEAD = 3
ALIVE = [1, 2]


@pytest.fixture(scope="module")
def bereft():
    """A cluster whose broker 3 is dead, and whose partitions have moved to other leaders."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(brokers=3))
        client = stack.enter_context(BlockingClient(cluster.bootstrap_servers))
        client.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        cluster.kill(DEAD)
        wire = Wire(cluster, stack)
        deadline = time.monotonic() + SECONDS
        while not all(
            DEAD not in each.isr_nodes and each.leader_id in wire.addresses
            for each in wire.topics(12)[1][TOPIC].partitions
        ):
            assert time.monotonic() < deadline, "broker 3 is still in sync"
            time.sleep(0.05)
        yield wire


@dialects
def test_a_dead_broker_is_no_broker_and_its_replicas_are_offline(bereft, dialect):
    answer, topics = bereft.topics(dialect.metadata)
    addresses = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
    assert addresses == bereft.addresses
    assert answer.controller_id in addresses
    for each in topics[TOPIC].partitions:
        assert (each.error_code, each.leader_id in addresses) == (0, True)
        assert (sorted(each.replica_nodes), sorted(each.isr_nodes)) == (NODES, ALIVE)
        assert list(each.offline_replicas) == [DEAD]


def test_a_screen_that_asks_for_fenced_brokers_sees_the_dead_one(bereft):
    body = describe_cluster.DescribeClusterRequest(include_fenced_brokers=True)
    told = bereft.ask(ApiKey.DESCRIBE_CLUSTER, 2, body)
    fenced = {each.broker_id: each.is_fenced for each in told.brokers}
    assert fenced == {1: False, 2: False, DEAD: True}
