"""Hostile members of consumer groups against a whole broker: whatever they send, in any order, of
any version, each request ends, the broker lives on, and another group is served meanwhile."""

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from raftlog_sim.world.client import ConnectionLostError, HeapClient

from raftlog.base import limits
from raftlog.broker.config import OffsetsTopicSettings
from raftlog.groups.settings import GroupSettings
from raftlog.kafka.codec import encode_request
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_groups import DescribeGroupsRequest
from raftlog.kafka.messages.find_coordinator import FindCoordinatorRequest
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from raftlog.kafka.tables import all_tables
from raftlog.kafka.versions import SERVED, ApiKey
from tests.broker.cluster import Cluster
from tests.broker.groups.group_members import TOPIC, Member, committed, rebalance
from tests.kafka.bodies import bodies

NONE = ErrorCode.NONE
SIZE_MAX = 3
APIS = [
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.SHARE_GROUP_HEARTBEAT,
]
TABLES = {table[0]: table for table in all_tables() if table[1].endswith("Request")}
LONGEST_WAIT = 310.0
"""A first join may wait for five minutes; everything else ends before."""


def configure(config):
    groups = GroupSettings(
        session_timeout_ms_min=2_000, initial_rebalance_delay_ms=0, group_size_max=SIZE_MAX
    )
    return attrs.evolve(config, groups=groups, offsets_topic=OffsetsTopicSettings(partitions=2))


def large(config):
    groups = GroupSettings(session_timeout_ms_min=2_000, initial_rebalance_delay_ms=0)
    return attrs.evolve(config, groups=groups, offsets_topic=OffsetsTopicSettings(partitions=1))


def founded(configure, partitions=4):
    cluster = Cluster(brokers=1, configure=configure).ready()
    cluster.create(TOPIC, partitions, 1)
    return cluster


def good_group_works(cluster, name):
    """Another group forms, commits, and reads what it committed."""
    member = Member(cluster, "good", name)
    rebalance(member)
    assert member.heartbeat() == NONE
    assert member.commit({0: 5}) == {0: NONE}
    assert committed(cluster, (0,), name) == {0: 5}
    member.leave()


# --- any order of any requests --------------------------------------------------------------------

NAMES = st.sampled_from(["g", "g", "h", "", "\u20ac\U0001f600\0", "n" * 32_767])
MILLIS = st.sampled_from([2_000, 2_000, 10_000, 0, -1, -(2**31), 2**31 - 1])


