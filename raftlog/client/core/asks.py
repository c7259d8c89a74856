"""One-shot questions to a cluster: the request, the broker that it goes to, and how to read the
answer.

An `Ask` goes to any broker, to a node, to the leader of a partition or to the coordinator of a
group. `read` turns the decoded body into the result, or raises `KafkaError`. After a retriable
error the client asks again until the deadline. A request that changes the cluster is never sent
again when the first one may have had an effect.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from raftlog.base.amounts import amount
from raftlog.base.arguments import checked
from raftlog.base.errors import ProtocolError
from raftlog.base.ids import NodeId, Offset
from raftlog.base.units import KIB, MIB, NANOS_PER_MILLI, Nanos, WallMillis, millis
from raftlog.client.core.arguments import (
    ByteCount,
    CountOrDefault,
    FactorOrDefault,
    LookedUp,
    NodeNumber,
    PartitionCount,
    Timeout,
    TopicName,
    WaitMillis,
)
from raftlog.client.core.fetched import FetchedBatches, check_batches
from raftlog.client.core.results import (
    ConfigEntry,
    OffsetAt,
    PartitionResult,
    TopicResult,
    check_code,
)
from raftlog.client.core.values import ANY_NODE, Moving, TopicPartition
from raftlog.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from raftlog.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from raftlog.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from raftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from raftlog.kafka.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from raftlog.kafka.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from raftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from raftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from raftlog.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from raftlog.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from raftlog.kafka.versions import ApiKey

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
EVERYTHING: Final = -1
"""An offset for `delete_records`: delete up to the high watermark."""
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
ADMIN_TIMEOUT_NS: Final = millis(30_000)

Reader = Callable[[Any], Any]
Maker = Callable[[int, bytes], Any]
"""(leader epoch, topic id) -> body, for a request to a partition's leader."""


@final
class Ask(NamedTuple):
    """One question to a cluster. Either `body` or `make` is given."""

    api_key: int
    read: Reader
    body: Any = None
    make: Maker | None = None
    node: NodeId = ANY_NODE
    place: TopicPartition | None = None
    changes: bool = False
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS
    patience_ns: Nanos = Nanos(0)
    """How long the request allows the broker to wait before it answers."""
    group: str | None = None
    """The group whose coordinator is asked; None for other questions."""


# --- metadata and cluster -------------------------------------------------------------------------


@checked
def metadata(
    topics: Sequence[TopicName] | None = None, timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """A `MetadataResponse` about these topics, or about all topics. It never creates a topic."""
    wanted = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
    body = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return Ask(ApiKey.METADATA, _read_metadata, body, timeout_ns=timeout_ns)


def _read_metadata(body: MetadataResponse) -> MetadataResponse:
    check_code(body.error_code, "metadata")
    return body


@checked
def describe_cluster(timeout_ns: Timeout = ADMIN_TIMEOUT_NS, *, fenced: bool = True) -> Ask:
    """A `DescribeClusterResponse`, fenced brokers included."""
    body = DescribeClusterRequest(include_fenced_brokers=fenced)
    return Ask(ApiKey.DESCRIBE_CLUSTER, _read_cluster, body, timeout_ns=timeout_ns)


def _read_cluster(body: DescribeClusterResponse) -> DescribeClusterResponse:
    check_code(body.error_code, "cluster", body.error_message)
    return body


@checked
def describe_configs(
    topics: Sequence[str], timeout_ns: Timeout = ADMIN_TIMEOUT_NS, *, resource: int = TOPIC_RESOURCE
) -> Ask:
    """`{name: {setting: ConfigEntry}}` of these topics; `KafkaError` for the first that is
    refused."""
    body = DescribeConfigsRequest(
        resources=tuple(DescribeConfigsResource(resource, name, None) for name in topics)
    )
    return Ask(ApiKey.DESCRIBE_CONFIGS, _read_configs, body, timeout_ns=timeout_ns)


def _read_configs(body: DescribeConfigsResponse) -> dict[str, dict[str, ConfigEntry]]:
    found: dict[str, dict[str, ConfigEntry]] = {}
    for result in body.results:
        check_code(result.error_code, result.resource_name, result.error_message)
        found[result.resource_name] = {each.name: _config_entry(each) for each in result.configs}
    return found


_TOPIC_OVERRIDE: Final = 1


def _config_entry(each: DescribeConfigsResourceResult) -> ConfigEntry:
    overridden = each.config_source == _TOPIC_OVERRIDE
    return ConfigEntry(each.name, each.value, overridden, each.read_only)


# --- topics ---------------------------------------------------------------------------------------


@checked
def new_topic(
    name: TopicName,
    partitions: CountOrDefault = -1,
    replication_factor: FactorOrDefault = -1,
    *,
    configs: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[NodeNumber]] = (),
) -> CreatableTopic:
    """A topic for `create_topics`. A count of -1 takes the brokers' default. An `assignment` names
    the replicas of each partition and replaces both counts."""
    return CreatableTopic(
        name=name,
        num_partitions=-1 if assignment else partitions,
        replication_factor=-1 if assignment else replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(at, tuple(nodes)) for at, nodes in enumerate(assignment)
        ),
        configs=tuple(CreatableTopicConfig(key, value) for key, value in (configs or {}).items()),
    )


