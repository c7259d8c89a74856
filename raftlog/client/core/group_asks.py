"""One-shot questions about groups, asked of their coordinators: see `raftlog.client.core.asks`.

Only its coordinator knows a group, so to list all groups call `list_groups` for every broker.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from raftlog.base.arguments import checked
from raftlog.base.errors import ProtocolError, WrongValue
from raftlog.base.ids import NodeId, Offset
from raftlog.client.core.arguments import NodeNumber, OffsetFrom, Timeout
from raftlog.client.core.asks import ADMIN_TIMEOUT_NS, Ask
from raftlog.client.core.errors import CommitFailed, KafkaError
from raftlog.client.core.results import PartitionResult, check_code
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from raftlog.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from raftlog.kafka.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from raftlog.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from raftlog.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from raftlog.kafka.versions import ApiKey

_GONE_ON: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
)
"""The errors that a commit gets when the group has rebalanced without this member."""


class OffsetAndMetadata(NamedTuple):
    """A committed offset, which is that of the next record to read. The names are
    kafka-python's."""

    offset: OffsetFrom
    metadata: str = ""
    leader_epoch: int = -1


@final
class GroupIdentity(NamedTuple):
    """A member of one generation of a group. A commit without one is allowed while the group has no
    members."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBER: Final = GroupIdentity()


def group_name(value: str) -> str:
    """Return the name; `WrongValue` for a name that no group can have."""
    if not value:
        raise WrongValue("a group's id must not be empty")
    return value


def _by_topic(places: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(place.partition)
    return topics


# --- offsets --------------------------------------------------------------------------------------


@checked
def commit_offsets(
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    identity: GroupIdentity = NO_MEMBER,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """Commit offsets. `CommitFailed` when the group has rebalanced without this member.
    `KafkaError` names the first partition that was refused; other partitions may have been
    committed."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, each in offsets.items():
        topics.setdefault(place.topic, []).append(
            OffsetCommitRequestPartition(
                place.partition, each.offset, each.leader_epoch, each.metadata
            )
        )
    body = OffsetCommitRequest(
        group_id=group_name(group),
        generation_id_or_member_epoch=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(name=name, partitions=tuple(each))
            for name, each in topics.items()
        ),
    )

    def read(answer: OffsetCommitResponse) -> None:
        told = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }
        for place in offsets:
            if place not in told:
                raise ProtocolError("the answer leaves this partition out", on=str(place))
            if told[place] in _GONE_ON:
                raise CommitFailed(told[place], on=f"group {group}")
            check_code(told[place], f"group {group}, {place}")

    return Ask(ApiKey.OFFSET_COMMIT, read, body, timeout_ns=timeout_ns, group=group)


