"""A frame that was changed, moved, repeated or left out does not open, and ends its link."""

import hashlib
import hmac
import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base import probes
from raftlog.base.checksum import crc32c
from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.seal import frames
from raftlog.seal.frames import OVERHEAD_BYTES, Opener, Sealer

KEY = bytes(range(32))
OTHER = bytes(range(1, 33))


def sealed(*bodies: bytes, key: bytes = KEY) -> list[bytes]:
    """The frames of one sender."""
    sealer = Sealer(key)
    return [bytes(sealer.seal([body])) for body in bodies]


def opened(opener: Opener, frame: bytes) -> bytes:
    """Returns what a receiver opens in a frame that was cut by its size."""
    size = int.from_bytes(frame[:4], "big")
    assert len(frame) == 4 + size
    return opener.open(memoryview(frame)[4:])


def with_true_check(frame: bytes) -> bytes:
    """The frame as a forger sends it, who makes its CRC right."""
    return frame[:4] + struct.pack(">I", crc32c(frame[8:])) + frame[8:]


@given(st.lists(st.binary(max_size=200), max_size=8))
def test_what_is_sealed_opens_in_its_order(bodies):
    opener = Opener(KEY)
    assert [opened(opener, frame) for frame in sealed(*bodies)] == bodies


def test_parts_are_one_body():
    frame = bytes(Sealer(KEY).seal([b"one ", memoryview(b"two "), bytearray(b"three")]))
    assert opened(Opener(KEY), frame) == b"one two three"


def test_the_layout_is_fixed():
    """Both ends may be of different releases: this is what all of them write."""
    (first, second) = sealed(b"a frame", b"")
    wanted = AESGCM(KEY).encrypt(bytes(12), b"a frame", struct.pack(">I", 7 + OVERHEAD_BYTES))
    assert first == struct.pack(">II", 7 + OVERHEAD_BYTES, crc32c(wanted)) + wanted
    assert first.hex() == ("0000001b1077ad356f9cd3acd441e6f2821992597298667b317c0b917664a5")
    assert second[8:] == AESGCM(KEY).encrypt(
        bytes(11) + b"\1", b"", struct.pack(">I", OVERHEAD_BYTES)
    )


@given(st.binary(max_size=60), st.data())
def test_any_changed_bit_is_found(body, data):
    (frame,) = sealed(body)
    at = data.draw(st.integers(4, len(frame) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    changed = frame[:at] + bytes([frame[at] ^ bit]) + frame[at + 1 :]
    with pytest.raises(ProtocolError):
        opened(Opener(KEY), changed)
    if at >= 8:
        with pytest.raises(ProtocolError, match="does not open"):
            opened(Opener(KEY), with_true_check(changed))


@given(st.binary(max_size=80))
def test_bytes_of_a_stranger_never_open(data):
    with pytest.raises(ProtocolError):
        Opener(KEY).open(memoryview(data))
    if len(data) >= OVERHEAD_BYTES:
        forged = struct.pack(">I", crc32c(data[4:])) + data[4:]
        with pytest.raises(ProtocolError, match="does not open"):
            Opener(KEY).open(memoryview(forged))


@given(st.permutations(range(4)).filter(lambda order: list(order) != [0, 1, 2, 3]))
def test_any_other_order_is_found(order):
    of_sender = sealed(b"0", b"1", b"2", b"3")
    opener = Opener(KEY)
    wrong = next(place for place, number in enumerate(order) if place != number)
    for place in range(wrong):
        assert opened(opener, of_sender[place]) == b"%d" % place
    with pytest.raises(ProtocolError, match="does not open"):
        opened(opener, of_sender[order[wrong]])


def test_a_repeated_frame_is_found():
    (frame,) = sealed(b"once")
    opener = Opener(KEY)
    assert opened(opener, frame) == b"once"
    with pytest.raises(ProtocolError, match="frame 1 does not open"):
        opened(opener, frame)


def test_a_frame_that_was_left_out_is_found_at_the_next():
    first, _, third = sealed(b"1", b"2", b"3")
    opener = Opener(KEY)
    opened(opener, first)
    with pytest.raises(ProtocolError, match="left out"):
        opened(opener, third)


def test_a_frame_that_was_cut_short_or_made_longer_is_found():
    (frame,) = sealed(b"a body that is long enough")
    for body in (frame[8:-1], frame[8:] + b"\0", frame[8:24], frame[8:10]):
        other = struct.pack(">II", 4 + len(body), crc32c(body)) + body
        with pytest.raises(ProtocolError):
            opened(Opener(KEY), other)


def test_a_frame_of_another_session_or_direction_does_not_open():
    """Each direction of each session has its own key, so this is a reflection and a replay, too."""
    (frame,) = sealed(b"body", key=OTHER)
    with pytest.raises(ProtocolError, match="does not open"):
        opened(Opener(KEY), frame)


def test_nothing_opens_after_a_frame_that_did_not():
    first, second = sealed(b"1", b"2")
    opener = Opener(KEY)
    with pytest.raises(ProtocolError):
        opened(opener, with_true_check(first[:-1] + b"\0"))
    for frame in (first, second):
        with pytest.raises(LocalMisuse):
            opened(opener, frame)


def test_damage_and_forgery_are_told_apart_and_counted():
    (frame,) = sealed(b"body")
    changed = frame[:-1] + bytes([frame[-1] ^ 1])
    before = probes.fired()
    with pytest.raises(ProtocolError, match="damaged on its way"):
        opened(Opener(KEY), changed)
    with pytest.raises(ProtocolError, match="changed, repeated, moved or left out"):
        opened(Opener(KEY), with_true_check(changed))
    after = probes.fired()
    for name in ("peer-frame-damaged", "peer-frame-forged"):
        assert after[name] == before.get(name, 0) + 1, name


def test_keys_change_on_the_way_at_both_ends(monkeypatch):
    monkeypatch.setattr(frames, "REKEY_FRAMES", 3)
    bodies = [b"%d" % number for number in range(10)]
    opener = Opener(KEY)
    of_sender = sealed(*bodies)
    assert [opened(opener, frame) for frame in of_sender] == bodies
    # The fourth frame is the first of the next key: HKDF of the first one, as in RFC 5869.
    extracted = hmac.new(bytes(32), KEY, hashlib.sha256).digest()
    second = hmac.new(extracted, b"raftlog seal 1 next key\1", hashlib.sha256).digest()
    nonce = struct.pack(">IQ", 0, 3)
    assert AESGCM(second).decrypt(nonce, of_sender[3][8:], of_sender[3][:4]) == b"3"
