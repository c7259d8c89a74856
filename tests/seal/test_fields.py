"""The list of fields is read whole or refused, and has room for what later releases say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import ProtocolError
from raftlog.seal.fields import CRITICAL, FIELDS_MAX, IDENTITY, POLICY, read_fields, write_fields


def test_fields_come_back():
    said = {POLICY: b"\2", IDENTITY: b"broker 1"}
    assert read_fields(write_fields(said)) == said
    assert write_fields(said) == b"\2\0\1\0\x08broker 1\0\2\0\1\2"


def test_what_a_later_release_adds_is_passed_over():
    said = {IDENTITY: b"broker 1", 4: b"", 5: b"a name", CRITICAL - 1: b"more"}
    assert read_fields(write_fields(said)) == {IDENTITY: b"broker 1"}


def test_what_must_be_understood_is_refused():
    said = {IDENTITY: b"broker 1", CRITICAL: b"without this the link would be wrong"}
    with pytest.raises(ProtocolError, match="must be understood"):
        read_fields(write_fields(said))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1",
        b"\1\0\1\0\x08broker",
        b"\0more",
        b"\2\0\1\0\1a\0\1\0\1b",
        b"\2\0\2\0\1a\0\1\0\1b",
        bytes([FIELDS_MAX + 1]) + b"\0\1\0\0" * (FIELDS_MAX + 1),
    ],
)
def test_anything_else_is_refused(data):
    with pytest.raises(ProtocolError):
        read_fields(data)


@given(st.binary(max_size=120))
def test_any_bytes_are_read_or_refused(data):
    try:
        found = read_fields(data)
    except ProtocolError:
        return
    assert set(found) <= {IDENTITY, POLICY}
