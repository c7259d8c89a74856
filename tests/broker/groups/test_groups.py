"""Consumer groups through whole brokers in virtual time: what members see of joins, commits,
failures of coordinators, and of topics that go."""

import copy

import attrs
import pytest

from raftlog.broker.config import OffsetsTopicSettings
from raftlog.broker.groups.offsets_topic import partition_of
from raftlog.groups.settings import GroupSettings
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_groups import DeleteGroupsRequest
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.describe_groups import DescribeGroupsRequest
from raftlog.kafka.messages.heartbeat import HeartbeatRequest
from raftlog.kafka.messages.join_group import JoinGroupRequest
from raftlog.kafka.messages.leave_group import LeaveGroupRequest
from raftlog.kafka.messages.list_groups import ListGroupsRequest
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from raftlog.kafka.messages.sync_group import SyncGroupRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster
from tests.broker.groups.group_members import (
    TOPIC,
    Member,
    committed,
    committed_later,
    coordinator_of,
    rebalance,
)

NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


def configure(config):
    groups = GroupSettings(session_timeout_ms_min=2_000, initial_rebalance_delay_ms=0)
    return attrs.evolve(config, groups=groups, offsets_topic=OffsetsTopicSettings(partitions=2))


@pytest.fixture
def three():
    cluster = Cluster(brokers=3, controllers=3, configure=configure).ready()
    cluster.create(TOPIC, 4, 3)
    return cluster


@pytest.fixture
def one():
    cluster = Cluster(brokers=1, configure=configure).ready()
    cluster.create(TOPIC, 4, 1)
    return cluster


# --- members --------------------------------------------------------------------------------------


def test_a_member_joins_gets_its_assignment_and_commits(three):
    member = Member(three)
    (answer,) = rebalance(member)
    assert (answer.leader, answer.protocol_name) == (member.member_id, "range")
    assert [each.member_id for each in answer.members] == [member.member_id]
    assert member.assignment == b"for m"
    assert member.heartbeat() == 0
    assert member.commit({0: 10, 3: 7}) == {0: 0, 3: 0}
    assert member.committed(0, 1, 3) == {0: 10, 1: -1, 3: 7}


def test_a_second_member_makes_the_first_one_join_again(three):
    first, second = Member(three, "a"), Member(three, "b")
    rebalance(first)
    joining = second.join_later()
    three.run(0.5)
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    again = first.join_later()
    three.wait(lambda: joining.done and again.done, 20, "both joined")
    first.joined(again.answer), second.joined(joining.answer)
    assert first.generation == second.generation == 2
    assert first.heartbeat() == 0


def test_a_member_that_falls_silent_is_dropped_after_its_session(three):
    first, second = Member(three, "a", session_ms=3_000), Member(three, "b", session_ms=3_000)
    rebalance(first, second)
    assert (first.assignment, second.assignment) == (b"for a", b"for b")
    waited = 0.0
    while first.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
        three.run(0.5)
        waited += 0.5
        assert waited < 10
    assert waited >= 2
    again = first.join_later()
    three.wait(lambda: again.done, 20, "alone")
    assert len(first.joined(again.answer).members) == 1


def test_a_closed_connection_does_not_remove_a_member_whose_join_waits(three):
    """Its answer is dropped; its session runs on from then."""
    first, second = Member(three, "a"), Member(three, "b")
    rebalance(first)
    second.join_later()
    three.run(0.2)
    three.clients.pop(second.at).close()
    three.run(0.2)
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    again = first.join_later()
    three.wait(lambda: again.done, 20, "joined")
    assert len(again.answer.members or ()) in (0, 2)
    described = three.ask(first.at, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(["g"]), 5)
    assert len(described.groups[0].members) == 2


# --- coordinators that go -------------------------------------------------------------------------


def test_offsets_and_members_outlive_their_coordinator(three):
    member = Member(three)
    rebalance(member)
    assert member.commit({0: 10}) == {0: 0}
    three.kill(member.at)
    member.at = coordinator_of(three)
    assert member.committed(0) == {0: 10}
    assert member.heartbeat() == 0
    assert member.commit({0: 11}) == {0: 0}
    assert member.committed(0) == {0: 11}


