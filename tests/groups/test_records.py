import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raftlog.base.ids import Offset, TopicId
from raftlog.base.units import WallMillis
from raftlog.groups.records import (
    FLOOR_KEY_VERSION,
    FloorRecord,
    GroupRecord,
    OffsetRecord,
    floor_record,
    group_record,
    offset_record,
    read_record,
)
from raftlog.groups.stored import StoredGroup, StoredMember, StoredOffset
from raftlog.kafka.embedded import encode_embedded
from raftlog.kafka.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from raftlog.kafka.messages.offset_commit_value import OffsetCommitValue
from raftlog.records.record import Record, RecordHeader
from tests.groups.strategies import groups, i32, partitions, stored_groups, stored_offsets, topics


def read_again(new):
    headers = tuple(RecordHeader(name, value) for name, value in new.headers)
    return read_record(Record(Offset(0), WallMillis(0), new.key, new.value, headers))


@given(groups, topics, partitions, st.none() | stored_offsets)
def test_a_committed_offset_reads_as_it_was_written(group, topic, partition, stored):
    read = read_again(offset_record(group, topic, partition, stored))
    assert read == OffsetRecord(group, topic, partition, stored)


@given(groups, st.none() | stored_groups)
def test_a_group_reads_as_it_was_written(group, stored):
    assert read_again(group_record(group, stored)) == GroupRecord(group, stored)


@given(groups, st.none() | i32)
def test_a_generation_floor_reads_as_it_was_written(group, generation):
    assert read_again(floor_record(group, generation)) == FloorRecord(group, generation)


def test_an_offset_with_a_retention_time_is_written_in_the_version_that_has_it():
    stored = StoredOffset(5, -1, "m", 100, 200)
    new = offset_record("g", "t", 0, stored)
    assert new.value[:2] == b"\x00\x01"
    assert read_again(new).stored == stored


def test_the_topics_id_lies_beside_the_value_so_that_every_tool_reads_the_value():
    plain = offset_record("g", "t", 0, StoredOffset(5, 2, "m", 100))
    with_id = offset_record("g", "t", 0, StoredOffset(5, 2, "m", 100, -1, TopicId(b"i" * 16)))
    assert (plain.key, plain.value) == (with_id.key, with_id.value)
    assert plain.headers == ()
    assert read_again(with_id).stored.topic_id == b"i" * 16


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_an_offset_value_is_read(version):
    value = encode_embedded("OffsetCommitValue", version, OffsetCommitValue(7, 3, "m", 9))
    key = offset_record("g", "t", 1, None).key
    read = read_record(Record(Offset(0), WallMillis(0), key, value, ()))
    epoch = 3 if version >= 3 else -1
    assert read == OffsetRecord("g", "t", 1, StoredOffset(7, epoch, "m", 9))


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_a_group_value_is_read(version):
    member = MemberMetadata("m", None, "c", "/h", 60, 10, b"s", b"a")
    body = GroupMetadataValue("consumer", 4, "range", "m", -1, [member])
    value = encode_embedded("GroupMetadataValue", version, body)
    key = group_record("g", None).key
    read = read_record(Record(Offset(0), WallMillis(0), key, value, ()))
    rebalance_ms = 60 if version else 10
    stored = StoredMember("m", None, "c", "/h", rebalance_ms, 10, b"s", b"a")
    assert read == GroupRecord("g", StoredGroup("consumer", 4, "range", "m", -1, (stored,)))


@pytest.mark.parametrize("version", [-1, 3, 5, 8, 15, 16, 1000, FLOOR_KEY_VERSION + 1])
def test_keys_of_kinds_that_are_not_served_are_passed_over(version):
    key = version.to_bytes(2, "big", signed=True) + b"\x00\x01g"
    assert read_record(Record(Offset(0), WallMillis(0), key, b"\x00\x00", ())) is None


keys = st.none() | st.binary(max_size=30)
prefixes = st.sampled_from([b"\x00\x00", b"\x00\x01", b"\x00\x02", b"\x72\x66"])
near_keys = st.builds(bytes.__add__, prefixes, st.binary(max_size=20))


@given(keys | near_keys, st.none() | st.binary(max_size=40))
@example(b"\x72\x66", b"")
@example(b"\x72\x66\x00", None)
@example(b"\x72\x66\x00\x01\xff", None)
def test_any_bytes_are_read_or_passed_over(key, value):
    read = read_record(Record(Offset(0), WallMillis(0), key, value, ()))
    assert read is None or type(read) in (OffsetRecord, GroupRecord, FloorRecord)
