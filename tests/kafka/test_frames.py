"""Cutting frames out of received bytes: any splitting gives the same frames, caps come first."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.base.limits import FRAME_BYTES_PREAUTH_MAX, FRAME_BYTES_SMALL_MAX
from raftlog.kafka.frames import PREFIX_BYTES, CutFrames, FrameBuffer, FrameCutter

PRODUCE, METADATA = 0, 3


def frame(key=METADATA, size=8):
    return pack(">ih", size, key) + bytes(size - 2)


def cut(data, cutter=None):
    return (cutter or FrameCutter.for_requests()).cut(memoryview(data))


def test_nothing_wants_a_length():
    assert cut(b"") == CutFrames([], 0, 4)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_started_length_wants_the_rest_of_it(size):
    assert cut(frame()[:size]) == CutFrames([], 0, 4)


def test_a_length_alone_wants_its_frame():
    assert cut(frame(size=100)[:4]) == CutFrames([], 0, 104)


def test_a_frame_is_a_view_of_what_was_shown():
    slab = bytearray(frame(size=8))
    found = cut(slab)
    slab[4:6] = b"\x11\x12"
    assert bytes(found.frames[0][:2]) == b"\x11\x12"
    assert found[1:] == (12, 4)


def test_several_frames_and_the_start_of_one_more():
    found = cut(frame(size=8) + frame(size=9) + frame(size=50)[:20])
    assert [len(one) for one in found.frames] == [8, 9]
    assert found[1:] == (25, 54)


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 7])
def test_a_request_shorter_than_its_header_is_refused(size):
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        cut(pack(">ih", size, METADATA))


def test_a_response_needs_only_a_correlation_id():
    assert len(cut(pack(">ii", 4, 1), FrameCutter.for_responses()).frames) == 1
    with pytest.raises(ProtocolError, match="a frame of 3 bytes"):
        cut(pack(">i", 3), FrameCutter.for_responses())


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("16030100c8010000c40303"),
        b"GET / HTTP/1.1\r\n",
        pack(">i", 2**31 - 1),
    ],
    ids=["tls hello", "http", "2 GiB"],
)
def test_what_is_not_kafka_is_refused_by_its_first_four_bytes(data):
    with pytest.raises(ProtocolError, match="are allowed"):
        cut(data[:4])


def test_only_produce_may_be_large():
    size = FRAME_BYTES_SMALL_MAX + 1
    assert cut(pack(">ih", size, PRODUCE)).wanted == size + PREFIX_BYTES
    with pytest.raises(ProtocolError, match=f"8 to {FRAME_BYTES_SMALL_MAX}"):
        cut(pack(">ih", size, METADATA))


def test_a_length_waits_for_its_key_before_it_is_refused_as_too_large():
    """Four bytes do not say whether this is a Produce; the runtime must not reserve for them."""
    size = FRAME_BYTES_SMALL_MAX + 1
    assert cut(pack(">i", size)).wanted == 6
    assert cut(pack(">i", size) + b"\x00").wanted == 6
    assert cut(pack(">i", size) + b"\x00\x00").wanted == size + PREFIX_BYTES


def test_the_largest_allowed_frames_pass():
    assert cut(pack(">ih", FRAME_BYTES_SMALL_MAX, METADATA)).wanted == FRAME_BYTES_SMALL_MAX + 4
    cutter = FrameCutter.for_requests(frame_bytes_max=1000)
    assert cut(pack(">ih", 1000, PRODUCE), cutter).wanted == 1004
    with pytest.raises(ProtocolError, match="8 to 1000"):
        cut(pack(">ih", 1001, PRODUCE), cutter)


def test_a_small_frame_cap_binds_small_requests_too():
    cutter = FrameCutter.for_requests(frame_bytes_max=1000)
    with pytest.raises(ProtocolError, match="8 to 1000"):
        cut(pack(">ih", 1001, METADATA), cutter)


def test_before_authentication_nothing_is_large():
    cutter = FrameCutter.before_authentication()
    assert cut(pack(">ih", FRAME_BYTES_PREAUTH_MAX, PRODUCE), cutter).frames == []
    with pytest.raises(ProtocolError, match=f"8 to {FRAME_BYTES_PREAUTH_MAX}"):
        cut(pack(">ih", FRAME_BYTES_PREAUTH_MAX + 1, PRODUCE), cutter)


def test_authentication_raises_the_caps():
    cutter = FrameCutter.before_authentication()
    cutter.authenticated()
    size = FRAME_BYTES_SMALL_MAX + 1
    assert cut(pack(">ih", size, PRODUCE), cutter).wanted == size + 4
    with pytest.raises(ProtocolError):
        cut(pack(">ih", size, METADATA), cutter)


def test_a_bad_length_behind_good_frames_fails_the_connection():
    cutter = FrameCutter.for_requests()
    with pytest.raises(ProtocolError):
        cut(frame() + pack(">i", -5), cutter)
    assert cutter.failed
    with pytest.raises(LocalMisuse):
        cut(frame(), cutter)


@given(st.lists(st.binary(min_size=6, max_size=40), max_size=6), st.data())
def test_any_splitting_gives_the_same_frames(bodies, data):
    whole = b"".join(pack(">ih", len(body) + 2, METADATA) + body for body in bodies)
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=8).map(sorted))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    buffer = FrameBuffer(FrameCutter.for_requests())
    found = [bytes(one) for piece in pieces for one in buffer.feed(piece)]
    assert found == [pack(">h", METADATA) + body for body in bodies]


@given(st.lists(st.binary(min_size=6, max_size=30), min_size=1, max_size=5), st.integers(8, 64))
def test_a_slab_as_the_runtime_uses_it(bodies, room):
    """Receive into a slab; when `wanted` does not fit behind `start`, move to a larger one."""
    stream = b"".join(pack(">ih", len(body) + 2, METADATA) + body for body in bodies)
    cutter, slab, start, filled, got = FrameCutter.for_requests(), bytearray(room), 0, 0, []
    while stream:
        took = min(len(slab) - filled, len(stream))
        slab[filled : filled + took] = stream[:took]
        stream, filled = stream[took:], filled + took
        found = cutter.cut(memoryview(slab)[start:filled])
        got += [bytes(one) for one in found.frames]
        start += found.consumed
        if start + found.wanted > len(slab) or filled == len(slab):
            rest = bytes(slab[start:filled])
            slab = bytearray(max(room, found.wanted))
            slab[: len(rest)] = rest
            start, filled = 0, len(rest)
    assert got == [pack(">h", METADATA) + body for body in bodies]


def test_a_buffer_holds_no_more_than_one_started_frame():
    buffer = FrameBuffer(FrameCutter.for_requests())
    assert buffer.feed(frame(size=10) * 3 + frame(size=10)[:5]) != []
    assert buffer.feed(frame(size=10)[5:]) == [frame(size=10)[4:]]
    assert buffer.feed(b"") == []
