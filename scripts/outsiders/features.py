"""The features that every client is asked for, in the order of the matrix, and the topics for them.

A feature stands alone: the cluster has each of its topics before the client starts, so a client
that hangs in one feature is started again for those that remain.
"""

from itertools import chain
from typing import NamedTuple

from outsiders.programs.tool_calls import CALLS

FILLED_RECORDS = 20
"""How many records each partition of the filled topic has; the value of each is
`partition:offset`."""
FILLED_PARTITIONS = 3
FIRST_TIMESTAMP = 1_700_000_000_000
"""The timestamp of offset 0 in the filled topic, in milliseconds. Offset N is N seconds later."""
WRITTEN_RECORDS = 10
"""How many records a feature that produces writes; they are read back after it."""
KNOWN_OFFSET = 7
"""The offset that each of a client's known groups has committed, in partition 0 of the filled
topic."""
COMMITTED_OFFSET = 4
"""The offset that a client itself commits there, in the feature that is a commit alone."""


class Feature(NamedTuple):
    """One row of the matrix; `writes` says that its records are read back."""

    name: str
    about: str
    writes: bool = False


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")

FEATURES = [
    Feature("create", "create a topic with two partitions, three replicas and a setting"),
    Feature("grow", "raise a topic from one partition to three"),
    Feature("describe", "partitions, leaders and replicas of a topic"),
    Feature("delete", "delete a topic"),
    Feature("describe-configs", "read `retention.ms` of a topic"),
    Feature("alter-configs", "set `retention.ms` of a topic"),
    *(Feature(f"produce-{codec}", f"produce with codec {codec}", True) for codec in CODECS),
    *(Feature(f"acks-{acks}", f"produce with acks={acks}", True) for acks in ACKS),
    Feature("idempotent", "produce with `enable.idempotence`", True),
    Feature("consume", "read three partitions by assignment, from the start, every record"),
    Feature("consume-time", "read from a timestamp on"),
    Feature("delete-records", "delete the records before an offset"),
    Feature("reassign", "move a partition to another broker"),
    Feature("list-groups", "list the consumer groups; one that has committed is among them"),
    Feature("group", "subscribe as a group, read every record, commit"),
    Feature("transaction", "produce inside a transaction and commit it", True),
    Feature("kip-848", "subscribe with the new group protocol, read every record"),
]
LOST_ANSWER = Feature(
    "lost-answer", "over `/faults`, lose the answer to a Produce; every record is there once", True
)
AUTO_CREATE = Feature("auto-create", "a record for a topic that is not there makes the topic")
END_OFFSETS = Feature("end-offsets", "where a partition begins and ends")
LIST_TOPICS = Feature("list-topics", "list the topics")
DESCRIBE_CLUSTER = Feature("describe-cluster", "cluster id, controller and nodes")
DESCRIBE_BROKER = Feature("describe-broker-configs", "read the settings of a broker")
ALTER_WHOLE = Feature("alter-configs-whole", "replace all settings of a topic by those given")
VALIDATE_ONLY = Feature("validate-only", "ask whether a topic could be made; it is not")
MAX_TIMESTAMP = Feature("max-timestamp", "the offset of the newest timestamp")
ELECT_LEADERS = Feature("elect-leaders", "elect the preferred leader of a partition")
LIST_MOVES = Feature("list-reassignments", "the partitions that move between brokers")
DESCRIBE_DISKS = Feature("describe-log-dirs", "what a broker's disk holds")
DESCRIBE_PRODUCERS = Feature("describe-producers", "the producers of a partition")
DESCRIBE_ACLS = Feature("describe-acls", "the access control lists")
DESCRIBE_GROUPS = Feature("describe-groups", "what the coordinator knows of a group")
DELETE_GROUPS = Feature("delete-groups", "delete a group")
GROUP_OFFSETS = Feature("group-offsets", "the offsets that a group has committed")
API_VERSIONS = Feature("api-versions", "which versions of which requests every broker serves")
READ_COMMITTED = Feature("read-committed", "read with `isolation.level=read_committed`")
SUBSCRIBE_ALONE = Feature("subscribe-alone", "subscribe as no member of a group, read every record")
RECORD = Feature("record", "headers, a timestamp of its own and no value, as they were written")
TOO_LARGE = Feature("too-large", "a record above the limit is refused as too large")
OUT_OF_RANGE = Feature("out-of-range", "a position behind the end is refused as out of range")

