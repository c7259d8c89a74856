"""Whole frames in both roles: parts, views, wrong bodies, versions that are not served."""

from struct import pack

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.base.limits import ERROR_MESSAGE_CHARS_MAX
from raftlog.kafka.codec import decode_request, decode_response, encode_request, encode_response
from raftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.kafka.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from raftlog.kafka.messages.end_txn import EndTxnRequest
from raftlog.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from raftlog.kafka.messages.join_group import JoinGroupResponse
from raftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from raftlog.kafka.messages.offset_fetch import OffsetFetchRequest
from raftlog.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.kafka.versions import ApiKey, api_versions_response


class Slice:
    """A part that is no buffer, as a slice of a file is: only its length is known here."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


def produce(records, topics=1):
    topic = TopicProduceData("t", partition_data=[PartitionProduceData(3, records)])
    return ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic] * topics)


def fetched(records):
    partition = PartitionData(1, records=records)
    return FetchResponse(responses=[FetchableTopicResponse("t", bytes(16), [partition])])


def whole(parts):
    return b"".join(parts)


# --- parts ----------------------------------------------------------------------------------------


def test_a_small_message_is_one_part():
    parts = encode_response(ApiKey.METADATA, 12, 1, MetadataResponse())
    assert len(parts) == 1
    assert int.from_bytes(parts[0][:4], "big") == len(parts[0]) - 4


def test_records_of_a_kibibyte_are_joined_and_larger_ones_are_not_copied():
    assert len(encode_request(0, 11, 1, "c", produce(bytes(1024)))) == 1
    records = bytearray(1025)
    parts = encode_request(0, 11, 1, "c", produce(memoryview(records)))
    assert [len(part) for part in parts[1:]] == [1025, 3]
    records[0] = 7
    assert parts[1][0] == 7


def test_a_slice_of_a_file_stays_as_it_is_however_small():
    small, large = Slice(10), Slice(5000)
    for one in (small, large):
        parts = encode_response(ApiKey.FETCH, 16, 1, fetched(one))
        assert parts[1] is one
        assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4


def test_records_may_be_a_list_of_parts():
    pieces = [b"a" * 2000, b"b", memoryview(b"c" * 3000), Slice(7), b"d"]
    parts = encode_response(ApiKey.FETCH, 12, 1, fetched(pieces))
    assert [len(part) for part in parts[1:-1]] == [2000, 1, 3000, 7]
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4
    plain = [bytes(len(piece)) if isinstance(piece, Slice) else bytes(piece) for piece in pieces]
    twin = whole(encode_response(ApiKey.FETCH, 12, 1, fetched(b"".join(plain))))
    sent = whole(bytes(len(p)) if isinstance(p, Slice) else p for p in parts)
    assert sent == twin


def test_an_empty_list_of_parts_is_empty_and_not_null():
    frame = whole(encode_response(ApiKey.FETCH, 12, 1, fetched([])))[4:]
    assert decode_response(1, 12, frame).body.responses[0].partitions[0].records == b""


@pytest.mark.parametrize("version", range(3, 14))
def test_many_large_records_in_one_request(version):
    body = produce(b"r" * 3000, topics=40)
    frame = whole(encode_request(0, version, 9, "c", body))
    found = decode_request(frame[4:])
    assert len(found.body.topic_data) == 40
    assert all(t.partition_data[0].records == b"r" * 3000 for t in found.body.topic_data)


# --- views ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_views_into_the_frame(kind):
    frame = kind(whole(encode_request(0, 11, 1, "c", produce(b"r" * 50)))[4:])
    records = decode_request(frame).body.topic_data[0].partition_data[0].records
    assert type(records) is memoryview
    assert records.obj is (frame.obj if kind is memoryview else frame)


def test_patching_through_a_view_patches_the_slab():
    slab = bytearray(whole(encode_request(0, 11, 1, "c", produce(b"r" * 50))))
    found = decode_request(memoryview(slab)[4:])
    found.body.topic_data[0].partition_data[0].records[0] = 0x58
    assert b"Xrrr" in slab


def test_a_message_without_records_keeps_no_view_of_the_slab():
    """Otherwise a parked request would pin a whole receive slab."""
    slab = bytearray(whole(encode_request(3, 12, 1, "c", MetadataRequest())))
    found = decode_request(memoryview(slab)[4:])
    slab += b"resizing fails while a view is exported"
    assert found.body == MetadataRequest()


# --- requests -------------------------------------------------------------------------------------


def test_a_request_carries_its_header():
    frame = whole(encode_request(3, 12, 41, "client-1", MetadataRequest(topics=None)))[4:]
    found = decode_request(frame)
    assert found[:4] == (3, 12, 41, "client-1")
    assert found.body == MetadataRequest(topics=None)
    assert found.served
    assert found.trailing == 0


def test_a_version_with_a_schema_that_is_not_served_is_parsed_and_marked():
    request = EndTxnRequest(transactional_id="t")
    found = decode_request(whole(encode_request(ApiKey.END_TXN, 3, 1, "c", request))[4:])
    assert found.body.transactional_id == "t"
    assert not found.served


@pytest.mark.parametrize("version", [5, 99, -1, 32767])
def test_api_versions_of_an_unknown_version_is_read_by_its_first_eight_bytes(version):
    """Whatever follows may have another shape; the answer is version 0 with the whole list."""
    frame = pack(">hhi", ApiKey.API_VERSIONS, version, 77) + b"\xff" * 5
    found = decode_request(frame)
    assert (found.correlation_id, found.served, found.client_id) == (77, False, None)
    answer = encode_response(18, version, 77, api_versions_response(error_code=35))
    response = decode_response(18, 4, whole(answer)[4:])
    assert response.correlation_id == 77
    assert response.body.error_code == 35
    assert 18 in {api.api_key for api in response.body.api_keys}


def test_an_api_versions_answer_never_has_a_tag_section_in_its_header():
    answer = whole(encode_response(18, 3, 7, ApiVersionsResponse()))
    assert answer == bytes.fromhex("0000000c000000070000010000000000")


def test_decoded_arrays_are_tuples_and_absent_fields_defaults():
    frame = whole(encode_request(3, 0, 1, None, MetadataRequest()))[4:]
    assert decode_request(frame).body == MetadataRequest(allow_auto_topic_creation=True)


# --- wrong bodies are the caller's fault ----------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "body", "words"),
    [
        (12, MetadataRequest(), "MetadataRequest is not a MetadataResponse v12"),
        (12, (), "tuple is not a MetadataResponse"),
        (12, MetadataResponse(controller_id=2**31), "does not fit"),
        (12, MetadataResponse(brokers=[MetadataResponseBroker(1, None, 2)]), "does not fit"),
        (12, MetadataResponse(brokers=None), "does not fit"),
        (12, MetadataResponse(brokers=[7]), "does not fit"),
        (12, MetadataResponse(cluster_id="x" * 32768), "string of 32768 bytes"),
        (5, MetadataResponse(cluster_id="x" * 32768), "does not fit"),
        (12, MetadataResponse(cluster_id="\ud800"), "does not fit"),
        (99, MetadataResponse(), "no schema"),
    ],
)
def test_a_body_that_does_not_fit_is_refused_before_anything_is_sent(version, body, words):
    with pytest.raises(LocalMisuse, match=words):
        encode_response(ApiKey.METADATA, version, 1, body)


@pytest.mark.parametrize("topic_id", [b"", b"x" * 15, b"x" * 17])
def test_an_id_must_have_sixteen_bytes(topic_id):
    """struct would pad or cut it silently, and the topic would be another one."""
    body = FetchResponse(responses=[FetchableTopicResponse("", topic_id)])
    with pytest.raises(LocalMisuse, match="topic_id must be 16 bytes"):
        encode_response(ApiKey.FETCH, 16, 1, body)


def test_fields_that_a_version_lacks_are_not_written():
    partition = PartitionData(1, current_leader=LeaderIdAndEpoch(5, 6), records=b"r")
    body = FetchResponse(error_code=3, responses=[FetchableTopicResponse("t", b"", [partition])])
    found = decode_response(1, 4, whole(encode_response(1, 4, 1, body))[4:]).body
    assert found.error_code == 0
    assert found.responses[0].partitions[0].current_leader == LeaderIdAndEpoch()


@pytest.mark.parametrize("version", range(14))
def test_a_null_that_only_newer_responses_know_is_empty_in_older_ones(version):
    """A request of Metadata v10 may leave out a name, its answer may not.

    An echoed null failed to encode, and in an answer that was parked (for the creation of another
    topic) that error would have been in nobody's request: it would have stopped the broker.
    """
    body = MetadataResponse(topics=[MetadataResponseTopic(3, None)])
    found = decode_response(3, version, whole(encode_response(3, version, 1, body))[4:]).body
    assert found.topics[0].name == (None if version >= 12 else "")


def test_the_protocol_of_an_empty_group_is_not_null_before_v7():
    for version in range(10):
        parts = encode_response(11, version, 1, JoinGroupResponse(protocol_name=None))
        found = decode_response(11, version, whole(parts)[4:]).body
        assert found.protocol_name == (None if version >= 7 else "")


def test_a_null_in_an_older_request_is_the_callers_fault():
    """There null and empty may mean different things: all topics, or none."""
    with pytest.raises(LocalMisuse):
        encode_request(9, 1, 1, "c", OffsetFetchRequest("g", None))


@pytest.mark.parametrize("version", range(2, 8))
def test_an_error_message_that_quotes_a_client_at_length_is_cut(version):
    """A name may have 32,767 bytes and so may a string: with words before it, it no longer fits."""
    message = "unknown topic setting " + "é" * 32_767
    topic = CreatableTopicResult("t", error_code=40, error_message=message)
    parts = encode_response(19, version, 1, CreateTopicsResponse(topics=[topic]))
    found = decode_response(19, version, whole(parts)[4:]).body.topics[0]
    assert found.error_message == message[:ERROR_MESSAGE_CHARS_MAX]


def test_a_response_to_an_unknown_api_is_the_callers_fault():
    with pytest.raises(LocalMisuse, match="no schema"):
        decode_response(999, 0, bytes(8))
    with pytest.raises(LocalMisuse, match="no schema"):
        encode_request(0, 2, 1, "c", produce(b""))
    assert isinstance(ApiVersionsRequest(), tuple)
