"""A stream's produce requests: read by comparing, with the same answer as the codec's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import ProtocolError
from raftlog.kafka.codec import decode_request, encode_request
from raftlog.kafka.connection import ServerConnection, State
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.repeats import BETWEEN_BYTES_MAX, FLEXIBLE_FROM, ProduceRepeats
from raftlog.kafka.versions import ApiKey

VERSIONS = range(3, 14)


def frame_of(version: int, correlation: int, body: ProduceRequest, client="c") -> memoryview:
    frame = b"".join(encode_request(ApiKey.PRODUCE, version, correlation, client, body))
    return memoryview(bytearray(frame))[4:]


def body_of(records: bytes | None, *, name="orders", index=0, acks=-1, **more) -> ProduceRequest:
    partitions = (PartitionProduceData(index, records),)
    topics = (TopicProduceData(name, partition_data=partitions),)
    return ProduceRequest(acks=acks, timeout_ms=3000, topic_data=topics, **more)


def taught(frame: memoryview) -> ProduceRepeats:
    repeats = ProduceRepeats()
    repeats.learn(frame, decode_request(frame))
    return repeats


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stream_is_read_as_the_codec_reads_it(version):
    repeats = taught(frame_of(version, 7, body_of(b"r" * 200)))
    for correlation, size in enumerate((1, 62, 126, 127, 128, 16_382, 16_383, 70_000, 2**21), -2):
        frame = frame_of(version, correlation, body_of(b"s" * size))
        found = repeats.read(frame)
        if version < FLEXIBLE_FROM:
            assert found is None
            continue
        assert found is not None, size
        assert found == decode_request(frame)
        records = found.body.topic_data[0].partition_data[0].records
        assert records.obj is frame.obj  # a view, not a copy


@pytest.mark.parametrize(
    "other",
    [
        body_of(None),
        body_of(b"r" * 200, name="orders2"),
        body_of(b"r" * 200, index=1),
        body_of(b"r" * 200, acks=1),
        body_of(b"r" * 200, transactional_id="t"),
        ProduceRequest(acks=-1, timeout_ms=3000),
    ],
)
def test_what_differs_is_left_to_the_codec(other):
    repeats = taught(frame_of(10, 7, body_of(b"r" * 200)))
    assert repeats.read(frame_of(10, 8, other)) is None
    assert repeats.read(frame_of(10, 8, body_of(b"r"), client="d")) is None
    assert repeats.read(frame_of(11, 8, body_of(b"r" * 200))) is None


def test_only_one_partition_with_records_and_a_short_head_is_learnt():
    two = (PartitionProduceData(0, b"a"), PartitionProduceData(1, b"b"))
    several = ProduceRequest(topic_data=(TopicProduceData("t", partition_data=two),))
    for body in (body_of(None), several, ProduceRequest(), body_of(b"", name="n" * 1200)):
        frame = frame_of(10, 7, body)
        assert taught(frame).read(frame) is None
    assert len("n" * 1200) > BETWEEN_BYTES_MAX


def test_a_frame_with_bytes_behind_its_body_is_not_learnt_nor_read():
    frame = frame_of(10, 7, body_of(b"r" * 200))
    longer = memoryview(bytearray(bytes(frame) + b"\x00"))
    assert taught(longer).read(longer) is None
    assert taught(frame).read(longer) is None


@given(
    st.binary(min_size=1, max_size=300),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    st.integers(-3, 3),
)
def test_hostile_bytes_are_never_read_otherwise_than_by_the_codec(records, changes, longer):
    repeats = taught(frame_of(9, 7, body_of(b"r" * 50)))
    data = bytearray(frame_of(9, 8, body_of(records)))
    for at, value in changes:
        data[at % len(data)] = value
    data = data[:longer] if longer < 0 else data + bytes(longer)
    frame = memoryview(data)
    found = repeats.read(frame)
    if found is None:
        return
    try:
        assert found == decode_request(frame)
    except ProtocolError as error:
        raise AssertionError("read what the codec refuses") from error


def test_a_connection_reads_its_stream_by_repeats_only_once_it_is_open():
    """Before authentication everything goes to the codec, which is asked who may say what."""
    first, second = (frame_of(9, each, body_of(b"r" * 50)) for each in (1, 2))
    connection = ServerConnection()
    assert connection.receive(first) == decode_request(first)
    assert connection.receive(second) == decode_request(second)
    connection.state = State.UNAUTHENTICATED
    with pytest.raises(ProtocolError, match="before authentication"):
        connection.receive(second)


def test_what_is_learnt_keeps_no_frame_alive():
    data = bytearray(bytes(frame_of(9, 1, body_of(b"r" * 50))))
    repeats = ProduceRepeats()
    with memoryview(data) as frame:
        request = decode_request(frame)
        repeats.learn(frame, request)
        request.body.topic_data[0].partition_data[0].records.release()
    data += b"x"  # a view that is still exported would make this a BufferError