@checked
def create_topics(
    topics: Sequence[CreatableTopic],
    *,
    validate_only: bool = False,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """Create topics. The result is a `TopicResult` for each."""
    body = CreateTopicsRequest(tuple(topics), broker_ms(timeout_ns), validate_only)
    return Ask(
        ApiKey.CREATE_TOPICS, _read_created, body, changes=not validate_only, timeout_ns=timeout_ns
    )


def _read_created(body: CreateTopicsResponse) -> list[TopicResult]:
    return [
        TopicResult(
            each.name,
            each.error_code,
            each.error_message,
            each.topic_id,
            each.num_partitions,
            each.replication_factor,
        )
        for each in body.topics
    ]


@checked
def delete_topics(names: Sequence[TopicName], timeout_ns: Timeout = ADMIN_TIMEOUT_NS) -> Ask:
    """Delete topics. The result is a `TopicResult` for each name."""
    body = DeleteTopicsRequest(
        topics=tuple(DeleteTopicState(name=name) for name in names),
        topic_names=tuple(names),
        timeout_ms=broker_ms(timeout_ns),
    )
    return Ask(ApiKey.DELETE_TOPICS, _read_deleted, body, changes=True, timeout_ns=timeout_ns)


def _read_deleted(body: DeleteTopicsResponse) -> list[TopicResult]:
    return [
        TopicResult(each.name or "", each.error_code, each.error_message, each.topic_id)
        for each in body.responses
    ]


@checked
def create_partitions(
    counts: Mapping[TopicName, PartitionCount],
    *,
    assignments: Mapping[TopicName, Sequence[Sequence[NodeNumber]]] | None = None,
    validate_only: bool = False,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """Add partitions to topics until they have these counts. The result is a `TopicResult` for
    each."""
    body = CreatePartitionsRequest(
        tuple(
            CreatePartitionsTopic(name, count, _assignments((assignments or {}).get(name)))
            for name, count in counts.items()
        ),
        broker_ms(timeout_ns),
        validate_only,
    )
    return Ask(
        ApiKey.CREATE_PARTITIONS,
        _read_grown,
        body,
        changes=not validate_only,
        timeout_ns=timeout_ns,
    )


def _assignments(
    nodes: Sequence[Sequence[int]] | None,
) -> tuple[CreatePartitionsAssignment, ...] | None:
    if nodes is None:
        return None
    return tuple(CreatePartitionsAssignment(tuple(each)) for each in nodes)


def _read_grown(body: CreatePartitionsResponse) -> list[TopicResult]:
    return [TopicResult(each.name, each.error_code, each.error_message) for each in body.results]


# --- moves ----------------------------------------------------------------------------------------


@checked
def alter_reassignments(
    moves: Mapping[TopicPartition, Sequence[NodeNumber] | None],
    *,
    factor_may_change: bool = True,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """Move partitions to these brokers, the preferred leader first; None cancels a move. The result
    is a `PartitionResult` for each. It comes when the move is decided, not when it is done."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for place, nodes in moves.items():
        wanted = None if nodes is None else tuple(nodes)
        topics.setdefault(place.topic, []).append(ReassignablePartition(place.partition, wanted))
    body = AlterPartitionReassignmentsRequest(
        broker_ms(timeout_ns),
        factor_may_change,
        tuple(ReassignableTopic(name, tuple(each)) for name, each in topics.items()),
    )
    return Ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        _read_altered,
        body,
        changes=True,
        timeout_ns=timeout_ns,
    )


def _read_altered(body: AlterPartitionReassignmentsResponse) -> list[PartitionResult]:
    check_code(body.error_code, "reassignments", body.error_message)
    return [
        PartitionResult(
            TopicPartition(topic.name, each.partition_index), each.error_code, each.error_message
        )
        for topic in body.responses
        for each in topic.partitions
    ]


@checked
def list_reassignments(
    places: Sequence[TopicPartition] | None = None, timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """`{TopicPartition: Moving}` with those of these partitions, or of all partitions, that are
    being moved."""
    topics: dict[str, list[int]] = {}
    for place in places or ():
        topics.setdefault(place.topic, []).append(place.partition)
    wanted = tuple(ListPartitionReassignmentsTopics(*each) for each in topics.items())
    body = ListPartitionReassignmentsRequest(
        broker_ms(timeout_ns), None if places is None else wanted
    )
    return Ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, _read_moving, body, timeout_ns=timeout_ns)


def _read_moving(body: ListPartitionReassignmentsResponse) -> dict[TopicPartition, Moving]:
    check_code(body.error_code, "reassignments", body.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): Moving(
            *(
                tuple(map(NodeId, nodes))
                for nodes in (each.replicas, each.adding_replicas, each.removing_replicas)
            )
        )
        for topic in body.topics
        for each in topic.partitions
    }


# --- partitions -----------------------------------------------------------------------------------


@checked
def list_offsets(
    place: TopicPartition,
    timestamp_ms: LookedUp,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
    *,
    committed: bool = False,
) -> Ask:
    """The `OffsetAt` for a timestamp in Unix milliseconds, or for EARLIEST, LATEST or
    MAX_TIMESTAMP. With `committed`, LATEST is the last stable offset: where the first open
    transaction begins."""

    def make(epoch: int, topic_id: bytes) -> ListOffsetsRequest:
        del topic_id
        asked = ListOffsetsPartition(place.partition, epoch, timestamp_ms)
        topics = (ListOffsetsTopic(place.topic, (asked,)),)
        return ListOffsetsRequest(-1, int(committed), topics, broker_ms(timeout_ns))

    def read(body: ListOffsetsResponse) -> OffsetAt:
        found = _only([each for topic in body.topics for each in topic.partitions], place)
        check_code(found.error_code, str(place))
        return OffsetAt(Offset(found.offset), WallMillis(found.timestamp), found.leader_epoch)

    return Ask(ApiKey.LIST_OFFSETS, read, make=make, place=place, timeout_ns=timeout_ns)


@checked
def end_of_epoch(
    place: TopicPartition, leader_epoch: int, timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """The largest epoch at or below `leader_epoch`, and the offset at which it ends, as a pair."""

    def make(epoch: int, topic_id: bytes) -> OffsetForLeaderEpochRequest:
        del topic_id
        asked = OffsetForLeaderPartition(place.partition, epoch, leader_epoch)
        topics = (OffsetForLeaderTopic(place.topic, (asked,)),)
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)

    def read(body: OffsetForLeaderEpochResponse) -> tuple[int, Offset]:
        found = _only([each for topic in body.topics for each in topic.partitions], place)
        check_code(found.error_code, str(place))
        return found.leader_epoch, Offset(found.end_offset)

    return Ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, read, make=make, place=place, timeout_ns=timeout_ns)


@checked
def fetch(
    place: TopicPartition,
    offset: Offset,
    *,
    max_wait_ms: WaitMillis = 0,
    min_bytes: ByteCount = 1,
    max_bytes: ByteCount = MIB,
    committed: bool = False,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """`FetchedBatches` from `offset` on; without batches when none came in time.

    An offset out of range raises `KafkaError` with OFFSET_OUT_OF_RANGE. With `committed` the broker
    sends nothing of an open transaction, and `aborted` names the aborted ones."""

    def make(epoch: int, topic_id: bytes) -> FetchRequest:
        asked = FetchPartition(
            partition=place.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max(max_bytes, 64 * KIB),
            isolation_level=int(committed),
            topics=(FetchTopic(place.topic, topic_id, (asked,)),),
        )

    def read(body: FetchResponse) -> FetchedBatches:
        check_code(body.error_code, str(place))
        found = _only([each for topic in body.responses for each in topic.partitions], place)
        check_code(found.error_code, str(place))
        return check_batches(place, offset, found)

    patience = millis(max_wait_ms)
    return Ask(
        ApiKey.FETCH, read, make=make, place=place, timeout_ns=timeout_ns, patience_ns=patience
    )


@checked
def delete_records(
    place: TopicPartition, offset: int = EVERYTHING, timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """Delete the records below `offset`. The result is the partition's new first offset. The
    question is not repeated when its outcome is unknown: EVERYTHING could then delete later records
    too."""

    def make(epoch: int, topic_id: bytes) -> DeleteRecordsRequest:
        del epoch, topic_id
        asked = DeleteRecordsPartition(place.partition, offset)
        topics = (DeleteRecordsTopic(place.topic, (asked,)),)
        return DeleteRecordsRequest(topics, broker_ms(timeout_ns))

    def read(body: DeleteRecordsResponse) -> Offset:
        found = _only([each for topic in body.topics for each in topic.partitions], place)
        check_code(found.error_code, str(place))
        return Offset(found.low_watermark)

    return Ask(
        ApiKey.DELETE_RECORDS,
        read,
        make=make,
        place=place,
        changes=offset == EVERYTHING,
        timeout_ns=timeout_ns,
    )


def _only(found: list[Any], place: TopicPartition) -> Any:
    if len(found) != 1:
        raise ProtocolError(
            f"an answer about {amount(len(found), 'partition')}, not one", on=str(place)
        )
    return found[0]


def broker_ms(timeout_ns: Nanos) -> int:
    """The time that a broker may take, in milliseconds: less than the client waits, so that the
    answer arrives in time."""
    return max(1, timeout_ns * 3 // 4 // NANOS_PER_MILLI)
