"""A topic's settings as this broker sees them: where each value comes from, and what they become.

The table of names and what is valid is `metadata.topic_configs`; here the broker's own defaults are
laid between the built-in ones and the topic's overrides.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, final

from raftlog.broker.config import BrokerConfig
from raftlog.metadata.topic_config_table import TOPIC_CONFIGS, TopicConfig
from raftlog.metadata.topic_configs import effective_configs, retention_deletes
from raftlog.metadata.topic_defaults import built_in_defaults
from raftlog.partition.config import UNLIMITED, PartitionConfig
from raftlog.storage.replica import LogOptions

# DescribeConfigs' numbers of where a value comes from.
SOURCE_TOPIC: Final = 1
SOURCE_BROKER: Final = 4
SOURCE_DEFAULT: Final = 5

Pairs = Iterable[tuple[str, str]]


@final
class EffectiveSetting(NamedTuple):
    """One line of DescribeConfigs. `synonyms` are (name, value, source), the strongest first."""

    setting: TopicConfig
    value: str
    source: int
    synonyms: tuple[tuple[str, str, int], ...]


def broker_topic_defaults(config: BrokerConfig) -> dict[str, str]:
    """What this broker's own configuration says about topics, by topic-level name."""
    defaults = dict(config.topic_defaults)
    if config.read_consistency != "committed":
        defaults.setdefault("raftlog.read.consistency", config.read_consistency)
    return defaults


def effective_settings(overrides: Pairs, config: BrokerConfig) -> list[EffectiveSetting]:
    """All settings of a topic, by name."""
    own, broker = dict(overrides), broker_topic_defaults(config)
    built_in = built_in_defaults(own.items())
    return [_effective(setting, own, broker, built_in) for setting in TOPIC_CONFIGS.values()]


def _effective(
    setting: TopicConfig,
    own: Mapping[str, str],
    broker: Mapping[str, str],
    built_in: Mapping[str, str],
) -> EffectiveSetting:
    broker_name = setting.broker_names[0][0] if setting.broker_names else setting.name
    lines: list[tuple[str, str, int]] = []
    if setting.name in own:
        lines.append((setting.name, own[setting.name], SOURCE_TOPIC))
    if setting.name in broker:
        lines.append((broker_name, broker[setting.name], SOURCE_BROKER))
    lines.append((broker_name, built_in[setting.name], SOURCE_DEFAULT))
    return EffectiveSetting(setting, lines[0][1], lines[0][2], tuple(lines))


def topic_values(overrides: Pairs, config: BrokerConfig) -> dict[str, str]:
    """Name to effective value."""
    own = tuple(overrides)
    defaults = {**built_in_defaults(own), **broker_topic_defaults(config)}
    return effective_configs(own, defaults.items())


def partition_config(
    values: Mapping[str, str], config: BrokerConfig, *, internal: bool = False
) -> PartitionConfig:
    """What a partition of a topic with these effective values is told. The cluster's own topics
    (`internal`) are never deleted by size or age, whatever the broker-wide defaults say."""
    deletes = not internal and retention_deletes(values["cleanup.policy"])
    # With `compact` alone, retention would remove the last record of a key, and `log.retention.*`
    # of the broker reaches such topics, too.
    return PartitionConfig(
        max_message_bytes=int(values["max.message.bytes"]),
        min_insync_replicas=int(values["min.insync.replicas"]),
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=int(values["message.timestamp.before.max.ms"]),
        timestamp_after_max_ms=int(values["message.timestamp.after.max.ms"]),
        validate_records=values["raftlog.validate.records"] == "true",
        keyed="compact" in values["cleanup.policy"],
        linearizable=values["raftlog.read.consistency"] == "linearizable",
        retention_bytes=int(values["retention.bytes"]) if deletes else UNLIMITED,
        retention_ms=int(values["retention.ms"]) if deletes else UNLIMITED,
        segment_bytes=log_options(values, config).segment_bytes,
        segment_ms=int(values["segment.ms"]),
        retention_check_ns=config.retention_check_ns,
        replica_lag_ns=config.replica_lag_ns,
        producer_expiration_ms=config.producer_expiration_ms,
    )


def log_options(values: Mapping[str, str], config: BrokerConfig) -> LogOptions:
    """How the log of a partition with these effective values lies on disk."""
    return config.log_sizes or LogOptions(segment_bytes=int(values["segment.bytes"]))
