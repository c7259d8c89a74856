"""A broker's configuration refuses what cannot work, and what it says about topics takes effect."""

import attrs
import pytest

from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog.broker.config import BrokerConfig, Listener
from raftlog.broker.events import PeerAddress
from raftlog.broker.topic_settings import (
    defaults_of,
    effective_settings,
    log_options,
    partition_config,
    topic_values,
)
from raftlog.metadata.settings.broker_settings import EVERY_BROKER
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS
from raftlog.metadata.settings.topic_defaults import MADE_NOW
from raftlog.partition.config import UNLIMITED
from raftlog.storage.replica import LogOptions

PEER = PeerAddress(1, "n1", 9192)
CONFIG = BrokerConfig(
    node=1,
    peer=PEER,
    controllers=(PEER,),
    listeners=(Listener(name="PLAINTEXT", host="n1", port=9092),),
)


@pytest.mark.parametrize(
    "change",
    [
        {"controllers": ()},
        {"heartbeat_ns": millis(500)},
        {"peer": PeerAddress(2, "n2", 9192)},
        {"listeners": CONFIG.listeners * 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_cannot_work_is_refused(change):
    with pytest.raises(AssertionError):
        attrs.evolve(CONFIG, **change)


def test_fast_timings_keep_their_relations():
    fast = CONFIG.fast()
    assert fast.heartbeat_ns < fast.election_ns < fast.session_ns
    assert fast.election_ns < CONFIG.election_ns
    assert fast.is_controller


def test_a_broker_that_is_no_controller_knows_it():
    other = attrs.evolve(CONFIG, node=2, peer=PeerAddress(2, "n2", 9192))
    assert not other.is_controller


def test_settings_come_from_topic_then_broker_then_the_table():
    config = attrs.evolve(
        CONFIG, topic_defaults=(("retention.ms", "1"), ("segment.bytes", "100000"))
    )
    overrides = [("retention.ms", "2"), MADE_NOW]
    found = {
        each.setting.name: each for each in effective_settings(overrides, defaults_of(config, {}))
    }
    assert list(found) == list(TOPIC_CONFIGS)
    retention = found["retention.ms"]
    assert (retention.value, retention.source) == ("2", 1)
    assert [line[1:] for line in retention.synonyms] == [("2", 1), ("1", 4), ("604800000", 5)]
    assert (found["segment.bytes"].value, found["segment.bytes"].source) == ("100000", 4)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].source) == ("delete", 5)


def test_a_partition_is_told_its_effective_settings():
    config = attrs.evolve(CONFIG, read_consistency="linearizable", replica_lag_ns=millis(7))
    values = topic_values(
        [
            ("max.message.bytes", "123"),
            ("min.insync.replicas", "2"),
            ("message.timestamp.type", "LogAppendTime"),
            ("retention.bytes", "456"),
        ],
        defaults_of(config, {}),
    )
    told = partition_config(values, config)
    assert told.max_message_bytes == 123
    assert told.min_insync_replicas == 2
    assert told.log_append_time
    assert told.linearizable
    assert told.retention_bytes == 456
    assert told.replica_lag_ns == millis(7)


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("delete", 456),
        ("delete,compact", 456),
        ("compact, delete", 456),
        ("compact", -1),
        ("compact,compact", -1),
    ],
)
@pytest.mark.parametrize("by_topic", [True, False], ids=["topic", "broker"])
def test_retention_by_size_reaches_only_topics_whose_policy_says_delete(policy, told, by_topic):
    """A topic that said only `compact` lost the last record of half of its keys, for the size was
    enforced without a look at the policy. Both settings may come from the topic or the broker."""
    settings = (("cleanup.policy", policy), ("retention.bytes", "456"))
    config = attrs.evolve(CONFIG, topic_defaults=() if by_topic else settings)
    values = topic_values(settings if by_topic else (), defaults_of(config, {}))
    assert partition_config(values, config).retention_bytes == told


def test_a_topic_may_read_less_strictly_than_the_broker():
    config = attrs.evolve(CONFIG, read_consistency="linearizable")
    values = topic_values([("raftlog.read.consistency", "committed")], defaults_of(config, {}))
    assert not partition_config(values, config).linearizable