def test_offsets_outlive_a_restart_of_all_brokers(three):
    member = Member(three)
    rebalance(member)
    assert member.commit({0: 10, 1: 20}) == {0: 0, 1: 0}
    for number in (1, 2, 3):
        three.kill(number)
    for number in (1, 2, 3):
        three.restart(number)
    three.ready()
    assert committed(three, [0, 1, 2]) == {0: 10, 1: 20, 2: -1}


def test_a_join_that_waits_hears_of_a_lost_coordinator_once(three):
    """The broker that was cut off steps down; a client that heard nothing would wait for the
    whole rebalance."""
    first, second = Member(three, "a"), Member(three, "b")
    rebalance(first)
    joining = second.join_later()
    three.run(0.2)
    others = [number for number in (1, 2, 3) if number != first.at]
    three.world.network.deafen([(other, first.at) for other in others])
    three.wait(lambda: joining.done, 20, "an answer")
    assert joining.answer.error_code == NOT_COORDINATOR


@pytest.mark.parametrize("version", range(1, 11))
def test_another_broker_refuses_each_partition_of_an_offset_fetch(three, version):
    """librdkafka never fetches a partition that such an answer leaves out."""
    other = 1 + coordinator_of(three) % 3
    topic_id = three.metadata(TOPIC).topics[0].topic_id
    if version < 8:
        body = OffsetFetchRequest("g", [OffsetFetchRequestTopic(TOPIC, [0, 3])])
        answer = three.ask(other, ApiKey.OFFSET_FETCH, body, version)
        (topic,), code = answer.topics, answer.error_code
    else:
        asked = OffsetFetchRequestTopics(TOPIC, topic_id, [0, 3])
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[asked])])
        (answer,) = three.ask(other, ApiKey.OFFSET_FETCH, body, version).groups
        (topic,), code = answer.topics, answer.error_code
    assert code == (NOT_COORDINATOR if version >= 2 else 0)
    found = [(e.partition_index, e.committed_offset, e.error_code) for e in topic.partitions]
    assert found == [(0, -1, NOT_COORDINATOR), (3, -1, NOT_COORDINATOR)]


REFUSED = [
    (ApiKey.JOIN_GROUP, JoinGroupRequest("g", 10_000, 10_000, "", None, "consumer")),
    (ApiKey.SYNC_GROUP, SyncGroupRequest("g", 1, "m")),
    (ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m")),
    (ApiKey.LEAVE_GROUP, LeaveGroupRequest("g", "m")),
    (ApiKey.OFFSET_DELETE, OffsetDeleteRequest("g")),
]


@pytest.mark.parametrize(("key", "body"), REFUSED)
def test_another_broker_refuses(three, key, body):
    other = 1 + coordinator_of(three) % 3
    assert three.ask(other, key, body).error_code == NOT_COORDINATOR


@pytest.mark.parametrize(("key", "body"), REFUSED)
def test_before_the_topic_is_there_every_broker_refuses(one, key, body):
    assert one.ask(1, key, body).error_code == NOT_COORDINATOR


@pytest.mark.parametrize(("key", "body"), REFUSED)
def test_a_group_without_a_name_is_refused(one, key, body):
    coordinator_of(one)
    assert one.ask(1, key, body._replace(group_id="")).error_code == ErrorCode.INVALID_GROUP_ID


def test_requests_wait_for_a_new_coordinator_and_then_hear_that_it_loads(three):
    """A leader that has not committed in its term knows less than its predecessor promised."""
    member = Member(three)
    assert member.commit({0: 10}) == {0: 0}
    number = partition_of("g", 2)
    three.world.sync_ns = 200_000_000
    three.kill(member.at)
    led = []

    def leads_and_loads():
        for node in three.world.running():
            replica = node.broker.context.router.replica("__consumer_offsets", number)
            if not isinstance(replica, int) and replica.is_leader:
                led.append((node.number, replica.serves_machine))
        return bool(led)

    three.wait(leads_and_loads, 20, "a leader")
    ((node, serves),) = led
    assert not serves
    three.world.sync_ns = 3_000_000_000
    pending = three.client(node).request(ApiKey.HEARTBEAT, HeartbeatRequest("g", 1, "m"), 4)
    fetch = committed_later(three, node)
    three.wait(lambda: pending.done, 20, "an answer")
    assert pending.answer.error_code in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    )
    three.world.sync_ns = 1_000_000
    three.wait(lambda: fetch.done, 20, "the offsets")
    assert committed(three, [0]) == {0: 10}


