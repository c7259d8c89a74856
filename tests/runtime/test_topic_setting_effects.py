"""Each honoured topic setting with two values: as the settings of two topics, and as the defaults
of brokers that were started with either. The difference is one that a user sees.

A setting that becomes honoured gets its row here.
"""

from collections.abc import Callable

import attrs
import pytest

from raftlog.base.limits import SEGMENT_BYTES_MIN
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS, SettingClass
from tests.broker.handlers.data_path import WALL, batch_of, fetch, produce
from tests.broker.handlers.test_alter_configs import BROKER, SET, alter, resource
from tests.broker.handlers.test_partition_reassignments import move, moving
from tests.records.making import changed
from tests.runtime.setting_effects import cluster_of, is_answered, records

HOUR_MS = 3_600_000
SMALL_LOGS = {"segment.bytes": str(SEGMENT_BYTES_MIN), "retention.bytes": str(SEGMENT_BYTES_MIN)}


def code_of(cluster, name, batch):
    return produce(cluster, cluster.leader(name).number, batch, name=name)[0].error_code


def code_of_1000_bytes(cluster, name):
    return code_of(cluster, name, batch_of(b"x" * 1000))


def code_of_a_minute_ahead(cluster, name):
    return code_of(cluster, name, batch_of(b"x", timestamp_ms=wall(cluster) + 60_000))


def code_of_a_minute_ago(cluster, name):
    return code_of(cluster, name, batch_of(b"x", timestamp_ms=wall(cluster) - 60_000))


def code_of_one(cluster, name):
    return code_of(cluster, name, batch_of(b"x"))


def whose_timestamp(cluster, name):
    leader = cluster.leader(name).number
    assert code_of(cluster, name, batch_of(b"x", timestamp_ms=WALL - HOUR_MS)) == 0
    ((_, timestamp_ms, _),) = records(fetch(cluster, leader, 0, name=name)[0])
    return "producer" if timestamp_ms == WALL - HOUR_MS else "broker"


