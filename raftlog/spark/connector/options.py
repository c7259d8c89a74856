"""The options of the source and the sink: those of Spark's own Kafka source, parsed and checked.

Names are not case sensitive. An unknown, wrong or contradictory option is refused by name. Only
options that have no meaning here are ignored silently; the guide lists them.
"""

import difflib
import json
import re
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, final

import attrs

from raftlog.base.errors import ConfigError
from raftlog.base.units import MIB

EARLIEST: Final = -2
LATEST: Final = -1

SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribepattern")
STARTS: Final = ("startingtimestamp", "startingoffsetsbytimestamp", "startingoffsets")
ENDS: Final = ("endingtimestamp", "endingoffsetsbytimestamp", "endingoffsets")
READ_OPTIONS: Final = {
    "bootstrap.servers": "bootstrap.servers",
    "assign": "assign",
    "subscribe": "subscribe",
    "subscribepattern": "subscribePattern",
    "startingtimestamp": "startingTimestamp",
    "startingoffsetsbytimestamp": "startingOffsetsByTimestamp",
    "startingoffsets": "startingOffsets",
    "startingoffsetsbytimestampstrategy": "startingOffsetsByTimestampStrategy",
    "endingtimestamp": "endingTimestamp",
    "endingoffsetsbytimestamp": "endingOffsetsByTimestamp",
    "endingoffsets": "endingOffsets",
    "failondataloss": "failOnDataLoss",
    "skipcorruptbatches": "skipCorruptBatches",
    "kafkaconsumer.polltimeoutms": "kafkaConsumer.pollTimeoutMs",
    "fetchoffset.numretries": "fetchOffset.numRetries",
    "fetchoffset.retryintervalms": "fetchOffset.retryIntervalMs",
    "maxoffsetspertrigger": "maxOffsetsPerTrigger",
    "minoffsetspertrigger": "minOffsetsPerTrigger",
    "maxtriggerdelay": "maxTriggerDelay",
    "minpartitions": "minPartitions",
    "maxrecordsperpartition": "maxRecordsPerPartition",
    "groupidprefix": "groupIdPrefix",
    "commitgroup": "commitGroup",
    "includeheaders": "includeHeaders",
    "decoder": "decoder",
}
"""The option's name in lower case -> as it is written."""
WRITE_OPTIONS: Final = {
    "bootstrap.servers": "bootstrap.servers",
    "topic": "topic",
    "includeheaders": "includeHeaders",
}
KAFKA_OPTIONS: Final = {
    "bootstrap.servers",
    "client.id",
    "group.id",
    "request.timeout.ms",
    "fetch.max.bytes",
    "max.partition.fetch.bytes",
    "security.protocol",
    "acks",
    "enable.idempotence",
    "compression.type",
    "delivery.timeout.ms",
    "batch.size",
}
"""Settings of Kafka clients, given with the prefix `kafka.`, that have an effect here."""
KAFKA_WITHOUT_MEANING: Final = {
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.records",
    "max.poll.interval.ms",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "retries",
    "linger.ms",
    "max.request.size",
    "buffer.memory",
    "isolation.level",
}
"""Settings that are accepted and have no effect: they tune a client that raftlog does not use."""
KAFKA_OWN: Final = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "a query's checkpoint holds its offsets",
    "interceptor.classes": "there are none",
    "key.deserializer": "keys are binary: cast them",
    "value.deserializer": "values are binary: cast them",
    "key.serializer": "cast the key to binary or string",
    "value.serializer": "cast the value to binary or string",
}
"""Settings that are refused, as Spark's Kafka source does -> what to use instead."""

_SPARKS_OWN: Final = {"path", "checkpointlocation", "querycheckpointlocation"}
_MILLIS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Mode(Enum):
    """The use of the options: a batch or a stream."""

    BATCH = "batch"
    STREAM = "stream"


