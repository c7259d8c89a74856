"""Each honoured setting of consumer groups with two values: brokers that were started with either
differ in what a member, or a tool, sees."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.kafka.versions import ApiKey
from tests.broker.groups.group_members import Member, committed, coordinator_of
from tests.runtime.setting_effects import judged, seconds_until
from tests.runtime.test_broker_setting_effects import Effect, is_started, with_cluster

OFFSETS = "__consumer_offsets"
QUICK = {"group.initial.rebalance.delay.ms": "0"}


def with_topic(see, brokers=1, **settings):
    def look(cluster):
        cluster.create("orders", 1, 1)
        return see(cluster)

    factor = {"default.replication.factor": "1"}
    return with_cluster(look, brokers, **{**QUICK, **factor, **settings})


def code_of_session(session_ms):
    def see(cluster):
        coordinator_of(cluster)
        protocols = [JoinGroupRequestProtocol("range")]
        body = JoinGroupRequest("g", session_ms, session_ms, "", None, "consumer", protocols)
        return cluster.ask(1, ApiKey.JOIN_GROUP, body, 0).error_code

    return see


def whole_seconds_of_a_first_join(cluster):
    pending = Member(cluster).join_later()
    return round(seconds_until(cluster, lambda: pending.done, 10, 0.1))


def code_of_a_second_member(cluster):
    first, second = Member(cluster, "a"), Member(cluster, "b")
    pending = first.join_later()
    cluster.wait(lambda: pending.done, 10, "the first")
    return cluster.ask(1, ApiKey.JOIN_GROUP, second.join_body(), 9).error_code


def code_of_a_commit_with_text(cluster):
    coordinator_of(cluster)
    partition = OffsetCommitRequestPartition(0, 5, -1, "x" * 100)
    body = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("orders", b"", [partition])])
    answer = cluster.ask(1, ApiKey.OFFSET_COMMIT, body, 9)
    return answer.topics[0].partitions[0].error_code


def is_refused_on_a_slow_disk(cluster):
    member = Member(cluster)
    cluster.run(1)
    cluster.world.sync_ns = 60_000_000
    partition = OffsetCommitRequestPartition(0, 5)
    body = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("orders", b"", [partition])])
    pending = cluster.client(member.at).request(ApiKey.OFFSET_COMMIT, body, 9)
    cluster.wait(lambda: pending.done, 30, "an answer")
    return pending.answer.topics[0].partitions[0].error_code != 0


def offset_after_three_minutes(cluster):
    member = Member(cluster)
    member.commit({0: 5})
    cluster.run(180)
    return committed(cluster, [0])[0]


def shape(cluster):
    coordinator_of(cluster)
    partitions = cluster.metadata(OFFSETS).topics[0].partitions
    return len(partitions), len(partitions[0].replica_nodes)


def segment_size(cluster):
    coordinator_of(cluster)
    topic = cluster.world.nodes[1].broker.context.image.topic(OFFSETS)
    return topic.config("segment.bytes")


EXPIRY = {"offsets.retention.check.interval.ms": "1000", "offsets.retention.minutes": "1"}
EFFECTS = {
    "group.min.session.timeout.ms": Effect(
        with_topic(code_of_session(5_000)),
        {"4000": 0, "6000": ErrorCode.INVALID_SESSION_TIMEOUT},
    ),
    "group.max.session.timeout.ms": Effect(
        with_topic(code_of_session(50_000)),
        {"60000": 0, "40000": ErrorCode.INVALID_SESSION_TIMEOUT},
    ),
    "group.initial.rebalance.delay.ms": Effect(
        with_topic(whole_seconds_of_a_first_join), {"0": 0, "2000": 2}
    ),
    "group.max.size": Effect(
        with_topic(code_of_a_second_member),
        {"1": ErrorCode.GROUP_MAX_SIZE_REACHED, "2": ErrorCode.MEMBER_ID_REQUIRED},
    ),
    "offset.metadata.max.bytes": Effect(
        with_topic(code_of_a_commit_with_text),
        {"99": ErrorCode.OFFSET_METADATA_TOO_LARGE, "100": 0},
    ),
    "offsets.commit.timeout.ms": Effect(
        with_topic(is_refused_on_a_slow_disk, **{"offsets.topic.num.partitions": "1"}),
        {"20": True, "20000": False},
    ),
    "offsets.retention.minutes": Effect(
        with_topic(offset_after_three_minutes, **EXPIRY), {"1": -1, "10": 5}
    ),
    "offsets.retention.check.interval.ms": Effect(
        with_topic(offset_after_three_minutes, **EXPIRY), {"1000": -1, "600000": 5}
    ),
    "offsets.topic.num.partitions": Effect(with_topic(shape), {"2": (2, 1), "3": (3, 1)}),
    "offsets.topic.replication.factor": Effect(
        with_topic(shape, 3, **{"offsets.topic.num.partitions": "1"}), {"1": (1, 1), "3": (1, 3)}
    ),
    "offsets.topic.segment.bytes": Effect(
        with_topic(segment_size), {"1048576": "1048576", "2097152": "2097152"}
    ),
}


@pytest.mark.parametrize("setting", EFFECTS)
def test_brokers_started_with_two_values_differ(setting, secret):
    effect = EFFECTS[setting]
    seen = {value: effect.see(secret, {setting: value}) for value in effect.values}
    assert seen == effect.values


def test_a_session_that_is_shorter_than_a_failover_stops_the_start(secret):
    """A new coordinator would take a member for gone whom the old one still answers."""
    elections = {"raftlog.raft.election.timeout.ms": "1000", "raftlog.raft.heartbeat.ms": "100"}
    shortest = "group.min.session.timeout.ms"
    assert not is_started(secret, {**elections, shortest: "4200"})
    assert judged(secret, {**elections, shortest: "4201"}).broker.groups
    assert not is_started(secret, {shortest: "7000", "group.max.session.timeout.ms": "6999"})
