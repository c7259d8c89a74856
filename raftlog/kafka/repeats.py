"""Recognises produce requests that repeat the one before, as in a producer's stream.

Between two requests of a stream to one partition only the correlation id and the records differ. So
the bytes around them are compared instead of being decoded again. Every request that differs in any
other way is left to `raftlog.kafka.codec`, which decides everything. This module only gives the
same result sooner.
"""

from typing import Final, NamedTuple, final

import attrs

from raftlog.kafka.codec import DecodedRequest
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.shape import Buffer
from raftlog.kafka.versions import ApiKey
from raftlog.kafka.wire import encode_uvarint

FLEXIBLE_FROM: Final = 9
"""The version from which lengths are varints and every struct ends with tags."""
BETWEEN_BYTES_MAX: Final = 1024
"""The most bytes of client id, transactional id and topic name together. Longer ones are not worth
their memory, one a connection."""
_PRODUCE: Final = int(ApiKey.PRODUCE)
_CORRELATION_AT: Final = 4
_CORRELATION_END: Final = 8
_ITEMS: Final = 2
"""The items of such a request: a topic and a partition."""
_NO_TAGS: Final = b"\x00\x00\x00"
"""The tags of partition, topic and request, which follow the records."""
_VARINT_BYTES_MAX: Final = 4


class ProduceStream(NamedTuple):
    """The common part of the requests of a stream; it holds no view of a frame."""

    version: int
    client_id: str | None
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic: str
    topic_id: bytes
    partition: int


@final
@attrs.define(eq=False)
class ProduceRepeats:
    """The form of one connection's last produce request to one partition.

    A frame has: API key and version (4 bytes), correlation id (4), everything up to the records,
    their length plus one as a varint, the records, three empty tag sections.
    """

    _begin: bytes = b""
    _between: bytes = b""
    _end: int = 0
    """The position at which the length of the records begins."""
    stream: ProduceStream | None = None
    """The stream of the last request; None before one was learned."""

    def learn(self, frame: Buffer, request: DecodedRequest) -> None:
        """Keep the form of `request`, which the codec read from `frame`, for later ones."""
        if request.api_key != _PRODUCE or request.api_version < FLEXIBLE_FROM:
            return
        if request.trailing or not request.served:
            return
        body: ProduceRequest = request.body
        if len(body.topic_data) != 1 or len(body.topic_data[0].partition_data) != 1:
            return
        topic = body.topic_data[0]
        partition, records = topic.partition_data[0]
        if not isinstance(records, Buffer) or bytes(frame[-len(_NO_TAGS) :]) != _NO_TAGS:
            return
        length = encode_uvarint(len(records) + 1)
        end = len(frame) - len(_NO_TAGS) - len(records) - len(length)
        if not _CORRELATION_END < end <= BETWEEN_BYTES_MAX:
            return
        if bytes(frame[end : end + len(length)]) != length:
            return  # tags elsewhere: the records lie at another place than without them
        self._begin = bytes(frame[:_CORRELATION_AT])
        self._between = bytes(frame[_CORRELATION_END:end])
        self._end = end
        self.stream = ProduceStream(
            request.api_version,
            request.client_id,
            body.transactional_id,
            body.acks,
            body.timeout_ms,
            topic.name,
            bytes(topic.topic_id),
            partition,
        )

    def read(self, frame: Buffer) -> DecodedRequest | None:
        """The request, if it repeats the last one; None when the codec must read it."""
        found = self.match(frame)
        if found is None or self.stream is None:
            return None
        correlation_id, records = found
        version, client_id, transactional_id, acks, timeout_ms, name, topic_id, number = self.stream
        topic = TopicProduceData(name, topic_id, (PartitionProduceData(number, records),))
        body = ProduceRequest(transactional_id, acks, timeout_ms, (topic,))
        return DecodedRequest(_PRODUCE, version, correlation_id, client_id, body, True, 0, _ITEMS)

    def match(self, frame: Buffer) -> tuple[int, Buffer] | None:
        """Correlation id and records of a request of the `stream`; None when it is not one."""
        end = self._end
        if self.stream is None or len(frame) < end + _VARINT_BYTES_MAX:
            return None
        head = bytes(frame[: end + _VARINT_BYTES_MAX])
        if head[:_CORRELATION_AT] != self._begin or head[_CORRELATION_END:end] != self._between:
            return None
        size, start, shift = head[end], end + 1, 7
        while size >> shift:  # the byte before has its highest bit set, so another one follows
            if start == len(head):
                return None
            size += (head[start] - 1) << shift
            start, shift = start + 1, shift + 7
        stop = start + size - 1
        ends = stop == len(frame) - len(_NO_TAGS) and bytes(frame[stop:]) == _NO_TAGS
        if size == 0 or not ends:
            return None
        correlation_id = int.from_bytes(head[_CORRELATION_AT:_CORRELATION_END], "big", signed=True)
        return correlation_id, frame[start:stop]