class BorderKind(Enum):
    """The form in which a border is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps"


@final
@attrs.frozen(kw_only=True)
class Border:
    """Where reading starts or ends. `by_place` is topic -> partition -> offset or timestamp."""

    kind: BorderKind
    option: str
    timestamp_ms: int = -1
    by_place: Mapping[str, Mapping[int, int]] = attrs.field(factory=dict)


@final
@attrs.frozen(kw_only=True)
class ReadOptions:
    """The checked options of a read. Exactly one of `assign`, `subscribe` and `pattern` is
    given."""

    bootstrap: str
    start: Border
    end: Border
    assign: Mapping[str, tuple[int, ...]] | None = None
    subscribe: tuple[str, ...] | None = None
    pattern: str | None = None
    latest_when_missing: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    fetch_retries: int = 3
    fetch_retry_ms: int = 10
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = 15 * 60_000
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    include_headers: bool = False
    skip_corrupt_batches: bool = False
    """Skip batches whose content cannot be read. They have no rows, and a warning names them."""
    commit_group: str | None = None
    """The group for which a stream commits its position after each trigger; None for no commits."""
    client_id: str = "raftlog-spark"
    partition_bytes: int = 4 * MIB
    fetch_bytes: int = 8 * MIB
    request_timeout_ms: int = 30_000
    decoder: str = "auto"


@final
@attrs.frozen(kw_only=True)
class WriteOptions:
    """The checked options of the sink."""

    bootstrap: str
    topic: str | None = None
    include_headers: bool = False
    client_id: str = "raftlog-spark"
    compression: str = "none"
    batch_bytes: int = 256 * 1024
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000


# --- reading --------------------------------------------------------------------------------------


def read_options(given: Mapping[str, str], mode: Mode) -> ReadOptions:
    """Check the options of a batch or a stream; `ConfigError` names the first wrong one."""
    own, kafka = _split(given, READ_OPTIONS)
    bootstrap = _bootstrap(own, kafka)
    chosen = [name for name in SUBSCRIPTIONS if name in own]
    if len(chosen) != 1:
        said = ", ".join(READ_OPTIONS[name] for name in chosen) or "none of them"
        raise ConfigError(
            f"exactly one of assign, subscribe and subscribePattern is needed, not {said}",
            do="for example .option('subscribe', 'orders')",
        )
    if mode is Mode.STREAM:
        for name in ENDS:
            if name in own:
                raise ConfigError("a stream has no end", on=READ_OPTIONS[name])
    elif "commitgroup" in own:
        raise ConfigError("a batch commits nothing: only streams do", on="commitGroup")
    latest = "latest" if mode is Mode.STREAM else "earliest"
    most = _number(own, "maxoffsetspertrigger", least=1)
    least = _number(own, "minoffsetspertrigger", least=1)
    if most is not None and least is not None and least > most:
        raise ConfigError(
            f"minOffsetsPerTrigger {least} is more than maxOffsetsPerTrigger {most}",
            on="minOffsetsPerTrigger",
        )
    return ReadOptions(
        bootstrap=bootstrap,
        start=_border(own, STARTS, latest, mode),
        end=_border(own, ENDS, "latest", mode),
        assign=_assign(own["assign"]) if "assign" in own else None,
        subscribe=_topics(own["subscribe"]) if "subscribe" in own else None,
        pattern=_pattern(own["subscribepattern"]) if "subscribepattern" in own else None,
        latest_when_missing=_choice(
            own, "startingoffsetsbytimestampstrategy", ("error", "latest"), "error"
        )
        == "latest",
        fail_on_data_loss=_flag(own, "failondataloss", otherwise=True),
        skip_corrupt_batches=_flag(own, "skipcorruptbatches", otherwise=False),
        poll_timeout_ms=_number(own, "kafkaconsumer.polltimeoutms", least=1) or 120_000,
        fetch_retries=_or(_number(own, "fetchoffset.numretries", least=0), 3),
        fetch_retry_ms=_or(_number(own, "fetchoffset.retryintervalms", least=0), 10),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_ms_max=_duration(own, "maxtriggerdelay", 15 * 60_000),
        partitions_min=_number(own, "minpartitions", least=1),
        records_per_partition_max=_number(own, "maxrecordsperpartition", least=1),
        include_headers=_flag(own, "includeheaders", otherwise=False),
        commit_group=_commit_group(own),
        client_id=kafka.get("client.id")
        or kafka.get("group.id")
        or own.get("groupidprefix", "")
        or "raftlog-spark",
        partition_bytes=_kafka_number(kafka, "max.partition.fetch.bytes", 4 * MIB),
        fetch_bytes=_kafka_number(kafka, "fetch.max.bytes", 8 * MIB),
        request_timeout_ms=_kafka_number(kafka, "request.timeout.ms", 30_000),
        decoder=_choice(own, "decoder", ("auto", "numba", "numpy", "plain"), "auto"),
    )


def _commit_group(own: Mapping[str, str]) -> str | None:
    group = own.get("commitgroup")
    if group is not None and not group.strip():
        raise ConfigError("is empty", on="commitGroup")
    return group


def _border(own: Mapping[str, str], names: tuple[str, ...], default: str, mode: Mode) -> Border:
    """The border from the first of these options that is given. They are in order of precedence."""
    timestamp, by_timestamp, offsets = names
    start = names is STARTS
    if timestamp in own:
        return Border(
            kind=BorderKind.TIMESTAMP,
            option=READ_OPTIONS[timestamp],
            timestamp_ms=_or(_number(own, timestamp, least=0), 0),
        )
    if by_timestamp in own:
        option = READ_OPTIONS[by_timestamp]
        return Border(
            kind=BorderKind.TIMESTAMPS,
            option=option,
            by_place=_places(own[by_timestamp], option, 0),
        )
    option = READ_OPTIONS[offsets]
    text = own.get(offsets, default).strip()
    if text.lower() in ("earliest", "latest"):
        refused = "latest" if start else "earliest"
        if text.lower() == refused and mode is Mode.BATCH:
            raise ConfigError(
                f"a batch cannot {'start' if start else 'end'} at {refused}", on=option
            )
        return Border(kind=BorderKind(text.lower()), option=option)
    by_place = _places(text, option, EARLIEST)
    refused_offset = LATEST if start else EARLIEST
    if mode is Mode.BATCH:
        for topic, partitions in by_place.items():
            for partition, offset in partitions.items():
                if offset == refused_offset:
                    raise ConfigError(
                        f"{offset} is not allowed for {topic}-{partition} in a batch", on=option
                    )
    return Border(kind=BorderKind.OFFSETS, option=option, by_place=by_place)


def _places(text: str, option: str, least: int) -> dict[str, dict[int, int]]:
    """`{"topic": {"0": number}}`."""
    document = _json(text, option)
    try:
        found = {
            topic: {int(partition): number for partition, number in partitions.items()}
            for topic, partitions in document.items()
        }
    except (AttributeError, ValueError):
        raise _shape(option, '{"topic": {"0": 23, "1": -2}}') from None
    for topic, partitions in found.items():
        for partition, number in partitions.items():
            if type(number) is not int or number < least or partition < 0:
                raise ConfigError(f"{topic}-{partition} has {number!r}", on=option)
    return found


def _assign(text: str) -> dict[str, tuple[int, ...]]:
    document = _json(text, "assign")
    found: dict[str, tuple[int, ...]] = {}
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not all(
            type(each) is int and each >= 0 for each in partitions
        ):
            raise _shape("assign", '{"topic": [0, 1]}')
        found[topic] = tuple(sorted(dict.fromkeys(partitions)))
    if not any(found.values()):
        raise ConfigError("names no partition", on="assign")
    return found


def _json(text: str, option: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        raise _shape(option, '{"topic": ...}') from None
    if not isinstance(document, dict):
        raise _shape(option, '{"topic": ...}')
    return document


def _shape(option: str, example: str) -> ConfigError:
    return ConfigError("is not JSON of the right shape", on=option, do=f"for example {example}")


def _topics(text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if not found:
        raise ConfigError("names no topic", on="subscribe")
    return found


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ConfigError(f"is no regular expression: {error}", on="subscribePattern") from None
    if not text.strip():
        raise ConfigError("is empty", on="subscribePattern")
    return text


# --- writing --------------------------------------------------------------------------------------


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Check the options of the sink; `ConfigError` names the first wrong one."""
    own, kafka = _split(given, WRITE_OPTIONS)
    acks = kafka.get("acks", "all").lower()
    if acks not in ("all", "-1"):
        raise ConfigError(f"acks={acks}: this sink writes with acks=all only", on="kafka.acks")
    if kafka.get("enable.idempotence", "true").lower() != "true":
        raise ConfigError("this sink is always idempotent", on="kafka.enable.idempotence")
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    compression = kafka.get("compression.type", "none").lower()
    if compression not in codecs:
        raise ConfigError(f"{compression!r} is none of {codecs}", on="kafka.compression.type")
    topic = own.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("is empty", on="topic")
    return WriteOptions(
        bootstrap=_bootstrap(own, kafka),
        topic=topic,
        include_headers=_flag(own, "includeheaders", otherwise=False),
        client_id=kafka.get("client.id") or "raftlog-spark",
        compression=compression,
        batch_bytes=_kafka_number(kafka, "batch.size", 256 * 1024),
        delivery_timeout_ms=_kafka_number(kafka, "delivery.timeout.ms", 120_000),
        request_timeout_ms=_kafka_number(kafka, "request.timeout.ms", 30_000),
    )


