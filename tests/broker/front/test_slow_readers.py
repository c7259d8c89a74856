"""Clients that ask and do not read: what they hold is bounded over all of them; others go on."""

import attrs
import pytest
from raftlog_sim.world.client import HeapClient
from raftlog_sim.world.node import Node

from raftlog.base.units import KIB
from raftlog.broker.config import BrokerLimits
from raftlog.broker.events import Drained
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster

HELD = 64 * KIB


@pytest.fixture
def deaf(monkeypatch):
    """Connections that take none of their answers."""
    found = set()
    deliver = Node.deliver

    def deliver_if_read(node, event):
        if not (type(event) is Drained and event.connection in found):
            deliver(node, event)

    monkeypatch.setattr(Node, "deliver", deliver_if_read)
    return found


@pytest.fixture
def one():
    limits = BrokerLimits(held_bytes=HELD)
    cluster = Cluster(configure=lambda c: attrs.evolve(c, limits=limits)).ready()
    cluster.create("orders", 160, 1)
    cluster.run(1)
    return cluster


def asking(cluster, deaf, count):
    """So many new clients that ask for everything once and read nothing."""
    clients = [HeapClient(cluster.world.nodes[1]).connect() for _ in range(count)]
    for client in clients:
        deaf.add(client.connection)
        client.request(ApiKey.METADATA, MetadataRequest(None), 12)
    cluster.run(0.1)
    return clients


def test_many_clients_that_read_nothing_cannot_fill_the_memory(one, deaf):
    """Each may leave 8 MiB unread: a thousand of them were 8 GB."""
    ledger = one.world.nodes[1].broker.context.ledger
    reader = one.client(1)
    for _ in range(100):
        asking(one, deaf, 5)
        assert ledger.held_bytes <= 2 * HELD
        reader.request(ApiKey.METADATA, MetadataRequest([]), 12)
        one.run(0.01)
    assert ledger.held_bytes > HELD, "it came to the bound"
    assert reader.connection is not None, "who reads is left alone"
    assert not reader.pending


def test_who_is_hung_up_on_has_read_nothing_for_longest(one, deaf):
    clients = asking(one, deaf, 5)
    while clients[0].connection is not None:
        assert len(clients) < 1000
        clients += asking(one, deaf, 5)
    lost = [client.connection is None for client in clients]
    gone = lost.count(True)
    assert gone < 10
    assert lost == [True] * gone + [False] * (len(clients) - gone)


def test_those_who_begin_to_read_are_served_again(one, deaf):
    ledger = one.world.nodes[1].broker.context.ledger
    (client,) = asking(one, deaf, 1)
    while not ledger.held_over:
        client.request(ApiKey.METADATA, MetadataRequest(None), 12)
        one.run(0.01)
    paused = [a.connection for a in ledger._accounts.values() if a.paused]
    assert paused == [client.connection]
    deaf.clear()
    one.world.nodes[1].deliver(Drained(client.connection, ledger.held_bytes))
    one.run(0.1)
    assert not ledger.held_over
    assert not any(account.paused for account in ledger._accounts.values())
