"""One-shot questions of administration: settings, leaders, disks, the quorum, brokers.

See `raftlog.client.core.asks` for what an `Ask` is, and for topics, moves and records. A question
that names a node goes to that broker. Call `Client.know_brokers` first, so that the client knows
its address.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, final

from raftlog.base.arguments import checked
from raftlog.base.errors import ProtocolError, WrongValue
from raftlog.base.ids import NodeId
from raftlog.client.core.arguments import NodeNumber, Timeout
from raftlog.client.core.asks import ADMIN_TIMEOUT_NS, Ask, broker_ms
from raftlog.client.core.results import PartitionResult, check_code
from raftlog.client.core.values import ANY_NODE, TopicPartition
from raftlog.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from raftlog.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from raftlog.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from raftlog.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataRequest,
    ReplicaState,
    TopicDataRequest,
)
from raftlog.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from raftlog.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from raftlog.kafka.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from raftlog.kafka.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from raftlog.kafka.versions import ApiKey
from raftlog.metadata.rules.topic_names import METADATA_TOPIC
from raftlog.metadata.settings.config_changes import ConfigOperation

EVERY_BROKER: Final = ""
"""The name of the broker resource whose settings count for all brokers."""


@final
class ResourceKind(enum.IntEnum):
    """The kinds of resources that have settings, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@final
class ConfigSource(enum.IntEnum):
    """The place that a setting's value comes from, with Kafka's names and numbers."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Resource(NamedTuple):
    """A topic or group by name, or a broker by its number as text."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        kind = self.kind.name.lower().replace("_", " ")
        return f"{kind} {self.name}" if self.name else f"every {kind}"


class Synonym(NamedTuple):
    """One of the places that give a setting a value, and that value."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedSetting(NamedTuple):
    """A setting and the value that is in force. `synonyms` are all places that give it a value, the
    strongest first."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[Synonym, ...]
    documentation: str | None


class Change(NamedTuple):
    """One change of one setting. DELETE ignores `value`."""

    name: str
    value: str | None = None
    operation: ConfigOperation = ConfigOperation.SET


# --- settings -------------------------------------------------------------------------------------


@checked
def describe_settings(
    resources: Sequence[Resource],
    *,
    names: Sequence[str] | None = None,
    documentation: bool = False,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """`{Resource: {name: Setting}}` with all settings, or only with these `names`. Raises
    `KafkaError` for the first resource that is refused. Each broker knows only its own settings, so
    the question goes to that broker."""
    body = DescribeConfigsRequest(
        tuple(
            DescribeConfigsResource(each.kind, each.name, None if names is None else tuple(names))
            for each in resources
        ),
        True,
        documentation,
    )
    node = _asked_node(resources)
    return Ask(ApiKey.DESCRIBE_CONFIGS, _read_settings, body, node=node, timeout_ns=timeout_ns)


def _asked_node(resources: Sequence[Resource]) -> NodeId:
    """The one broker that knows these resources; any broker for topics and groups."""
    named = dict.fromkeys(
        each.name
        for each in resources
        if each.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER)
        and each.name != EVERY_BROKER
    )
    if not named:
        return ANY_NODE
    if len(named) > 1:
        raise WrongValue("resources name several brokers", do="ask each broker by itself")
    (name,) = named
    if not (name.isascii() and name.isdigit() and len(name) < 10):
        raise WrongValue("resources hold a broker whose name is no number", on=ascii(name))
    return NodeId(int(name))


def _read_settings(body: DescribeConfigsResponse) -> dict[Resource, dict[str, DescribedSetting]]:
    found: dict[Resource, dict[str, DescribedSetting]] = {}
    for result in body.results:
        resource = _resource(result.resource_type, result.resource_name)
        check_code(result.error_code, str(resource), result.error_message)
        found[resource] = {each.name: _setting(each) for each in result.configs}
    return found


def _resource(kind: int, name: str) -> Resource:
    if kind not in ResourceKind.__members__.values():
        raise ProtocolError(f"an answer about resource type {kind}", on=name)
    return Resource(ResourceKind(kind), name)


def _setting(each: DescribeConfigsResourceResult) -> DescribedSetting:
    return DescribedSetting(
        each.name,
        each.value,
        _source(each.config_source),
        each.read_only,
        each.is_sensitive,
        tuple(Synonym(one.name, one.value, _source(one.source)) for one in each.synonyms),
        each.documentation or None,
    )


def _source(number: int) -> ConfigSource:
    known = number in ConfigSource.__members__.values()
    return ConfigSource(number) if known else ConfigSource.UNKNOWN


