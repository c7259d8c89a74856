"""DeleteRecords over real frames: what is deleted, who is refused, and what waits."""

import attrs
import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from raftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster
from tests.broker.handlers.data_path import led_topic


def filled(records=10, **options):
    cluster = led_topic(brokers=options.pop("brokers", 1), **options)
    cluster.put("t", [str(number) for number in range(records)])
    return cluster


def request(*offsets, name="t", timeout_ms=5_000):
    """One offset per partition, from 0 on."""
    asked = [DeleteRecordsPartition(number, offset) for number, offset in enumerate(offsets)]
    return DeleteRecordsRequest([DeleteRecordsTopic(name, asked)], timeout_ms)


def delete(cluster, *offsets, at=None, version=2, **options):
    """(error, low watermark) of each partition."""
    node = at or cluster.leader("t").number
    answer = cluster.ask(node, ApiKey.DELETE_RECORDS, request(*offsets, **options), version)
    return [(each.error_code, each.low_watermark) for each in answer.topics[0].partitions]


@pytest.mark.parametrize("version", range(3))
def test_records_below_the_offset_are_gone(version):
    cluster = filled(3)
    cluster.put("t", ["later"])
    assert delete(cluster, 3, version=version) == [(0, 3)]
    assert cluster.read_all("t", offset=3) == [(3, b"later")]
    assert cluster.fetch("t", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.fetch("t", 3).log_start_offset == 3


def test_minus_one_is_everything_that_is_committed():
    cluster = filled(10, brokers=3)
    assert delete(cluster, -1) == [(0, 10)]
    assert cluster.put("t", ["next"]) == 10


def test_what_is_gone_already_is_answered_with_what_is_left():
    cluster = filled(10)
    delete(cluster, 7)
    assert delete(cluster, 2) == [(0, 7)]
    assert delete(cluster, 7) == [(0, 7)]


@pytest.mark.parametrize("offset", [11, -2, 2**63 - 1, -(2**63)])
def test_an_offset_out_of_range_is_1(offset):
    assert delete(filled(10), offset) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]


def test_each_partition_has_its_own_answer():
    cluster = led_topic(brokers=1, partitions=2)
    cluster.put("t", ["a", "b"])
    asked = delete(cluster, 1, 5, 0)
    assert asked == [(0, 1), (ErrorCode.OFFSET_OUT_OF_RANGE, -1), (3, -1)]


def test_unknown_topics_are_3_and_the_metadata_log_is_one():
    cluster = filled(1)
    assert delete(cluster, 0, name="ghost") == [(3, -1)]
    assert delete(cluster, 0, name="__cluster_metadata") == [(3, -1)]


def test_who_does_not_lead_says_6():
    cluster = filled(5, brokers=3)
    leader = cluster.leader("t")
    other = next(node for node in cluster.world.running() if node is not leader)
    assert delete(cluster, 2, at=other.number) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_without_any_leader_it_is_6_too():
    """kafka-python looks for the leader again after 6, and gives up after 5."""
    cluster = Cluster(brokers=3).ready()
    assignment = [CreatableReplicaAssignment(0, [2, 3])]
    body = CreateTopicsRequest([CreatableTopic("t", -1, -1, assignment)], 5_000)
    assert cluster.ask(1, ApiKey.CREATE_TOPICS, body).topics[0].error_code == 0
    for node in (2, 3):
        cluster.kill(node)
    cluster.wait(lambda: len(cluster.metadata(at=1).brokers) == 1, what="fenced")
    assert cluster.world.nodes[1].broker.context.router.replica("t", 0) == 5
    assert delete(cluster, 2, at=1) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


@pytest.mark.parametrize(
    ("policy", "code"), [("compact", 44), ("compact,delete", 0), ("compact, delete", 0)]
)
def test_a_topic_that_is_only_compacted_is_44(policy, code):
    cluster = filled(5, configs=[("cleanup.policy", policy)])
    assert delete(cluster, 2)[0][0] == code


def test_an_internal_topic_is_44():
    cluster = filled(5)
    context = cluster.world.nodes[1].broker.context
    topic = context.image.topic("t")
    topics = {**context.image.topics, topic.topic_id: attrs.evolve(topic, internal=True)}
    context.image = attrs.evolve(context.image, topics=topics)
    assert delete(cluster, 2) == [(ErrorCode.POLICY_VIOLATION, -1)]


def test_a_partition_named_twice_is_refused_twice():
    cluster = filled(5)
    twice = [DeleteRecordsPartition(0, 2), DeleteRecordsPartition(0, 3)]
    body = DeleteRecordsRequest([DeleteRecordsTopic("t", twice)], 5_000)
    answer = cluster.ask(1, ApiKey.DELETE_RECORDS, body)
    assert [each.error_code for each in answer.topics[0].partitions] == [42, 42]
    assert cluster.fetch("t", 0).log_start_offset == 0


def test_nothing_asked_is_answered_with_nothing():
    cluster = filled(1)
    assert cluster.ask(1, ApiKey.DELETE_RECORDS, DeleteRecordsRequest([], 0)).topics == ()


def stalled(cluster):
    """The leader, and that no follower acknowledges what it sends."""
    leader = cluster.leader("t")
    others = [node.number for node in cluster.world.running() if node is not leader]
    cluster.world.network.hold((other, leader.number) for other in others)
    return leader


def test_it_is_answered_when_it_is_committed():
    cluster = filled(5, brokers=3)
    leader = stalled(cluster)
    pending = cluster.client(leader.number).request(ApiKey.DELETE_RECORDS, request(3))
    cluster.run(0.05)
    assert not pending.done
    cluster.world.network.heal()
    cluster.wait(lambda: pending.done, 5.0, "an answer")
    (result,) = pending.answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (0, 3)


def test_what_is_not_committed_in_time_is_7():
    cluster = filled(5, brokers=3)
    leader = stalled(cluster)
    pending = cluster.client(leader.number).request(
        ApiKey.DELETE_RECORDS, request(3, timeout_ms=100)
    )
    cluster.wait(lambda: pending.done, 1.0, "an answer")
    (result,) = pending.answer.topics[0].partitions
    assert (result.error_code, result.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_who_went_away_is_not_answered():
    cluster = filled(5, brokers=3)
    leader = stalled(cluster)
    cluster.client(leader.number).request(ApiKey.DELETE_RECORDS, request(3))
    cluster.run(0.01)
    cluster.client(leader.number).close()
    cluster.world.network.heal()
    cluster.wait(lambda: cluster.fetch("t", 3).log_start_offset == 3, 5.0, "deleted")
