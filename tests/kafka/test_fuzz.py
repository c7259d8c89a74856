"""Nothing but ProtocolError leaves a decoder, whatever the bytes: cut, changed, swollen, random.

Frames to spoil come from hypothesis bodies, so they are as varied as the schemas. A memory bound is
part of the law: a frame may cost a small multiple of its own size, never what it claims.
"""

import random
import tracemalloc
from struct import pack

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raftlog.base.errors import ProtocolError
from raftlog.kafka.codec import decode_request, decode_response, encode_request, encode_response
from raftlog.kafka.tables import all_tables, message_table
from raftlog.kafka.versions import SERVED
from tests.kafka.bodies import PAIRS, bodies, pair_id

RANDOM_FRAMES = 20_000
SEED = 20_260_101
ANY_REQUEST = (-1, "a request of any API", "request")
HARD = [b"\xff" * 5, b"\x80" * 9, b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00", b"\x80\x00"]
APIS = [(table, version) for table, version in PAIRS if table[0] >= 0]
TABLES = [table for table in all_tables() if table[0] >= 0]
EXAMPLES = max(6, settings().max_examples // 8)


def frame_of(table, version, body):
    """The whole frame of a body, without its 4-byte length."""
    if table[2] == "request":
        parts = encode_request(table[0], version, 5, "fuzz", body)
    else:
        parts = encode_response(table[0], version, 5, body)
    return b"".join(parts)[4:]


def decode(table, version, frame):
    """The result, or None for a ProtocolError; any other exception fails the test."""
    try:
        if table[2] == "request":
            return decode_request(frame)
        return decode_response(table[0], version, frame)
    except ProtocolError:
        return None


def spoiled(frame, data):
    """The frame with one run of bytes replaced, put in, or taken out."""
    start = data.draw(st.integers(0, len(frame)))
    end = data.draw(st.integers(start, min(len(frame), start + 8)))
    filling = data.draw(st.sampled_from(HARD) | st.binary(max_size=6))
    return frame[:start] + filling + frame[end:]


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES, ids=pair_id)
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_truncation_is_refused(table, data):
    version = data.draw(st.integers(*table[3]))
    frame = frame_of(table, version, data.draw(bodies(table, version)))
    whole = decode(table, version, frame)
    assert whole is not None
    assert whole.trailing == 0
    for size in range(min(len(frame), 400)):
        assert decode(table, version, frame[:size]) is None, size


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES, ids=pair_id)
@settings(max_examples=3 * EXAMPLES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_spoiled_frame_is_read_or_refused(table, data):
    version = data.draw(st.integers(*table[3]))
    frame = frame_of(table, version, data.draw(bodies(table, version)))
    decode(table, version, spoiled(frame, data))


@settings(max_examples=4 * settings().max_examples, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_spoiled_frame_of_a_served_api_is_read_or_refused(data):
    key = data.draw(st.sampled_from(sorted(SERVED)))
    table = message_table(key, data.draw(st.sampled_from(["request", "response"])))
    version = data.draw(st.integers(*table[3]))
    frame = frame_of(table, version, data.draw(bodies(table, version)))
    decode(table, version, spoiled(frame, data))


@given(st.binary(max_size=300))
@example(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
@example(bytes.fromhex("16030100c8010000c40303"))
def test_any_bytes_as_a_request(frame):
    decode(ANY_REQUEST, 0, frame)


def test_random_frames_of_every_api():
    """Random bodies behind a header that is right, so that every decoder is reached."""
    dice = random.Random(SEED)
    read = 0
    for _ in range(RANDOM_FRAMES):
        table, version = dice.choice(APIS)
        body = dice.randbytes(dice.randrange(80))
        if dice.random() < 0.5:
            body = bytes(dice.choice((0, 0, 1, 1, 2, 3, 255, 127, 128)) for _ in body)
        if table[2] == "request":
            frame = pack(">hhih", table[0], version, 1, -1) + body
        else:
            frame = pack(">i", 1) + body
        read += decode(table, version, frame) is not None
    assert 0 < read < RANDOM_FRAMES


def test_a_frame_costs_a_bounded_multiple_of_its_size():
    """The worst element is three bytes and becomes a NamedTuple with a string: the budget binds."""
    megabyte = 1 << 20
    frames = [
        pack(">hhih", 3, 0, 1, -1) + pack(">i", megabyte // 3) + b"\x00\x01a" * (megabyte // 3),
        pack(">hhih", 3, 12, 1, -1) + b"\x00" + b"\xff\xff\xff\x00" + bytes(megabyte),
        pack(">hhih", 1, 16, 1, -1) + b"\x00" + bytes(21) + b"\xff\xff\x03" + bytes(megabyte),
    ]
    for frame in frames:
        tracemalloc.start()
        decode(ANY_REQUEST, 0, frame)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 * megabyte
