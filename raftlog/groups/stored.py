"""The values that a GroupsMachine holds, and their canonical bytes for snapshots and digests.

Layout of one entry (big-endian; text and block are a u32 length and bytes):

    offset   text group | text topic | i64 partition | i64 offset | i64 leader epoch
             | text metadata | i64 commit ms | i64 expire ms | 16 bytes topic id
    group    text group | text protocol type | i64 generation | protocol | leader | i64 state ms
             | u32 members | per member: text id | instance id | text client id | text host
               | i64 rebalance timeout | i64 session timeout | block subscription | block assignment
    floor    text group | i64 generation

Protocol, leader and instance id may be null: a flag, then a text when the flag is 1.
"""

from typing import Final, NamedTuple, final

from raftlog.base.binary import Reader, Writer
from raftlog.base.ids import TopicId
from raftlog.base.limits import BATCH_BYTES_MAX
from raftlog.kafka.shape import ZERO_ID

_MEMBER_BYTES_MIN: Final = 37
"""The size of the shortest member, in bytes: three texts and two blocks without content, a flag and
two numbers."""


@final
class StoredOffset(NamedTuple):
    """A committed offset. Times are Unix milliseconds, -1 for none; `topic_id` is ZERO_ID when the
    record has none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: TopicId = TopicId(ZERO_ID)


@final
class StoredMember(NamedTuple):
    """A member of a stored group, with its subscription under the chosen protocol and its
    assignment."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@final
class StoredGroup(NamedTuple):
    """A group, from its last record; without members it is empty.

    `state_ms` is the Unix time of its last change of state, -1 in records of old formats.
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[StoredMember, ...] = ()


def encode_offset(group: str, topic: str, partition: int, stored: StoredOffset) -> bytes:
    """The canonical bytes of a committed offset, its key included."""
    out = Writer().text(group).text(topic).i64(partition)
    out.i64(stored.offset).i64(stored.leader_epoch).text(stored.metadata)
    return out.i64(stored.commit_ms).i64(stored.expire_ms).raw(stored.topic_id).bytes()


def decode_offset(data: Reader) -> tuple[str, str, int, StoredOffset]:
    """Group, topic, partition and value of `encode_offset`; raises the reader's error."""
    group, topic, partition = data.text(BATCH_BYTES_MAX), data.text(BATCH_BYTES_MAX), data.i64()
    offset, leader_epoch, metadata = data.i64(), data.i64(), data.text(BATCH_BYTES_MAX)
    commit_ms, expire_ms = data.i64(), data.i64()
    topic_id = TopicId(bytes(data.take(len(ZERO_ID))))
    stored = StoredOffset(offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id)
    return group, topic, partition, stored


def encode_group(group: str, stored: StoredGroup) -> bytes:
    """The canonical bytes of a group, its id included."""
    out = Writer().text(group).text(stored.protocol_type).i64(stored.generation)
    _put_nullable(out, stored.protocol)
    _put_nullable(out, stored.leader)
    out.i64(stored.state_ms).u32(len(stored.members))
    for member in stored.members:
        out.text(member.member_id)
        _put_nullable(out, member.instance_id)
        out.text(member.client_id).text(member.client_host)
        out.i64(member.rebalance_timeout_ms).i64(member.session_timeout_ms)
        out.block(member.subscription).block(member.assignment)
    return out.bytes()


def decode_group(data: Reader) -> tuple[str, StoredGroup]:
    """Id and value of `encode_group`; raises the reader's error."""
    group, protocol_type = data.text(BATCH_BYTES_MAX), data.text(BATCH_BYTES_MAX)
    generation, protocol, leader = data.i64(), _nullable(data), _nullable(data)
    state_ms = data.i64()
    members = tuple(
        _decode_member(data) for _ in range(data.count(_MEMBER_BYTES_MIN, BATCH_BYTES_MAX))
    )
    return group, StoredGroup(protocol_type, generation, protocol, leader, state_ms, members)


def encode_floor(group: str, generation: int) -> bytes:
    """The canonical bytes of a generation floor."""
    return Writer().text(group).i64(generation).bytes()


def decode_floor(data: Reader) -> tuple[str, int]:
    """Id and generation of `encode_floor`; raises the reader's error."""
    return data.text(BATCH_BYTES_MAX), data.i64()


def _decode_member(data: Reader) -> StoredMember:
    return StoredMember(
        member_id=data.text(BATCH_BYTES_MAX),
        instance_id=_nullable(data),
        client_id=data.text(BATCH_BYTES_MAX),
        client_host=data.text(BATCH_BYTES_MAX),
        rebalance_timeout_ms=data.i64(),
        session_timeout_ms=data.i64(),
        subscription=bytes(data.block(BATCH_BYTES_MAX)),
        assignment=bytes(data.block(BATCH_BYTES_MAX)),
    )


def _put_nullable(out: Writer, value: str | None) -> None:
    out.flag(value is not None)
    if value is not None:
        out.text(value)


def _nullable(data: Reader) -> str | None:
    return data.text(BATCH_BYTES_MAX) if data.flag() else None
