"""What every client is asked to do, in the order of the matrix, and the topics made for it.

A feature stands alone: the cluster has each of its topics before the client starts, so a client
that hangs in one feature is started again for those that remain.
"""

from typing import NamedTuple

from outsiders.programs.tool_calls import CALLS

FILLED_RECORDS = 20
"""In each partition of the filled topic; the value of each is `partition:offset`."""
FILLED_PARTITIONS = 3
FIRST_TIMESTAMP = 1_700_000_000_000
"""In milliseconds, of offset 0 in the filled topic. Offset N is N seconds later."""
WRITTEN_RECORDS = 10
"""What a feature that produces writes, and what is read back after it."""
KNOWN_OFFSET = 7
"""What the groups that a client finds have committed, in partition 0 of the filled topic."""
COMMITTED_OFFSET = 4
"""What a client itself commits there, in the feature that is a commit alone."""


class Feature(NamedTuple):
    """One row of the matrix: `writes` when the records that it produced are read back."""

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
TOOLS = "kafka-tools"
TOOL_FEATURES = [
    Feature(name, f"`{call.tool} {call.flags}`".replace(" `", "`")) for name, call in CALLS.items()
]
JAVA_CLIENTS = "kafka-clients"
JAVA_FEATURES = [
    Feature("describe-by-id", "describe a topic by its id"),
    Feature("delete-by-id", "delete a topic by its id"),
    Feature("describe-cluster", "cluster id, controller and nodes"),
    Feature("max-timestamp", "the offset of the newest timestamp"),
    Feature("elect-leaders", "elect the preferred leaders of all partitions"),
    Feature("describe-producers", "the producers of a partition"),
    Feature("describe-log-dirs", "what a broker's disk holds"),
    Feature("describe-quorum", "the controllers"),
    Feature("describe-features", "the cluster's feature levels"),
    Feature("describe-groups", "what the coordinator knows of a group"),
    Feature("group-offsets", "the offsets that a group has committed"),
    Feature("record", "headers, a timestamp of its own and no value, as they were written"),
    Feature("too-large", "a record above the limit is refused as too large"),
    Feature("out-of-range", "a position behind the end is refused as out of range"),
    LOST_ANSWER,
]
LIBRDKAFKA = "confluent-kafka"
LIBRDKAFKA_FEATURES = [
    Feature("describe-cluster", "cluster id, controller and nodes"),
    Feature("max-timestamp", "the offset of the newest timestamp"),
    Feature("max-timestamp-live", "the same, a hundred times while records are produced"),
    Feature("elect-leaders", "elect the preferred leader of a partition"),
    Feature("describe-acls", "the access control lists"),
    Feature("describe-groups", "what the coordinator knows of a group"),
    Feature("delete-groups", "delete a group"),
    Feature("commit", "commit an offset, without a subscription"),
    Feature("committed", "the offsets that a group has committed"),
    Feature("record", "headers, a timestamp of its own and no value, as they were written"),
    Feature("large", "a record of 900 kB"),
    Feature("too-large", "a record above the limit is refused as too large"),
    Feature("gapless", "produce with `enable.gapless.guarantee`"),
    Feature("auto-create", "a record for a topic that is not there makes the topic"),
    Feature("out-of-range", "a position behind the end is refused as out of range"),
    Feature("seek", "go to an offset, tell it, pause and resume"),
]
SEGMENT = "kafka-go"
SEGMENT_FEATURES = [
    Feature("write-created", "write to every partition as soon as a topic was created"),
    Feature("write-grown", "write to every partition as soon as a topic was grown"),
]
SPARK = "spark-connector"
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
    JAVA_CLIENTS: JAVA_FEATURES,
    TOOLS: TOOL_FEATURES,
    SEGMENT: SEGMENT_FEATURES,
    SPARK: SPARK_FEATURES,
    "franz-go": [LOST_ANSWER],
    "kafkajs": [LOST_ANSWER],
}
"""Head of the names of clients -> what they alone are asked."""
NAMES = [feature.name for feature in FEATURES]
OWN_NAMES = list(dict.fromkeys(each.name for own in OWN_FEATURES.values() for each in own))
WRITING = [feature.name for feature in [*FEATURES, LOST_ANSWER] if feature.writes]


def names_of(client):
    """The features of the client of this name, in their order."""
    own = [own for head, own in OWN_FEATURES.items() if client.startswith(head)]
    return [*NAMES, *(each.name for features in own for each in features)]
