"""Frames come out as they went in, however the bytes were cut, and lengths are judged first."""

import struct
import tracemalloc

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import ProtocolError
from raftlog.base.units import KIB, MIB
from raftlog.kafka.frames import FrameCutter
from raftlog.runtime.network.framing import FrameReceiver
from raftlog.runtime.network.slabs import SMALL_SLAB_BYTES, make_slab
from tests.runtime.memory_stream import memory_pair


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def no_limit() -> FrameCutter:
    return FrameCutter(frame_bytes_min=0, frame_bytes_max=10**8, small_frame_bytes_max=10**8)


def frame_limit(size: int) -> FrameCutter:
    return FrameCutter.for_requests(frame_bytes_max=size)


async def received(data: bytes, cuts: list[int], limit=None) -> list[bytes]:
    left, right = memory_pair(room=10**9)
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    start = 0
    for end in ends:
        if end > start:
            left.send_nowait([data[start:end]])
        start = end
    left.close()
    receiver = FrameReceiver(right, limit or no_limit())
    found: list[bytes] = []
    while await receiver.receive():
        found += [bytes(frame) for frame in receiver.frames()]
    return found


@given(st.lists(st.binary(max_size=300), max_size=12), st.lists(st.integers(0, 4000), max_size=20))
def test_frames_survive_any_cut(bodies, cuts):
    assert trio.run(received, framed(*bodies), cuts) == bodies


@pytest.mark.parametrize("size", [SMALL_SLAB_BYTES - 4, SMALL_SLAB_BYTES - 3, 3 * 1024 * 1024])
def test_a_frame_as_large_as_a_slab_or_larger(size):
    bodies = [b"a" * 10, b"b" * size, b"c"]
    assert trio.run(received, framed(*bodies), list(range(0, size, 100_000))) == bodies


def test_a_stream_that_ends_inside_a_frame_is_an_error():
    with pytest.raises(ProtocolError, match="5 bytes into a frame"):
        trio.run(received, framed(b"whole", b"cut off")[: 9 + 5], [])


def test_a_negative_length_is_an_error():
    with pytest.raises(ProtocolError, match="frame of -1"):
        trio.run(received, struct.pack(">i", -1), [])


@pytest.mark.parametrize(
    "hello",
    [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03", b"GET / HTTP/1.1\r\n\r\n", b"\x7f\xff\xff\xff"],
    ids=["tls", "http", "2 GiB"],
)
def test_other_protocols_are_refused_by_their_length(hello):
    with pytest.raises(ProtocolError, match="are allowed"):
        trio.run(received, hello, [], frame_limit(1 << 20))


def test_only_produce_may_be_large():
    large = 5 * 1024 * 1024
    produce = struct.pack(">ihh", large, 0, 9)
    fetch = struct.pack(">ihh", large, 1, 9)
    with pytest.raises(ProtocolError, match="bytes into a frame"):
        trio.run(received, produce, [], frame_limit(32 << 20))
    with pytest.raises(ProtocolError, match="are allowed"):
        trio.run(received, fetch, [], frame_limit(32 << 20))


async def test_an_idle_connection_holds_no_slab():
    left, right = memory_pair()
    receiver = FrameReceiver(right, no_limit())
    left.send_nowait([framed(b"x")])
    await receiver.receive()
    frames = [bytes(frame) for frame in receiver.frames()]
    assert frames == [b"x"]
    assert receiver._slab is None


async def test_a_view_that_is_kept_is_never_overwritten():
    """A kept frame keeps its slab; later frames come into another one, or behind it."""
    left, right = memory_pair()
    receiver = FrameReceiver(right, no_limit())
    kept = []
    for ordinal in range(20):
        left.send_nowait([framed(bytes([ordinal]) * 100)])
        await receiver.receive()
        kept += list(receiver.frames())
    assert [bytes(view) for view in kept] == [bytes([ordinal]) * 100 for ordinal in range(20)]


async def test_an_unfinished_frame_is_moved_without_another_copy():
    """It was sliced out of its slab, and bytes are copied again to become a part of a bytearray: a
    frame of megabytes took up to four times its size."""
    _, right = memory_pair()
    receiver = FrameReceiver(right, no_limit())
    large = make_slab(8 * MIB)
    large[1000 : MIB + 1000] = b"x" * MIB
    receiver._start, receiver._end = 1000, MIB + 1000
    tracemalloc.start()
    try:
        moved = receiver._move(large, MIB)
        assert tracemalloc.get_traced_memory()[1] < len(moved) + 64 * KIB
    finally:
        tracemalloc.stop()
    assert moved[:MIB] == b"x" * MIB
