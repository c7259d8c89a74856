"""A topic's settings as this broker sees them: the source of each value, and their effect.

`metadata.settings.topic_config_table` has the table of names and valid values. Here the broker's
own defaults are laid between the built-in ones and the topic's overrides. They are, from weakest to
strongest, the defaults of its file, those that group 0 holds for every broker, and those for this
one.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, final

from raftlog.broker.config import BrokerConfig
from raftlog.metadata.settings.broker_settings import EVERY_BROKER, BrokerSettings, topic_level
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS, TopicConfig
from raftlog.metadata.settings.topic_configs import effective_configs, retention_deletes
from raftlog.metadata.settings.topic_defaults import built_in_defaults
from raftlog.partition.config import UNLIMITED, PartitionConfig
from raftlog.storage.replica import LogOptions

# DescribeConfigs' numbers of where a value comes from.
SOURCE_TOPIC: Final = 1
SOURCE_DYNAMIC_BROKER: Final = 2
SOURCE_DYNAMIC_DEFAULT: Final = 3
SOURCE_BROKER: Final = 4
SOURCE_DEFAULT: Final = 5

_BROKER_SOURCES: Final = (SOURCE_DYNAMIC_BROKER, SOURCE_DYNAMIC_DEFAULT, SOURCE_BROKER)

Pairs = Iterable[tuple[str, str]]


@final
class EffectiveSetting(NamedTuple):
    """One line of DescribeConfigs. `synonyms` are (name, value, source), the strongest first."""

    setting: TopicConfig
    value: str
    source: int
    synonyms: tuple[tuple[str, str, int], ...]


@final
class BrokerDefaults(NamedTuple):
    """A broker's defaults for topics, by topic-level name.

    They were given to it, given to every broker, or read from its file. The first that has a name
    counts.
    """

    own: Mapping[str, str]
    every: Mapping[str, str]
    file: Mapping[str, str]

    def merged(self) -> dict[str, str]:
        """Topic-level name -> the value that counts."""
        return {**self.file, **self.every, **self.own}


def defaults_of(config: BrokerConfig, settings: BrokerSettings) -> BrokerDefaults:
    """The defaults of a broker, under the broker settings of the image."""
    file = dict(config.topic_defaults)
    if config.read_consistency != "committed":
        file.setdefault("raftlog.read.consistency", config.read_consistency)
    own, every = (topic_level(settings.get(who, ())) for who in (config.node, EVERY_BROKER))
    return BrokerDefaults(own, every, file)


def effective_settings(overrides: Pairs, defaults: BrokerDefaults) -> list[EffectiveSetting]:
    """All settings of a topic, in the order of their names."""
    own = dict(overrides)
    built_in = built_in_defaults(own.items())
    return [_effective(setting, own, defaults, built_in) for setting in TOPIC_CONFIGS.values()]


def _effective(
    setting: TopicConfig,
    own: Mapping[str, str],
    broker: BrokerDefaults,
    built_in: Mapping[str, str],
) -> EffectiveSetting:
    broker_name = setting.broker_names[0][0] if setting.broker_names else setting.name
    lines: list[tuple[str, str, int]] = []
    if setting.name in own:
        lines.append((setting.name, own[setting.name], SOURCE_TOPIC))
    for source, values in zip(_BROKER_SOURCES, broker, strict=True):
        if setting.name in values:
            lines.append((broker_name, values[setting.name], source))
    lines.append((broker_name, built_in[setting.name], SOURCE_DEFAULT))
    return EffectiveSetting(setting, lines[0][1], lines[0][2], tuple(lines))


def topic_values(overrides: Pairs, defaults: BrokerDefaults) -> dict[str, str]:
    """Topic-level name -> effective value."""
    own = tuple(overrides)
    return effective_configs(own, {**built_in_defaults(own), **defaults.merged()}.items())


def partition_config(
    values: Mapping[str, str], config: BrokerConfig, *, internal: bool = False
) -> PartitionConfig:
    """The configuration of a partition of a topic with these effective values.

    The cluster's own topics (`internal`) are never deleted by size or age, whatever the broker-wide
    defaults say.
    """
    deletes = not internal and retention_deletes(values["cleanup.policy"])
    # With `compact` alone, retention would remove the last record of a key. `log.retention.*` of
    # the broker applies to such topics too.
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
    """The sizes on disk of the log of a partition with these effective values."""
    return config.log_sizes or LogOptions(segment_bytes=int(values["segment.bytes"]))