def test_a_partition_whose_log_is_full_refuses_for_the_moment():
    def tight(config):
        limits = attrs.evolve(config.limits, uncommitted_bytes=1)
        return attrs.evolve(configure(config), limits=limits)

    cluster = Cluster(brokers=1, configure=tight).ready()
    cluster.create(TOPIC, 4, 1)
    member = Member(cluster)
    cluster.run(1)
    cluster.world.sync_ns = 50_000_000
    bodies = [
        OffsetCommitRequest(
            "g",
            topics=[OffsetCommitRequestTopic(TOPIC, b"", [OffsetCommitRequestPartition(0, n)])],
        )
        for n in (1, 2)
    ]
    first = cluster.client(member.at).request(ApiKey.OFFSET_COMMIT, bodies[0], 9)
    cluster.run(0.02)
    second = cluster.client(member.at).request(ApiKey.OFFSET_COMMIT, bodies[1], 9)
    cluster.wait(lambda: first.done and second.done, 20, "answers")
    codes = [each.answer.topics[0].partitions[0].error_code for each in (first, second)]
    assert codes == [0, ErrorCode.COORDINATOR_NOT_AVAILABLE]


# --- offsets --------------------------------------------------------------------------------------


def test_partitions_that_do_not_exist_are_refused_beside_the_others(one):
    member = Member(one)
    assert member.commit({0: 5, 9: 5, 1: 6}) == {0: 0, 9: 3, 1: 0}
    assert member.commit({0: 5}, topic="nope") == {0: 3}
    assert member.committed(0, 1) == {0: 5, 1: 6}


def test_topics_are_named_by_their_ids_from_version_10_on(one):
    member = Member(one)
    topic_id = one.metadata(TOPIC).topics[0].topic_id
    assert member.commit({0: 5}, 10, topic="", topic_id=topic_id) == {0: 0}
    assert member.commit({0: 5}, 10, topic="", topic_id=b"x" * 16) == {
        0: ErrorCode.UNKNOWN_TOPIC_ID
    }
    asked = [
        OffsetFetchRequestTopics("", topic_id, [0]),
        OffsetFetchRequestTopics("", b"x" * 16, [0]),
    ]
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=asked)])
    known, unknown = one.ask(1, ApiKey.OFFSET_FETCH, body, 10).groups[0].topics
    assert (known.topic_id, known.partitions[0].committed_offset) == (topic_id, 5)
    assert unknown.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_offsets_go_with_their_topic_and_a_new_one_of_the_name_has_none(three):
    member = Member(three)
    assert member.commit({0: 5}) == {0: 0}
    delete = DeleteTopicsRequest([DeleteTopicState(TOPIC)], (), 5000)
    assert three.ask(1, ApiKey.DELETE_TOPICS, delete, 6).responses[0].error_code == 0
    three.create(TOPIC, 4, 3)
    assert member.committed(0) == {0: -1}
    three.kill(member.at)
    assert committed(three, [0]) == {0: -1}


