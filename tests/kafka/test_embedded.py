"""Structs with their version in front: the consumer protocol and the records of group offsets."""

from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.kafka.embedded import decode_embedded, encode_embedded
from raftlog.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionAssignment,
)
from raftlog.kafka.messages.group_metadata_key import GroupMetadataKey
from raftlog.kafka.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from raftlog.kafka.messages.offset_commit_key import OffsetCommitKey
from raftlog.kafka.messages.offset_commit_value import OffsetCommitValue
from raftlog.kafka.tables import named_table
from tests.kafka.bodies import PAIRS, bodies, pair_id

EMBEDDED = [(table, version) for table, version in PAIRS if table[0] < 0]


def text(value):
    return pack(">h", len(value)) + value.encode()


# --- bytes written by hand, from Kafka's schemas --------------------------------------------------


def test_the_key_of_a_committed_offset():
    data = pack(">h", 1) + text("group") + text("orders") + pack(">i", 7)
    assert encode_embedded("OffsetCommitKey", 1, OffsetCommitKey("group", "orders", 7)) == data
    assert decode_embedded("OffsetCommitKey", data) == (1, OffsetCommitKey("group", "orders", 7))


@pytest.mark.parametrize(
    ("version", "tail"),
    [
        (0, text("m") + pack(">q", 99)),
        (1, text("m") + pack(">qq", 99, -1)),
        (2, text("m") + pack(">q", 99)),
        (3, pack(">i", 5) + text("m") + pack(">q", 99)),
        (4, pack(">i", 5) + b"\x02m" + pack(">q", 99) + b"\x00"),
    ],
)
def test_the_value_of_a_committed_offset(version, tail):
    data = pack(">hq", version, 1234) + tail
    body = OffsetCommitValue(1234, 5 if version >= 3 else -1, "m", 99)
    assert encode_embedded("OffsetCommitValue", version, body) == data
    assert decode_embedded("OffsetCommitValue", data) == (version, body)


def test_the_key_of_a_group_is_version_2():
    data = pack(">h", 2) + text("group")
    assert encode_embedded("GroupMetadataKey", 2, GroupMetadataKey("group")) == data
    with pytest.raises(ProtocolError, match="version 1 is not known"):
        decode_embedded("GroupMetadataKey", pack(">h", 1) + text("group"))


def test_the_value_of_a_group_v3():
    member = MemberMetadata("m-1", None, "c", "/127.0.0.1", 60000, 45000, b"sub", b"as")
    body = GroupMetadataValue("consumer", 4, "range", "m-1", 99, (member,))
    data = pack(">h", 3) + text("consumer") + pack(">i", 4) + text("range") + text("m-1")
    data += pack(">qi", 99, 1) + text("m-1") + b"\xff\xff" + text("c") + text("/127.0.0.1")
    data += pack(">ii", 60000, 45000) + pack(">i", 3) + b"sub" + pack(">i", 2) + b"as"
    assert encode_embedded("GroupMetadataValue", 3, body) == data
    assert decode_embedded("GroupMetadataValue", data) == (3, body)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "version"), EMBEDDED, ids=pair_id)
@given(data=st.data())
def test_what_was_written_is_read(table, version, data):
    body = data.draw(bodies(table, version))
    assert decode_embedded(table[1], encode_embedded(table[1], version, body)) == (version, body)


@pytest.mark.parametrize(("table", "version"), EMBEDDED, ids=pair_id)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(table, version, data):
    bytes_behind = data.draw(st.binary(max_size=60))
    with suppress(ProtocolError):
        decode_embedded(table[1], pack(">h", version) + bytes_behind)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x00\x05ab"])
def test_what_ends_too_early_is_refused(data):
    with pytest.raises(ProtocolError):
        decode_embedded("OffsetCommitKey", data)


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_an_unknown_version_of_a_record_is_refused(version):
    """A broker that guesses at group metadata loses offsets."""
    with pytest.raises(ProtocolError, match=f"version {version} is not known"):
        decode_embedded("OffsetCommitValue", pack(">h", version) + bytes(40))


def test_a_newer_subscription_is_read_as_the_newest_known():
    body = ConsumerProtocolSubscription(("a", "b"), None, (), 3, "rack")
    data = encode_embedded("ConsumerProtocolSubscription", 3, body)
    newer = pack(">h", 9) + data[2:] + b"fields of the future"
    found = decode_embedded("ConsumerProtocolSubscription", newer, newer_as_newest=True)
    assert found == (9, body)
    with pytest.raises(ProtocolError, match="version 9"):
        decode_embedded("ConsumerProtocolSubscription", newer)


def test_a_negative_version_has_no_newest():
    with pytest.raises(ProtocolError, match="version -1"):
        decode_embedded("ConsumerProtocolSubscription", b"\xff\xff", newer_as_newest=True)


def test_user_data_is_a_view():
    assigned = (TopicPartitionAssignment("t", (0, 1)),)
    body = ConsumerProtocolAssignment(assigned, b"user data")
    data = encode_embedded("ConsumerProtocolAssignment", 1, body)
    _, found = decode_embedded("ConsumerProtocolAssignment", data)
    assert found == body
    assert type(found.user_data) is memoryview


def test_bad_utf_8_is_refused():
    with pytest.raises(ProtocolError, match="UTF-8"):
        decode_embedded("GroupMetadataKey", pack(">hh", 2, 2) + b"\xff\xfe")


@pytest.mark.parametrize(
    ("name", "version", "body"),
    [
        ("NoSuchStruct", 0, OffsetCommitKey()),
        ("MetadataRequest", 0, OffsetCommitKey()),
        ("OffsetCommitKey", 2, OffsetCommitKey()),
        ("OffsetCommitKey", 1, GroupMetadataKey()),
        ("OffsetCommitKey", 1, OffsetCommitKey(None)),
        ("OffsetCommitKey", 1, OffsetCommitKey("g", "t", 2**31)),
    ],
)
def test_what_does_not_fit_is_the_callers_fault(name, version, body):
    with pytest.raises(LocalMisuse):
        encode_embedded(name, version, body)


def test_an_api_message_is_no_embedded_struct():
    with pytest.raises(LocalMisuse, match="no embedded struct"):
        decode_embedded("MetadataRequest", b"\x00\x00")
    assert named_table("MetadataRequest") is not None