@checked
def alter_settings(
    resource: Resource,
    changes: Sequence[Change],
    *,
    validate_only: bool = False,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """Change settings of one resource, all or none. `KafkaError` says which change was refused."""
    configs = tuple(
        AlterableConfig(
            each.name,
            each.operation,
            None if each.operation is ConfigOperation.DELETE else each.value,
        )
        for each in changes
    )
    body = IncrementalAlterConfigsRequest(
        (AlterConfigsResource(resource.kind, resource.name, configs),), validate_only
    )

    def read(answer: IncrementalAlterConfigsResponse) -> None:
        for each in answer.responses:
            check_code(each.error_code, str(resource), each.error_message)

    return Ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        read,
        body,
        node=_asked_node([resource]),
        changes=not validate_only,
        timeout_ns=timeout_ns,
    )


@checked
def list_resources(
    kinds: Sequence[ResourceKind] = (), timeout_ns: Timeout = ADMIN_TIMEOUT_NS
) -> Ask:
    """All existing `Resource`s of these kinds; of every kind without any."""

    def read(answer: ListConfigResourcesResponse) -> list[Resource]:
        check_code(answer.error_code, "resources")
        return [
            _resource(each.resource_type, each.resource_name) for each in answer.config_resources
        ]

    body = ListConfigResourcesRequest(tuple(kinds))
    return Ask(ApiKey.LIST_CONFIG_RESOURCES, read, body, timeout_ns=timeout_ns)


# --- leaders --------------------------------------------------------------------------------------


