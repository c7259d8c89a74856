"""Each honoured broker setting that decides what a broker does, with two values: brokers that were
started with either differ in what a user sees. `test_server_setting_effects` has those about ports,
files and connections.

A setting that becomes honoured gets its row in one of the two.
"""

from collections.abc import Callable

import attrs
import pytest

from raftlog.base.errors import ConfigError
from raftlog.base.limits import SEGMENT_BYTES_MIN
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.kafka.versions import ApiKey
from tests.broker.handlers.data_path import batch_of, fetch, produce, produce_request
from tests.runtime.setting_effects import cluster_of, is_answered, judged, records, seconds_until

LINEARIZABLE = {"raftlog.read.consistency": "linearizable"}


def with_cluster(see, brokers=1, **settings):
    """`see` looks at a cluster whose brokers were started with the settings."""

    def look(secret, told):
        return see(cluster_of(secret, {**settings, **told}, brokers))

    return look


def code_of_first_use(cluster):
    body = MetadataRequest([MetadataRequestTopic(name="fresh")], True)
    return cluster.ask(1, ApiKey.METADATA, body, 12).topics[0].error_code


def code_of_deletion(cluster):
    cluster.create("t", 1, 1)
    body = DeleteTopicsRequest([], ["t"], 5000)
    return cluster.ask(1, ApiKey.DELETE_TOPICS, body, 5).responses[0].error_code


def shape_by_default(cluster):
    body = CreateTopicsRequest([CreatableTopic("t", -1, -1)], 5000)
    assert cluster.ask(1, ApiKey.CREATE_TOPICS, body, 7).topics[0].error_code == 0
    partitions = cluster.metadata("t").topics[0].partitions
    return len(partitions), len(partitions[0].replica_nodes)


def rack(cluster):
    return cluster.metadata().brokers[0].rack


def live_after_three_seconds(cluster):
    cluster.kill(2)
    cluster.run(3)
    return [broker.node_id for broker in cluster.metadata().brokers]


def in_sync_while_one_is_silent(cluster):
    cluster.create("t", 1, 3)
    leader = cluster.leader("t").number
    cluster.run(1)
    silent = max(number for number in cluster.world.nodes if number != leader)
    cluster.world.network.deafen([(silent, leader)])
    cluster.run(3)
    return len(cluster.partition("t", at=leader).isr_nodes)


