"""Plans in the JSON forms of Kafka's tools: what is read, and what is refused."""

import json

import pytest

from raftlog.base.errors import OperatingError
from raftlog.cli.admin.plan_files import (
    moves_of,
    plan_text,
    read_directories,
    read_moves,
    read_offsets,
    read_places,
    read_topics,
)
from raftlog.client.core.values import TopicPartition

ENTRY = {"topic": "t", "partition": 0, "replicas": [1, 2]}


def with_entries(*entries, **more):
    return json.dumps({"version": 1, "partitions": list(entries), **more})


def test_a_plan_is_read_as_it_was_written():
    moves = {TopicPartition("b", 1): (3, 1), TopicPartition("a", 0): (2,)}
    text = plan_text(moves)
    assert moves_of(text, "plan") == moves
    assert text == (
        '{"version":1,"partitions":['
        '{"topic":"a","partition":0,"replicas":[2],"log_dirs":["any"]},'
        '{"topic":"b","partition":1,"replicas":[3,1],"log_dirs":["any","any"]}]}'
    )


def test_a_plan_needs_neither_version_nor_directories():
    text = json.dumps({"partitions": [ENTRY]})
    assert moves_of(text, "plan") == {TopicPartition("t", 0): (1, 2)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "partitions"),
        (with_entries(), "partitions"),
        (with_entries(ENTRY, version=2), "version field value 2"),
        (with_entries("t"), "no topic"),
        (with_entries({**ENTRY, "topic": "a/b"}), "letters"),
        (with_entries({**ENTRY, "partition": -1}), "partition is no number"),
        (with_entries({**ENTRY, "partition": True}), "partition is no number"),
        (with_entries({**ENTRY, "partition": 2**31}), "partition is no number"),
        (with_entries({**ENTRY, "replicas": []}), "no list of brokers"),
        (with_entries({**ENTRY, "replicas": ["1"]}), "a broker is no number"),
        (with_entries({**ENTRY, "replicas": [1, 1]}), "names a broker twice"),
        (with_entries({"topic": "t", "partition": 0}), "has no 'replicas'"),
        (with_entries({"topic": "t", "replicas": [1]}), "has no 'partition'"),
        (with_entries(ENTRY, ENTRY), "t-0 is named twice"),
        (with_entries({**ENTRY, "log_dirs": ["any"]}), "as many entries"),
        (with_entries({**ENTRY, "log_dirs": ["any", 1]}), "no text"),
    ],
)
def test_what_is_no_plan_is_refused_whole(text, told):
    with pytest.raises(OperatingError, match=told) as caught:
        moves_of(text, "plan.json")
    assert caught.value.on == "plan.json"


def test_directories_are_read_by_broker(tmp_path):
    path = tmp_path / "plan.json"
    more = {**ENTRY, "partition": 1, "log_dirs": ["/a", "/b"]}
    path.write_text(with_entries({**ENTRY, "log_dirs": ["/a", "any"]}, more))
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    assert read_moves(path)[second] == (1, 2)
    assert read_directories(path) == {1: {first: "/a", second: "/a"}, 2: {second: "/b"}}


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    with pytest.raises(OperatingError, match="cannot be read"):
        read_moves(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(OperatingError, match="cannot be read"):
        read_moves(tmp_path / "bytes.json")


def test_the_other_forms(tmp_path):
    path = tmp_path / "file.json"
    path.write_text('{"topics": [{"topic": "a"}, {"topic": "b"}], "version": 1}')
    assert read_topics(path) == ["a", "b"]
    path.write_text('{"topics": [{"topic": "a"}, {"topic": "a"}]}')
    with pytest.raises(OperatingError, match="twice"):
        read_topics(path)
    path.write_text('{"partitions": [{"topic": "a", "partition": 3}]}')
    assert read_places(path) == [TopicPartition("a", 3)]
    path.write_text('{"partitions": [{"topic": "a", "partition": 3, "offset": -1}]}')
    assert read_offsets(path) == {TopicPartition("a", 3): -1}
    path.write_text('{"partitions": [{"topic": "a", "partition": 3, "offset": -2}]}')
    with pytest.raises(OperatingError, match="offset is no number"):
        read_offsets(path)
