"""Kept response frames: byte for byte what the codec would have made."""

import pytest

from raftlog.base.ids import Offset
from raftlog.broker.handlers.produce_frames import FRAMES_MAX, SuccessFrames
from raftlog.kafka.codec import encode_response
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from raftlog.kafka.versions import ApiKey
from raftlog.partition.output import ProduceAnswer

LOG_START_FROM = 5


def topic_of(name: str, number: int, topic_id: bytes = bytes(16)) -> TopicProduceData:
    return TopicProduceData(name, topic_id, (PartitionProduceData(number, b""),))


@pytest.mark.parametrize("version", range(3, 14))
def test_a_kept_frame_is_what_the_codec_makes(version):
    frames = SuccessFrames()
    for correlation, offset, time_ms, start in [
        (0, 0, -1, 0),
        (2**31 - 1, 2**62, 1_700_000_000_000, 17),
        (-1, 255, -1, -1),
    ]:
        answer = ProduceAnswer(ErrorCode.NONE, Offset(offset), time_ms, Offset(start))
        for name, number, topic_id in (("orders", 0, bytes(16)), ("o", 700, b"i" * 16)):
            encoded = frames.answer_to(version, topic_of(name, number, topic_id), answer)
            if version < LOG_START_FROM:
                assert encoded is None
                continue
            partition = PartitionProduceResponse(number, 0, offset, time_ms, start)
            body = ProduceResponse([TopicProduceResponse(name, topic_id, [partition])], 0, [])
            expected = encode_response(ApiKey.PRODUCE, version, correlation, body)
            assert b"".join(encoded.parts(correlation)) == b"".join(expected)


def test_frames_are_bounded_and_keys_may_be_views():
    frames = SuccessFrames()
    answer = ProduceAnswer(ErrorCode.NONE, Offset(1), -1, Offset(0))
    viewed = topic_of("t", 0, memoryview(bytearray(16)))
    for number in range(FRAMES_MAX + 5):
        assert frames.answer_to(9, topic_of("t", number), answer) is not None
        assert frames.answer_to(13, viewed, answer) is not None
    assert len(frames._frames) <= FRAMES_MAX
