"""Answers of a producer's stream: response frames that differ in four numbers.

A success for one partition repeats its topic and partition, with base offset, time and log start
beside them. The codec encodes everything but these numbers and the correlation id once for a topic
partition and version, and the bytes are kept.
"""

import struct
from typing import Final, NamedTuple, final

import attrs

from raftlog.kafka.codec import EncodedAnswer, encode_answer
from raftlog.kafka.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from raftlog.kafka.versions import ApiKey
from raftlog.partition.output import ProduceAnswer

FRAMES_MAX: Final = 1024
"""The most topic partitions and versions whose frames are kept, some hundred bytes each."""
_CORRELATION: Final = struct.Struct(">i")
_NUMBERS: Final = struct.Struct(">qqq")
"""Base offset, log append time, log start offset, in this order in all versions that have them."""


class KeptFrame(NamedTuple):
    """The bytes around the correlation id and the numbers."""

    length: bytes
    before: bytes
    after: bytes

    def frame(
        self, correlation_id: int, base_offset: int, log_append_time_ms: int, log_start: int
    ) -> bytes:
        """The whole frame."""
        length, before, after = self
        numbers = _NUMBERS.pack(base_offset, log_append_time_ms, log_start)
        return length + _CORRELATION.pack(correlation_id) + before + numbers + after


@final
@attrs.define(eq=False)
class SuccessFrames:
    """Frames by version, topic and partition; emptied when there are too many."""

    _frames: dict[tuple[int, str, bytes, int], KeptFrame | None] = attrs.Factory(dict)

    def answer_to(
        self, version: int, topic: TopicProduceData, answer: ProduceAnswer
    ) -> EncodedAnswer | None:
        """The response to a successful request with one partition, `topic`'s only one.

        None in versions without a log start, which the codec encodes.
        """
        number = topic.partition_data[0].index
        frame = self.get(version, topic.name, bytes(topic.topic_id), number)
        if frame is None:
            return None
        length, before, after = frame
        _, base_offset, log_append_time_ms, log_start, *_ = answer
        numbers = _NUMBERS.pack(base_offset, log_append_time_ms, log_start)
        return EncodedAnswer(length, before + numbers + after)

    def get(self, version: int, name: str, topic_id: bytes, number: int) -> KeptFrame | None:
        """The frame of one topic partition; None as with `answer_to`."""
        key = (version, name, topic_id, number)
        try:
            return self._frames[key]
        except KeyError:
            return self._keep(key)

    def _keep(self, key: tuple[int, str, bytes, int]) -> KeptFrame | None:
        if len(self._frames) >= FRAMES_MAX:
            self._frames.clear()
        frame = self._frames[key] = _frame_of(*key)
        return frame


def _frame_of(version: int, name: str, topic_id: bytes, number: int) -> KeptFrame | None:
    """A frame from two sets of numbers: where the codec's two results differ, the numbers stand."""
    zeros = _encoded(version, name, topic_id, number, 0)
    ones = _encoded(version, name, topic_id, number, -1)
    before, after = zeros.rest, ones.rest
    differs = [at for at in range(len(before)) if before[at] != after[at]]
    first, end = differs[0], differs[0] + _NUMBERS.size
    if differs != list(range(first, end)):
        return None
    return KeptFrame(zeros.length, zeros.rest[:first], zeros.rest[end:])


def _encoded(version: int, name: str, topic_id: bytes, number: int, value: int) -> EncodedAnswer:
    partition = PartitionProduceResponse(number, 0, value, value, value)
    body = ProduceResponse([TopicProduceResponse(name, topic_id, [partition])], 0, [])
    return encode_answer(ApiKey.PRODUCE, version, body)
