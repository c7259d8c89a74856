"""Every lie that a frame can tell is one ProtocolError, raised before anything is made of it.

Each is a hole that a prototype of this codec had although four real clients were content with it.
Frames are written by hand, byte by byte, so that the encoder cannot hide a mistake of the decoder.
"""

import tracemalloc
from struct import pack

import pytest

from raftlog.base.errors import ProtocolError
from raftlog.base.limits import FRAME_ITEMS_MAX
from raftlog.kafka.codec import decode_request, decode_response
from raftlog.kafka.wire import encode_uvarint

METADATA, PRODUCE, FETCH, API_VERSIONS = 3, 0, 1, 18


def request(key, version, body, client_id=b"\xff\xff", tags=b"\x00"):
    return pack(">hhi", key, version, 1) + client_id + tags + body


def refused(frame, words):
    with pytest.raises(ProtocolError, match=words):
        decode_request(frame)


# --- counts ---------------------------------------------------------------------------------------


def test_an_array_count_of_four_billion_is_refused_before_anything_is_reserved():
    """These seven bytes abort a whole process of another implementation."""
    refused(request(METADATA, 12, bytes.fromhex("ffffffff0f0000")), "claims 4294967294 elements")


def test_a_refused_count_costs_no_memory():
    frame = request(METADATA, 12, bytes.fromhex("ffffffff0f0000"))
    refused(frame, "elements")
    tracemalloc.start()
    refused(frame, "elements")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024


def test_a_count_is_multiplied_by_the_smallest_element():
    """Sixteen bytes are left; eight topics of at least 18 bytes each cannot be among them."""
    refused(request(METADATA, 12, encode_uvarint(9) + bytes(16)), "claims 8 elements, 16 bytes")


def test_the_largest_count_that_could_fit_is_tried():
    """One topic of 16 + 1 + 1 bytes: null name, no tags."""
    body = encode_uvarint(2) + bytes(16) + b"\x00" + b"\x00" + b"\x01\x00" + b"\x00"
    assert len(decode_request(request(METADATA, 12, body)).body.topics) == 1


@pytest.mark.parametrize("count", [-2, -(2**31), 2**31 - 1])
def test_a_classic_count_is_bounded_on_both_sides(count):
    refused(request(METADATA, 1, pack(">i", count), tags=b""), f"claims {count} elements")


def test_a_tagged_array_is_bounded_too():
    """FetchResponse v16 carries its node endpoints in tag 0."""
    tag = b"\x00" + encode_uvarint(6) + bytes.fromhex("ffffffff0f00")
    body = pack(">ihi", 0, 0, 0) + b"\x01" + b"\x01" + tag
    with pytest.raises(ProtocolError, match="node_endpoints claims"):
        decode_response(FETCH, 16, pack(">i", 1) + b"\x00" + body)


def test_many_tiny_elements_exhaust_the_budget_of_the_frame():
    """300 KB of three-byte elements became 25 MB of objects without it."""
    name = b"\x00\x01a"
    many = FRAME_ITEMS_MAX + 1
    refused(request(METADATA, 0, pack(">i", many) + name * many, tags=b""), "more are allowed")


def test_the_budget_is_shared_by_all_arrays_of_a_frame():
    """Two topics: each partition list is below the budget, together they are not."""
    each = FRAME_ITEMS_MAX // 2
    partitions = pack(">i", each) + b"\x00" * (28 * each)
    topic = b"\x00\x01t" + partitions
    body = pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1) + pack(">i", 2) + topic * 2
    body += pack(">i", 0) + b"\x00\x00"
    refused(request(FETCH, 11, body, tags=b""), "more are allowed")


def test_a_frame_at_its_budget_is_read():
    body = pack(">i", FRAME_ITEMS_MAX) + b"\x00\x01a" * FRAME_ITEMS_MAX
    found = decode_request(request(METADATA, 0, body, tags=b""))
    assert len(found.body.topics) == FRAME_ITEMS_MAX


def tags_of(count):
    """A section of so many empty fields that no version knows."""
    return encode_uvarint(count) + b"\x64\x00" * count


def test_tagged_fields_are_charged_to_the_budget_before_they_are_read():
    """4 MiB of empty tagged fields in a header held up every client of the broker for 0.6 s, and
    one connection could send them without end."""
    bomb = pack(">hhih", METADATA, 12, 1, -1) + encode_uvarint(2_000_000) + b"\x64\x00" * 9
    refused(bomb, f"2000000 elements, {FRAME_ITEMS_MAX} more are allowed")


