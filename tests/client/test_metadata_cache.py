"""Old news never replaces newer, whatever order answers come in."""

from hypothesis import given
from hypothesis import strategies as st

from raftlog.client.core.metadata_cache import NO_LEADER, MetadataCache
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

PLACE = TopicPartition("t", 0)
ID, OTHER_ID = bytes(15) + b"\1", bytes(15) + b"\2"


def told(leader, epoch, topic_id=ID, nodes=(1, 2, 3), partitions=1):
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node, "h", 9000 + node) for node in nodes],
        cluster_id="c",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                0,
                "t",
                topic_id,
                partitions=[
                    MetadataResponsePartition(0, index, leader, epoch)
                    for index in reversed(range(partitions))
                ],
            )
        ],
    )


def learned(*answers):
    cache = MetadataCache()
    for answer in answers:
        cache.learn(answer)
    return cache


def test_a_leader_of_an_older_epoch_is_not_believed():
    assert learned(told(2, 5), told(1, 4)).leader_of(PLACE) == 2
    assert learned(told(1, 4), told(2, 5)).leader_of(PLACE) == 2


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1))
def test_the_highest_epoch_wins(news):
    by_epoch = {}
    for leader, epoch in news:
        by_epoch.setdefault(epoch, leader)
    cache = learned(*(told(by_epoch[epoch], epoch) for _, epoch in news))
    assert cache.leader_of(PLACE) == by_epoch[max(by_epoch)]


def test_a_new_topic_under_the_name_starts_afresh():
    cache = learned(told(2, 9), told(1, 1, OTHER_ID))
    assert cache.leader_of(PLACE) == 1
    assert cache.topics["t"].topic_id == OTHER_ID
    assert cache.names == {ID: "t", OTHER_ID: "t"}


def test_a_topic_does_not_shrink_by_what_a_broker_has_not_heard_yet():
    """Keys would go to other partitions, and back."""
    cache = learned(told(2, 5, partitions=3), told(1, 6))
    view = cache.topic("t", 2)
    assert [each.partition_index for each in view.partitions] == [0, 1, 2]
    assert [each.leader_id for each in view.partitions] == [1, 2, 2]
    assert cache.topic("t", 3) is None
    cache.learn(told(1, 1, OTHER_ID, partitions=2))
    assert cache.topic("t").count == 2, "another topic has its own number"


def test_a_forgotten_leader_keeps_its_epoch():
    cache = learned(told(2, 5))
    cache.forget_leader(PLACE)
    assert cache.leader_of(PLACE) is None
    cache.learn(told(1, 4))
    assert cache.leader_of(PLACE) is None
    cache.learn(told(2, 5))
    assert cache.leader_of(PLACE) == 2


def test_an_answer_that_names_the_leader_counts_when_it_is_newer():
    cache = learned(told(2, 5))
    for node, epoch in ((3, 5), (3, 4), (NO_LEADER, 9)):
        cache.told_leader(PLACE, node, epoch)
        assert cache.leader_of(PLACE) == 2
    cache.told_leader(PLACE, 3, 6)
    assert cache.leader_of(PLACE) == 3
    cache.told_leader(TopicPartition("unknown", 0), 3, 6)
    assert cache.topic("unknown") is None


def test_a_leader_without_an_address_is_none_yet():
    cache = learned(told(4, 5))
    assert cache.leader_of(PLACE) is None
    cache.told_endpoints([(4, "h", 9004), (1, "elsewhere", 1)])
    assert cache.leader_of(PLACE) == 4
    assert cache.addresses[1] == ("h", 9001), "an address that is known stays"


def test_an_error_keeps_what_was_known():
    cache = learned(told(2, 5))
    cache.learn(MetadataResponse(topics=[MetadataResponseTopic(error_code=5, name="t")]))
    assert cache.leader_of(PLACE) == 2
    assert cache.topics["t"].error == 5
    cache.learn(MetadataResponse(topics=[MetadataResponseTopic(error_code=3, name="new")]))
    assert cache.topic("new") is None
    assert cache.topics["new"].error == 3
    assert cache.addresses, "an answer without brokers does not forget them"


def test_brokers_alone():
    cache = MetadataCache()
    cache.learn_brokers(told(1, 1))
    assert (cache.cluster_id, cache.controller, len(cache.addresses)) == ("c", 1, 3)
    assert cache.topics == {}
