"""A coordinator in memory for `FakeCluster`: groups, generations, offsets, and faults on order.

It holds joins until all members have joined and syncs until the leader has, as brokers do. It has
no timers: tests say when a member is taken for dead (`expire`), when the coordinator moves
(`move_to`) and when it is silent (`silent`).
"""

from collections import defaultdict
from typing import Any

import attrs

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from raftlog.kafka.versions import ApiKey
from tests.client.fake_cluster import HOST, FakeCluster, Later


@attrs.define(eq=False)
class Member:
    member_id: str
    instance_id: str | None = None
    protocols: list[tuple[str, bytes]] = attrs.Factory(list)
    client_id: str = ""
    joining: Later | None = None
    syncing: Later | None = None
    assignment: bytes | None = None
    """None before the first."""
    scripted: bool = False
    """It has no client, and joins whenever the others do."""


@attrs.define(eq=False)
class Group:
    generation: int = 0
    state: str = "Empty"
    protocol: str = ""
    leader: str = ""
    members: dict[str, Member] = attrs.Factory(dict)
    offsets: dict[tuple[str, int], tuple[int, str]] = attrs.Factory(dict)
    fenced: set[str] = attrs.Factory(set)


@attrs.define(eq=False)
class FakeGroups:
    cluster: FakeCluster
    node: int = 1
    groups: dict[str, Group] = attrs.Factory(lambda: defaultdict(Group))
    silent: set[int] = attrs.Factory(set)
    """Nodes that keep all answers to themselves."""
    deaf: dict[int, int] = attrs.Factory(dict)
    """The coordinator that each deaf broker knew last."""
    wants_member_id: bool = True
    loading: bool = False
    offered: bool = True
    """Whether the brokers say that they serve all APIs of groups."""
    commits: list[tuple[int, str, dict[tuple[str, int], int]]] = attrs.Factory(list)
    """(generation, member id, offsets) of every commit that was taken."""
    _ids: int = 0

    def move_to(self, node: int) -> None:
        """Another node is the coordinator. It has the generation and the offsets, and hears of
        joins and syncs that were held from their clients only."""
        self.node = node
        for group in self.groups.values():
            for member in group.members.values():
                member.joining = member.syncing = None

    def answer(self, node: int, request: Any, code: int) -> Any:
        body, key = request.body, request.api_key
        if key == ApiKey.FIND_COORDINATOR:
            return self._find(self.deaf.get(node, self.node), body, code)
        if node in self.silent:
            return Later()
        if key == ApiKey.LIST_GROUPS:
            return self._list(node)
        if self.loading and not code:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if node != self.node:
            code = ErrorCode.NOT_COORDINATOR
        return {
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: self._leave,
            ApiKey.OFFSET_COMMIT: self._commit,
            ApiKey.OFFSET_FETCH: self._fetch,
            ApiKey.DESCRIBE_GROUPS: self._describe,
            ApiKey.DELETE_GROUPS: self._delete,
            ApiKey.OFFSET_DELETE: self._delete_offsets,
        }[key](body, code)

    def _find(self, told_node: int, body: Any, code: int) -> Any:
        host, port = self.cluster.addresses.get(told_node, (HOST, 9000 + told_node))
        told = [
            find_coordinator.Coordinator(key, -1, "", -1, code)
            if code
            else find_coordinator.Coordinator(key, told_node, host, port)
            for key in body.coordinator_keys
        ]
        return find_coordinator.FindCoordinatorResponse(coordinators=told)

    # --- membership -------------------------------------------------------------------------------

    def _join(self, body: Any, code: int) -> Any:
        group = self.groups[body.group_id]
        if not code and body.member_id in group.fenced:
            code = ErrorCode.FENCED_INSTANCE_ID
        if not code and body.member_id and body.member_id not in group.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._remove(group, body.member_id)
        if code:
            return join_group.JoinGroupResponse(error_code=code, member_id=body.member_id)
        member_id = body.member_id or self._admit(group, body)
        member = group.members[member_id]
        if not body.member_id and member.assignment is not None and group.state == "Stable":
            return self._come_back(group, member, body)
        if not body.member_id and self.wants_member_id and body.group_instance_id is None:
            member.protocols = []  # it counts when it has joined with its id
            return join_group.JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id
            )
        member.protocols = [(each.name, bytes(each.metadata)) for each in body.protocols]
        assert member.joining is None, "one join at a time"
        member.joining = Later()
        self._prepare(group)
        later = member.joining
        self._try_to_complete(group)
        return later

    def _admit(self, group: Group, body: Any) -> str:
        self._ids += 1
        member_id, member = f"member-{self._ids}", Member(f"member-{self._ids}")
        member.instance_id = body.group_instance_id
        for each in group.members.values():
            if each.instance_id is not None and each.instance_id == body.group_instance_id:
                group.fenced.add(each.member_id)
                del group.members[each.member_id]
                member.assignment = each.assignment
                if group.leader == each.member_id:
                    group.leader = member_id
                break
        group.members[member_id] = member
        return member_id

    def _come_back(self, group: Group, member: Member, body: Any) -> Any:
        """A static member of a stable group: it has the assignment that it had, and no rebalance
        begins."""
        member.protocols = [(each.name, bytes(each.metadata)) for each in body.protocols]
        leads = group.leader == member.member_id
        return self._joined(group, member)._replace(skip_assignment=leads)

    def _try_to_complete(self, group: Group) -> None:
        """When all have joined."""
        members = [each for each in group.members.values() if each.protocols]
        if not members or group.state != "PreparingRebalance":
            return
        if any(each.joining is None and not each.scripted for each in members):
            return
        group.generation += 1
        group.state = "CompletingRebalance"
        names = [name for name, _ in members[0].protocols]
        group.protocol = next(
            name for name in names if all(name in dict(each.protocols) for each in members)
        )
        group.leader = members[0].member_id
        for each in members:
            later, each.joining = each.joining, None
            if later is not None:
                later.give(self._joined(group, each))

    def _joined(self, group: Group, member: Member) -> Any:
        told = [
            join_group.JoinGroupResponseMember(
                each.member_id, each.instance_id, dict(each.protocols)[group.protocol]
            )
            for each in group.members.values()
            if each.protocols
        ]
        return join_group.JoinGroupResponse(
            generation_id=group.generation,
            protocol_type="consumer",
            protocol_name=group.protocol,
            leader=group.leader,
            member_id=member.member_id,
            members=told if member.member_id == group.leader else [],
        )

    def _refusal(self, body: Any, code: int, generation: int) -> int:
        group = self.groups[body.group_id]
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._remove(group, body.member_id)
        if code:
            return code
        if body.member_id in group.fenced:
            return ErrorCode.FENCED_INSTANCE_ID
        if body.member_id not in group.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return 0

    def _sync(self, body: Any, code: int) -> Any:
        group = self.groups[body.group_id]
        code = self._refusal(body, code, body.generation_id)
        if not code and group.state == "PreparingRebalance":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code:
            return sync_group.SyncGroupResponse(error_code=code)
        member = group.members[body.member_id]
        if group.state == "Stable":
            return sync_group.SyncGroupResponse(assignment=member.assignment or b"")
        member.syncing = Later()
        later = member.syncing
        if body.member_id == group.leader:
            given = {each.member_id: bytes(each.assignment) for each in body.assignments}
            group.state = "Stable"
            for each in group.members.values():
                each.assignment = given.get(each.member_id, b"")
                held, each.syncing = each.syncing, None
                if held is not None:
                    held.give(sync_group.SyncGroupResponse(assignment=each.assignment))
        return later

    def _heartbeat(self, body: Any, code: int) -> Any:
        group = self.groups[body.group_id]
        code = self._refusal(body, code, body.generation_id)
        if not code and group.state == "PreparingRebalance":
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return heartbeat.HeartbeatResponse(error_code=code)

    def _leave(self, body: Any, code: int) -> Any:
        told = []
        for each in body.members:
            if not code:
                self.expire(body.group_id, each.member_id)
            told.append(leave_group.MemberResponse(each.member_id, each.group_instance_id))
        return leave_group.LeaveGroupResponse(error_code=code, members=told)

    def expire(self, name: str, member_id: str) -> None:
        """This member is gone: the others rebalance."""
        self._remove(self.groups[name], member_id)

    def _remove(self, group: Group, member_id: str) -> None:
        if group.members.pop(member_id, None) is None:
            return
        if group.members:
            self._prepare(group)
            self._try_to_complete(group)
        else:
            group.state = "Empty"

    def add_scripted(self, name: str, protocols: list[tuple[str, bytes]]) -> None:
        """A member that says the same in each join."""
        group = self.groups[name]
        group.members["scripted"] = Member("scripted", None, protocols, scripted=True)
        self._prepare(group)

    def rebalance(self, name: str) -> None:
        """All members have to join again."""
        self._prepare(self.groups[name])

    def _prepare(self, group: Group) -> None:
        """All have to join; those that wait for their assignment hear so at once."""
        group.state = "PreparingRebalance"
        for each in group.members.values():
            held, each.syncing = each.syncing, None
            if held is not None:
                code = ErrorCode.REBALANCE_IN_PROGRESS
                held.give(sync_group.SyncGroupResponse(error_code=code))

    # --- offsets ----------------------------------------------------------------------------------

    def _commit(self, body: Any, code: int) -> Any:
        group = self.groups[body.group_id]
        generation = body.generation_id_or_member_epoch
        if generation >= 0 or body.member_id:
            code = self._refusal(body, code, generation)
        elif not code and group.members:
            code = ErrorCode.UNKNOWN_MEMBER_ID
        offsets = {
            (topic.name, each.partition_index): (
                each.committed_offset,
                each.committed_metadata or "",
            )
            for topic in body.topics
            for each in topic.partitions
        }
        if not code:
            group.offsets.update(offsets)
            taken = {place: offset for place, (offset, _) in offsets.items()}
            self.commits.append((generation, body.member_id, taken))
        return offset_commit.OffsetCommitResponse(
            topics=[
                offset_commit.OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        offset_commit.OffsetCommitResponsePartition(each.partition_index, code)
                        for each in topic.partitions
                    ],
                )
                for topic in body.topics
            ]
        )

    def _fetch(self, body: Any, code: int) -> Any:
        asked = body.groups[0]
        offsets = self.groups[asked.group_id].offsets
        topics: dict[str, list[int]] = defaultdict(list)
        if asked.topics is None:
            for topic, partition in offsets:
                topics[topic].append(partition)
        for each in asked.topics or ():
            topics[each.name] += each.partition_indexes
        told = [
            offset_fetch.OffsetFetchResponseTopics(
                name=name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartitions(
                        at,
                        offsets.get((name, at), (-1, ""))[0],
                        -1,
                        offsets.get((name, at), (-1, ""))[1],
                    )
                    for at in partitions
                ],
            )
            for name, partitions in topics.items()
        ]
        group = offset_fetch.OffsetFetchResponseGroup(asked.group_id, [] if code else told, code)
        return offset_fetch.OffsetFetchResponse(groups=[group])

    def _delete_offsets(self, body: Any, code: int) -> Any:
        group = self.groups[body.group_id]
        topics = []
        for topic in body.topics:
            for each in topic.partitions:
                group.offsets.pop((topic.name, each.partition_index), None)
            topics.append(
                offset_delete.OffsetDeleteResponseTopic(
                    topic.name,
                    [
                        offset_delete.OffsetDeleteResponsePartition(each.partition_index)
                        for each in topic.partitions
                    ],
                )
            )
        return offset_delete.OffsetDeleteResponse(error_code=code, topics=topics)

    # --- what tools ask ---------------------------------------------------------------------------

    def _list(self, node: int) -> Any:
        found = [
            list_groups.ListedGroup(name, "consumer", group.state, "classic")
            for name, group in self.groups.items()
            if node == self.node
        ]
        return list_groups.ListGroupsResponse(groups=found)

    def _describe(self, body: Any, code: int) -> Any:
        told = []
        for name in body.groups:
            group = self.groups.get(name)
            if group is None or code:
                error = code or ErrorCode.GROUP_ID_NOT_FOUND
                told.append(describe_groups.DescribedGroup(error, None, name, "Dead"))
                continue
            members = [
                describe_groups.DescribedGroupMember(
                    each.member_id,
                    each.instance_id,
                    "raftlog",
                    "/127.0.0.1",
                    dict(each.protocols).get(group.protocol, b""),
                    each.assignment or b"",
                )
                for each in group.members.values()
            ]
            told.append(
                describe_groups.DescribedGroup(
                    0, None, name, group.state, "consumer", group.protocol, members
                )
            )
        return describe_groups.DescribeGroupsResponse(groups=told)

    def _delete(self, body: Any, code: int) -> Any:
        told = []
        for name in body.groups_names:
            error = code
            if not error and name not in self.groups:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            elif not error and self.groups[name].members:
                error = ErrorCode.NON_EMPTY_GROUP
            elif not error:
                del self.groups[name]
            told.append(delete_groups.DeletableGroupResult(name, error))
        return delete_groups.DeleteGroupsResponse(results=told)
