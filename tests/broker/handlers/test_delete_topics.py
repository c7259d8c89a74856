"""DeleteTopics and CreatePartitions when several administrators are at work at once."""

import pytest

from raftlog.base.units import Instant
from raftlog.broker.control.controller_channel import ControllerChannel
from raftlog.broker.peer_messages import ControllerKind
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.versions import ApiKey
from raftlog.metadata.commands import CreatePartitions, DeleteTopic
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.requests import SubmitCommand, encode_body
from tests.broker.cluster import Cluster


def test_who_asked_by_name_hears_of_a_name_when_another_was_faster():
    """Found by the black-box tests (topics without any fault): two administrators deleted a topic
    at once through different brokers, and the slower one heard 100, of an id that it never used."""
    three = Cluster(brokers=3, controllers=3).ready()
    three.create("orders", 1, 3)
    three.run(0.5)
    delete = DeleteTopicsRequest([DeleteTopicState("orders")], (), 5000)
    grow = CreatePartitionsRequest([CreatePartitionsTopic("orders", 2)], 5000)
    asked = [
        three.client(1).request(ApiKey.DELETE_TOPICS, delete, 6),
        three.client(2).request(ApiKey.DELETE_TOPICS, delete, 6),
        three.client(3).request(ApiKey.CREATE_PARTITIONS, grow, 3),
    ]
    three.wait(lambda: all(each.done for each in asked), 20.0, "three answers")
    first, second = (each.answer.responses[0].error_code for each in asked[:2])
    assert sorted((first, second)) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert asked[2].answer.results[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_topic_named_twice_has_one_entry_in_the_answer():
    """As Kafka answers; the others of the request are done."""
    one = Cluster(brokers=1).ready()
    for name in ("t", "u"):
        one.create(name, 1, 1)
    grow = CreatePartitionsRequest([CreatePartitionsTopic(n, 2) for n in ("t", "u", "t")], 5_000)
    answer = one.ask(1, ApiKey.CREATE_PARTITIONS, grow, 3)
    told = [(each.name, each.error_code) for each in answer.results]
    assert told == [("t", ErrorCode.INVALID_REQUEST), ("u", 0)]
    named = [DeleteTopicState(name) for name in ("t", "u", "t", "gone", "gone")]
    answer = one.ask(1, ApiKey.DELETE_TOPICS, DeleteTopicsRequest(named, (), 5_000), 6)
    told = [(each.name, each.error_code) for each in answer.responses]
    assert told == [("t", ErrorCode.INVALID_REQUEST), ("u", 0), ("gone", ErrorCode.INVALID_REQUEST)]
    assert [topic.name for topic in one.metadata().topics] == ["t"]


@pytest.fixture
def first_answer_lost(monkeypatch):
    """The next answer of a controller on another node to what a client asked for is lost on its
    way, a success or that error; what `meanwhile` does happens before the next request."""
    lost, error = [], 0
    replied = ControllerChannel.replied

    meanwhile = []

    def lose_one(channel, peer, reply):
        ask = channel._asks.get(reply.request_no)
        asked_for = ask is not None and ask.kind == ControllerKind.PROPOSE
        if not lost and asked_for and reply.error == error:
            lost.append(reply)
            for act in meanwhile:
                act()
        else:
            replied(channel, peer, reply)

    def arm(*acts, refused=0):
        nonlocal error
        error = refused
        meanwhile.extend(acts)
        monkeypatch.setattr(ControllerChannel, "replied", lose_one)
        return lost

    return arm


def asked_afar(three, api_key, body, version):
    """The answer to a client of a broker that is not the controller."""
    (controller,) = [n.number for n in three.world.running() if n.broker.controller.active]
    afar = next(n.number for n in three.world.running() if n.number != controller)
    return three.ask(afar, api_key, body, version)


def test_a_deletion_whose_answer_was_lost_is_a_success_at_the_second_try(first_answer_lost):
    """Found by the black-box tests (topics under pause-and-kill, seed 100): a delete heard that
    there is no such topic, though only this delete can have removed it. The broker had asked a
    controller that died, asked the next one again, and passed on what the second try met."""
    three = Cluster(brokers=3, controllers=3).ready()
    three.create("orders", 1, 3)
    three.run(0.5)
    lost = first_answer_lost()
    body = DeleteTopicsRequest([DeleteTopicState("orders")], (), 20_000)
    answer = asked_afar(three, ApiKey.DELETE_TOPICS, body, 6)
    assert len(lost) == 1
    assert answer.responses[0].error_code == 0


def test_a_growth_whose_answer_was_lost_is_not_refused_for_its_own_success(first_answer_lost):
    three = Cluster(brokers=3, controllers=3).ready()
    three.create("orders", 1, 3)
    three.run(0.5)
    lost = first_answer_lost()
    body = CreatePartitionsRequest([CreatePartitionsTopic("orders", 2)], 20_000)
    answer = asked_afar(three, ApiKey.CREATE_PARTITIONS, body, 3)
    assert len(lost) == 1
    assert answer.results[0].error_code == 0
    (topic,) = three.metadata("orders").topics
    assert len(topic.partitions) == 2


def submitted(three, command):
    """Another administrator asks the controller itself."""
    (controller,) = [n for n in three.world.running() if n.broker.controller.active]
    controller.broker.context.controller.ask(
        ControllerKind.PROPOSE,
        encode_body(SubmitCommand(command=command)),
        Instant(2**62),
        lambda reply: None,
    )


def test_a_creation_whose_answer_was_lost_is_not_performed_again(first_answer_lost):
    """Found by the black-box matrix (topics under disk-full, seed 202): the topic had been made,
    seen, and deleted by another client; then the broker that had lost the controller's answer asked
    again, and the topic was there once more."""
    three = Cluster(brokers=3, controllers=3).ready()

    def delete():
        image = three.world.running()[0].broker.context.image
        submitted(three, DeleteTopic(topic_id=image.names["orders"]))

    lost = first_answer_lost(delete)
    body = CreateTopicsRequest([CreatableTopic("orders", 1, 3)], 20_000)
    answer = asked_afar(three, ApiKey.CREATE_TOPICS, body, 6)
    assert len(lost) == 1
    assert answer.topics[0].error_code == 0
    three.run(2)
    for node in three.world.running():
        assert "orders" not in node.broker.context.image.names


def test_a_growth_that_was_overtaken_while_its_answer_was_lost_is_a_success(first_answer_lost):
    three = Cluster(brokers=3, controllers=3).ready()
    three.create("orders", 1, 3)
    three.run(0.5)

    def grow_on():
        image = three.world.running()[0].broker.context.image
        topic = image.topic("orders")
        assignment = tuple((r.node, r.directory) for r in topic.partitions[0].target)
        (controller,) = [n for n in three.world.running() if n.broker.controller.active]
        controller.broker.controller._propose(
            CreatePartitions(topic_id=topic.topic_id, count_before=3, assignments=(assignment,))
        )

    lost = first_answer_lost(grow_on)
    body = CreatePartitionsRequest([CreatePartitionsTopic("orders", 3)], 20_000)
    answer = asked_afar(three, ApiKey.CREATE_PARTITIONS, body, 3)
    assert len(lost) == 1
    assert answer.results[0].error_code == 0
    (topic,) = three.metadata("orders").topics
    assert len(topic.partitions) == 4


def test_a_refusal_whose_answer_was_lost_holds_for_the_first_try_too(first_answer_lost):
    """The client is told that nothing was done; a first try that only was slow would do it when the
    topic that stood in its way is gone."""
    three = Cluster(brokers=3, controllers=3).ready()
    three.create("orders", 1, 3)
    three.run(0.5)
    lost = first_answer_lost(refused=ErrorCode.TOPIC_ALREADY_EXISTS)
    body = CreateTopicsRequest([CreatableTopic("orders", 1, 3)], 20_000)
    answer = asked_afar(three, ApiKey.CREATE_TOPICS, body, 6)
    assert len(lost) == 1
    assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    three.run(1)
    for node in three.world.running():
        performed = node.broker.context.image.performed.values()
        refusals = [done.refusal for known in performed for done in known.done]
        assert refusals.count(Refusal.TOPIC_EXISTS) == 1