TOOLS = "kafka-tools"
TOOL_STORIES = [
    Feature("log-dirs-several", "`LogDirsCommand --describe` of a broker with two log directories"),
    Feature("reassign-log-dirs", "move a replica to another log directory, and verify it"),
    Feature(
        "reassign-log-dirs-throttle",
        "the same at `--replica-alter-log-dirs-throttle`: set, shown, kept, taken away",
    ),
    Feature("remove-controller", "`MetadataQuorumCommand remove-controller`: an observer is left"),
]
"""Calls of tools that need more than a line; `programs/kafka_tools` has each as a function."""
TOOL_FEATURES = [
    Feature("produce-sync", "`ConsoleProducer --sync`: each line waits for its answer", True),
    *(
        Feature(name, f"`{call.tool} {call.flags}`".replace(" `", "`"))
        for name, call in CALLS.items()
    ),
    *TOOL_STORIES,
]
JAVA_CLIENTS = "kafka-clients"
JAVA_FEATURES = [
    VALIDATE_ONLY,
    Feature("grow-assigned", "add a partition and name the brokers that hold it"),
    Feature("shrink", "fewer partitions than there are is refused"),
    AUTO_CREATE,
    Feature("describe-by-id", "describe a topic by its id"),
    Feature("delete-by-id", "delete a topic by its id"),
    DESCRIBE_CLUSTER,
    Feature("authorized-operations", "what the client may do to the cluster and to a topic"),
    MAX_TIMESTAMP,
    Feature("earliest-pending-upload", "the first offset that tiered storage still lacks: none"),
    ELECT_LEADERS,
    LIST_MOVES,
    DESCRIBE_PRODUCERS,
    DESCRIBE_DISKS,
    Feature("describe-quorum", "the controllers"),
    Feature("describe-features", "the cluster's feature levels"),
    DESCRIBE_GROUPS,
    GROUP_OFFSETS,
    READ_COMMITTED,
    Feature("assign-group", "read by assignment from where a group is, without a subscription"),
    Feature("assign-kip-848", "the same, with the new group protocol"),
    Feature("client-instance-id", "ask the cluster for an id of this client's metrics"),
    RECORD,
    TOO_LARGE,
    OUT_OF_RANGE,
    LOST_ANSWER,
]
LIBRDKAFKA = "confluent-kafka"
LIBRDKAFKA_FEATURES = [
    Feature("create-twice", "a topic that is there already is refused"),
    VALIDATE_ONLY,
    Feature("delete-unknown", "to delete a topic that is not there is refused"),
    Feature("describe-topics", "partitions of a topic, by the request made for it"),
    DESCRIBE_CLUSTER,
    DESCRIBE_BROKER,
    ALTER_WHOLE,
    MAX_TIMESTAMP,
    Feature("max-timestamp-live", "the same, a hundred times while records are produced"),
    ELECT_LEADERS,
    DESCRIBE_ACLS,
    DESCRIBE_GROUPS,
    DELETE_GROUPS,
    Feature("commit", "commit an offset, without a subscription"),
    Feature("committed", "the offsets that a group has committed"),
    RECORD,
    Feature("large", "a record of 900 kB"),
    TOO_LARGE,
    Feature("gapless", "produce with `enable.gapless.guarantee`"),
    AUTO_CREATE,
    READ_COMMITTED,
    Feature("small-fetches", "batches that are larger than the limits of a fetch"),
    OUT_OF_RANGE,
    Feature("seek", "go to an offset, tell it, pause and resume"),
]
KAFKA_PYTHON_FEATURES = [
    SUBSCRIBE_ALONE,
    AUTO_CREATE,
    Feature("old-release", "produce and read as with a broker of Kafka 0.11", True),
]
AIOKAFKA_FEATURES = [LIST_TOPICS, DESCRIBE_CLUSTER, END_OFFSETS]
FRANZ_GO_FEATURES = [
    Feature("leaders-shown", "every broker names the leaders of what was just created or grown"),
    API_VERSIONS,
    Feature("epoch-end", "where the present leader epoch of a partition ends"),
    MAX_TIMESTAMP,
    ELECT_LEADERS,
    LIST_MOVES,
    DESCRIBE_DISKS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_ACLS,
    DESCRIBE_GROUPS,
    GROUP_OFFSETS,
    SUBSCRIBE_ALONE,
    READ_COMMITTED,
    LOST_ANSWER,
]
SARAMA_FEATURES = [
    LIST_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_BROKER,
    ALTER_WHOLE,
    ELECT_LEADERS,
    LIST_MOVES,
    DESCRIBE_DISKS,
    DESCRIBE_ACLS,
    DESCRIBE_GROUPS,
    GROUP_OFFSETS,
    DELETE_GROUPS,
]
SEGMENT_FEATURES = [
    Feature("write-created", "write to every partition as soon as a topic was created"),
    Feature("write-grown", "write to every partition as soon as a topic was grown"),
    API_VERSIONS,
    ALTER_WHOLE,
    Feature("create-controller", "find the controller, and create a topic over a connection to it"),
    Feature("connection", "write and read over one connection to a partition's leader"),
    Feature("produce-raw", "produce by one request, without a writer", True),
    Feature("list-offsets", "the start, the end and the offset of a time, in one request"),
    DESCRIBE_GROUPS,
]
KAFKAJS_FEATURES = [LIST_TOPICS, DESCRIBE_CLUSTER, GROUP_OFFSETS, LOST_ANSWER]
KAFKA_CONSOLE_FEATURES = [
    LIST_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_BROKER,
    END_OFFSETS,
    GROUP_OFFSETS,
]
KASKADE_FEATURES = [LIST_TOPICS, DESCRIBE_GROUPS, GROUP_OFFSETS]
SPARK_FEATURES = [
    Feature("stream", "`availableNow` from one topic into another, every record once"),
    Feature("stream-limited", "the same, with `maxOffsetsPerTrigger`"),
    Feature("pattern", "`subscribePattern`"),
    Feature("assign", "`assign`: two partitions of three"),
    Feature("min-partitions", "`minPartitions`: a partition in several tasks"),
    Feature("ending-offsets", "`endingOffsets` as JSON"),
    Feature("read-committed", "`kafka.isolation.level=read_committed`"),
]
OWN_FEATURES = {
    LIBRDKAFKA: LIBRDKAFKA_FEATURES,
    "kafka-python": KAFKA_PYTHON_FEATURES,
    "aiokafka": AIOKAFKA_FEATURES,
    JAVA_CLIENTS: JAVA_FEATURES,
    TOOLS: TOOL_FEATURES,
    "franz-go": FRANZ_GO_FEATURES,
    "sarama": SARAMA_FEATURES,
    "kafka-go": SEGMENT_FEATURES,
    "spark-connector": SPARK_FEATURES,
    "kafkajs": KAFKAJS_FEATURES,
    "csharp-mono": [LOST_ANSWER],
    "faststream": [SUBSCRIBE_ALONE],
    "kafka-console": KAFKA_CONSOLE_FEATURES,
    "kaskade": KASKADE_FEATURES,
}
"""Beginning of the names of clients -> the features that only they are asked for."""
NAMES = [feature.name for feature in FEATURES]
OWN_NAMES = list(dict.fromkeys(each.name for own in OWN_FEATURES.values() for each in own))
WRITING = [each.name for each in [*FEATURES, *chain(*OWN_FEATURES.values())] if each.writes]


def names_of(client):
    """Returns the features of the client of this name, in their order."""
    own = [own for head, own in OWN_FEATURES.items() if client.startswith(head)]
    return [*NAMES, *(each.name for features in own for each in features)]