# --- common ---------------------------------------------------------------------------------------


def _split(
    given: Mapping[str, str], known: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Split the options into raftlog's own and those after `kafka.`, with lower-case names. Others
    are refused."""
    own: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in _SPARKS_OWN:
            continue
        if lower.startswith("kafka."):
            setting = lower.removeprefix("kafka.")
            if setting in KAFKA_OWN:
                raise ConfigError("may not be set", on=name, do=KAFKA_OWN[setting])
            if setting not in KAFKA_OPTIONS | KAFKA_WITHOUT_MEANING:
                raise _unknown(name, [f"kafka.{each}" for each in sorted(KAFKA_OPTIONS)])
            kafka[setting] = value
        elif lower in known:
            own[lower] = value
        else:
            raise _unknown(name, [*known.values(), "kafka.bootstrap.servers"])
    if kafka.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT":
        raise ConfigError("only PLAINTEXT is spoken", on="kafka.security.protocol")
    return own, kafka


def _unknown(name: str, known: list[str]) -> ConfigError:
    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    advice = f"did you mean {lower[near[0]]}?" if near else "see the guide on Spark"
    return ConfigError("is an unknown option", on=name, do=advice)


def _bootstrap(own: Mapping[str, str], kafka: Mapping[str, str]) -> str:
    both = [
        each.strip()
        for each in (kafka.get("bootstrap.servers"), own.get("bootstrap.servers"))
        if each is not None and each.strip()
    ]
    if not both:
        raise ConfigError(
            "no brokers are given",
            on="kafka.bootstrap.servers",
            do=".option('kafka.bootstrap.servers', 'localhost:9092')",
        )
    if len(dict.fromkeys(both)) > 1:
        raise ConfigError(
            f"kafka.bootstrap.servers says {both[0]!r}, bootstrap.servers {both[1]!r}",
            on="bootstrap.servers",
        )
    return both[0]


def _number(own: Mapping[str, str], name: str, *, least: int) -> int | None:
    if name not in own:
        return None
    text = own[name].strip()
    try:
        number = int(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no whole number", on=READ_OPTIONS[name]) from None
    if not least <= number <= sys.maxsize:
        raise ConfigError(f"{number} is less than {least} or too large", on=READ_OPTIONS[name])
    return number


def _kafka_number(kafka: Mapping[str, str], name: str, otherwise: int) -> int:
    text = kafka.get(name)
    if text is None:
        return otherwise
    if not text.strip().isdigit() or not 0 < int(text) < 2**31:
        raise ConfigError(f"{text!r} is no positive number", on=f"kafka.{name}")
    return int(text)


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def _flag(own: Mapping[str, str], name: str, *, otherwise: bool) -> bool:
    text = own.get(name, str(otherwise)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{text!r} is neither true nor false", on=READ_OPTIONS.get(name, name))
    return text == "true"


def _choice(own: Mapping[str, str], name: str, allowed: tuple[str, ...], otherwise: str) -> str:
    text = own.get(name, otherwise).strip().lower()
    if text not in allowed:
        raise ConfigError(f"{text!r} is none of {', '.join(allowed)}", on=READ_OPTIONS[name])
    return text


def _duration(own: Mapping[str, str], name: str, otherwise: int) -> int:
    """A duration in milliseconds from `90s`, `15m` or `200ms`. A number without a unit is
    milliseconds."""
    if name not in own:
        return otherwise
    found = re.fullmatch(r"(\d+)\s*([a-z]*)", own[name].strip().lower())
    if found is None or (found[2] and found[2] not in _MILLIS):
        raise ConfigError(f"{own[name]!r} is no duration such as 15m", on=READ_OPTIONS[name])
    return int(found[1]) * _MILLIS.get(found[2], 1)
