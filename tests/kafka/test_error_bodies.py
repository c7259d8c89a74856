"""A request that failed as a whole: its answer shows the code wherever the version can."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raftlog.kafka.codec import decode_response, encode_response
from raftlog.kafka.compile import class_finder
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.delete_groups import DeleteGroupsRequest
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.describe_groups import DescribeGroupsRequest
from raftlog.kafka.messages.end_txn import EndTxnRequest
from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.kafka.messages.find_coordinator import FindCoordinatorRequest
from raftlog.kafka.messages.metadata import MetadataRequest
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.kafka.messages.txn_offset_commit import TxnOffsetCommitRequest
from raftlog.kafka.tables import message_table
from raftlog.kafka.versions import SERVED, ApiKey
from tests.kafka.bodies import bodies

CODE = 42
ITEMS = {"topics", "topic_data", "resources", "coordinator_keys", "topic_names", "groups"}


def codes(value):
    """Every error code anywhere in a body."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        for name, item in zip(value._fields, value, strict=True):
            if name.endswith("error_code") and name != "topic_config_error_code":
                yield item
            yield from codes(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from codes(item)


@pytest.mark.parametrize("key", sorted(SERVED))
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_served_api_has_an_error_answer_in_every_version(key, data):
    table = message_table(key, "request")
    version = data.draw(st.integers(SERVED[key].accepted_min, SERVED[key].max))
    request = data.draw(bodies(table, version))
    answer = error_body(request, CODE, "no")
    items = next((getattr(request, name) for name in request._fields if name in ITEMS), None)
    without = key in {0, 1, 2, 8, 9, 21, 23, 61} and not any(topic[-1] for topic in items or ())
    if answer is None:
        assert without or not items, "only what names nothing has no place for an error"
        return
    assert set(codes(answer)) <= {CODE}
    frame = b"".join(encode_response(key, version, 1, answer))[4:]
    found = set(codes(decode_response(key, version, frame).body))
    if items and not without:
        assert CODE in found


def test_produce_answers_each_partition_that_was_sent():
    topic = TopicProduceData(
        "t", b"i" * 16, [PartitionProduceData(3, b""), PartitionProduceData(5)]
    )
    (answered,) = error_body(ProduceRequest(topic_data=[topic]), 35, "too old").responses
    assert (answered.name, answered.topic_id) == ("t", b"i" * 16)
    assert [(p.index, p.error_code, p.base_offset) for p in answered.partition_responses] == [
        (3, 35, -1),
        (5, 35, -1),
    ]
    assert answered.partition_responses[0].error_message == "too old"


def test_fetch_says_it_at_the_top_and_in_each_partition():
    """Before v7 there is no code at the top. Records were null, which librdkafka took for a damaged
    answer: it never told its application the error, and fetched again at once."""
    request = FetchRequest(topics=[FetchTopic("t", bytes(16), [FetchPartition(4)])])
    answer = error_body(request, 35)
    assert answer.error_code == 35
    assert answer.responses[0].partitions[0][:3] == (4, 35, -1)
    assert answer.responses[0].partitions[0].records == b""


@pytest.mark.parametrize("version", [0, 3, 4, 6])
def test_find_coordinator_in_both_shapes(version):
    request = FindCoordinatorRequest("g", 0, ("g", "h"))
    frame = b"".join(encode_response(10, version, 1, error_body(request, 15)))[4:]
    answer = decode_response(10, version, frame).body
    if version < 4:
        assert (answer.error_code, answer.node_id, answer.port) == (15, -1, -1)
    else:
        assert [(c.key, c.error_code, c.node_id) for c in answer.coordinators] == [
            ("g", 15, -1),
            ("h", 15, -1),
        ]


def test_delete_topics_answers_names_and_states():
    by_name = error_body(DeleteTopicsRequest(topic_names=("a", "b")), 41)
    assert [(r.name, r.error_code) for r in by_name.responses] == [("a", 41), ("b", 41)]
    by_id = error_body(DeleteTopicsRequest(topics=[DeleteTopicState(None, b"i" * 16)]), 41)
    assert by_id.responses[0][:3] == (None, b"i" * 16, 41)


def test_create_topics_says_why():
    request = CreateTopicsRequest(topics=[CreatableTopic("t")])
    (topic,) = error_body(request, 7, "the controller did not answer").topics
    assert topic.error_message == "the controller did not answer"


def test_metadata_for_all_topics_has_only_the_code_of_the_whole():
    answer = error_body(MetadataRequest(topics=None), 35)
    assert (answer.topics, answer.error_code) == ([], 35)


def test_an_api_that_is_not_served_uses_the_code_at_its_top():
    assert message_table(26, "request")[1] == "EndTxnRequest"
    assert 26 not in SERVED
    assert error_body(EndTxnRequest(), 35).error_code == 35


@pytest.mark.parametrize("key", sorted(ApiKey), ids=lambda key: key.name)
def test_every_api_with_a_schema_has_a_place_for_an_error_when_something_is_named(key):
    """kafka-go asked for AlterConfigs without looking whether it is served, and was hung up on: it
    said "unexpected EOF". Closing is for what has no schema."""
    table = message_table(key, "request")
    answer = error_body(one_of_each(table[1], table[5], class_finder(table)), 35, "not served")
    assert set(codes(answer)) == {35}
    if key is ApiKey.API_VERSIONS:
        return  # its version 0 answers a version that is not known
    frame = b"".join(encode_response(key, table[3][1], 1, answer))[4:]
    assert 35 in set(codes(decode_response(key, table[3][1], frame).body))


PLAIN = {"string": "x", "bytes": b"", "records": b"", "uuid": b"i" * 16, "bool": False}


def one_of_each(name, fields, classes):
    """A message whose arrays have one item each."""
    made = {}
    for field, kind, _, _, _, _, _, children in fields:
        inner = kind.removeprefix("[]")
        value = one_of_each(inner, children, classes) if children else PLAIN.get(inner, 1)
        made[field] = [value] if kind.startswith("[]") else value
    return classes(name)(**made)


def test_an_answer_without_room_for_an_error_is_none_so_that_the_connection_closes():
    """An empty TxnOffsetCommit answer would read as success."""
    assert error_body(TxnOffsetCommitRequest(), 35) is None


def test_offset_fetch_says_it_of_each_group_and_partition():
    asked = OffsetFetchRequestTopics("t", bytes(16), [4])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[asked])])
    answer = error_body(request, 35)
    (group,) = answer.groups
    assert (answer.error_code, group.group_id, group.error_code) == (35, "g", 35)
    assert [tuple(each) for each in group.topics[0].partitions] == [(4, -1, -1, "", 35)]


def test_tools_of_groups_hear_it_of_each_group():
    described = error_body(DescribeGroupsRequest(["a", "b"]), 35).groups
    assert [(each.group_id, each.error_code) for each in described] == [("a", 35), ("b", 35)]
    deleted = error_body(DeleteGroupsRequest(["a", "b"]), 35).results
    assert [tuple(each) for each in deleted] == [("a", 35), ("b", 35)]
