"""Members of consumer groups in virtual time: each says what a client would, and hears the answer.

`cluster` is a `tests.broker.cluster.Cluster`. A member finds its coordinator as clients do.
"""

from raftlog.kafka.messages.find_coordinator import FindCoordinatorRequest
from raftlog.kafka.messages.heartbeat import HeartbeatRequest
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from raftlog.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
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
from raftlog.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from raftlog.kafka.versions import ApiKey

TOPIC = "orders"
MEMBER_ID_REQUIRED = 79
NOT_COORDINATOR = 16


def coordinator_of(cluster, group="g", at=None, limit=20.0):
    """The node that FindCoordinator names; asked until there is one."""
    found = []

    def named():
        node = at or cluster.world.running()[0].number
        body = FindCoordinatorRequest(group, 0, [group])
        answer = cluster.ask(node, ApiKey.FIND_COORDINATOR, body, 6).coordinators[0]
        found.append(answer)
        return answer.error_code == 0 and cluster.world.nodes[answer.node_id].up

    cluster.wait(named, limit, "a coordinator")
    return found[-1].node_id


class Member:
    """One member; `at` is the broker that it asks, its coordinator unless told otherwise."""

    def __init__(self, cluster, name="m", group="g", instance=None, session_ms=10_000):
        self.cluster, self.name, self.group = cluster, name, group
        self.instance, self.session_ms = instance, session_ms
        self.member_id, self.generation, self.assignment = "", -1, b""
        self.at = coordinator_of(cluster, group)

    def ask(self, key, body, version=None, limit=20.0):
        return self.cluster.ask(self.at, key, body, version, limit)

    def join_body(self):
        protocols = [JoinGroupRequestProtocol("range", self.name.encode())]
        return JoinGroupRequest(
            self.group,
            self.session_ms,
            self.session_ms,
            self.member_id,
            self.instance,
            "consumer",
            protocols,
        )

    def join_later(self, version=9):
        """The pending answer of a join, whose member id is known."""
        if not self.member_id and self.instance is None and version >= 4:
            first = self.ask(ApiKey.JOIN_GROUP, self.join_body(), version)
            assert first.error_code == MEMBER_ID_REQUIRED, first
            self.member_id = first.member_id
        return self.cluster.client(self.at).request(ApiKey.JOIN_GROUP, self.join_body(), version)

    def joined(self, answer):
        assert answer.error_code == 0, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    def sync_body(self, assignments=()):
        pairs = [SyncGroupRequestAssignment(*pair) for pair in assignments]
        return SyncGroupRequest(
            self.group, self.generation, self.member_id, self.instance, "consumer", "range", pairs
        )

    def sync_later(self, assignments=(), version=5):
        body = self.sync_body(assignments)
        return self.cluster.client(self.at).request(ApiKey.SYNC_GROUP, body, version)

    def heartbeat(self, version=4):
        body = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        return self.ask(ApiKey.HEARTBEAT, body, version).error_code

    def leave(self):
        who = MemberIdentity(self.member_id, self.instance)
        return self.ask(ApiKey.LEAVE_GROUP, LeaveGroupRequest(self.group, "", [who]), 5)

    def commit(self, offsets, version=9, topic=TOPIC, topic_id=bytes(16)):
        partitions = [OffsetCommitRequestPartition(*pair) for pair in offsets.items()]
        body = OffsetCommitRequest(
            self.group,
            self.generation,
            self.member_id,
            self.instance,
            topics=[OffsetCommitRequestTopic(topic, topic_id, partitions)],
        )
        answer = self.ask(ApiKey.OFFSET_COMMIT, body, version)
        return {each.partition_index: each.error_code for each in answer.topics[0].partitions}

    def committed(self, *partitions, topic=TOPIC):
        return committed(self.cluster, partitions, self.group, topic, self.at)


def committed(cluster, partitions, group="g", topic=TOPIC, at=None, limit=20.0):
    """The committed offset of each partition. As clients do, asks again after NOT_COORDINATOR."""
    asked = OffsetFetchRequestGroup(
        group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=partitions)]
    )
    body, found = OffsetFetchRequest(groups=[asked]), []

    def told():
        node = at or coordinator_of(cluster, group)
        found.append(cluster.ask(node, ApiKey.OFFSET_FETCH, body, 9).groups[0])
        return found[-1].error_code != NOT_COORDINATOR

    cluster.wait(told, limit, "committed offsets")
    assert found[-1].error_code == 0, found[-1]
    offsets = {each.partition_index: each for each in found[-1].topics[0].partitions}
    assert not any(each.error_code for each in offsets.values()), offsets
    return {number: each.committed_offset for number, each in offsets.items()}


def committed_later(cluster, node, partitions=(0,), group="g", topic=TOPIC):
    """The pending answer of an OffsetFetch."""
    asked = OffsetFetchRequestTopics(topic, partition_indexes=partitions)
    body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=[asked])])
    return cluster.client(node).request(ApiKey.OFFSET_FETCH, body, 9)


def rebalance(*members):
    """All members join and sync; the one that leads gives each its own name. A group without
    members does not wait for more: the first joins alone, and again when the others have come."""
    cluster, (first, *others) = members[0].cluster, members
    if others and first.generation < 0:
        rebalance(first)
    later = [member.join_later() for member in others]
    joins = [first.join_later(), *later]
    cluster.wait(lambda: all(each.done for each in joins), 60, "joins")
    answers = [m.joined(each.answer) for m, each in zip(members, joins, strict=True)]
    assert len({answer.generation_id for answer in answers}) == 1, answers
    leader = answers[0].leader
    assignments = [(m.member_id, f"for {m.name}".encode()) for m in members]
    syncs = [m.sync_later(assignments if m.member_id == leader else ()) for m in members]
    cluster.wait(lambda: all(each.done for each in syncs), 60, "syncs")
    for member, each in zip(members, syncs, strict=True):
        assert each.answer.error_code == 0, each.answer
        member.assignment = bytes(each.answer.assignment)
    return answers
