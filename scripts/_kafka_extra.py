"""Schemas of Kafka's messages that the kafka-python wheel lacks, in the form of its own schemas.

`kafka_tables` adds them to those of the wheel.
"""

from typing import Any


def _plain(kind: str, *names: str) -> list[dict[str, Any]]:
    """Returns fields of every version."""
    return [{"name": name, "type": kind, "versions": "0+"} for name in names]


_ID_AND_PARTITIONS = [*_plain("uuid", "TopicId"), *_plain("[]int32", "Partitions")]
_ASSIGNED = {**_plain("[]TopicPartitions", "TopicPartitions")[0], "fields": _ID_AND_PARTITIONS}


def _nullable(
    *names: str, kind: str = "string", since: str = "0+", fields: list[dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """Returns fields that are null by default."""
    more = {} if fields is None else {"fields": fields}
    shape = {"type": kind, "versions": since, "nullableVersions": since, "default": "null", **more}
    return [{"name": name, **shape} for name in names]


_MESSAGE = {"name": "ErrorMessage", "type": "string", "versions": "0+", "nullableVersions": "0+"}
_BROKER_GONE = [*_plain("int32", "ThrottleTimeMs"), *_plain("int16", "ErrorCode"), _MESSAGE]
_LISTENER = [*_plain("string", "Name", "Host"), *_plain("uint16", "Port")]
_HEARTBEAT_ANSWER = [
    *_plain("int32", "ThrottleTimeMs"),
    *_plain("int16", "ErrorCode"),
    *_nullable("ErrorMessage", "MemberId"),
    *_plain("int32", "MemberEpoch", "HeartbeatIntervalMs"),
    *_nullable("Assignment", kind="Assignment", fields=[_ASSIGNED]),
]


def _message(key: int, name: str, versions: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a request or a response; all its versions are flexible."""
    kind = "request" if name.endswith("Request") else "response"
    shape = {"apiKey": key, "type": kind, "name": name, "validVersions": versions}
    return {**shape, "flexibleVersions": "0+", "fields": fields}


# Messages that the wheel lacks, in the form of the schemas: an admin API, the heartbeats of the
# newer group protocols, and the records that brokers keep in __consumer_offsets (Kafka's
# group-coordinator messages).
EXTRA: list[dict[str, Any]] = [
    _message(64, "UnregisterBrokerRequest", "0", _plain("int32", "BrokerId")),
    _message(64, "UnregisterBrokerResponse", "0", _BROKER_GONE),
    _message(
        80,
        "AddRaftVoterRequest",
        "0",
        [
            {**_plain("string", "ClusterId")[0], "nullableVersions": "0+"},
            *_plain("int32", "TimeoutMs", "VoterId"),
            *_plain("uuid", "VoterDirectoryId"),
            {**_plain("[]Listener", "Listeners")[0], "fields": _LISTENER},
        ],
    ),
    _message(80, "AddRaftVoterResponse", "0", _BROKER_GONE),
    _message(
        81,
        "RemoveRaftVoterRequest",
        "0",
        [
            {**_plain("string", "ClusterId")[0], "nullableVersions": "0+"},
            *_plain("int32", "VoterId"),
            *_plain("uuid", "VoterDirectoryId"),
        ],
    ),
    _message(81, "RemoveRaftVoterResponse", "0", _BROKER_GONE),
    _message(
        68,
        "ConsumerGroupHeartbeatRequest",
        "0-1",
        [
            *_plain("string", "GroupId", "MemberId"),
            *_plain("int32", "MemberEpoch"),
            *_nullable("InstanceId", "RackId"),
            {"name": "RebalanceTimeoutMs", "type": "int32", "versions": "0+", "default": "-1"},
            *_nullable("SubscribedTopicNames", kind="[]string"),
            *_nullable("SubscribedTopicRegex", since="1+"),
            *_nullable("ServerAssignor"),
            *_nullable("TopicPartitions", kind="[]TopicPartitions", fields=_ID_AND_PARTITIONS),
        ],
    ),
    _message(68, "ConsumerGroupHeartbeatResponse", "0-1", _HEARTBEAT_ANSWER),
    _message(
        76,
        "ShareGroupHeartbeatRequest",
        "1",
        [
            *_plain("string", "GroupId", "MemberId"),
            *_plain("int32", "MemberEpoch"),
            *_nullable("RackId"),
            *_nullable("SubscribedTopicNames", kind="[]string"),
        ],
    ),
    _message(76, "ShareGroupHeartbeatResponse", "1", _HEARTBEAT_ANSWER),
    {
        "type": "data",
        "name": "OffsetCommitKey",
        "validVersions": "0-1",
        "flexibleVersions": "none",
        "fields": [
            {"name": "Group", "type": "string", "versions": "0+"},
            {"name": "Topic", "type": "string", "versions": "0+"},
            {"name": "Partition", "type": "int32", "versions": "0+"},
        ],
    },
    {
        "type": "data",
        "name": "OffsetCommitValue",
        "validVersions": "0-4",
        "flexibleVersions": "4+",
        "fields": [
            {"name": "Offset", "type": "int64", "versions": "0+"},
            {"name": "LeaderEpoch", "type": "int32", "versions": "3+", "default": -1},
            {"name": "Metadata", "type": "string", "versions": "0+"},
            {"name": "CommitTimestamp", "type": "int64", "versions": "0+"},
            {"name": "ExpireTimestamp", "type": "int64", "versions": "1", "default": -1},
        ],
    },
    {
        "type": "data",
        "name": "GroupMetadataKey",
        "validVersions": "2",
        "flexibleVersions": "none",
        "fields": [{"name": "Group", "type": "string", "versions": "2"}],
    },
    {
        "type": "data",
        "name": "GroupMetadataValue",
        "validVersions": "0-4",
        "flexibleVersions": "4+",
        "fields": [
            {"name": "ProtocolType", "type": "string", "versions": "0+"},
            {"name": "Generation", "type": "int32", "versions": "0+"},
            {"name": "Protocol", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "Leader", "type": "string", "versions": "0+", "nullableVersions": "0+"},
            {"name": "CurrentStateTimestamp", "type": "int64", "versions": "2+", "default": -1},
            {
                "name": "Members",
                "type": "[]MemberMetadata",
                "versions": "0+",
                "fields": [
                    {"name": "MemberId", "type": "string", "versions": "0+"},
                    {
                        "name": "GroupInstanceId",
                        "type": "string",
                        "versions": "3+",
                        "nullableVersions": "3+",
                        "default": "null",
                    },
                    {"name": "ClientId", "type": "string", "versions": "0+"},
                    {"name": "ClientHost", "type": "string", "versions": "0+"},
                    {"name": "RebalanceTimeout", "type": "int32", "versions": "1+"},
                    {"name": "SessionTimeout", "type": "int32", "versions": "0+"},
                    {"name": "Subscription", "type": "bytes", "versions": "0+"},
                    {"name": "Assignment", "type": "bytes", "versions": "0+"},
                ],
            },
        ],
    },
]