def test_simulations_set_the_sizes_of_every_log():
    values = topic_values([("segment.bytes", "100000")], defaults_of(CONFIG, {}))
    assert log_options(values, CONFIG).segment_bytes == 100_000
    tiny = attrs.evolve(CONFIG, log_sizes=LogOptions(segment_bytes=5000))
    assert log_options(values, tiny).segment_bytes == 5000


WEEK_MS = 7 * 24 * 3_600_000


@pytest.mark.parametrize(
    ("own", "broker", "kept_ms"),
    [
        ((), (), UNLIMITED),
        ((("retention.ms", "5"),), (), 5),
        ((), (("retention.ms", "7"),), 7),
        ((("retention.ms", "5"),), (("retention.ms", "7"),), 5),
        ((MADE_NOW,), (), WEEK_MS),
        ((MADE_NOW, ("retention.ms", "-1")), (("retention.ms", "7"),), UNLIMITED),
        ((MADE_NOW,), (("retention.ms", "7"),), 7),
    ],
)
def test_a_topic_of_an_older_release_is_kept_unless_its_age_was_set_by_name(own, broker, kept_ms):
    """`retention.ms` did nothing before, so such a topic may hold the records of years."""
    config = attrs.evolve(CONFIG, topic_defaults=broker)
    assert (
        partition_config(topic_values(own, defaults_of(config, {})), config).retention_ms == kept_ms
    )
    shown = {
        each.setting.name: each.value for each in effective_settings(own, defaults_of(config, {}))
    }
    assert shown["retention.ms"] == str(kept_ms)


def test_no_other_default_depends_on_the_release_that_made_a_topic():
    defaults = defaults_of(CONFIG, {})
    kept_a_week = topic_values((("retention.ms", str(WEEK_MS)),), defaults)
    assert {**topic_values((), defaults), "retention.ms": str(WEEK_MS)} == kept_a_week


def test_what_is_given_to_a_broker_counts_before_what_every_broker_has():
    """And both before the file, and a topic's own setting before them all."""
    config = attrs.evolve(CONFIG, topic_defaults=(("retention.ms", "1"), ("segment.ms", "4")))
    name = "log.retention.ms"
    every, mine = ((name, "2"), ("min.insync.replicas", "2")), ((name, "3"),)
    other = NodeId(config.node + 1)
    settings = {EVERY_BROKER: every, config.node: mine, other: ((name, "9"),)}
    found = {
        each.setting.name: each
        for each in effective_settings(
            (MADE_NOW, ("retention.ms", "5")), defaults_of(config, settings)
        )
    }
    assert [line[1:] for line in found["retention.ms"].synonyms] == [
        ("5", 1),
        ("3", 2),
        ("2", 3),
        ("1", 4),
        ("604800000", 5),
    ]
    assert (found["min.insync.replicas"].value, found["min.insync.replicas"].source) == ("2", 3)
    values = topic_values((), defaults_of(config, settings))
    assert (values["retention.ms"], values["segment.ms"]) == ("3", "4")
    assert topic_values((), defaults_of(config, {EVERY_BROKER: every}))["retention.ms"] == "2"


@pytest.mark.parametrize(
    ("internal", "policy", "deletes"),
    [(False, "delete", True), (True, "delete", False), (False, "compact", False)],
)
def test_internal_and_compacted_topics_are_never_deleted_by_age_or_size(internal, policy, deletes):
    own = (("retention.ms", "5"), ("retention.bytes", "6"), ("cleanup.policy", policy))
    told = partition_config(topic_values(own, defaults_of(CONFIG, {})), CONFIG, internal=internal)
    assert (told.retention_ms, told.retention_bytes) == ((5, 6) if deletes else (-1, -1))
    assert told.deletes is deletes


def test_a_partition_is_told_the_age_at_which_its_segments_roll():
    values = topic_values((("segment.ms", "9000"), ("retention.ms", "-1")), defaults_of(CONFIG, {}))
    assert partition_config(values, CONFIG).segment_ms == 9_000
    assert partition_config(values, CONFIG).roll_ms == 9_000