@pytest.mark.parametrize("count", [0, 1, FRAME_ITEMS_MAX - 2, FRAME_ITEMS_MAX - 1])
def test_tags_and_elements_of_a_frame_share_its_budget(count):
    """The tags are those of a header, of a struct in an array and of the body, at the bound and
    beyond it."""
    topics = b"\x02" + bytes(16) + b"\x02t" + tags_of(count // 2)
    body = topics + b"\0\0" + tags_of(count - count // 2)
    for in_header in (0, 1):
        head = pack(">hhih", METADATA, 12, 1, -1) + tags_of(in_header)
        if in_header + 1 + count <= FRAME_ITEMS_MAX:
            assert decode_request(head + body).items == in_header + 1 + count
        else:
            refused(head + body, "more are allowed")


def test_known_tags_count_too():
    """FetchRequest v17 knows three tags; a section may say so many of them as it likes."""
    known = encode_uvarint(FRAME_ITEMS_MAX) + b"\x00\x01\x00" * FRAME_ITEMS_MAX
    body = (
        pack(">iiib", 0, 0, 0, 0) + pack(">ii", 0, -1) + b"\x02" + bytes(16) + b"\x01\0" + b"\x01"
    )
    refused(request(FETCH, 17, body + b"\x01" + known), "more are allowed")


def test_numbers_are_charged_to_the_budget():
    count = FRAME_ITEMS_MAX + 1
    numbers = pack(">i", count) + bytes(4 * count)
    body = pack(">iiiibii", -1, 0, 0, 0, 0, 0, -1) + pack(">i", 0)
    body += pack(">i", 1) + b"\x00\x01t" + numbers + b"\x00\x00"
    refused(request(FETCH, 11, body, tags=b""), "more are allowed")


# --- lengths --------------------------------------------------------------------------------------


def test_a_string_longer_than_the_frame_is_refused_even_as_the_last_field():
    """A slice past the end gives a shorter string in Python, silently."""
    refused(request(API_VERSIONS, 3, b"\x03ab" + b"\x7fcd"), "claims 126 bytes, 2 are left")


def test_a_classic_string_longer_than_the_frame_is_refused():
    refused(
        request(METADATA, 0, pack(">ih", 1, 32767) + b"ab", tags=b""), "32767 bytes, 2 are left"
    )


@pytest.mark.parametrize("length", [-2, -32768])
def test_a_negative_string_length_is_refused(length):
    refused(request(METADATA, 0, pack(">ih", 1, length), tags=b""), f"claims {length} bytes")


def test_records_longer_than_the_frame_are_refused():
    body = b"\xff\xff" + pack(">hi", -1, 1000) + pack(">i", 1) + b"\x00\x01t"
    body += pack(">iii", 1, 0, 2**31 - 1) + b"short"
    refused(request(PRODUCE, 7, body, tags=b""), "records claims 2147483647 bytes, 5 are left")


@pytest.mark.parametrize("length", [-2, -(2**31)])
def test_a_negative_records_length_is_refused(length):
    body = b"\xff\xff" + pack(">hi", -1, 1000) + pack(">i", 1) + b"\x00\x01t"
    body += pack(">iii", 1, 0, length)
    refused(request(PRODUCE, 7, body, tags=b""), f"records claims {length} bytes")


def test_a_compact_string_above_kafkas_bound_is_refused():
    text = encode_uvarint(32769) + b"a" * 32768
    refused(request(API_VERSIONS, 3, text + b"\x01\x00"), "32767 are allowed")


def test_a_compact_string_at_kafkas_bound_is_read():
    text = encode_uvarint(32768) + b"a" * 32767
    assert len(decode_request(request(API_VERSIONS, 3, text + b"\x01\x00")).body[0]) == 32767


def test_a_client_id_longer_than_the_frame_is_refused():
    refused(pack(">hhi", API_VERSIONS, 0, 1) + pack(">h", 500) + b"abc", "client_id claims 500")


def test_a_negative_client_id_length_is_refused():
    refused(pack(">hhi", API_VERSIONS, 0, 1) + pack(">h", -2), "client_id claims -2")


# --- varints --------------------------------------------------------------------------------------


def test_a_varint_of_forty_bytes_is_refused():
    refused(request(METADATA, 12, b"\xff" * 40), "more than 5 bytes")


def test_a_varint_above_32_bits_is_refused():
    refused(request(METADATA, 12, bytes.fromhex("ffffffff1f") + bytes(99)), "is above 4294967295")


def test_a_varint_that_the_frame_cuts_off_is_refused():
    refused(request(METADATA, 12, b"\xff\xff"), "ends inside")


def test_a_varint_that_is_longer_than_needed_is_read_as_kafka_does():
    body = b"\x81\x80\x80\x80\x00" + b"\x01\x00\x00"
    assert decode_request(request(METADATA, 12, body)).body.topics == ()


# --- tag sections ---------------------------------------------------------------------------------


def test_an_unknown_tagged_field_past_the_end_is_refused():
    """Accepted without a check, the position was 133 of 8 bytes."""
    refused(request(METADATA, 12, b"\x01\x01\x00" + b"\x01\x07\x7d"), "tagged field claims 125")


def test_a_known_tagged_field_past_the_end_is_refused():
    body = bytes(12 + 1 + 8) + b"\x01\x01\x01" + b"\x01\x00\x7d" + b"\x01"
    refused(request(FETCH, 16, body), "tagged field claims 125")


@pytest.mark.parametrize("size", [1, 13, 15])
def test_a_tagged_field_must_stop_exactly_at_its_end(size):
    """ReplicaState (tag 1 of a Fetch request) takes 13 bytes."""
    state = pack(">iq", -1, -1) + b"\x00"
    body = bytes(12 + 1 + 8) + b"\x01\x01\x01" + b"\x01\x01" + encode_uvarint(size)
    frame = request(FETCH, 16, body + state + bytes(8))
    if size == len(state):
        assert decode_request(frame).body.replica_state == (-1, -1)
    else:
        refused(frame, "tagged field replica_state ends at")


def test_unknown_tagged_fields_are_skipped():
    body = b"\x01\x01\x00" + b"\x02" + b"\x05\x03abc" + b"\x90\x03\x01z"
    found = decode_request(request(METADATA, 12, body))
    assert found.body.topics == ()
    assert found.trailing == 0


def test_a_tag_section_of_four_billion_fields_ends_with_the_frame():
    section = bytes.fromhex("ffffffff0f") + bytes(9)
    refused(request(METADATA, 12, b"\x01\x01\x00" + section), "4294967295 elements")
    fewer = encode_uvarint(FRAME_ITEMS_MAX) + bytes(9)
    refused(request(METADATA, 12, b"\x01\x01\x00" + fewer), "ends")


def test_unknown_tags_in_the_header_are_skipped():
    frame = request(METADATA, 12, b"\x01\x01\x00\x00", tags=b"\x01\x09\x02hi")
    assert decode_request(frame).body.topics == ()


def test_a_tag_in_the_header_past_the_end_is_refused():
    refused(request(METADATA, 12, b"", tags=b"\x01\x09\x7f"), "tagged field claims 127")


# --- nulls, markers, text -------------------------------------------------------------------------


def test_a_null_string_where_null_is_not_allowed():
    refused(request(API_VERSIONS, 3, b"\x00\x01\x00"), "client_software_name is null")


def test_a_null_classic_string_where_null_is_not_allowed():
    refused(request(METADATA, 0, pack(">ih", 1, -1), tags=b""), "name is null")


def test_a_null_array_where_null_is_not_allowed():
    """Metadata v0 has no null list of topics; v1 has."""
    refused(request(METADATA, 0, pack(">i", -1), tags=b""), "topics is null")
    assert decode_request(request(METADATA, 1, pack(">i", -1), tags=b"")).body.topics is None


def test_a_null_compact_array_where_null_is_not_allowed():
    body = bytes(12 + 1 + 8) + b"\x00" + b"\x01\x01\x00"
    refused(request(FETCH, 16, body), "topics is null")


@pytest.mark.parametrize("value", [2, 127, 255])
def test_a_bool_is_zero_or_one(value):
    body = pack(">i", 0) + bytes([value])
    refused(
        request(METADATA, 4, body, tags=b""),
        f"allow_auto_topic_creation is a bool of value {value}",
    )


@pytest.mark.parametrize("marker", [0, 2, 254])
def test_a_nullable_struct_begins_with_minus_one_or_one(marker):
    """DescribeTopicPartitions (75): topics, limit, nullable cursor."""
    body = b"\x01" + pack(">i", 10) + bytes([marker]) + bytes(20)
    refused(request(75, 0, body), f"cursor has null marker {marker}")


def test_a_nullable_struct_may_be_null():
    body = b"\x01" + pack(">i", 10) + b"\xff" + b"\x00"
    assert decode_request(request(75, 0, body)).body.cursor is None


@pytest.mark.parametrize("text", [b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
def test_bad_utf_8_is_a_protocol_error(text):
    body = pack(">ih", 1, len(text)) + text
    refused(request(METADATA, 0, body, tags=b""), "not UTF-8")


def test_bad_utf_8_in_a_client_id_is_a_protocol_error():
    refused(pack(">hhi", API_VERSIONS, 0, 1) + pack(">h", 2) + b"\xff\xfe", "not UTF-8")


def test_bad_utf_8_beside_records_is_a_protocol_error():
    body = b"\x00\x02\xff\xfe" + pack(">hi", -1, 1000) + pack(">i", 0)
    refused(request(PRODUCE, 7, body, tags=b""), "not UTF-8")


# --- whole frames ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(8))
def test_a_frame_too_short_for_a_header(size):
    refused(bytes(size), f"a request of {size} bytes")


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (999, 0), (-1, 0), (3, -1)])
def test_what_has_no_schema_is_unparseable(key, version):
    refused(pack(">hhi", key, version, 1) + b"\xff\xff" + bytes(64), "no schema")


def test_bytes_behind_the_body_are_counted_and_ignored_as_kafka_does():
    assert decode_request(request(METADATA, 12, b"\x01\x01\x00\x00" + b"junk")).trailing == 4
    assert decode_response(METADATA, 0, pack(">iii", 7, 0, 0) + b"xyz").trailing == 3


def test_an_error_names_the_message_and_its_version():
    with pytest.raises(ProtocolError) as caught:
        decode_request(request(METADATA, 12, b"\xff" * 40))
    assert caught.value.on == "MetadataRequest v12"


@pytest.mark.parametrize("size", range(12))
def test_a_response_that_ends_too_early(size):
    whole = pack(">iii", 7, 0, 0)
    with pytest.raises(ProtocolError, match="ends inside"):
        decode_response(METADATA, 0, whole[:size])
