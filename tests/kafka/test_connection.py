"""The two ends of a connection talk to each other, agree, and fail for good."""

import pytest

from raftlog.base.errors import LocalMisuse, ProtocolError, RemoteError
from raftlog.base.limits import CLIENT_REQUESTS_IN_FLIGHT_MAX
from raftlog.kafka.codec import encode_request, encode_response
from raftlog.kafka.connection import CORRELATION_ID_MAX, ClientConnection, ServerConnection, State
from raftlog.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataResponse
from raftlog.kafka.messages.produce import ProduceRequest
from raftlog.kafka.messages.sasl_handshake import SaslHandshakeRequest
from raftlog.kafka.versions import ApiKey, api_versions_response


def frame(parts):
    return b"".join(parts)[4:]


def greeted(response=None):
    """A client that has agreed with a server of our own table, or with the given answer."""
    client = ClientConnection(client_id="c")
    request = ServerConnection().receive(frame(client.hello().parts))
    body = response or api_versions_response()
    parts = encode_response(18, request.api_version, request.correlation_id, body)
    client.receive(frame(parts))
    return client


# --- the client's end -----------------------------------------------------------------------------


def test_the_conversation_opens_with_api_versions():
    client = ClientConnection(client_id="c", software_name="raftlog", software_version="9")
    request = ServerConnection().receive(frame(client.hello().parts))
    assert request.api_key == ApiKey.API_VERSIONS
    assert request.client_id == "c"
    assert request.body == ApiVersionsRequest("raftlog", "9")


def test_the_highest_common_version_is_agreed():
    offer = ApiVersionsResponse(api_keys=[ApiVersion(3, 0, 5), ApiVersion(1, 4, 99)])
    client = greeted(offer)
    assert client.agreed == {3: 5, 1: 18}


def test_an_api_without_a_common_version_or_unknown_to_us_is_not_agreed():
    offer = ApiVersionsResponse(
        api_keys=[ApiVersion(1, 90, 99), ApiVersion(0, 0, 2), ApiVersion(888, 0, 1)]
    )
    client = greeted(offer)
    assert client.agreed == {}
    with pytest.raises(RemoteError, match="does not serve Fetch"):
        client.version_of(ApiKey.FETCH)


def test_an_error_35_answer_in_version_0_still_agrees():
    client = ClientConnection(client_id="c")
    sent = client.hello()
    parts = encode_response(18, 99, sent.correlation_id, api_versions_response(error_code=35))
    assert client.receive(frame(parts)).body.error_code == 35
    assert client.version_of(ApiKey.METADATA) == 13


def test_nothing_is_sent_in_a_version_that_was_not_agreed():
    with pytest.raises(RemoteError):
        ClientConnection(client_id="c").send(ApiKey.METADATA, MetadataRequest())


def test_answers_are_matched_to_requests_in_order():
    client = greeted()
    first = client.send(ApiKey.METADATA, MetadataRequest())
    second = client.send(ApiKey.METADATA, MetadataRequest(), version=1)
    assert client.in_flight() == 2
    for sent, version in ((first, 13), (second, 1)):
        parts = encode_response(3, version, sent.correlation_id, MetadataResponse())
        answer = client.receive(frame(parts))
        assert answer[:3] == (sent.correlation_id, 3, version)
    assert client.in_flight() == 0


def test_an_answer_out_of_order_fails_the_connection_for_good():
    client = greeted()
    sent = client.send(ApiKey.METADATA, MetadataRequest())
    parts = encode_response(3, 13, sent.correlation_id + 1, MetadataResponse())
    with pytest.raises(ProtocolError, match="was due"):
        client.receive(frame(parts))
    with pytest.raises(LocalMisuse, match="failed"):
        client.send(ApiKey.METADATA, MetadataRequest())
    with pytest.raises(LocalMisuse, match="failed"):
        client.receive(frame(parts))


def test_an_answer_to_no_request_fails_the_connection():
    client = greeted()
    with pytest.raises(ProtocolError, match="an answer to no request"):
        client.receive(frame(encode_response(3, 13, 1, MetadataResponse())))


def test_a_produce_without_acks_has_no_answer():
    client = greeted()
    sent = client.send(ApiKey.PRODUCE, ProduceRequest(acks=0))
    client.forget(sent.correlation_id)
    assert client.in_flight() == 0
    later = client.send(ApiKey.METADATA, MetadataRequest())
    parts = encode_response(3, 13, later.correlation_id, MetadataResponse())
    assert client.receive(frame(parts)).correlation_id == later.correlation_id


def test_only_the_request_just_sent_can_be_forgotten():
    client = greeted()
    sent = client.send(ApiKey.PRODUCE, ProduceRequest(acks=0))
    client.send(ApiKey.METADATA, MetadataRequest())
    with pytest.raises(AssertionError):
        client.forget(sent.correlation_id)


def test_requests_in_flight_are_bounded():
    client = greeted()
    for _ in range(CLIENT_REQUESTS_IN_FLIGHT_MAX):
        client.send(ApiKey.METADATA, MetadataRequest())
    with pytest.raises(LocalMisuse, match="without an answer"):
        client.send(ApiKey.METADATA, MetadataRequest())


def test_a_request_that_does_not_encode_leaves_no_trace():
    client = greeted()
    with pytest.raises(LocalMisuse):
        client.send(ApiKey.METADATA, MetadataResponse())
    assert client.in_flight() == 0
    assert client.send(ApiKey.METADATA, MetadataRequest()).correlation_id == 1


def test_correlation_ids_begin_again_at_their_end():
    client = greeted()
    client._next = CORRELATION_ID_MAX
    assert client.send(ApiKey.METADATA, MetadataRequest()).correlation_id == CORRELATION_ID_MAX
    assert client.send(ApiKey.METADATA, MetadataRequest()).correlation_id == 0


# --- the broker's end -----------------------------------------------------------------------------


def test_a_protocol_error_is_for_ever():
    server = ServerConnection()
    with pytest.raises(ProtocolError):
        server.receive(b"\x00\x03\x00\x0c\x00\x00\x00\x01")
    assert server.state is State.ERROR
    with pytest.raises(LocalMisuse, match="failed"):
        server.receive(frame(encode_request(3, 12, 1, "c", MetadataRequest())))


def test_before_authentication_only_the_handshake_is_heard():
    server = ServerConnection(state=State.UNAUTHENTICATED)
    server.receive(frame(encode_request(18, 3, 1, "c", ApiVersionsRequest("x", "1"))))
    server.receive(frame(encode_request(17, 1, 2, "c", SaslHandshakeRequest("PLAIN"))))
    with pytest.raises(ProtocolError, match="Metadata before authentication"):
        server.receive(frame(encode_request(3, 12, 3, "c", MetadataRequest())))
    assert server.state is State.ERROR


def test_authentication_opens_the_connection_once():
    server = ServerConnection(state=State.UNAUTHENTICATED)
    server.authenticated()
    server.receive(frame(encode_request(3, 12, 3, "c", MetadataRequest())))
    with pytest.raises(LocalMisuse, match="wrong moment"):
        server.authenticated()


def test_the_clients_software_is_a_short_label():
    server = ServerConnection()
    body = ApiVersionsRequest("n" * 500, "v")
    server.receive(frame(encode_request(18, 3, 1, "c", body)))
    assert server.client_software == "n" * 64


def test_bytes_behind_bodies_are_counted():
    server = ServerConnection()
    good = frame(encode_request(3, 12, 1, "c", MetadataRequest()))
    server.receive(good + b"junk")
    server.receive(good + b"!")
    assert server.trailing_bytes == 5