def test_all_offsets_of_a_group_are_told_to_whoever_asks_for_none_by_name(one):
    member = Member(one)
    member.commit({0: 5, 2: 7})
    old = one.ask(1, ApiKey.OFFSET_FETCH, OffsetFetchRequest("g", None), 7)
    assert [(t.name, [p[:2] for p in t.partitions]) for t in old.topics] == [
        (TOPIC, [(0, 5), (2, 7)])
    ]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)])
    topic_id = one.metadata(TOPIC).topics[0].topic_id
    (group,) = one.ask(1, ApiKey.OFFSET_FETCH, everything, 10).groups
    assert [(t.topic_id, len(t.partitions)) for t in group.topics] == [(topic_id, 2)]


def test_several_groups_are_answered_in_the_order_in_which_they_were_asked_for(one):
    for name in ("a", "b", "c"):
        Member(one, group=name).commit({0: ord(name)})
    asked = [
        OffsetFetchRequestGroup(name, topics=[OffsetFetchRequestTopics(TOPIC, bytes(16), [0])])
        for name in ("c", "nobody", "a", "b")
    ]
    groups = one.ask(1, ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=asked), 9).groups
    assert [(g.group_id, g.topics[0].partitions[0].committed_offset) for g in groups] == [
        ("c", 99),
        ("nobody", -1),
        ("a", 97),
        ("b", 98),
    ]


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_a_commit_is_answered(one, version):
    coordinator_of(one)
    topic_id = one.metadata(TOPIC).topics[0].topic_id
    topic = OffsetCommitRequestTopic(TOPIC, topic_id, [OffsetCommitRequestPartition(0, 5)])
    answer = one.ask(1, ApiKey.OFFSET_COMMIT, OffsetCommitRequest("g", topics=[topic]), version)
    assert [each.error_code for each in answer.topics[0].partitions] == [0]


# --- tools ----------------------------------------------------------------------------------------


def test_tools_list_describe_and_delete_groups(three):
    member = Member(three)
    rebalance(member)
    listed = []
    for node in (1, 2, 3):
        answer = three.ask(node, ApiKey.LIST_GROUPS, ListGroupsRequest(), 5)
        assert answer.error_code == 0
        listed += [
            (g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups
        ]
    assert listed == [("g", "consumer", "Stable", "classic")]
    body = DescribeGroupsRequest(["g", "nobody"], True)
    known, unknown = three.ask(member.at, ApiKey.DESCRIBE_GROUPS, body, 5).groups
    assert (known.group_state, known.protocol_type, known.protocol_data) == (
        "Stable",
        "consumer",
        "range",
    )
    assert [(m.member_id, m.client_host) for m in known.members] == [(member.member_id, "/client")]
    assert known.authorized_operations > 0
    if unknown.error_code == 0:
        assert unknown.group_state == "Dead"
    delete = DeleteGroupsRequest(["g"])
    (refused,) = three.ask(member.at, ApiKey.DELETE_GROUPS, delete, 2).results
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    assert member.leave().error_code == 0
    (deleted,) = three.ask(member.at, ApiKey.DELETE_GROUPS, delete, 2).results
    assert (deleted.group_id, deleted.error_code) == ("g", 0)
    (gone,) = three.ask(member.at, ApiKey.DELETE_GROUPS, delete, 2).results
    assert gone.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_deleted_one_by_one(one):
    member = Member(one)
    member.commit({0: 5, 1: 6})
    topic = OffsetDeleteRequestTopic(
        TOPIC, [OffsetDeleteRequestPartition(0), OffsetDeleteRequestPartition(9)]
    )
    answer = one.ask(1, ApiKey.OFFSET_DELETE, OffsetDeleteRequest("g", [topic]))
    assert answer.error_code == 0
    assert {p.partition_index: p.error_code for p in answer.topics[0].partitions} == {0: 0, 9: 3}
    assert member.committed(0, 1) == {0: -1, 1: 6}


def test_a_world_with_a_group_can_be_copied(three):
    """Nothing that waits is held by a closure: the copy goes on alone."""
    member = Member(three)
    rebalance(member)
    pending = Member(three, "late").join_later()
    three.run(0.1)
    assert not pending.done
    other = copy.deepcopy(three)
    assert member.commit({0: 5}) == {0: 0}
    there = Member(other, "again")
    assert there.committed(0) == {0: -1}
