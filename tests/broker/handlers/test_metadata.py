"""Answers about all topics are encoded once for all clients, and not told when they have
changed."""

from types import SimpleNamespace

import pytest

from raftlog.base.limits import ENCODED_METADATA_MAX
from raftlog.broker.handlers import metadata
from raftlog.broker.handlers.all_topics import KeptAnswers
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


@pytest.fixture
def encoded(monkeypatch):
    """Each answer about all topics that was made, by its version."""
    made = []
    encode = metadata.encode_answer

    def counting(api_key, version, body):
        made.append(version)
        return encode(api_key, version, body)

    monkeypatch.setattr(metadata, "encode_answer", counting)
    return made


@pytest.fixture
def one():
    cluster = Cluster(brokers=1).ready()
    cluster.create("orders", 3, 1)
    cluster.run(1)
    return cluster


@pytest.fixture
def three():
    cluster = Cluster(brokers=3, controllers=3).ready()
    cluster.create("orders", 3, 3)
    cluster.run(1)
    return cluster


def everything(cluster, at=1, version=12, *, operations=False):
    body = MetadataRequest([] if version == 0 else None, False, operations, operations)
    return cluster.ask(at, ApiKey.METADATA, body, version)


def test_a_flood_of_one_question_is_encoded_once(one, encoded):
    """Sixteen clients that asked for all topics again and again kept the others waiting."""
    client = one.client(1)
    asked = [client.request(ApiKey.METADATA, MetadataRequest(None), 12) for _ in range(60)]
    one.wait(lambda: all(each.done for each in asked), 20, "sixty answers")
    assert encoded == [12]
    assert all(each.answer == asked[0].answer for each in asked)
    assert [topic.name for topic in asked[0].answer.topics] == ["orders"]


def test_each_way_to_ask_has_its_own_answer(one, encoded):
    for _ in range(2):
        for version in (0, 9, 10):
            everything(one, version=version)
        told = everything(one, version=10, operations=True)
        assert told.cluster_authorized_operations > 0
        assert everything(one, version=10).cluster_authorized_operations < 0
    assert encoded == [0, 9, 10, 10]


def test_topics_that_are_named_are_not_kept(one, encoded):
    one.metadata("orders")
    assert encoded == []


def test_a_new_topic_is_there_at_once(one, encoded):
    everything(one)
    one.create("payments", 1, 1)
    assert [topic.name for topic in everything(one).topics] == ["orders", "payments"]
    one.run(1)
    assert [p.leader_id for topic in everything(one).topics for p in topic.partitions] == [1] * 4


def test_kept_answers_are_bounded(one, encoded):
    for version in range(13):
        everything(one, version=version)
    kept = one.world.nodes[1].broker.context.kept(KeptAnswers)
    assert len(kept.answers) == ENCODED_METADATA_MAX
    everything(one, version=0)
    assert encoded == [*range(13), 0]


def still_true(context):
    """Whether what is kept here is what would be answered now; None when nothing is in force."""
    kept = context.kept(KeptAnswers)
    if kept.routes != context.routes:
        return None
    for question, answer in kept.answers.items():
        request = SimpleNamespace(
            api_key=int(ApiKey.METADATA),
            version=question.version,
            connection=SimpleNamespace(listener=question.listener),
            body=MetadataRequest(None),
        )
        assert metadata._encode_everything(context, request) == answer
    return True


def test_kept_answers_say_what_a_new_one_would(three):
    """Whatever becomes of leaders, brokers and replicas; leaders are known here before the image
    says so."""
    checked = 0

    def live(steps):
        nonlocal checked
        for step in range(steps):
            if step % 7 == 0:
                for node in three.world.running():
                    three.client(node.number).request(ApiKey.METADATA, MetadataRequest(None), 12)
            three.run(0.01)
            checked += sum(bool(still_true(node.broker.context)) for node in three.world.running())

    live(20)
    killed = three.leader("orders").number
    three.kill(killed)
    live(300)
    three.restart(killed)
    live(200)
    three.world.network.partition([three.leader("orders", 1).number])
    live(150)
    three.world.network.heal()
    live(100)
    assert checked > 1000
