"""The one table of APIs and versions. ApiVersions, dispatch and the docs page are made from it.

Only served APIs are advertised, because clients act on the list. librdkafka before 2.11.1 reads
minimums literally (its issue 4956, KAFKA-18659): with Produce advertised from 3 it sends compressed
batches uncompressed. So Produce is advertised from 0 and accepted from 3. A Produce of version 0-2
has no schema any more and closes the connection.

kafka-python infers the broker's release from the maximums (ListOffsets 11 = 4.2, Produce 13 = 4.1,
ListOffsets 10 = 4.0, Fetch 17 = 3.9): widen all APIs of a release together.
"""

from enum import IntEnum, unique
from typing import Final, NamedTuple, final

from raftlog.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from raftlog.kafka.tables import message_table


@final
@unique
class ApiKey(IntEnum):
    """Every API that has a table; `SERVED` says whether it is served."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81


@final
class ServedApi(NamedTuple):
    """One line of the table of served APIs."""

    key: ApiKey
    advertised_min: int
    max: int
    accepted_min: int
    ring: int
    """The group of APIs: 1 is data path, groups, idempotence; 2 is admin; 3 is transactions."""


_TABLE: Final = (
    ServedApi(ApiKey.PRODUCE, 0, 13, 3, 1),
    ServedApi(ApiKey.FETCH, 4, 18, 4, 1),
    ServedApi(ApiKey.LIST_OFFSETS, 1, 11, 1, 1),
    ServedApi(ApiKey.METADATA, 0, 13, 0, 1),
    ServedApi(ApiKey.OFFSET_COMMIT, 2, 10, 2, 1),
    ServedApi(ApiKey.OFFSET_FETCH, 1, 10, 1, 1),
    ServedApi(ApiKey.FIND_COORDINATOR, 0, 6, 0, 1),
    ServedApi(ApiKey.JOIN_GROUP, 0, 9, 0, 1),
    ServedApi(ApiKey.HEARTBEAT, 0, 4, 0, 1),
    ServedApi(ApiKey.LEAVE_GROUP, 0, 5, 0, 1),
    ServedApi(ApiKey.SYNC_GROUP, 0, 5, 0, 1),
    ServedApi(ApiKey.DESCRIBE_GROUPS, 0, 6, 0, 2),
    ServedApi(ApiKey.LIST_GROUPS, 0, 5, 0, 1),
    ServedApi(ApiKey.API_VERSIONS, 0, 4, 0, 1),
    ServedApi(ApiKey.CREATE_TOPICS, 2, 7, 2, 1),
    ServedApi(ApiKey.DELETE_TOPICS, 1, 6, 1, 1),
    ServedApi(ApiKey.DELETE_RECORDS, 0, 2, 0, 2),
    ServedApi(ApiKey.INIT_PRODUCER_ID, 0, 5, 0, 1),
    ServedApi(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 2, 1),
    ServedApi(ApiKey.DESCRIBE_ACLS, 1, 3, 1, 2),
    ServedApi(ApiKey.CREATE_ACLS, 1, 3, 1, 2),
    ServedApi(ApiKey.DELETE_ACLS, 1, 3, 1, 2),
    ServedApi(ApiKey.DESCRIBE_CONFIGS, 1, 4, 1, 1),
    ServedApi(ApiKey.ALTER_CONFIGS, 0, 2, 0, 2),
    ServedApi(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 1, 2),
    ServedApi(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 1, 2),
    ServedApi(ApiKey.CREATE_PARTITIONS, 0, 3, 0, 1),
    ServedApi(ApiKey.DELETE_GROUPS, 0, 2, 0, 2),
    ServedApi(ApiKey.ELECT_LEADERS, 0, 2, 0, 2),
    ServedApi(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 0, 2),
    ServedApi(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0, 2),
    ServedApi(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0, 2),
    ServedApi(ApiKey.OFFSET_DELETE, 0, 0, 0, 2),
    ServedApi(ApiKey.DESCRIBE_QUORUM, 0, 2, 0, 2),
    ServedApi(ApiKey.UPDATE_FEATURES, 0, 2, 0, 2),
    ServedApi(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0, 1),
    ServedApi(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0, 2),
    ServedApi(ApiKey.UNREGISTER_BROKER, 0, 0, 0, 2),
    ServedApi(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0, 1),
    ServedApi(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0, 2),
    ServedApi(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0, 2),
    ServedApi(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 1, 1),
    ServedApi(ApiKey.ADD_RAFT_VOTER, 0, 0, 0, 2),
    ServedApi(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0, 2),
)

SERVED: Final[dict[int, ServedApi]] = {int(api.key): api for api in _TABLE}
"""The APIs that this release serves, by API key, in ascending order."""
_RANGES: Final = tuple(
    ApiVersion(int(api.key), api.advertised_min, api.max) for api in SERVED.values()
)


@final
class Features(NamedTuple):
    """A feature: the levels at which this broker can take part, and the cluster's level.

    The cluster's level is as of an epoch of the metadata; 0 means that it is not known.
    """

    name: str
    level_min: int
    level_max: int
    level: int
    epoch: int


def is_served(api_key: int, version: int) -> bool:
    """Whether a handler answers this version; if not, the answer is UNSUPPORTED_VERSION."""
    api = SERVED.get(api_key)
    return api is not None and api.accepted_min <= version <= api.max


def api_name(api_key: int) -> str:
    """Kafka's name of an API, as documentation writes it; the number when there is none."""
    table = message_table(api_key, "request")
    return table[1].removesuffix("Request") if table else f"API {api_key}"


def api_versions_response(
    *, error_code: int = 0, throttle_time_ms: int = 0, features: Features | None = None
) -> ApiVersionsResponse:
    """The answer to ApiVersions; with UNSUPPORTED_VERSION it still has the whole list (KIP-511)."""
    answer = ApiVersionsResponse(
        error_code=error_code,
        api_keys=_RANGES,
        throttle_time_ms=throttle_time_ms,
    )
    if features is None:
        return answer
    answer = answer._replace(
        supported_features=(
            SupportedFeatureKey(features.name, features.level_min, features.level_max),
        )
    )
    if features.level == 0:
        return answer  # this broker does not know the cluster's level yet
    finalized = FinalizedFeatureKey(features.name, features.level, features.level)
    return answer._replace(finalized_features_epoch=features.epoch, finalized_features=(finalized,))


def docs_table() -> str:
    """The table of the reference page, as Markdown."""
    lines = ["| API | key | versions | accepted from | ring |", "|---|---|---|---|---|"]
    lines += [
        f"| {api_name(api.key)} | {int(api.key)} | {api.advertised_min}-{api.max} "
        f"| {api.accepted_min} | {api.ring} |"
        for api in SERVED.values()
    ]
    return "\n".join([*lines, ""])
