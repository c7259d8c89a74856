"""Every option is understood as Spark's Kafka source understands it, and mistakes are named."""

import pytest

from raftlog.base.errors import ConfigError
from raftlog.spark.connector.options import BorderKind, Mode, read_options, write_options

BASE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "a"}


def read(mode=Mode.BATCH, **more):
    return read_options(BASE | more, mode)


def test_defaults_differ_between_batch_and_stream():
    batch, stream = read(), read(Mode.STREAM)
    assert (batch.start.kind, batch.end.kind) == (BorderKind.EARLIEST, BorderKind.LATEST)
    assert stream.start.kind is BorderKind.LATEST
    assert batch.fail_on_data_loss
    assert (batch.poll_timeout_ms, batch.fetch_retries, batch.fetch_retry_ms) == (120_000, 3, 10)
    assert (batch.subscribe, batch.assign, batch.pattern) == (("a",), None, None)
    assert batch.trigger_delay_ms_max == 900_000


def test_names_are_not_case_sensitive():
    found = read(STARTINGOFFSETS="earliest", MinPartitions="4", maxrecordsperpartition="7")
    assert (found.partitions_min, found.records_per_partition_max) == (4, 7)


def test_brokers_under_either_name():
    assert read_options({"bootstrap.servers": "x:1", "subscribe": "a"}, Mode.BATCH).bootstrap
    both = read(**{"bootstrap.servers": "h:9092"})
    assert both.bootstrap == "h:9092"
    with pytest.raises(ConfigError, match="says"):
        read(**{"bootstrap.servers": "other:9092"})
    with pytest.raises(ConfigError, match="no brokers"):
        read_options({"subscribe": "a"}, Mode.BATCH)


def test_lists_of_topics_and_partitions():
    assert read(subscribe=" b, a,,b ").subscribe == ("b", "a")
    brokers = {"bootstrap.servers": "h:1"}
    found = read_options(brokers | {"assign": '{"t": [2, 0, 2]}'}, Mode.BATCH)
    assert found.assign == {"t": (0, 2)}
    assert read_options(brokers | {"subscribePattern": "a.*"}, Mode.BATCH).pattern == "a.*"


def test_precedence_timestamp_then_by_timestamp_then_offsets():
    more = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a": {"0": 5}}',
        "startingTimestamp": "9",
    }
    assert read(**more).start.timestamp_ms == 9
    del more["startingTimestamp"]
    found = read(**more).start
    assert (found.kind, found.by_place) == (BorderKind.TIMESTAMPS, {"a": {0: 5}})
    assert read(endingTimestamp="3", endingOffsets="latest").end.kind is BorderKind.TIMESTAMP


def test_a_group_names_the_client():
    assert read(groupIdPrefix="p").client_id == "p"
    assert read(**{"groupIdPrefix": "p", "kafka.group.id": "g"}).client_id == "g"


def test_only_a_stream_commits_for_a_group():
    assert read(Mode.STREAM, commitGroup="g").commit_group == "g"
    assert read(Mode.STREAM).commit_group is None
    with pytest.raises(ConfigError, match="only streams"):
        read(commitGroup="g")
    with pytest.raises(ConfigError, match="empty"):
        read(Mode.STREAM, commitGroup=" ")


def test_durations():
    for text, millis in [("90s", 90_000), ("2m", 120_000), ("5 min", 300_000), ("7", 7)]:
        assert read(maxTriggerDelay=text).trigger_delay_ms_max == millis


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"assign": '{"a": [0]}'}, "exactly one"),
        ({"subscribePattern": "a"}, "exactly one"),
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.group.idd": "x"}, "did you mean kafka.group.id"),
        ({"kafka.auto.offset.reset": "earliest"}, "use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "may not be set"),
        ({"kafka.security.protocol": "SSL"}, "PLAINTEXT"),
        ({"startingOffsets": "latest"}, "cannot start at latest"),
        ({"endingOffsets": "earliest"}, "cannot end at earliest"),
        ({"startingOffsets": "middle"}, "JSON"),
        ({"startingOffsets": "[1]"}, "JSON"),
        ({"startingOffsets": '{"a": {"0": -1}}'}, "not allowed"),
        ({"endingOffsets": '{"a": {"0": -2}}'}, "not allowed"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "has -3"),
        ({"startingOffsets": '{"a": {"0": true}}'}, "has True"),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "JSON"),
        ({"startingOffsets": '{"a": 1}'}, "JSON"),
        ({"startingTimestamp": "-1"}, "less than 0"),
        ({"startingTimestamp": "noon"}, "no whole number"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"includeHeaders": "1"}, "neither true nor false"),
        ({"minPartitions": "0"}, "less than 1"),
        ({"maxRecordsPerPartition": "-4"}, "less than 1"),
        ({"maxOffsetsPerTrigger": "0"}, "less than 1"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "more than"),
        ({"maxTriggerDelay": "soon"}, "no duration"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "none of"),
        ({"decoder": "fast"}, "none of"),
        ({"kafka.fetch.max.bytes": "-1"}, "no positive number"),
        ({"subscribe": " , "}, "names no topic"),
    ],
)
def test_a_mistake_is_named(more, said):
    with pytest.raises(ConfigError, match=said):
        read(**more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"assign": "{}"}, "no partition"),
        ({"assign": '{"a": 0}'}, "JSON"),
        ({"assign": '{"a": ["0"]}'}, "JSON"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"subscribePattern": " "}, "empty"),
        ({}, "none of them"),
    ],
)
def test_a_wrong_choice_of_topics_is_named(more, said):
    with pytest.raises(ConfigError, match=said):
        read_options({"bootstrap.servers": "h:1"} | more, Mode.BATCH)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    with pytest.raises(ConfigError, match="no end"):
        read(Mode.STREAM, **{name: "latest"})


def test_a_stream_may_start_at_latest_and_mix():
    assert read(Mode.STREAM, startingOffsets="latest").start.kind is BorderKind.LATEST
    found = read(Mode.STREAM, startingOffsets='{"a": {"0": -1, "1": -2, "2": 5}}')
    assert found.start.by_place == {"a": {0: -1, 1: -2, 2: 5}}


def test_the_sinks_options():
    found = write_options(
        {"kafka.bootstrap.servers": "h:1", "topic": "t", "includeHeaders": "true"}
    )
    assert (found.topic, found.include_headers, found.compression) == ("t", True, "none")
    assert write_options({"bootstrap.servers": "h:1", "kafka.acks": "-1"}).topic is None


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"kafka.acks": "1"}, "acks=all only"),
        ({"kafka.enable.idempotence": "false"}, "always idempotent"),
        ({"kafka.compression.type": "brotli"}, "none of"),
        ({"subscribe": "a"}, "unknown option"),
        ({"kafka.value.serializer": "x"}, "may not be set"),
        ({"topic": " "}, "is empty"),
    ],
)
def test_a_mistake_in_the_sinks_options_is_named(more, said):
    with pytest.raises(ConfigError, match=said):
        write_options({"bootstrap.servers": "h:1"} | more)
