"""The records of `__consumer_offsets`: Kafka's keys and values, and one kind of our own.

A key begins with its version (i16), which says what the record is:

    0, 1      OffsetCommitKey, value OffsetCommitValue          a committed offset
    2         GroupMetadataKey, value GroupMetadataValue        a group
    0x7266    group id (i16 length, bytes), and the floor       a generation floor: our own

The value of a floor is a version (i16, 0) and the generation (i32).

A null value removes the key's content. Every other key version belongs to a kind that is not served
here (Kafka's newer group types); the reader skips it, as Kafka does.

Offsets are written as version 3, or 1 when the client gave a retention time, as Kafka does; groups
as version 3. The topic's id travels in a record header, so that every tool can read the value.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias, cast, final

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import TopicId
from raftlog.groups.stored import StoredGroup, StoredMember, StoredOffset
from raftlog.kafka.embedded import decode_embedded, encode_embedded
from raftlog.kafka.messages.group_metadata_key import GroupMetadataKey
from raftlog.kafka.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from raftlog.kafka.messages.offset_commit_key import OffsetCommitKey
from raftlog.kafka.messages.offset_commit_value import OffsetCommitValue
from raftlog.kafka.shape import ZERO_ID
from raftlog.records.record import Record

TOPIC_ID_HEADER: Final = "raftlog.topic.id"
FLOOR_KEY_VERSION: Final = 0x7266
"""The key version of a floor, far above Kafka's versions, so that Kafka's tools skip the record."""

_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_GROUP_VALUE: Final = 3
_KEY_VERSION: Final = struct.Struct(">h")
_FLOOR_KEY: Final = struct.Struct(">hH")
_FLOOR_VALUE: Final = struct.Struct(">hi")


@final
class NewRecord(NamedTuple):
    """A record to be written."""

    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


@final
class OffsetRecord(NamedTuple):
    """A read record: the committed offset of a partition; None removes it."""

    group: str
    topic: str
    partition: int
    stored: StoredOffset | None


@final
class GroupRecord(NamedTuple):
    """A read record: a group; None removes it."""

    group: str
    stored: StoredGroup | None


@final
class FloorRecord(NamedTuple):
    """A read record: the highest generation that was given out; None removes the floor."""

    group: str
    generation: int | None


ReadRecord: TypeAlias = OffsetRecord | GroupRecord | FloorRecord


def offset_record(group: str, topic: str, partition: int, stored: StoredOffset | None) -> NewRecord:
    """The record that commits an offset, or removes it (None)."""
    key = encode_embedded("OffsetCommitKey", _OFFSET_KEY, OffsetCommitKey(group, topic, partition))
    if stored is None:
        return NewRecord(key, None)
    body = OffsetCommitValue(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp=stored.commit_ms,
        expire_timestamp=stored.expire_ms,
    )
    value = encode_embedded("OffsetCommitValue", 3 if stored.expire_ms < 0 else 1, body)
    if stored.topic_id == ZERO_ID:
        return NewRecord(key, value)
    return NewRecord(key, value, ((TOPIC_ID_HEADER, stored.topic_id),))


def group_record(group: str, stored: StoredGroup | None) -> NewRecord:
    """The record that stores a group, or removes it (None)."""
    key = encode_embedded("GroupMetadataKey", _GROUP_KEY, GroupMetadataKey(group))
    if stored is None:
        return NewRecord(key, None)
    body = GroupMetadataValue(
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol,
        leader=stored.leader,
        current_state_timestamp=stored.state_ms,
        members=[MemberMetadata(*member) for member in stored.members],
    )
    return NewRecord(key, encode_embedded("GroupMetadataValue", _GROUP_VALUE, body))


def floor_record(group: str, generation: int | None) -> NewRecord:
    """The record that raises a group's generation floor, or removes it (None)."""
    name = group.encode()
    key = _FLOOR_KEY.pack(FLOOR_KEY_VERSION, len(name)) + name
    return NewRecord(key, None if generation is None else _FLOOR_VALUE.pack(0, generation))


def read_record(record: Record) -> ReadRecord | None:
    """The content of a stored record; None when it is of an unknown kind or cannot be read.

    A producer may have written any bytes into the log. All replicas run this same function, so all
    of them skip the same records.
    """
    key = record.key
    if key is None or len(key) < _KEY_VERSION.size:
        return None
    (version,) = _KEY_VERSION.unpack_from(key)
    try:
        if 0 <= version <= _OFFSET_KEY:
            return _read_offset(key, record)
        if version == _GROUP_KEY:
            return _read_group(key, record.value)
        if version == FLOOR_KEY_VERSION:
            return _read_floor(key, record.value)
    except ProtocolError:
        return None
    return None


def _read_offset(key: bytes, record: Record) -> OffsetRecord:
    name = cast("OffsetCommitKey", decode_embedded("OffsetCommitKey", key)[1])
    if record.value is None:
        return OffsetRecord(name.group, name.topic, name.partition, None)
    version, body = decode_embedded("OffsetCommitValue", record.value)
    value = cast("OffsetCommitValue", body)
    topic_id = ZERO_ID
    for header in record.headers:
        if header.key == TOPIC_ID_HEADER and len(header.value or b"") == len(ZERO_ID):
            topic_id = header.value or ZERO_ID
    stored = StoredOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch if version >= _GROUP_VALUE else -1,
        metadata=value.metadata,
        commit_ms=value.commit_timestamp,
        expire_ms=value.expire_timestamp,
        topic_id=TopicId(topic_id),
    )
    return OffsetRecord(name.group, name.topic, name.partition, stored)


def _read_group(key: bytes, data: bytes | None) -> GroupRecord:
    group = cast("GroupMetadataKey", decode_embedded("GroupMetadataKey", key)[1]).group
    if data is None:
        return GroupRecord(group, None)
    version, body = decode_embedded("GroupMetadataValue", data)
    value = cast("GroupMetadataValue", body)
    members = tuple(_read_member(member, version) for member in value.members)
    stored = StoredGroup(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_ms=value.current_state_timestamp,
        members=members,
    )
    return GroupRecord(group, stored)


def _read_member(member: MemberMetadata, version: int) -> StoredMember:
    return StoredMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        # The oldest format has no rebalance timeout: its session timeout serves as both.
        rebalance_timeout_ms=member.rebalance_timeout if version else member.session_timeout,
        session_timeout_ms=member.session_timeout,
        subscription=bytes(member.subscription),
        assignment=bytes(member.assignment),
    )


def _read_floor(key: bytes, value: bytes | None) -> FloorRecord | None:
    _, size = _FLOOR_KEY.unpack(key[: _FLOOR_KEY.size].ljust(_FLOOR_KEY.size, b"\xff"))
    name = key[_FLOOR_KEY.size :]
    if len(name) != size:
        return None
    try:
        group = name.decode()
    except UnicodeDecodeError:
        return None
    if value is None:
        return FloorRecord(group, None)
    if len(value) != _FLOOR_VALUE.size:
        return None
    version, generation = _FLOOR_VALUE.unpack(value)
    return FloorRecord(group, generation) if version == 0 else None
