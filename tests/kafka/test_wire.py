"""The small functions that generated codecs call, each at its edges and against a slow twin."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.kafka import wire

UINT32 = 2**32 - 1


def slow_uvarint(value):
    """Seven bits at a time, lowest first; the high bit says that more follow."""
    digits = []
    while True:
        value, digit = divmod(value, 128)
        digits.append(digit + (128 if value else 0))
        if not value:
            return bytes(digits)


@given(st.integers(0, UINT32) | st.sampled_from([0, 127, 128, 16383, 16384, UINT32]))
def test_varints_against_a_slow_twin(value):
    data = wire.encode_uvarint(value)
    assert data == slow_uvarint(value)
    assert wire.uvarint(b"?" + data + b"?", 1) == (value, 1 + len(data))


@given(st.binary(max_size=8))
def test_any_bytes_as_a_varint(data):
    try:
        value, end = wire.uvarint(data, 0)
    except (ProtocolError, IndexError):
        return
    assert 0 <= value <= UINT32
    assert 1 <= end <= 5


def test_a_varint_beyond_32_bits_is_our_bug():
    with pytest.raises(AssertionError):
        wire.encode_uvarint(UINT32 + 1)


@pytest.mark.parametrize("letter", "bhiq")
@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 300])
def test_numbers_in_both_forms(letter, count):
    values = [(-1) ** n * n % 128 for n in range(count)]
    data = wire.encode_numbers(letter, values)
    assert data == pack(f">{count}{letter}", *values)
    assert wire.numbers(letter, count, b"\x09" + data, 1) == tuple(values)


def test_a_tag_section_is_counted_and_sized():
    section = wire.tag_section([(0, [b"ab", b"c"]), (200, [b""])])
    assert section == b"\x02" + b"\x00\x03abc" + b"\xc8\x01\x00"
    skipped = wire.skip_tags(section + b"?", 1, len(section) + 1, section[0], 2)
    assert skipped == (len(section), 0), "each field is charged to the budget"
    with pytest.raises(ProtocolError, match="the tag section has 2 elements, 1 more are allowed"):
        wire.skip_tags(section, 1, len(section), section[0], 1)


def test_a_long_tag_section_is_skipped_to_its_end():
    fields = [(tag, [bytes(200)]) for tag in range(300)]
    section = wire.tag_section(fields)
    assert wire.skip_tags(section, 1, len(section), section[0], 300) == (len(section), 0)


@pytest.mark.parametrize("size", [1, 32767])
def test_string_lengths_within_kafkas_bound(size):
    data = wire.encode_string_length(size + 1)
    if size > 126:
        assert wire.string_length(data, 1, data[0]) == (size + 1, len(data))


def test_string_lengths_beyond_it():
    with pytest.raises(LocalMisuse, match="32768 bytes"):
        wire.encode_string_length(32769)
    data = wire.encode_uvarint(32769)
    with pytest.raises(ProtocolError, match="32768 bytes"):
        wire.string_length(data, 1, data[0])


def test_parts_larger_than_a_kibibyte_are_marked():
    parts, large = [b"head"], []
    wire.put([b"s" * 1024, b"l" * 1025, memoryview(b"m" * 2000), b""], parts, large)
    assert large == [2, 3]
    assert wire.size_of(parts[1:]) == 1024 + 1025 + 2000


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: wire.bad_length("f", -1, 9), "f is null"),
        (lambda: wire.bad_length("f", 7, 6), "f claims 7 bytes, 6 are left"),
        (lambda: wire.bad_count("f", -1, 9), "f is null"),
        (lambda: wire.bad_count("f", 7, 6), "f claims 7 elements, 6 bytes are left"),
        (lambda: wire.over_budget("f", 7, 6), "f has 7 elements, 6 more are allowed"),
        (lambda: wire.bad_bool("f", 2), "f is a bool of value 2"),
        (lambda: wire.bad_marker("f", 0), "f has null marker 0"),
        (lambda: wire.bad_tag("f", 5, 6), "f ends at 5, its section at 6"),
    ],
)
def test_errors_say_both_values(call, words):
    with pytest.raises(ProtocolError, match=words):
        call()
