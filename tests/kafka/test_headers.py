"""Headers byte for byte, by version; the two exceptions have tests of their own."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as KioV1
from kio.schema.request_header.v2.header import RequestHeader as KioV2
from kio.serial import entity_writer

from raftlog.base.errors import LocalMisuse, ProtocolError
from raftlog.kafka.headers import (
    RequestHeader,
    read_client_id,
    read_fixed,
    read_response_head,
    request_head,
    response_has_tags,
    response_head,
)


def test_request_header_v1():
    head = request_head(RequestHeader(3, 1, 7, "me"), False, 100)
    assert head == bytes.fromhex("0000007000030001000000070002") + b"me"


def test_request_header_v2_keeps_the_classic_client_id():
    head = request_head(RequestHeader(3, 9, 7, "me"), True, 100)
    assert head == bytes.fromhex("0000007100030009000000070002") + b"me\x00"


@pytest.mark.parametrize("flexible", [False, True])
def test_a_null_client_id(flexible):
    head = request_head(RequestHeader(3, 9, 7, None), flexible, 0)
    assert head[12:] == b"\xff\xff" + b"\x00" * flexible
    assert read_client_id(head[4:], flexible, 5) == (None, len(head) - 4, 5)


@given(
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | st.text(st.characters(codec="utf-8"), max_size=9),
    st.booleans(),
)
def test_the_same_bytes_as_kio_and_back(key, version, correlation, client_id, flexible):
    out = io.BytesIO()
    schema = KioV2 if flexible else KioV1
    theirs = schema(
        request_api_key=key,
        request_api_version=version,
        correlation_id=correlation,
        client_id=client_id,
    )
    entity_writer(schema)(out, theirs)
    ours = request_head(RequestHeader(key, version, correlation, client_id), flexible, 0)
    assert ours[4:] == out.getvalue()
    assert int.from_bytes(ours[:4], "big") == len(ours) - 4
    assert read_fixed(ours[4:]) == (key, version, correlation)
    assert read_client_id(ours[4:], flexible, 5) == (client_id, len(ours) - 4, 5)


def test_a_client_id_that_does_not_fit_is_the_callers_fault():
    from raftlog.kafka.codec import encode_request
    from raftlog.kafka.messages.api_versions import ApiVersionsRequest

    with pytest.raises(LocalMisuse):
        encode_request(18, 0, 1, "x" * 40_000, ApiVersionsRequest())


@pytest.mark.parametrize(
    ("key", "flexible", "tags"),
    [(3, False, False), (3, True, True), (18, True, False), (18, False, False)],
    ids=["classic", "flexible", "ApiVersions v3+", "ApiVersions v0"],
)
def test_a_response_has_tags_iff_flexible_but_never_for_api_versions(key, flexible, tags):
    """One byte too many in an ApiVersions answer made a client allocate 34 GB."""
    assert response_has_tags(key, flexible) is tags
    head = response_head(7, tags, 10)
    assert head == bytes.fromhex("0000000f0000000700" if tags else "0000000e00000007")
    assert read_response_head(head[4:], tags, 5) == (7, len(head) - 4, 5)


def test_unknown_tags_of_a_response_header_are_skipped():
    frame = b"\x00\x00\x00\x07" + b"\x01\x05\x02hi" + b"body"
    assert read_response_head(frame, True, 5) == (7, 9, 4)


def test_a_tag_of_a_response_header_past_the_end_is_refused():
    with pytest.raises(ProtocolError, match="tagged field claims 99"):
        read_response_head(b"\x00\x00\x00\x07" + b"\x01\x05\x63hi", True, 5)
