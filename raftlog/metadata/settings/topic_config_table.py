"""Every topic setting of Kafka 4, with what this release does with it.

Names, defaults and meanings are Kafka's; ours begin with `raftlog.`. Values are text, as in Kafka.
`topic_configs` judges values by this table and lays settings over one another.
"""

import enum
from collections.abc import Mapping
from typing import Final, final

import attrs

from raftlog.base.limits import (
    BATCH_BYTES_DEFAULT,
    BATCH_BYTES_MAX,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MIN,
)
from raftlog.metadata.settings.config_checks import (
    INT_MAX,
    LONG_MAX,
    Check,
    fixed,
    flag,
    integer,
    one_of,
    ratio,
    text,
    throttled_replicas,
    words_of,
)


@final
class SettingClass(enum.Enum):
    """The effect that a setting of Kafka's has in this release."""

    HONOURED = "honoured"
    NO_EFFECT = "without effect"
    """Any valid value is taken. No record and no answer depends on it."""
    DEFAULT_ONLY = "refused away from its default"
    """Another value would change what clients get, and this release does not do that."""


@final
class ConfigType(enum.IntEnum):
    """Kafka's numbers, as DescribeConfigs gives them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


@final
@attrs.frozen(kw_only=True)
class TopicConfig:
    """One setting. `check` gives what is wrong with a value, or None. `broker_names` are the
    settings of `server.properties` that give its default, the most specific first, each with the
    number by which its value is multiplied. `about` says what an honoured setting means, and why
    another one has no effect or is refused."""

    name: str
    kind: ConfigType
    default: str
    check: Check
    broker_names: tuple[tuple[str, int], ...] = ()
    about: str
    classed: SettingClass = SettingClass.HONOURED


_GZIP_LEVEL: Final = one_of("-1", *map(str, range(1, 10)))
_MS: Final = integer(0, LONG_MAX)
_MS_OR_NONE: Final = integer(-1, LONG_MAX)


def _hours_minutes_ms(stem: str) -> tuple[tuple[str, int], ...]:
    return ((f"{stem}.ms", 1), (f"{stem}.minutes", 60_000), (f"{stem}.hours", 3_600_000))


_DEFINED: Final = (
    TopicConfig(
        name="cleanup.policy",
        kind=ConfigType.LIST,
        default="delete",
        check=words_of("compact", "delete"),
        broker_names=(("log.cleanup.policy", 0),),
        about="delete: old segments go; compact alone: retention deletes nothing. Compaction does "
        "not run yet, so such a topic keeps every record",
    ),
    TopicConfig(
        name="compression.gzip.level",
        kind=ConfigType.INT,
        default="-1",
        check=_GZIP_LEVEL,
        broker_names=(("compression.gzip.level", 1),),
        about="records stay compressed as their producer sent them",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="compression.lz4.level",
        kind=ConfigType.INT,
        default="9",
        check=integer(1, 17),
        broker_names=(("compression.lz4.level", 1),),
        about="records stay compressed as their producer sent them",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="compression.type",
        kind=ConfigType.STRING,
        default="producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_names=(("compression.type", 0),),
        about="records stay compressed as their producer sent them",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="compression.zstd.level",
        kind=ConfigType.INT,
        default="3",
        check=integer(-131_072, 22),
        broker_names=(("compression.zstd.level", 1),),
        about="records stay compressed as their producer sent them",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="delete.retention.ms",
        kind=ConfigType.LONG,
        default="86400000",
        check=_MS,
        broker_names=(("log.cleaner.delete.retention.ms", 1),),
        about="compaction does not run yet, and a compacted topic keeps every record",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="errors.deadletterqueue.group.enable",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=fixed("false", "share groups are not served"),
        about="the topic takes what share groups give up",
        classed=SettingClass.DEFAULT_ONLY,
    ),
    TopicConfig(
        name="file.delete.delay.ms",
        kind=ConfigType.LONG,
        default="60000",
        check=_MS,
        broker_names=(("log.segment.delete.delay.ms", 1),),
        about="a deleted file stays readable for those who read it already",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="flush.messages",
        kind=ConfigType.LONG,
        default=str(LONG_MAX),
        check=integer(1, LONG_MAX),
        broker_names=(("log.flush.interval.messages", 1),),
        about="every acknowledged record is synced",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="flush.ms",
        kind=ConfigType.LONG,
        default=str(LONG_MAX),
        check=_MS,
        broker_names=(("log.flush.interval.ms", 1),),
        about="every acknowledged record is synced",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="follower.replication.throttled.replicas",
        kind=ConfigType.LIST,
        default="",
        check=throttled_replicas,
        about="replicas (partition:broker, or *) throttled while they move to their broker",
    ),
    TopicConfig(
        name="index.interval.bytes",
        kind=ConfigType.INT,
        default="4096",
        check=integer(0, INT_MAX),
        broker_names=(("log.index.interval.bytes", 1),),
        about="the index is spaced by the size of a segment",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="leader.replication.throttled.replicas",
        kind=ConfigType.LIST,
        default="",
        check=throttled_replicas,
        about="replicas (partition:broker, or *) throttled as leaders of a move",
    ),
    TopicConfig(
        name="local.retention.bytes",
        kind=ConfigType.LONG,
        default="-2",
        check=fixed(
            "-2", "there is no remote storage, so every record is local; set retention.bytes"
        ),
        broker_names=(("log.local.retention.bytes", 0),),
        about="what stays on the broker of what remote storage holds",
        classed=SettingClass.DEFAULT_ONLY,
    ),
    TopicConfig(
        name="local.retention.ms",
        kind=ConfigType.LONG,
        default="-2",
        check=fixed("-2", "there is no remote storage, so every record is local; set retention.ms"),
        broker_names=(("log.local.retention.ms", 0),),
        about="what stays on the broker of what remote storage holds",
        classed=SettingClass.DEFAULT_ONLY,
    ),
    TopicConfig(
        name="max.compaction.lag.ms",
        kind=ConfigType.LONG,
        default=str(LONG_MAX),
        check=integer(1, LONG_MAX),
        broker_names=(("log.cleaner.max.compaction.lag.ms", 1),),
        about="compaction does not run yet, and a compacted topic keeps every record",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="max.decompressed.message.bytes",
        kind=ConfigType.INT,
        default="2147483639",
        check=fixed("2147483639", "the broker does not decompress what it stores"),
        broker_names=(("max.decompressed.message.bytes", 0),),
        about="the largest batch when decompressed",
        classed=SettingClass.DEFAULT_ONLY,
    ),
    TopicConfig(
        name="max.message.bytes",
        kind=ConfigType.INT,
        default=str(BATCH_BYTES_DEFAULT),
        check=integer(0, BATCH_BYTES_MAX),
        broker_names=(("message.max.bytes", 1),),
        about="the largest record batch that is accepted",
    ),
    TopicConfig(
        name="message.downconversion.enable",
        kind=ConfigType.BOOLEAN,
        default="true",
        check=flag,
        broker_names=(("log.message.downconversion.enable", 0),),
        about="of Kafka 3: there is one format of records, and every client served reads it",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="message.format.version",
        kind=ConfigType.STRING,
        default="3.0-IV1",
        check=text,
        broker_names=(("log.message.format.version", 0),),
        about="of Kafka 3: there is one format of records",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="message.timestamp.after.max.ms",
        kind=ConfigType.LONG,
        default="3600000",
        check=_MS,
        broker_names=(("log.message.timestamp.after.max.ms", 1),),
        about="how far a batch's largest timestamp may lie in the future, by its header: a header "
        "that states none (-1) passes, and so do records that are later than their header states",
    ),
    TopicConfig(
        name="message.timestamp.before.max.ms",
        kind=ConfigType.LONG,
        default=str(LONG_MAX),
        check=_MS,
        broker_names=(("log.message.timestamp.before.max.ms", 1),),
        about="how far a batch's largest timestamp may lie in the past, by its header; a header "
        "that states none (-1) passes",
    ),
    TopicConfig(
        name="message.timestamp.difference.max.ms",
        kind=ConfigType.LONG,
        default=str(LONG_MAX),
        check=fixed(
            str(LONG_MAX), "set message.timestamp.before.max.ms and message.timestamp.after.max.ms"
        ),
        broker_names=(("log.message.timestamp.difference.max.ms", 0),),
        about="of Kafka 3: how far a record's timestamp may lie from the broker's clock",
        classed=SettingClass.DEFAULT_ONLY,
    ),
    TopicConfig(
        name="message.timestamp.type",
        kind=ConfigType.STRING,
        default="CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        broker_names=(("log.message.timestamp.type", 0),),
        about="whose clock gives the timestamp: the producer's or the leader's",
    ),
    TopicConfig(
        name="min.cleanable.dirty.ratio",
        kind=ConfigType.DOUBLE,
        default="0.5",
        check=ratio,
        broker_names=(("log.cleaner.min.cleanable.ratio", 0),),
        about="compaction does not run yet, and a compacted topic keeps every record",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="min.compaction.lag.ms",
        kind=ConfigType.LONG,
        default="0",
        check=_MS,
        broker_names=(("log.cleaner.min.compaction.lag.ms", 1),),
        about="compaction does not run yet, and a compacted topic keeps every record",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="min.insync.replicas",
        kind=ConfigType.INT,
        default="1",
        check=integer(1, INT_MAX),
        broker_names=(("min.insync.replicas", 1),),
        about="in-sync replicas that must hold a record before acks=all is answered",
    ),
    TopicConfig(
        name="preallocate",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=flag,
        broker_names=(("log.preallocate", 0),),
        about="files grow with what is written",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="raftlog.read.consistency",
        kind=ConfigType.STRING,
        default="committed",
        check=one_of("committed", "linearizable"),
        broker_names=(("raftlog.read.consistency", 0),),
        about="linearizable: a read sees every write acknowledged before it began",
    ),
    TopicConfig(
        name="raftlog.validate.records",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=flag,
        broker_names=(("raftlog.validate.records", 0),),
        about="true: each record of a produced batch is looked at before it is stored, as Kafka "
        "does, for about 1.5 us a record. false: a batch whose inside lies is stored, and stops "
        "every consumer that reads it",
    ),
    TopicConfig(
        name="remote.copy.lag.bytes",
        kind=ConfigType.LONG,
        default="-1",
        check=_MS_OR_NONE,
        broker_names=(("log.remote.copy.lag.bytes", 1),),
        about="there is no remote storage",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="remote.copy.lag.ms",
        kind=ConfigType.LONG,
        default="0",
        check=_MS_OR_NONE,
        broker_names=(("log.remote.copy.lag.ms", 1),),
        about="there is no remote storage",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="remote.log.copy.disable",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=flag,
        about="there is no remote storage",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="remote.log.delete.on.disable",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=flag,
        about="there is no remote storage",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="remote.storage.enable",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=fixed("false", "there is no remote storage"),
        about="old segments move to remote storage",
        classed=SettingClass.DEFAULT_ONLY,
    ),
    TopicConfig(
        name="retention.bytes",
        kind=ConfigType.LONG,
        default="-1",
        check=_MS_OR_NONE,
        broker_names=(("log.retention.bytes", 1),),
        about="bytes of a partition beyond which old segments go; -1 for no bound",
    ),
    TopicConfig(
        name="retention.ms",
        kind=ConfigType.LONG,
        default="604800000",
        check=_MS_OR_NONE,
        broker_names=_hours_minutes_ms("log.retention"),
        about="the age, by the largest timestamp of its records, beyond which a segment goes, also "
        "the one that is written to; -1 for no bound. Topics of a release in which this had no "
        "effect have the default -1",
    ),
    TopicConfig(
        name="segment.bytes",
        kind=ConfigType.INT,
        default=str(SEGMENT_BYTES_DEFAULT),
        check=integer(SEGMENT_BYTES_MIN, INT_MAX),
        broker_names=(("log.segment.bytes", 1),),
        about="the size at which a new segment file begins",
    ),
    TopicConfig(
        name="segment.index.bytes",
        kind=ConfigType.INT,
        default="10485760",
        check=integer(4, INT_MAX),
        broker_names=(("log.index.size.max.bytes", 1),),
        about="the index grows with its segment",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="segment.jitter.ms",
        kind=ConfigType.LONG,
        default="0",
        check=_MS,
        broker_names=(
            ("log.roll.jitter.ms", 1),
            ("log.roll.jitter.hours", 3_600_000),
        ),
        about="each segment rolls at the age of segment.ms itself",
        classed=SettingClass.NO_EFFECT,
    ),
    TopicConfig(
        name="segment.ms",
        kind=ConfigType.LONG,
        default="604800000",
        check=integer(1, LONG_MAX),
        broker_names=(
            ("log.roll.ms", 1),
            ("log.roll.hours", 3_600_000),
        ),
        about="the age at which a new segment file begins, at least a second. It begins at the age "
        "of retention.ms if that is less",
    ),
    TopicConfig(
        name="unclean.leader.election.enable",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=fixed("false", "a leader always holds every acknowledged record"),
        broker_names=(("unclean.leader.election.enable", 0),),
        about="a replica that misses acknowledged records cannot lead",
        classed=SettingClass.DEFAULT_ONLY,
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {config.name: config for config in _DEFINED}
"""By name, sorted."""

assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)
assert all(config.check(config.default) is None for config in _DEFINED)