class Hostile(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.cluster = founded(configure)
        self.members = ["", "m", "m" * 32_767]
        self.generations = [1, 2, -1, 0, -(2**31), 2**31 - 1]
        self.clients = [HeapClient(self.cluster.world.nodes[1]).connect() for _ in range(2)]
        self.sent = []

    def named(self):
        """Values for fields, by their names: what makes sense more often than by chance."""
        instances = st.sampled_from(["i", "j", ""])
        members = st.sampled_from(self.members)
        generations = st.sampled_from(self.generations)
        return {
            "group_id": NAMES,
            "groups_names": NAMES,
            "groups": NAMES,
            "key": NAMES,
            "coordinator_keys": NAMES,
            "key_type": st.sampled_from([0, 0, 0, 1, 2, 9]),
            "member_id": members,
            "group_instance_id": instances,
            "generation_id": generations,
            "generation_id_or_member_epoch": generations,
            "session_timeout_ms": MILLIS,
            "rebalance_timeout_ms": MILLIS,
            "protocol_type": st.sampled_from(["consumer", "consumer", "connect", ""]),
            "protocol_name": st.sampled_from(["range", "other", ""]),
            "name": st.sampled_from(["range", TOPIC, "gone", "", "x" * 32_767]),
            "partition_index": st.sampled_from([0, 1, -1, 2**31 - 1]),
            "partition_indexes": st.sampled_from([0, 1, -1, 2**31 - 1]),
            "committed_offset": st.sampled_from([0, 7, -1, -(2**63), 2**63 - 1]),
            "committed_metadata": st.sampled_from(["", "x" * 4_096, "x" * 4_097]),
        }

    @rule(data=st.data(), api=st.sampled_from(APIS), many=st.sampled_from([1, 1, 3]))
    def send(self, data, api, many):
        served = SERVED[api]
        version = data.draw(st.integers(served.accepted_min, served.max))
        body = data.draw(bodies(TABLES[api], version, self.named()))
        self.hand_in(data, api, version, body, many)

    @rule(
        data=st.data(),
        group=st.sampled_from(["g", "h"]),
        version=st.integers(0, 9),
        instance=st.sampled_from([None, None, "i", "j"]),
        times=st.tuples(MILLIS, MILLIS),
    )
    def join(self, data, group, version, instance, times):
        """Join with values that nearly make a member, more often than by chance."""
        body = JoinGroupRequest(
            group,
            max(times[0], 2_000) % 1_800_001,
            times[1] if version >= 1 else -1,
            data.draw(st.sampled_from(self.members)),
            instance if version >= 5 else None,
            "consumer",
            [JoinGroupRequestProtocol("range", b"")],
        )
        self.hand_in(data, ApiKey.JOIN_GROUP, version, body, 1)

    def hand_in(self, data, api, version, body, many):
        client = data.draw(st.sampled_from(self.clients))
        if client.connection is None:
            client.connect()
        self.sent += [client.request(api, body, version) for _ in range(many)]

    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0, 3.0, 12.0]))
    def time_passes(self, seconds):
        self.cluster.run(seconds)
        self.look()

    @rule(data=st.data())
    def hang_up(self, data):
        data.draw(st.sampled_from(self.clients)).close()

    @rule()
    def restart(self):
        """kill -9: the groups are what is on the disk."""
        self.cluster.kill(1)
        self.cluster.restart(1)
        self.cluster.ready()
        self.cluster.wait(self.coordinates, 20, "coordinators")

    def coordinates(self):
        groups = self.cluster.world.nodes[1].broker.context.groups
        topic = groups.topic.image
        return topic is None or len(groups._led) == len(topic.partitions)

    @rule()
    def serve_another(self):
        good_group_works(self.cluster, "good")

    def look(self):
        """Take in the ids and generations that were given out."""
        for each in self.sent:
            answer = each.answer
            member = getattr(answer, "member_id", "")
            if each.done and member and member not in self.members:
                self.members.append(member)
            generation = getattr(answer, "generation_id", -1)
            if each.done and generation not in self.generations:
                self.generations.append(generation)
        self.sent = [each for each in self.sent if not each.done]

    @invariant()
    def the_broker_lives(self):
        assert self.cluster.world.nodes[1].up

    def teardown(self):
        if not hasattr(self, "cluster"):
            return
        self.cluster.wait(
            lambda: all(each.done for each in self.sent), LONGEST_WAIT, "every request ends"
        )
        good_group_works(self.cluster, "last")
        hangups = [event for event in self.cluster.tracer.events if event.name == "hangup"]
        assert all(dict(event.fields)["why"] for event in hangups)


class TestHostile(Hostile.TestCase):
    settings = settings(max_examples=25, stateful_step_count=30)


# --- much of one thing ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one():
    return founded(large, partitions=1_000)


def coordinator(cluster):
    (led,) = cluster.world.nodes[1].broker.context.groups._led.values()
    return led.coordinator


def commit_body(group, offsets, metadata="", generation=-1, member=""):
    each = [OffsetCommitRequestPartition(n, at, -1, metadata) for n, at in offsets]
    topics = [OffsetCommitRequestTopic(TOPIC, bytes(16), each)]
    return OffsetCommitRequest(group, generation, member, topics=topics)


def codes_of(answer):
    return [each.error_code for topic in answer.topics for each in topic.partitions]