def oldest_are_gone(cluster, name):
    for _ in range(12):
        assert code_of(cluster, name, batch_of(b"x" * (SEGMENT_BYTES_MIN // 3))) == 0
    cluster.run(3)
    return fetch(cluster, cluster.leader(name).number, 11, name=name)[0].log_start_offset > 0


def an_old_record_is_gone(cluster, name):
    leader = cluster.leader(name).number
    assert code_of(cluster, name, batch_of(b"x", timestamp_ms=WALL - HOUR_MS)) == 0
    cluster.run(8)
    return fetch(cluster, leader, 1, name=name)[0].log_start_offset > 0


def what_lay_for_seconds_is_gone(cluster, name):
    """Size removes whole segments only, and these records fill none."""
    for _ in range(3):
        assert code_of(cluster, name, batch_of(b"x")) == 0
        cluster.run(1.5)
    return fetch(cluster, cluster.leader(name).number, 2, name=name)[0].log_start_offset > 0


def a_cut_off_leader_answers_readers(cluster, name):
    assert code_of(cluster, name, batch_of(b"x")) == 0
    leader = cluster.leader(name).number
    cluster.world.network.deafen(
        [(other, leader) for other in cluster.world.nodes if other != leader]
    )
    answered = is_answered(cluster, leader, name, 0.2)
    cluster.world.network.heal()
    cluster.run(3)
    return answered


def code_of_a_lying_count(cluster, name):
    return code_of(
        cluster, name, changed(batch_of(b"x" * 99), records_count=5, last_offset_delta=4)
    )


def a_move_ends_soon(cluster, name):
    """10 kB, with brokers that give a throttled move 1 kB a second."""
    rates = [f"{side}.replication.throttled.rate" for side in ("leader", "follower")]
    for node in (1, 2):
        changes = [(rate, SET, "1024") for rate in rates]
        (answer,) = alter(cluster, resource(str(node), *changes, kind=BROKER), at=node)
        assert answer.error_code == 0
    leader = cluster.leader(name).number
    for nodes in ([leader], [leader, 3 - leader]):
        assert move(cluster, (0, nodes), name=name) == [0]
        if len(nodes) == 1:
            cluster.wait(lambda: not moving(cluster, 0, name=name), 10.0, "alone")
            for _ in range(10):
                assert code_of_1000_bytes(cluster, name) == 0
    cluster.run(2)
    return not moving(cluster, 0, name=name)


def wall(cluster):
    """Returns the time of the brokers' clocks, as a producer with a right clock has it."""
    name = f"clock-{cluster.world.steps}"
    cluster.create(name, 1, 1, configs=[("message.timestamp.type", "LogAppendTime")])
    leader = cluster.leader(name).number
    assert code_of(cluster, name, batch_of(b"x")) == 0
    return records(fetch(cluster, leader, 0, name=name)[0])[0][1]


@attrs.frozen
class Effect:
    """`see` looks at a topic of a cluster; `values` say what it sees for each of two values.
    `others` are settings without which the effect does not show, `brokers` how many there are."""

    see: Callable
    values: dict[str, object]
    others: dict[str, str] = attrs.Factory(dict)
    brokers: int = 1


TOO_LARGE, TOO_FEW, WRONG_TIME, WRONG_RECORD = 10, 19, 32, 87
EFFECTS = {
    "cleanup.policy": Effect(oldest_are_gone, {"delete": True, "compact": False}, SMALL_LOGS),
    "follower.replication.throttled.replicas": Effect(
        a_move_ends_soon, {"*": False, "1:1": True}, brokers=2
    ),
    "leader.replication.throttled.replicas": Effect(
        a_move_ends_soon, {"0:1,0:2": False, "": True}, brokers=2
    ),
    "max.message.bytes": Effect(code_of_1000_bytes, {"1000": TOO_LARGE, "2000": 0}),
    "message.timestamp.after.max.ms": Effect(
        code_of_a_minute_ahead, {"30000": WRONG_TIME, "90000": 0}
    ),
    "message.timestamp.before.max.ms": Effect(
        code_of_a_minute_ago, {"30000": WRONG_TIME, "90000": 0}
    ),
    "message.timestamp.type": Effect(
        whose_timestamp, {"CreateTime": "producer", "LogAppendTime": "broker"}
    ),
    "min.insync.replicas": Effect(code_of_one, {"1": 0, "2": TOO_FEW}),
    "raftlog.read.consistency": Effect(
        a_cut_off_leader_answers_readers, {"committed": True, "linearizable": False}, brokers=3
    ),
    "raftlog.validate.records": Effect(code_of_a_lying_count, {"true": WRONG_RECORD, "false": 0}),
    "retention.bytes": Effect(
        oldest_are_gone,
        {str(SEGMENT_BYTES_MIN): True, "-1": False},
        {"segment.bytes": SMALL_LOGS["segment.bytes"]},
    ),
    "retention.ms": Effect(an_old_record_is_gone, {"5000": True, "-1": False}),
    "segment.ms": Effect(
        what_lay_for_seconds_is_gone,
        {"1000": True, "604800000": False},
        {"retention.bytes": "1"},
    ),
    "segment.bytes": Effect(
        oldest_are_gone,
        {str(SEGMENT_BYTES_MIN): True, "1073741824": False},
        {"retention.bytes": SMALL_LOGS["retention.bytes"]},
    ),
}
HONOURED = [n for n, config in TOPIC_CONFIGS.items() if config.classed is SettingClass.HONOURED]
FAST = {"log.retention.check.interval.ms": "200"}


def test_every_honoured_setting_shows_its_effect_here_and_no_other_does():
    assert sorted(EFFECTS) == HONOURED


@pytest.mark.parametrize("setting", EFFECTS)
def test_two_topics_with_two_values_differ(setting, secret):
    effect = EFFECTS[setting]
    cluster = cluster_of(secret, FAST, effect.brokers)
    seen = {}
    for number, value in enumerate(effect.values):
        configs = {**effect.others, setting: value}
        cluster.create(f"t{number}", 1, effect.brokers, configs=configs.items())
        seen[value] = effect.see(cluster, f"t{number}")
    assert seen == effect.values


@pytest.mark.parametrize("setting", EFFECTS)
def test_brokers_started_with_two_values_differ(setting, secret):
    """By every name that the setting has for a broker; the topic says nothing of its own."""
    effect = EFFECTS[setting]
    for name, factor in TOPIC_CONFIGS[setting].broker_names:
        if factor > 1:
            continue  # hours and minutes: the conversion has its own tests
        seen = {}
        for value in effect.values:
            cluster = cluster_of(secret, {**FAST, name: value}, effect.brokers)
            cluster.create("t", 1, effect.brokers, configs=effect.others.items())
            seen[value] = effect.see(cluster, "t")
        assert seen == effect.values, name
