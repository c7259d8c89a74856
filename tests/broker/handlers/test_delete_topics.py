"""DeleteTopics and CreatePartitions when several administrators are at work at once."""

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.versions import ApiKey
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