def test_ten_thousand_members_that_join_and_never_sync(one):
    client = HeapClient(one.world.nodes[1]).connect()
    body = JoinGroupRequest("crowd", 3_000, 3_000, "", None, "consumer", [("range", b"")])
    body = body._replace(protocols=[JoinGroupRequestProtocol("range", b"")])
    good_group_works(one, "before")
    joins = []
    for _ in range(100):
        joins += [client.request(ApiKey.JOIN_GROUP, body, 3) for _ in range(100)]
        one.run(0.001)
    good_group_works(one, "beside")
    one.wait(lambda: all(each.done for each in joins), 60, "every join")
    codes = [ErrorCode(each.answer.error_code) for each in joins]
    allowed = {NONE, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNKNOWN_MEMBER_ID}
    allowed.add(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert set(codes) <= allowed
    assert codes.count(NONE) <= 2 * limits.GROUP_MEMBERS_MAX
    assert codes.count(NONE) > 0
    one.run(20)
    assert coordinator(one).describe("crowd", 5).members == []
    assert coordinator(one)._shared.live_bytes.total == 0


def test_long_names_of_many_groups_count_and_are_given_back(one, monkeypatch):
    monkeypatch.setattr("raftlog.groups.joining.GROUPS_LIVE_BYTES_MAX", 4 << 20)
    good_group_works(one, "before")
    protocols = [JoinGroupRequestProtocol("range", b"")]
    client = HeapClient(one.world.nodes[1], client_id="c" * 30_000).connect()
    joins = []
    for number in range(200):
        name = f"{number:04}" + "n" * 32_000
        body = JoinGroupRequest(name, 3_000, 3_000, "", None, "k" * 32_000, protocols)
        joins.append(client.request(ApiKey.JOIN_GROUP, body, number % 2 * 3 + 1))
        one.run(0.01)
    one.wait(lambda: all(each.done for each in joins), 60, "every join")
    codes = [ErrorCode(each.answer.error_code) for each in joins]
    taken = len(codes) - codes.count(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert 30 < taken < 120, codes
    assert coordinator(one)._shared.live_bytes.total <= 4 << 20
    good_group_works(one, "beside")
    one.run(20)
    assert coordinator(one)._shared.live_bytes.total == 0


def test_a_member_offers_so_many_assignors_and_not_one_more(one):
    def join(count):
        protocols = [JoinGroupRequestProtocol(f"p{each}", b"") for each in range(count)]
        body = JoinGroupRequest("assignors", 3_000, 3_000, "", None, "consumer", protocols)
        return one.ask(1, ApiKey.JOIN_GROUP, body, 4).error_code

    good_group_works(one, "before")
    assert join(limits.GROUP_PROTOCOLS_MAX) == ErrorCode.MEMBER_ID_REQUIRED
    assert join(limits.GROUP_PROTOCOLS_MAX + 1) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_one_hundred_thousand_commits_and_metadata_at_the_limit(one):
    good_group_works(one, "before")
    half = limits.FRAME_ITEMS_MAX // 2
    for _ in range(10):
        body = commit_body("many", [(number % 1_000, number) for number in range(half)])
        assert set(codes_of(one.ask(1, ApiKey.OFFSET_COMMIT, body, 8))) == {NONE}
    good_group_works(one, "beside")
    assert committed(one, (0, 999), "many") == {0: 9_000, 999: 9_999}
    too_many = commit_body("many", [(0, 1)] * limits.FRAME_ITEMS_MAX)
    with pytest.raises(ConnectionLostError):
        one.ask(1, ApiKey.OFFSET_COMMIT, too_many, 8)
    for size, code in ((4_096, NONE), (4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE)):
        body = commit_body("many", [(1, 1)], "x" * size)
        assert codes_of(one.ask(1, ApiKey.OFFSET_COMMIT, body, 8)) == [code]


def test_one_commit_cannot_outgrow_the_room_of_the_state(one, monkeypatch):
    """A request was judged offset by offset, without what it had brought before."""
    good_group_works(one, "before")
    room = coordinator(one)._shared.machine.state_bytes + 100_000
    monkeypatch.setattr("raftlog.groups.shared.GROUPS_STATE_BYTES_MAX", room)
    body = commit_body("large", [(number, 1) for number in range(500)], "x" * 4_000)
    codes = codes_of(one.ask(1, ApiKey.OFFSET_COMMIT, body, 8))
    taken = codes.count(NONE)
    assert 15 < taken < 30
    assert set(codes[taken:]) == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert coordinator(one)._shared.machine.state_bytes <= room


def test_a_group_named_thousands_of_times_is_described_once(one):
    member = Member(one, "described", "described")
    rebalance(member)
    body = DescribeGroupsRequest(["described"] * 10_000)
    answer = one.ask(1, ApiKey.DESCRIBE_GROUPS, body, 5)
    assert [each.group_id for each in answer.groups] == ["described"]
    assert len(answer.groups[0].members) == 1


def test_groups_of_one_description_are_bounded_and_the_rest_is_asked_for_again(one, monkeypatch):
    monkeypatch.setattr("raftlog.broker.handlers.describe_groups.GROUPS_DESCRIBED_BYTES_MAX", 1)
    for name in ("large-a", "large-b"):
        rebalance(Member(one, name, name))
    names = ["large-a", "large-b", "nobody"]
    left, rounds = list(names), 0
    while left and rounds < 5:
        answer = one.ask(1, ApiKey.DESCRIBE_GROUPS, DescribeGroupsRequest(left), 5)
        codes = {each.group_id: each.error_code for each in answer.groups}
        assert codes[left[0]] == NONE
        assert set(codes.values()) <= {NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        left = [name for name in left if codes[name]]
        rounds += 1
    assert left == []
    assert rounds == 3
    many = DescribeGroupsRequest([f"nobody-{number}" for number in range(10_000)])
    answer = one.ask(1, ApiKey.DESCRIBE_GROUPS, many, 5)
    assert {each.group_state for each in answer.groups} == {"Dead"}
    assert len(answer.groups) == 10_000


def test_groups_of_one_offset_fetch_share_a_read_and_are_bounded(one, monkeypatch):
    """Each group took a read of its own, and 1,024 may wait: others were refused meanwhile."""
    good_group_works(one, "before")
    body = commit_body("fetched", [(number, 1) for number in range(100)])
    assert set(codes_of(one.ask(1, ApiKey.OFFSET_COMMIT, body, 8))) == {NONE}
    named = [OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(f"g{each}", topics=named) for each in range(5_000)]
    answer = one.ask(1, ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups), 9)
    assert {each.error_code for each in answer.groups} == {NONE}
    assert len(answer.groups) == 5_000
    monkeypatch.setattr("raftlog.broker.handlers.offset_fetch.OFFSETS_FETCHED_MAX", 150)
    groups = [OffsetFetchRequestGroup("fetched", topics=None)] * 1_000
    answer = one.ask(1, ApiKey.OFFSET_FETCH, OffsetFetchRequest(groups=groups), 9)
    codes = [each.error_code for each in answer.groups]
    assert codes == [NONE] * 2 + [ErrorCode.NOT_COORDINATOR] * 998
    assert sum(len(each.topics[0].partitions) for each in answer.groups[:2]) == 200


def test_coordinators_of_many_long_names_are_found_in_one_answer(one):
    good_group_works(one, "before")
    keys = [f"{number:04}" + "n" * 32_000 for number in range(100)]
    answer = one.ask(1, ApiKey.FIND_COORDINATOR, FindCoordinatorRequest("", 0, keys), 6)
    assert [(each.key, each.error_code, each.node_id) for each in answer.coordinators] == [
        (key, NONE, 1) for key in keys
    ]


def test_a_subscription_of_a_mebibyte_is_refused_by_name_and_others_are_served(one):
    member = Member(one, "x" * (1 << 20), "wide")
    join = member.join_later()
    one.wait(lambda: join.done, 20, "joined")
    member.joined(join.answer)
    sync = member.sync_later([(member.member_id, b"x")])
    one.wait(lambda: sync.done, 20, "an answer")
    assert sync.answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    good_group_works(one, "beside")
    frame = b"".join(map(bytes, encode_request(ApiKey.JOIN_GROUP, 9, 1, "c", member.join_body())))
    assert len(frame) > 1 << 20