@checked
def elect_leaders(
    places: Sequence[TopicPartition] | None = None,
    *,
    unclean: bool = False,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """Give partitions back to their preferred leaders. The result is a `PartitionResult` for each
    one named; without names, for each partition that has another leader. raftlog refuses an unclean
    election."""
    topics: dict[str, list[int]] = {}
    for place in places or ():
        topics.setdefault(place.topic, []).append(place.partition)
    wanted = tuple(TopicPartitions(*each) for each in topics.items())
    body = ElectLeadersRequest(
        int(unclean), None if places is None else wanted, broker_ms(timeout_ns)
    )
    return Ask(ApiKey.ELECT_LEADERS, _read_elected, body, changes=True, timeout_ns=timeout_ns)


def _read_elected(body: ElectLeadersResponse) -> list[PartitionResult]:
    check_code(body.error_code, "election of leaders")
    return [
        PartitionResult(
            TopicPartition(topic.topic, each.partition_id), each.error_code, each.error_message
        )
        for topic in body.replica_election_results
        for each in topic.partition_result
    ]


# --- disks ----------------------------------------------------------------------------------------


@final
class ReplicaSize(NamedTuple):
    """A replica on a disk. `lag_records` counts the committed records that its log does not have
    yet."""

    place: TopicPartition
    size_bytes: int
    lag_records: int
    is_future: bool


@final
class LogDir(NamedTuple):
    """A data directory. Both sizes are None when the broker does not know them. With an
    `error_code` there are no replicas."""

    path: str
    error_code: int
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaSize, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all its replicas together."""
        return sum(each.size_bytes for each in self.replicas)


@checked
def describe_log_dirs(
    node: NodeNumber,
    places: Sequence[TopicPartition] | None = None,
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """The `LogDir`s of one broker, with its replicas of these partitions, or with all its
    replicas."""
    topics: dict[str, list[int]] = {}
    for place in places or ():
        topics.setdefault(place.topic, []).append(place.partition)
    wanted = tuple(DescribableLogDirTopic(*each) for each in topics.items())
    body = DescribeLogDirsRequest(None if places is None else wanted)

    def read(answer: DescribeLogDirsResponse) -> list[LogDir]:
        check_code(answer.error_code, f"broker {node}")
        return [
            LogDir(
                each.log_dir,
                each.error_code,
                _known(each.total_bytes),
                _known(each.usable_bytes),
                tuple(
                    ReplicaSize(
                        TopicPartition(topic.name, one.partition_index),
                        one.partition_size,
                        one.offset_lag,
                        one.is_future_key,
                    )
                    for topic in each.topics
                    for one in topic.partitions
                ),
            )
            for each in answer.results
        ]

    return Ask(ApiKey.DESCRIBE_LOG_DIRS, read, body, node=NodeId(node), timeout_ns=timeout_ns)


@checked
def alter_replica_log_dirs(
    node: NodeNumber,
    paths: Mapping[TopicPartition, str],
    timeout_ns: Timeout = ADMIN_TIMEOUT_NS,
) -> Ask:
    """Move replicas of one broker to other log directories of the same broker. The result is a
    `PartitionResult` for each. Without an error the broker has accepted the move;
    `describe_log_dirs` shows its progress."""
    topics: dict[str, dict[str, list[int]]] = {}
    for place, path in paths.items():
        topics.setdefault(path, {}).setdefault(place.topic, []).append(place.partition)
    wanted = tuple(
        AlterReplicaLogDir(path, tuple(AlterReplicaLogDirTopic(*each) for each in named.items()))
        for path, named in topics.items()
    )
    key, body = ApiKey.ALTER_REPLICA_LOG_DIRS, AlterReplicaLogDirsRequest(wanted)
    return Ask(key, _read_altered, body, node=NodeId(node), changes=True, timeout_ns=timeout_ns)


def _read_altered(body: AlterReplicaLogDirsResponse) -> list[PartitionResult]:
    return [
        PartitionResult(TopicPartition(topic.topic_name, each.partition_index), each.error_code)
        for topic in body.results
        for each in topic.partitions
    ]


def _known(number: int) -> int | None:
    return number if number >= 0 else None


# --- the quorum -----------------------------------------------------------------------------------


@final
class QuorumReplica(NamedTuple):
    """A broker that holds the metadata. Times are Unix milliseconds, None where not known."""

    node: NodeId
    voter: bool
    log_end: int | None
    heard_ms: int | None
    caught_up_ms: int | None
    directory_id: bytes = b""


@final
class Quorum(NamedTuple):
    """The state of the metadata group, as its leader reports it. `committed` entries are on a
    majority."""

    leader: NodeId
    epoch: int
    committed: int
    replicas: tuple[QuorumReplica, ...]


@checked
def describe_quorum(timeout_ns: Timeout = ADMIN_TIMEOUT_NS) -> Ask:
    """The `Quorum`: the controllers, and the brokers that follow them."""
    topic = TopicDataRequest(METADATA_TOPIC, (PartitionDataRequest(0),))
    body = DescribeQuorumRequest((topic,))
    return Ask(ApiKey.DESCRIBE_QUORUM, _read_quorum, body, timeout_ns=timeout_ns)


def _read_quorum(body: DescribeQuorumResponse) -> Quorum:
    check_code(body.error_code, "quorum", body.error_message)
    partitions = [each for topic in body.topics for each in topic.partitions]
    if len(partitions) != 1:
        raise ProtocolError("an answer without the one partition of metadata", on=METADATA_TOPIC)
    (told,) = partitions
    check_code(told.error_code, METADATA_TOPIC, told.error_message)
    voters = [_quorum_replica(each, voter=True) for each in told.current_voters]
    observers = [_quorum_replica(each, voter=False) for each in told.observers]
    replicas = (*voters, *observers)
    return Quorum(NodeId(told.leader_id), told.leader_epoch, told.high_watermark, replicas)


def _quorum_replica(each: ReplicaState, *, voter: bool) -> QuorumReplica:
    return QuorumReplica(
        NodeId(each.replica_id),
        voter,
        _known(each.log_end_offset),
        _known(each.last_fetch_timestamp),
        _known(each.last_caught_up_timestamp),
        each.replica_directory_id,
    )


# --- brokers --------------------------------------------------------------------------------------


@final
class FeatureLevels(NamedTuple):
    """A feature: the levels that a broker supports, and the level of the cluster as that broker
    knows it (None where it does not)."""

    level_min: int
    level_max: int
    level: int | None


@checked
def describe_features(node: NodeNumber, timeout_ns: Timeout = ADMIN_TIMEOUT_NS) -> Ask:
    """`{name: FeatureLevels}` of one broker; raftlog has `raftlog.version`."""

    def read(answer: ApiVersionsResponse) -> dict[str, FeatureLevels]:
        check_code(answer.error_code, f"broker {node}")
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        return {
            each.name: FeatureLevels(each.min_version, each.max_version, levels.get(each.name))
            for each in answer.supported_features
        }

    body = ApiVersionsRequest("raftlog", "0")
    return Ask(ApiKey.API_VERSIONS, read, body, node=NodeId(node), timeout_ns=timeout_ns)


@checked
def unregister_broker(node: NodeNumber, timeout_ns: Timeout = ADMIN_TIMEOUT_NS) -> Ask:
    """Remove a broker that will not come back. `KafkaError` while it runs or holds a replica."""

    def read(answer: UnregisterBrokerResponse) -> None:
        check_code(answer.error_code, f"broker {node}", answer.error_message)

    body: Any = UnregisterBrokerRequest(node)
    return Ask(ApiKey.UNREGISTER_BROKER, read, body, changes=True, timeout_ns=timeout_ns)
