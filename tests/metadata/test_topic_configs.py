"""The table of topic settings: Kafka's names and defaults, clear words for what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.limits import BATCH_BYTES_MAX, CONFIG_VALUE_BYTES_MAX, SEGMENT_BYTES_MIN
from raftlog.metadata.topic_configs import (
    BROKER_DEFAULT_NAMES,
    TOPIC_CONFIGS,
    broker_default_problem,
    broker_defaults,
    config_problem,
    configs_problem,
    effective_configs,
    nearest,
)

KAFKAS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "max.message.bytes": "1048588",
    "min.insync.replicas": "1",
    "compression.type": "producer",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": "3600000",
    "delete.retention.ms": "86400000",
    "min.compaction.lag.ms": "0",
    "min.cleanable.dirty.ratio": "0.5",
    "index.interval.bytes": "4096",
    "unclean.leader.election.enable": "false",
    "raftlog.read.consistency": "committed",
}


@pytest.mark.parametrize("name", sorted(KAFKAS))
def test_defaults_are_kafkas(name):
    assert TOPIC_CONFIGS[name].default == KAFKAS[name]


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_every_default_is_valid_and_said_what_for(name):
    config = TOPIC_CONFIGS[name]
    assert config_problem(name, config.default) is None
    assert config.about
    assert config.broker_names


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "retention.ms",
            ["-1", "0", "9223372036854775807"],
            ["-2", "1d", "", "1.5", "٣", "9" * 30],
        ),
        ("segment.bytes", [str(SEGMENT_BYTES_MIN)], [str(SEGMENT_BYTES_MIN - 1), "2147483648"]),
        ("max.message.bytes", ["0", str(BATCH_BYTES_MAX)], ["-1", str(BATCH_BYTES_MAX + 1)]),
        ("min.insync.replicas", ["1", "5"], ["0", "-1", "two"]),
        (
            "cleanup.policy",
            ["delete", "compact", "compact,delete", "delete, compact"],
            ["", "drop"],
        ),
        ("compression.type", ["producer"], ["zstd", "none"]),
        ("message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime"]),
        ("min.cleanable.dirty.ratio", ["0", "0.5", "1"], ["-0.1", "1.1", "half", "nan"]),
        ("unclean.leader.election.enable", ["false"], ["true", "False"]),
        ("raftlog.read.consistency", ["committed", "linearizable"], ["strong"]),
        ("segment.ms", ["1"], ["0"]),
    ],
)
def test_values(name, good, bad):
    for value in good:
        assert config_problem(name, value) is None, value
    for value in bad:
        problem = config_problem(name, value)
        assert problem is not None, value
        assert problem.startswith(f"{name}={value} ")


def test_an_unknown_name_is_answered_with_the_nearest():
    assert config_problem("retention.mss", "1") == (
        "unknown topic setting retention.mss; did you mean retention.ms?"
    )
    assert config_problem("zzzzzz", "1") == "unknown topic setting zzzzzz"
    assert nearest("min.insync.replica", ["min.insync.replicas", "segment.ms"]) == (
        "min.insync.replicas"
    )
    assert nearest("x", ["segment.ms"]) is None


def test_values_are_bounded():
    assert "longer than" in config_problem("cleanup.policy", "x" * (CONFIG_VALUE_BYTES_MAX + 1))


def test_several_overrides():
    assert configs_problem([]) is None
    assert configs_problem([("retention.ms", "1"), ("segment.ms", "1")]) is None
    assert configs_problem([("retention.ms", "1"), ("retention.ms", "2")]) == (
        "retention.ms is given twice"
    )
    assert "must be from" in configs_problem([("retention.ms", "1"), ("segment.ms", "0")])


def test_overrides_win_over_broker_defaults_over_built_in_ones():
    values = effective_configs(
        [("retention.ms", "1")], [("retention.ms", "2"), ("segment.ms", "3")]
    )
    assert (values["retention.ms"], values["segment.ms"]) == ("1", "3")
    assert values["retention.bytes"] == "-1"
    assert list(values) == sorted(values)


def test_a_server_properties_gives_defaults():
    properties = {
        "log.retention.hours": "2",
        "log.segment.bytes": "1048576",
        "message.max.bytes": "2000000",
        "min.insync.replicas": "2",
        "node.id": "1",
        "log.roll.hours": "1",
    }
    assert dict(broker_defaults(properties)) == {
        "retention.ms": "7200000",
        "segment.bytes": "1048576",
        "max.message.bytes": "2000000",
        "min.insync.replicas": "2",
        "segment.ms": "3600000",
    }


def test_the_most_specific_of_several_wins():
    """Kafka: log.retention.ms, then .minutes, then .hours."""
    properties = {"log.retention.hours": "1", "log.retention.minutes": "5"}
    assert dict(broker_defaults(properties)) == {"retention.ms": "300000"}
    properties["log.retention.ms"] = "7"
    assert dict(broker_defaults(properties)) == {"retention.ms": "7"}
    assert dict(broker_defaults({"log.retention.hours": "-1"})) == {"retention.ms": "-1"}


def test_bad_broker_defaults_are_named_as_they_were_written():
    assert broker_default_problem("log.retention.hours", "-1") is None
    assert broker_default_problem("log.retention.hours", "week") == (
        "log.retention.hours=week is not a whole number"
    )
    assert broker_default_problem("node.id", "x") is None
    assert "log.cleanup.policy" in BROKER_DEFAULT_NAMES


@given(st.text(max_size=30))
def test_no_text_makes_a_check_raise(value):
    for name in TOPIC_CONFIGS:
        config_problem(name, value)
    for name in BROKER_DEFAULT_NAMES:
        broker_default_problem(name, value)
        broker_defaults({name: value})
