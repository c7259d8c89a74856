"""Groups and transactions are not served: what is refused, empty, not advertised."""

import pytest

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.find_coordinator import FindCoordinatorRequest
from raftlog.kafka.messages.join_group import JoinGroupRequest
from raftlog.kafka.messages.list_groups import ListGroupsRequest
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
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
        (2, ErrorCode.GROUP_AUTHORIZATION_FAILED, "share groups are not served yet"),
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


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_a_group_is_the_broker_that_is_asked(version):
    """A refusal would reach consumers that only assign partitions: librdkafka's have a group."""
    three = Cluster(brokers=3, controllers=3).ready()
    body = FindCoordinatorRequest("g", 0, ["g", "h"]) if version else FindCoordinatorRequest("g")
    answer = three.ask(2, ApiKey.FIND_COORDINATOR, body, version)
    own = next(each for each in three.metadata(at=2).brokers if each.node_id == 2)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(c.error_code, c.node_id, c.host, c.port) for c in found] == (
        [(0, 2, own.host, own.port)] * (2 if version >= 4 else 1)
    )


@pytest.mark.parametrize("version", range(10))
def test_nobody_joins_a_group(one, version):
    body = JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer")
    answer = one.ask(1, ApiKey.JOIN_GROUP, body, version)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, -1)
    traced = [event for event in one.tracer.events if event.name == "group_refused"]
    assert [event.fields for event in traced] == [(("why", "consumer groups are not served yet"),)]


@pytest.mark.parametrize("version", range(2, 11))
def test_no_offset_is_committed(one, version):
    partitions = [OffsetCommitRequestPartition(0, 5), OffsetCommitRequestPartition(3, 7)]
    topic = OffsetCommitRequestTopic("t", bytes(15) + b"t", partitions)
    answer = one.ask(1, ApiKey.OFFSET_COMMIT, OffsetCommitRequest("g", topics=[topic]), version)
    refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    (told,) = answer.topics
    assert (told.name, told.topic_id) == (
        ("t", bytes(16)) if version < 10 else ("", topic.topic_id)
    )
    assert [tuple(each) for each in told.partitions] == [(0, refused), (3, refused)]


@pytest.mark.parametrize("version", range(1, 11))
def test_no_group_has_committed_an_offset(one, version):
    """So a consumer without an offset begins where its `auto.offset.reset` says."""
    if version < 8:
        body = OffsetFetchRequest("g", [OffsetFetchRequestTopic("t", [0, 3])])
        answer = one.ask(1, ApiKey.OFFSET_FETCH, body, version)
        (topic,), code = answer.topics, answer.error_code
    else:
        asked = OffsetFetchRequestTopics("t", bytes(15) + b"t", [0, 3])
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[asked])])
        (group,) = one.ask(1, ApiKey.OFFSET_FETCH, body, version).groups
        assert group.group_id == "g"
        (topic,), code = group.topics, group.error_code
    assert code == 0
    found = [(each.partition_index, each.committed_offset, each.error_code) for each in topic[-1]]
    assert found == [(0, -1, 0), (3, -1, 0)]


def test_a_group_that_asks_for_all_its_offsets_has_none(one):
    old = one.ask(1, ApiKey.OFFSET_FETCH, OffsetFetchRequest("g", None), 7)
    assert (old.error_code, list(old.topics)) == (0, [])
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    (new,) = one.ask(1, ApiKey.OFFSET_FETCH, body, 9).groups
    assert (new.error_code, list(new.topics)) == (0, [])


@pytest.mark.parametrize("version", range(6))
def test_there_are_no_groups_to_list(one, version):
    answer = one.ask(1, ApiKey.LIST_GROUPS, ListGroupsRequest(), version)
    assert (answer.error_code, list(answer.groups)) == (0, [])


def test_nothing_of_the_newer_group_protocols_is_advertised():
    """A client that finds ConsumerGroupHeartbeat or a share API in the list would use it."""
    newer = range(68, 70), range(76, 80), range(83, 95)
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
    wish = CreateTopicsRequest([CreatableTopic(name, 1, 1)], 5000)
    refused = one.ask(1, ApiKey.CREATE_TOPICS, wish, 7).topics[0]
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert one.metadata().topics == ()