@checked
def fetch_offsets(
    group: str,
    places: Sequence[TopicPartition] | None = None,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
    *,
    stable: bool = True,
) -> Ask:
    """`{TopicPartition: OffsetAndMetadata}` with the group's committed offsets for these
    partitions, or for all. Partitions without an offset are left out. `stable` waits for open
    transactions."""
    topics = None if places is None else _by_topic(places)
    asked: Any = None
    if topics is not None:
        asked = tuple(OffsetFetchRequestTopic(*each) for each in topics.items())
    body = OffsetFetchRequest(
        group_id=group_name(group),
        topics=asked,
        groups=(
            OffsetFetchRequestGroup(
                group_id=group,
                topics=None
                if topics is None
                else tuple(
                    OffsetFetchRequestTopics(name=name, partition_indexes=each)
                    for name, each in topics.items()
                ),
            ),
        ),
        require_stable=stable,
    )

    def read(answer: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
        told: Any = answer
        if answer.groups:
            told = answer.groups[0]
        check_code(told.error_code, f"group {group}")
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for topic in told.topics:
            for each in topic.partitions:
                place = TopicPartition(topic.name, each.partition_index)
                check_code(each.error_code, f"group {group}, {place}")
                if each.committed_offset >= 0:
                    found[place] = OffsetAndMetadata(
                        Offset(each.committed_offset),
                        each.metadata or "",
                        each.committed_leader_epoch,
                    )
        return dict(sorted(found.items()))

    return Ask(ApiKey.OFFSET_FETCH, read, body, timeout_ns=timeout_ns, group=group)


@checked
def delete_offsets(
    group: str, places: Sequence[TopicPartition], timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """Delete the group's committed offsets for these partitions. The result is a `PartitionResult`
    for each."""
    body = OffsetDeleteRequest(
        group_name(group),
        tuple(
            OffsetDeleteRequestTopic(name, tuple(map(OffsetDeleteRequestPartition, each)))
            for name, each in _by_topic(places).items()
        ),
    )

    def read(answer: OffsetDeleteResponse) -> list[PartitionResult]:
        check_code(answer.error_code, f"group {group}")
        return [
            PartitionResult(TopicPartition(topic.name, each.partition_index), each.error_code)
            for topic in answer.topics
            for each in topic.partitions
        ]

    return Ask(ApiKey.OFFSET_DELETE, read, body, changes=True, timeout_ns=timeout_ns, group=group)


# --- groups ---------------------------------------------------------------------------------------


@final
class CoordinatorAt(NamedTuple):
    """The broker that coordinates a group."""

    node: NodeId
    host: str
    port: int


@checked
def find_coordinator(group: str, timeout_ns: Timeout = ADMIN_TIMEOUT_NS) -> Ask:
    """The `CoordinatorAt` of a group. The group need not exist."""
    body = FindCoordinatorRequest(key=group_name(group), coordinator_keys=(group,))

    def read(answer: FindCoordinatorResponse) -> CoordinatorAt:
        found: Any = answer.coordinators[0] if answer.coordinators else answer
        check_code(found.error_code, f"group {group}", found.error_message)
        return CoordinatorAt(NodeId(found.node_id), found.host, found.port)

    return Ask(ApiKey.FIND_COORDINATOR, read, body, timeout_ns=timeout_ns)


@checked
def list_groups(
    node: NodeNumber,
    *,
    states: Sequence[str] = (),
    types: Sequence[str] = (),
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """The groups that one broker coordinates, as `ListedGroup`s. Old brokers do not know the
    filters and return all groups."""
    body = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))

    def read(answer: ListGroupsResponse) -> list[ListedGroup]:
        check_code(answer.error_code, f"node {node}")
        return list(answer.groups)

    return Ask(ApiKey.LIST_GROUPS, read, body, node=NodeId(node), timeout_ns=timeout_ns)


@checked
def describe_group(group: str, timeout_ns: Timeout = ADMIN_TIMEOUT_NS) -> Ask:
    """A `DescribedGroup`; `KafkaError` GROUP_ID_NOT_FOUND for a group that does not exist."""
    body = DescribeGroupsRequest((group_name(group),))

    def read(answer: DescribeGroupsResponse) -> DescribedGroup:
        found = next((each for each in answer.groups if each.group_id == group), None)
        if found is None:
            raise ProtocolError("the answer leaves this group out", on=f"group {group}")
        check_code(found.error_code, f"group {group}", found.error_message)
        if found.group_state == "Dead":  # older brokers say this of a group that does not exist
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, on=f"group {group}")
        return found

    return Ask(ApiKey.DESCRIBE_GROUPS, read, body, timeout_ns=timeout_ns, group=group)


@checked
def delete_group(group: str, timeout_ns: Timeout = ADMIN_TIMEOUT_NS) -> Ask:
    """Delete a group with its offsets; `KafkaError` NON_EMPTY_GROUP while it has members."""
    body = DeleteGroupsRequest((group_name(group),))

    def read(answer: DeleteGroupsResponse) -> None:
        for each in answer.results:
            check_code(each.error_code, f"group {each.group_id}")

    return Ask(ApiKey.DELETE_GROUPS, read, body, changes=True, timeout_ns=timeout_ns, group=group)
