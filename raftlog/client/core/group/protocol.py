"""Kafka's consumer protocol: the messages that members send each other through the coordinator,
which does not read them. raftlog writes subscriptions of version 2, which carry the generation, and
assignments of version 0. It reads all versions.

Kafka's sticky assignors put more into the user data of a subscription. "sticky" adds the partitions
that the member had and their generation, because it holds none any more when it joins.
"cooperative-sticky" adds only the generation, for older readers.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from raftlog.base.binary import Buffer
from raftlog.base.errors import ProtocolError
from raftlog.client.core.group.assignors import MemberView
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.embedded import decode_embedded, encode_embedded
from raftlog.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitionAssignment,
    TopicPartitionSubscription,
)
from raftlog.kafka.messages.join_group import JoinGroupResponseMember

PROTOCOL_TYPE: Final = "consumer"
_SUBSCRIPTION_VERSION: Final = 2
_ASSIGNMENT_VERSION: Final = 0
_INT: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


def by_topic(places: Iterable[TopicPartition]) -> list[tuple[str, tuple[int, ...]]]:
    """The partitions of each topic, all in order."""
    found: dict[str, list[int]] = {}
    for place in sorted(set(places)):
        found.setdefault(place.topic, []).append(place.partition)
    return [(topic, tuple(partitions)) for topic, partitions in found.items()]


# --- subscriptions --------------------------------------------------------------------------------


def encode_subscription(
    assignor: str, topics: Sequence[str], owned: Sequence[TopicPartition], generation: int
) -> bytes:
    """Encode the subscription that a member sends when it joins."""
    user_data: bytes | None = None
    if assignor == "sticky":
        user_data, owned = _encode_sticky(owned, generation), ()
    elif assignor == "cooperative-sticky":
        user_data = _INT.pack(generation)
    body = ConsumerProtocolSubscription(
        topics=tuple(sorted(topics)),
        user_data=user_data,
        owned_partitions=tuple(TopicPartitionSubscription(*each) for each in by_topic(owned)),
        generation_id=generation,
    )
    return encode_embedded("ConsumerProtocolSubscription", _SUBSCRIPTION_VERSION, body)


def decode_member(member: JoinGroupResponseMember, assignor: str) -> MemberView:
    """Decode a member's subscription, for the leader. `ProtocolError` names a member whose bytes do
    not parse."""
    try:
        version, body = decode_embedded(
            "ConsumerProtocolSubscription", member.metadata, newer_as_newest=True
        )
    except ProtocolError as error:
        raise ProtocolError(
            f"its subscription does not parse: {error.what}", on=f"member {member.member_id}"
        ) from error
    assert isinstance(body, ConsumerProtocolSubscription), type(body)
    owned = tuple(
        TopicPartition(each.topic, at) for each in body.owned_partitions for at in each.partitions
    )
    generation = body.generation_id if version >= 2 else -1
    if body.user_data is not None and assignor == "sticky":
        owned, generation = _decode_sticky(body.user_data)
    elif body.user_data is not None and assignor == "cooperative-sticky" and generation < 0:
        generation = _decode_generation(body.user_data)
    return MemberView(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        topics=tuple(body.topics),
        owned=owned,
        generation=generation,
    )


def _encode_sticky(owned: Sequence[TopicPartition], generation: int) -> bytes:
    topics = by_topic(owned)
    parts = [_INT.pack(len(topics))]
    for topic, partitions in topics:
        name = topic.encode()
        parts += [_SHORT.pack(len(name)), name]
        parts.append(struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
    return b"".join([*parts, _INT.pack(generation)])


def _decode_sticky(data: Buffer) -> tuple[tuple[TopicPartition, ...], int]:
    """Decode the user data of a "sticky" member. Data that do not parse count as nothing owned, as
    in Kafka's assignor: that only costs moves."""
    view, at = bytes(data), _INT.size
    owned: list[TopicPartition] = []
    try:
        for _ in range(_INT.unpack_from(view)[0]):
            size = _SHORT.unpack_from(view, at)[0]
            topic = view[at + 2 : at + 2 + size].decode()
            count = _INT.unpack_from(view, at + 2 + size)[0]
            at += 2 + size + _INT.size
            # unpack_from needs all the bytes that the count announces, so a wrong count raises
            # struct.error here.
            partitions = struct.unpack_from(f">{count}i", view, at)
            owned.extend(TopicPartition(topic, partition) for partition in partitions)
            at += count * _INT.size
        # The first version of the data ends here and has no generation.
        generation = _INT.unpack_from(view, at)[0] if at < len(view) else -1
    except (struct.error, UnicodeDecodeError):
        return (), -1
    return tuple(owned), generation


def _decode_generation(data: Buffer) -> int:
    try:
        return int(_INT.unpack_from(data)[0])
    except struct.error:
        return -1


# --- assignments ----------------------------------------------------------------------------------


def encode_assignment(places: Iterable[TopicPartition]) -> bytes:
    """Encode the partitions that the leader gives to one member."""
    body = ConsumerProtocolAssignment(
        tuple(TopicPartitionAssignment(*each) for each in by_topic(places))
    )
    return encode_embedded("ConsumerProtocolAssignment", _ASSIGNMENT_VERSION, body)


def decode_assignment(data: Buffer) -> list[TopicPartition]:
    """Decode the partitions that the leader gave to this member, sorted. A coordinator sends no
    bytes at all to a member that the leader left out. `ProtocolError` when the bytes do not
    parse."""
    if not len(data):
        return []
    _, body = decode_embedded("ConsumerProtocolAssignment", data, newer_as_newest=True)
    assert isinstance(body, ConsumerProtocolAssignment), type(body)
    return sorted(
        {
            TopicPartition(each.topic, partition)
            for each in body.assigned_partitions
            for partition in each.partitions
        }
    )
