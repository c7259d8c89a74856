"""The table of topic settings: Kafka's names and defaults, clear words for what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.limits import BATCH_BYTES_MAX, CONFIG_VALUE_BYTES_MAX, SEGMENT_BYTES_MIN
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS, SettingClass
from raftlog.metadata.settings.topic_configs import (
    BROKER_DEFAULT_NAMES,
    broker_default_problem,
    broker_defaults,
    config_problem,
    config_warnings,
    configs_problem,
    default_of,
    effective_configs,
    nearest,
)
from tests.tidy.tree import ROOT

KAFKAS = dict(
    line.split("\t")[1:]
    for line in (ROOT / "tests/golden/kafka_settings.tsv").read_text().splitlines()
    if line.startswith("topic\t")
)
"""Every topic setting of Kafka 4.0 to 4.4 with its default, as Kafka's own code lists them."""

OF_KAFKA_3 = [
    "message.downconversion.enable",
    "message.format.version",
    "message.timestamp.difference.max.ms",
]


def test_every_topic_setting_of_kafka_4_is_in_the_table_and_no_invented_one():
    assert len(KAFKAS) == 37
    ours = [name for name in TOPIC_CONFIGS if name.startswith("raftlog.")]
    assert sorted([*KAFKAS, *OF_KAFKA_3, *ours]) == list(TOPIC_CONFIGS)


@pytest.mark.parametrize("name", sorted(KAFKAS))
def test_defaults_are_kafkas(name):
    assert TOPIC_CONFIGS[name].default == KAFKAS[name]


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_every_default_is_valid_and_said_what_for(name):
    config = TOPIC_CONFIGS[name]
    assert config_problem(name, config.default) is None
    assert config.about
    for broker_name, _ in config.broker_names:
        assert default_of(broker_name) is config


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
            ["delete", "compact", "compact,delete", "delete, compact", ""],
            ["drop", "delete compact"],
        ),
        ("compression.type", ["producer", "zstd", "uncompressed"], ["none", ""]),
        ("compression.gzip.level", ["-1", "1", "9"], ["0", "10", "-2"]),
        ("preallocate", ["true", "False"], ["yes", ""]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1, 1:2"], ["none", "0:1,", "0"]),
        ("remote.storage.enable", ["false", "FALSE"], ["true", ""]),
        ("local.retention.ms", ["-2"], ["-1", "1000"]),
        ("message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime"]),
        ("min.cleanable.dirty.ratio", ["0", "0.5", "1"], ["-0.1", "1.1", "half", "nan"]),
        ("unclean.leader.election.enable", ["false", "False"], ["true", "no"]),
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
    assert config_problem("zzzzzz", "1") == (
        "unknown topic setting zzzzzz; docs/reference/topic_settings.md has all"
    )
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


def test_every_wrong_override_is_named_up_to_a_bound():
    """A definition with three wrong settings was refused three times, one name at a time."""
    wrong = [("remote.storage.enable", "true"), ("retention.ms", "1"), ("retention.mss", "1")]
    assert configs_problem(wrong) == (
        "remote.storage.enable=true must be false: there is no remote storage; "
        "unknown topic setting retention.mss; did you mean retention.ms?"
    )
    ten = [(f"zz{number}zz", "1") for number in range(10)]
    assert configs_problem(ten).count("unknown") == 10
    assert configs_problem([*ten, ("yyyy", "1")]).endswith("has all; and 1 more")


def test_settings_without_effect_are_warned_of_when_they_are_set_away_from_their_default():
    own = [("segment.jitter.ms", "0"), ("preallocate", "true"), ("retention.bytes", "5")]
    assert config_warnings(effective_configs(own), dict(own)) == [
        "preallocate has no effect: files grow with what is written"
    ]
    assert config_warnings(effective_configs([], [("preallocate", "true")]), []) == []
    assert config_warnings({"of.a.later.release": "1"}, ["of.a.later.release"]) == []


REAL_DEFINITIONS = {
    "changes of a database": {
        "cleanup.policy": "compact",
        "compression.type": "lz4",
        "delete.retention.ms": "86400000",
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "max.compaction.lag.ms": "9223372036854775807",
        "min.cleanable.dirty.ratio": "0.01",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
    },
    "every setting of Kafka 4 with its default": KAFKAS,
    "events of a connector": {
        "cleanup.policy": "delete, compact",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "604800000",
        "segment.ms": "3600000",
    },
    "of Kafka 2.8": {
        "follower.replication.throttled.replicas": "",
        "leader.replication.throttled.replicas": "*",
        "message.downconversion.enable": "true",
        "message.format.version": "2.8-IV1",
        "message.timestamp.difference.max.ms": "9223372036854775807",
        "preallocate": "false",
        "unclean.leader.election.enable": "false",
    },
}


@pytest.mark.parametrize("definition", REAL_DEFINITIONS)
def test_definitions_as_people_have_them_load(definition):
    assert configs_problem(REAL_DEFINITIONS[definition].items()) is None


def test_what_is_refused_is_only_refused_away_from_its_default():
    other = {"false": "true", "-2": "1000"}
    refused = [c for c in TOPIC_CONFIGS.values() if c.classed is SettingClass.DEFAULT_ONLY]
    assert len(refused) == 7
    for config in refused:
        assert config_problem(config.name, config.default) is None
        problem = config_problem(config.name, other.get(config.default, "1000"))
        assert f"must be {config.default}: " in problem, config.name


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
