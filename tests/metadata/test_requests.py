"""Requests to the controller and its answers, as bytes from a peer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import FutureFormat, ProtocolError
from raftlog.base.limits import CONTROLLER_TEXT_BYTES_MAX
from raftlog.metadata.refusals import Refusal, kafka_code
from raftlog.metadata.requests import (
    ControllerAnswer,
    Grant,
    decode_answer,
    decode_body,
    encode_answer,
    encode_body,
)
from tests.metadata.strategies import ids, replica_sets, replicas, requests, texts, u64

grants = st.builds(
    Grant, cluster_id=ids, epoch=u64, metadata_replica=replicas, founders=replica_sets
)
answers = st.builds(
    ControllerAnswer,
    refusal=st.none() | st.sampled_from(list(Refusal)),
    message=texts,
    version=u64,
    value=u64,
    grant=st.none() | grants,
)


@given(requests)
def test_what_was_asked_is_read(request):
    assert decode_body(encode_body(request)) == request


@given(answers)
def test_what_was_answered_is_read(answer):
    assert decode_answer(encode_answer(answer)) == answer


@given(requests, st.data())
def test_a_cut_request_is_refused(request, data):
    whole = encode_body(request)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolError):
        decode_body(whole[:size])


@given(answers, st.data())
def test_a_cut_answer_is_refused(answer, data):
    whole = encode_answer(answer)
    size = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolError):
        decode_answer(whole[:size])


@given(st.integers(0, 255), st.binary(max_size=200))
def test_noise_gives_a_value_or_a_named_error(tag, noise):
    for decode in (decode_body, decode_answer):
        try:
            decode(bytes([tag]) + noise)
        except (ProtocolError, FutureFormat):
            continue


@given(requests)
def test_a_byte_too_many_is_refused(request):
    with pytest.raises((ProtocolError, FutureFormat)):
        decode_body(encode_body(request) + b"\0")


def test_unknown_tags_and_refusals_are_refused():
    for body in (b"", b"\0", b"\x63"):
        with pytest.raises(ProtocolError):
            decode_body(body)
    with pytest.raises(ProtocolError, match="unknown refusal 999"):
        decode_answer((999).to_bytes(2, "big") + bytes(21))


def test_a_long_message_is_cut_at_a_character():
    answer = ControllerAnswer(
        refusal=Refusal.MALFORMED, message="é" * CONTROLLER_TEXT_BYTES_MAX, version=0
    )
    read = decode_answer(encode_answer(answer))
    assert read.message == "é" * (CONTROLLER_TEXT_BYTES_MAX // 2)


def test_every_refusal_has_a_kafka_code():
    codes = {refusal: kafka_code(refusal) for refusal in Refusal}
    assert codes[Refusal.TOPIC_EXISTS] == 36
    assert codes[Refusal.NOT_CONTROLLER] == 41
    assert 0 not in codes.values()
