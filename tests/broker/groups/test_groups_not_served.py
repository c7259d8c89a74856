"""Newer group protocols and transactions are not served: what is refused, not advertised."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.find_coordinator import FindCoordinatorRequest
from raftlog.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from raftlog.kafka.versions import SERVED, ApiKey
from tests.broker.cluster import Cluster

RESERVED = [
    "__cluster_metadata",
    "__consumer_offsets",
    "__share_group_state",
    "__transaction_state",
]


@pytest.fixture
def one():
    return Cluster(brokers=1).ready()


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize(
    ("kind", "code", "why"),
    [
        (1, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served yet"),
        (
            2,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "share groups are not served; use a consumer group with group.protocol=classic",
        ),
        (3, ErrorCode.INVALID_REQUEST, "key type 3 is not known"),
    ],
)
def test_find_coordinator_refuses_with_what_clients_hand_on(one, version, kind, code, why):
    """After a retriable error a client asks again for as long as its application waits."""
    body = FindCoordinatorRequest("g", kind, ["g", "h"])
    answer = one.ask(1, ApiKey.FIND_COORDINATOR, body, version)
    if version >= 4:
        assert [(c.key, c.error_code, c.error_message, c.node_id) for c in answer.coordinators] == [
            ("g", code, why, -1),
            ("h", code, why, -1),
        ]
    else:
        assert (answer.error_code, answer.error_message, answer.node_id) == (code, why, -1)
    traced = [event for event in one.tracer.events if event.name == "coordinator_refused"]
    assert [event.fields for event in traced] == [(("why", why),)]


@pytest.mark.parametrize("version", range(2))
def test_the_newer_group_protocol_is_refused_with_what_to_set(one, version):
    """Advertised only to be refused: librdkafka says nothing of an API that the list lacks."""
    body = ConsumerGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"])
    answer = one.ask(1, ApiKey.CONSUMER_GROUP_HEARTBEAT, body, version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "set group.protocol=classic" in answer.error_message


def test_share_groups_are_refused_with_what_to_use(one):
    """As above: a share consumer of librdkafka waited without a word."""
    body = ShareGroupHeartbeatRequest("g", "m", 0, subscribed_topic_names=["t"])
    answer = one.ask(1, ApiKey.SHARE_GROUP_HEARTBEAT, body, 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == (
        "share groups are not served; use a consumer group with group.protocol=classic"
    )
    (event,) = [each for each in one.tracer.events if each.name == "group_refused"]
    assert event.fields == (("why", answer.error_message),)


def test_nothing_of_the_newer_group_protocols_is_advertised():
    """But for the heartbeats that are refused: a client would use what it finds."""
    newer = range(69, 70), range(77, 80), range(83, 95)
    assert not [key for keys in newer for key in keys if key in SERVED]


RESERVED = [
    "__cluster_metadata",
    "__consumer_offsets",
    "__share_group_state",
    "__transaction_state",
]


@pytest.mark.parametrize("name", RESERVED)
def test_no_client_creates_a_topic_that_brokers_write(one, name):
    """An ordinary topic of that name would stand in the way of the real one."""
    assert one.metadata(name, create=True).topics[0].error_code == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    request = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5000)
    refused = one.ask(1, ApiKey.CREATE_TOPICS, request, 7).topics[0]
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert one.metadata().topics == ()
