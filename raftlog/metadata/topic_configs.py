"""The settings of a topic: names, types, defaults, what is valid, and the nearest name to a wrong
one.

Names, defaults and meanings are Kafka's (KAFKA.md 6); ours begin with `raftlog.`. Values are
text, as in Kafka. Broker-wide defaults go by Kafka's broker names (`log.retention.ms` and the
like), which this table translates. What the table refuses is refused before a command is
proposed: `apply` itself judges no value, for defaults and rules may change between releases.
"""

import difflib
import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Final, final

import attrs

from raftlog.base.limits import (
    BATCH_BYTES_DEFAULT,
    BATCH_BYTES_MAX,
    CONFIG_VALUE_BYTES_MAX,
    SEGMENT_BYTES_DEFAULT,
    SEGMENT_BYTES_MIN,
)

_LONG_MAX: Final = 2**63 - 1
_INT_MAX: Final = 2**31 - 1


@final
class ConfigType(enum.IntEnum):
    """Kafka's numbers, as DescribeConfigs gives them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


Check = Callable[[str], str | None]


@final
@attrs.frozen(kw_only=True)
class TopicConfig:
    """One setting. `check` gives what is wrong with a value, or None. `broker_names` are the
    settings of `server.properties` that give its default, the most specific first, each with the
    number by which its value is multiplied."""

    name: str
    kind: ConfigType
    default: str
    check: Check
    broker_names: tuple[tuple[str, int], ...]
    about: str


def _integer(low: int, high: int) -> Check:
    def check(value: str) -> str | None:
        digits = value[1:] if value.startswith("-") else value
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 20:
            return "is not a whole number"
        if not low <= int(value) <= high:
            return f"must be from {low} to {high}"
        return None

    return check


def _one_of(*allowed: str) -> Check:
    def check(value: str) -> str | None:
        return None if value in allowed else f"must be one of: {', '.join(allowed)}"

    return check


def _policies(value: str) -> list[str]:
    return [policy.strip() for policy in value.split(",")]


def _cleanup_policy(value: str) -> str | None:
    if all(policy in ("delete", "compact") for policy in _policies(value)):
        return None
    return "must be delete, compact, or both with a comma"


def _ratio(value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "is not a number"
    return None if 0 <= number <= 1 else "must be from 0 to 1"


def _fixed(allowed: str, why: str) -> Check:
    def check(value: str) -> str | None:
        return None if value == allowed else f"must be {allowed}: {why}"

    return check


_BOOLEAN: Final = _one_of("true", "false")
_MS: Final = _integer(0, _LONG_MAX)
_MS_OR_NONE: Final = _integer(-1, _LONG_MAX)


def _hours_minutes_ms(stem: str) -> tuple[tuple[str, int], ...]:
    return ((f"{stem}.ms", 1), (f"{stem}.minutes", 60_000), (f"{stem}.hours", 3_600_000))


_DEFINED: Final = (
    TopicConfig(
        name="cleanup.policy",
        kind=ConfigType.LIST,
        default="delete",
        check=_cleanup_policy,
        broker_names=(("log.cleanup.policy", 0),),
        about="delete: old segments go; compact alone: retention deletes nothing. Compaction does "
        "not run yet, so such a topic keeps every record",
    ),
    TopicConfig(
        name="compression.type",
        kind=ConfigType.STRING,
        default="producer",
        check=_fixed("producer", "the broker stores the producer's bytes and recompresses nothing"),
        broker_names=(("compression.type", 0),),
        about="records stay compressed as the producer sent them",
    ),
    TopicConfig(
        name="delete.retention.ms",
        kind=ConfigType.LONG,
        default="86400000",
        check=_MS,
        broker_names=(("log.cleaner.delete.retention.ms", 1),),
        about="how long a compacted topic keeps the mark of a deleted key",
    ),
    TopicConfig(
        name="flush.messages",
        kind=ConfigType.LONG,
        default=str(_LONG_MAX),
        check=_integer(1, _LONG_MAX),
        broker_names=(("log.flush.interval.messages", 1),),
        about="accepted without effect: every acknowledged record is synced",
    ),
    TopicConfig(
        name="flush.ms",
        kind=ConfigType.LONG,
        default=str(_LONG_MAX),
        check=_MS,
        broker_names=(("log.flush.interval.ms", 1),),
        about="accepted without effect: every acknowledged record is synced",
    ),
    TopicConfig(
        name="index.interval.bytes",
        kind=ConfigType.INT,
        default="4096",
        check=_integer(0, _INT_MAX),
        broker_names=(("log.index.interval.bytes", 1),),
        about="bytes of log between two entries of the sparse index",
    ),
    TopicConfig(
        name="max.compaction.lag.ms",
        kind=ConfigType.LONG,
        default=str(_LONG_MAX),
        check=_integer(1, _LONG_MAX),
        broker_names=(("log.cleaner.max.compaction.lag.ms", 1),),
        about="how long a record may stay uncompacted at most",
    ),
    TopicConfig(
        name="max.message.bytes",
        kind=ConfigType.INT,
        default=str(BATCH_BYTES_DEFAULT),
        check=_integer(0, BATCH_BYTES_MAX),
        broker_names=(("message.max.bytes", 1),),
        about="the largest record batch that is accepted",
    ),
    TopicConfig(
        name="message.timestamp.after.max.ms",
        kind=ConfigType.LONG,
        default="3600000",
        check=_MS,
        broker_names=(("log.message.timestamp.after.max.ms", 1),),
        about="how far a record's timestamp may lie in the future",
    ),
    TopicConfig(
        name="message.timestamp.before.max.ms",
        kind=ConfigType.LONG,
        default=str(_LONG_MAX),
        check=_MS,
        broker_names=(("log.message.timestamp.before.max.ms", 1),),
        about="how far a record's timestamp may lie in the past",
    ),
    TopicConfig(
        name="message.timestamp.type",
        kind=ConfigType.STRING,
        default="CreateTime",
        check=_one_of("CreateTime", "LogAppendTime"),
        broker_names=(("log.message.timestamp.type", 0),),
        about="whose clock gives the timestamp: the producer's or the leader's",
    ),
    TopicConfig(
        name="min.cleanable.dirty.ratio",
        kind=ConfigType.DOUBLE,
        default="0.5",
        check=_ratio,
        broker_names=(("log.cleaner.min.cleanable.ratio", 0),),
        about="share of uncompacted bytes from which a log is compacted",
    ),
    TopicConfig(
        name="min.compaction.lag.ms",
        kind=ConfigType.LONG,
        default="0",
        check=_MS,
        broker_names=(("log.cleaner.min.compaction.lag.ms", 1),),
        about="how long a record stays uncompacted at least",
    ),
    TopicConfig(
        name="min.insync.replicas",
        kind=ConfigType.INT,
        default="1",
        check=_integer(1, _INT_MAX),
        broker_names=(("min.insync.replicas", 1),),
        about="in-sync replicas that must hold a record before acks=all is answered",
    ),
    TopicConfig(
        name="raftlog.read.consistency",
        kind=ConfigType.STRING,
        default="committed",
        check=_one_of("committed", "linearizable"),
        broker_names=(("raftlog.read.consistency", 0),),
        about="linearizable: a read sees every write acknowledged before it began",
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
        about="age beyond which old segments go; -1 for no bound",
    ),
    TopicConfig(
        name="segment.bytes",
        kind=ConfigType.INT,
        default=str(SEGMENT_BYTES_DEFAULT),
        check=_integer(SEGMENT_BYTES_MIN, _INT_MAX),
        broker_names=(("log.segment.bytes", 1),),
        about="the size at which a new segment file begins",
    ),
    TopicConfig(
        name="segment.ms",
        kind=ConfigType.LONG,
        default="604800000",
        check=_integer(1, _LONG_MAX),
        broker_names=(("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
        about="the age at which a new segment file begins",
    ),
    TopicConfig(
        name="unclean.leader.election.enable",
        kind=ConfigType.BOOLEAN,
        default="false",
        check=_fixed("false", "a leader always holds every acknowledged record"),
        broker_names=(("unclean.leader.election.enable", 0),),
        about="fixed: a replica that misses acknowledged records cannot lead",
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {config.name: config for config in _DEFINED}
"""By name, sorted."""

assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)
assert all(config.check(config.default) is None for config in _DEFINED)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`, if one is."""
    found = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def config_problem(name: str, value: str) -> str | None:
    """What is wrong with a topic setting, in a sentence that names the fix; None when nothing
    is."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        near = nearest(name, TOPIC_CONFIGS)
        advice = f"; did you mean {near}?" if near else ""
        return f"unknown topic setting {name}{advice}"
    if len(value.encode()) > CONFIG_VALUE_BYTES_MAX:
        return f"the value of {name} is longer than {CONFIG_VALUE_BYTES_MAX} bytes"
    wrong = config.check(value)
    return None if wrong is None else f"{name}={value} {wrong}"


def configs_problem(configs: Iterable[tuple[str, str]]) -> str | None:
    """The first problem among overrides, each name at most once."""
    seen: dict[str, str] = {}
    for name, value in configs:
        if name in seen:
            return f"{name} is given twice"
        seen[name] = value
        problem = config_problem(name, value)
        if problem is not None:
            return problem
    return None


def effective_configs(
    overrides: Iterable[tuple[str, str]], defaults: Iterable[tuple[str, str]] = ()
) -> dict[str, str]:
    """Every setting of a topic: its overrides, over the broker's defaults (by topic-level name),
    over the built-in ones."""
    values = {name: config.default for name, config in TOPIC_CONFIGS.items()}
    values.update(defaults)
    values.update(overrides)
    return values


def retention_deletes(cleanup_policy: str) -> bool:
    """Whether retention may delete segments of a topic with this `cleanup.policy`. Without `delete`
    a segment may hold the last record of a key, which Kafka promises to keep."""
    return "delete" in _policies(cleanup_policy)


def config_warnings(values: Mapping[str, str]) -> list[str]:
    """What a topic with these effective values does otherwise than its owner may expect, one
    sentence each. CreateTopics answers it, and `topics describe` shows it."""
    policies = _policies(values["cleanup.policy"])
    if "compact" not in policies:
        return []
    kept = "retention still deletes" if "delete" in policies else "every record is kept"
    return [f"cleanup.policy={','.join(policies)}: compaction does not run yet; {kept}"]


def broker_defaults(properties: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The topic-level defaults that broker settings give, by topic-level name, sorted.

    A value that is not valid is left for `broker_default_problem` to name.
    """
    found: list[tuple[str, str]] = []
    for config in _DEFINED:
        for name, factor in config.broker_names:
            if name in properties:
                found.append((config.name, _scaled(properties[name], factor)))
                break
    return tuple(found)


def broker_default_problem(name: str, value: str) -> str | None:
    """What is wrong with a broker setting that gives a topic default; None when it is right or when
    it is none of these."""
    for config in _DEFINED:
        for broker_name, factor in config.broker_names:
            if broker_name == name:
                wrong = config.check(_scaled(value, factor))
                return None if wrong is None else f"{name}={value} {wrong}"
    return None


BROKER_DEFAULT_NAMES: Final = tuple(
    sorted({name for config in _DEFINED for name, _ in config.broker_names})
)
"""Every broker setting that gives a default of a topic setting."""


def _scaled(value: str, factor: int) -> str:
    """Hours and minutes as milliseconds; what is no number, or -1 for no bound, stays as it is."""
    digits = value[1:] if value.startswith("-") else value
    if factor <= 1 or value.startswith("-") or not (digits.isascii() and digits.isdigit()):
        return value
    return str(int(value) * factor) if len(value) <= 18 else value
