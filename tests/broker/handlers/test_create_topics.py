"""CreateTopics of more than the controller can take at once, and of what it did in silence."""

import pytest

from raftlog.broker.control import controller
from raftlog.broker.control.controller_channel import ControllerChannel
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.shape import ZERO_ID
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


@pytest.fixture
def three():
    return Cluster(brokers=3, controllers=3).ready()


def create(three, at, *names, timeout_ms=20_000):
    topics = [CreatableTopic(name, 1, 3, (), []) for name in names]
    body = CreateTopicsRequest(topics, timeout_ms)
    return three.ask(at, ApiKey.CREATE_TOPICS, body, limit=60).topics


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_request_for_more_topics_than_wait_at_once_creates_them_all(three, monkeypatch, at):
    """Those beyond the bound were answered by REQUEST_TIMED_OUT at once, unseen, and
    brokers were fenced meanwhile."""
    monkeypatch.setattr(controller, "CONTROLLER_CALLS_MAX", 5)
    names = [f"t{number}" for number in range(40)]
    results = create(three, at, *names)
    assert [(each.name, each.error_code) for each in results] == [(name, 0) for name in names]
    image = three.world.nodes[at].broker.context.image
    assert sorted(image.names) == sorted(names)
    assert not any(broker.fenced for broker in image.brokers.values())


def test_a_creation_whose_answer_never_came_is_reported_by_what_is_there(three, monkeypatch):
    """The answer at the deadline said "timed out" of topics that were there since long."""
    three.create("orders")
    kept = ControllerChannel.replied

    def lose(channel, peer, reply):
        if reply.error == 0 and channel._asks[reply.request_no].body.find(b"payments") >= 0:
            return
        kept(channel, peer, reply)

    monkeypatch.setattr(ControllerChannel, "replied", lose)
    results = create(three, 2, "payments", "orders", timeout_ms=3000)
    assert [each.error_code for each in results] == [0, 36]
    assert results[0].topic_id != ZERO_ID
    assert (results[0].num_partitions, results[0].replication_factor) == (1, 3)


def test_what_did_not_come_about_in_time_is_told_so(three):
    three.world.network.partition([2])
    three.run(5)
    (result,) = create(three, 2, "payments", timeout_ms=2000)
    assert (result.error_code, result.topic_id) == (7, ZERO_ID)