def oldest_are_gone_after_three_seconds(cluster):
    sizes = {name: str(SEGMENT_BYTES_MIN) for name in ("segment.bytes", "retention.bytes")}
    cluster.create("t", 1, 1, configs=sizes.items())
    for _ in range(12):
        cluster.put("t", [b"x" * (SEGMENT_BYTES_MIN // 3)])
    cluster.run(3)
    return cluster.fetch("t", 11).log_start_offset > 0


def are_closed_segments_verified_within_three_seconds(cluster):
    cluster.create("t", 1, 1, configs=[("segment.bytes", str(SEGMENT_BYTES_MIN))])
    for _ in range(12):
        cluster.put("t", [b"x" * (SEGMENT_BYTES_MIN // 3)])
    cluster.run(3)
    return cluster.world.nodes[1].broker.context.counters["scrub_segments"] > 0


def records_of_a_repeat_after_five_seconds(cluster):
    """A producer that is remembered repeats itself in vain."""
    cluster.create("t", 1, 1)
    batch = batch_of(b"x", pid=7, epoch=0, first=0)
    produce(cluster, 1, batch)
    for _ in range(50):
        cluster.run(0.1)
        cluster.put("t", [b"of another producer"])
    produce(cluster, 1, batch)
    return [value for _, value in cluster.read_all("t")].count(b"x")


def is_led_again_within_three_seconds(cluster):
    cluster.create("t", 1, 3)
    leader = cluster.leader("t").number
    others = [number for number in cluster.world.nodes if number != leader]
    cluster.world.network.deafen([(leader, other) for other in others])
    cluster.run(3)
    return any(fetch(cluster, other, 0)[0].error_code == ErrorCode.NONE for other in others)


def batches_of_one_answer(cluster):
    cluster.create("t", 1, 1)
    for _ in range(4):
        cluster.put("t", [b"x" * 10_000])
    return len(records(fetch(cluster, 1, 0)[0]))


def in_sync_without_records(cluster):
    """Heartbeats alone say that a follower is there."""
    cluster.create("t", 1, 3)
    leader = cluster.leader("t").number
    cluster.run(3)
    return len(cluster.partition("t", at=leader).isr_nodes)


def first_leads_again_after_five_seconds(cluster):
    """A broker led everything that it has first, and was away for a while."""
    for name in ("t", "u", "v"):
        cluster.create(name, 1, 3)
    first = cluster.leader("t").number
    cluster.kill(first)
    cluster.run(3)
    cluster.restart(first)
    cluster.run(5)
    return cluster.leader("t").number == first


def is_read_without_the_others(cluster):
    cluster.create("t", 1, 3)
    leader = cluster.leader("t").number
    assert produce(cluster, leader, batch_of(b"x"))[0].error_code == 0
    assert len(records(fetch(cluster, leader, 0)[0])) == 1
    others = [number for number in cluster.world.nodes if number != leader]
    cluster.world.network.deafen([(other, leader) for other in others])
    return is_answered(cluster, leader, "t", 0.2)


def syncs_until_acknowledged(cluster):
    cluster.create("t", 1, 1)
    cluster.run(1)
    cluster.world.sync_ns = 100_000_000
    body = produce_request(batch_of(b"x"), timeout_ms=30_000)
    pending = cluster.client(1).request(ApiKey.PRODUCE, body, 11)
    return round(seconds_until(cluster, lambda: pending.done, 5, 0.01) / 0.1)


def creates_without_broker_1(cluster):
    cluster.kill(1)
    cluster.run(5)
    body = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 3000)
    return cluster.ask(2, ApiKey.CREATE_TOPICS, body, 7).topics[0].error_code == 0


def is_started(secret, settings):
    try:
        judged(secret, settings)
    except ConfigError:
        return False
    return True


@attrs.frozen
class Effect:
    """The visible difference of brokers that were started with each of two values."""

    see: Callable
    values: dict[str, object]


LONG_SESSIONS = {"group.min.session.timeout.ms": "200000"}
SLOW = {"broker.session.timeout.ms": "15000"}
EFFECTS = {
    "auto.create.topics.enable": Effect(
        with_cluster(code_of_first_use, **{"default.replication.factor": "1"}),
        {"true": 0, "false": 3},
    ),
    "broker.rack": Effect(with_cluster(rack), {"north": "north", "south": "south"}),
    "broker.session.timeout.ms": Effect(
        with_cluster(live_after_three_seconds, 2), {"1000": [1], "60000": [1, 2]}
    ),
    "controller.quorum.voters": Effect(
        lambda secret, told: creates_without_broker_1(
            cluster_of(secret, told, 3, told["controller.quorum.voters"].count("@"))
        ),
        {"1@n1:9192": False, "1@n1:9192,2@n2:9192,3@n3:9192": True},
    ),
    "default.replication.factor": Effect(
        with_cluster(shape_by_default, 3), {"1": (1, 1), "3": (1, 3)}
    ),
    "delete.topic.enable": Effect(with_cluster(code_of_deletion), {"true": 0, "false": 73}),
    "fetch.max.bytes": Effect(
        with_cluster(batches_of_one_answer), {"1024": 1, "25000": 2, "57671680": 4}
    ),
    "log.retention.check.interval.ms": Effect(
        with_cluster(oldest_are_gone_after_three_seconds), {"500": True, "600000": False}
    ),
    "num.partitions": Effect(with_cluster(shape_by_default, 3), {"2": (2, 3), "5": (5, 3)}),
    "process.roles": Effect(is_started, {"broker,controller": True, "broker": False}),
    "producer.id.expiration.ms": Effect(
        with_cluster(
            records_of_a_repeat_after_five_seconds, **{"log.retention.check.interval.ms": "200"}
        ),
        {"1000": 2, "60000": 1},
    ),
    "raftlog.raft.election.timeout.ms": Effect(
        with_cluster(is_led_again_within_three_seconds, 3, **LONG_SESSIONS),
        {"300": True, "30000": False},
    ),
    "raftlog.raft.heartbeat.ms": Effect(
        with_cluster(
            in_sync_without_records,
            3,
            **SLOW,
            **LONG_SESSIONS,
            **{"replica.lag.time.max.ms": "1000", "raftlog.raft.election.timeout.ms": "12000"},
        ),
        {"100": 3, "6000": 1},
    ),
    "raftlog.read.lease.enable": Effect(
        with_cluster(is_read_without_the_others, 3, **LINEARIZABLE), {"true": True, "false": False}
    ),
    "raftlog.scrub.interval.ms": Effect(
        with_cluster(are_closed_segments_verified_within_three_seconds),
        {"1000": True, "604800000": False, "0": False},
    ),
    "raftlog.storage.strict.mark": Effect(
        with_cluster(syncs_until_acknowledged), {"false": 1, "true": 2}
    ),
    "auto.leader.rebalance.enable": Effect(
        with_cluster(
            first_leads_again_after_five_seconds,
            3,
            **{"leader.imbalance.check.interval.seconds": "1"},
        ),
        {"true": True, "false": False},
    ),
    "leader.imbalance.check.interval.seconds": Effect(
        with_cluster(first_leads_again_after_five_seconds, 3), {"1": True, "60": False}
    ),
    "leader.imbalance.per.broker.percentage": Effect(
        with_cluster(
            first_leads_again_after_five_seconds,
            3,
            **{"leader.imbalance.check.interval.seconds": "1"},
        ),
        {"10": True, "100": False},
    ),
    "replica.lag.time.max.ms": Effect(
        with_cluster(in_sync_while_one_is_silent, 3, **SLOW),
        {"1000": 2, "60000": 3},
    ),
}


@pytest.mark.parametrize("setting", EFFECTS)
def test_brokers_started_with_two_values_differ(setting, secret):
    effect = EFFECTS[setting]
    seen = {value: effect.see(secret, {setting: value}) for value in effect.values}
    assert seen == effect.values
