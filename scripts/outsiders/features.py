"""What every client is asked to do, in the order of the matrix, and the topics made for it.

A feature stands alone: the cluster has each of its topics before the client starts, so a client
that hangs in one feature is started again for those that remain.
"""

from typing import NamedTuple

FILLED_RECORDS = 20
"""In each partition of the filled topic; the value of each is `partition:offset`."""
FILLED_PARTITIONS = 3
FIRST_TIMESTAMP = 1_700_000_000_000
"""In milliseconds, of offset 0 in the filled topic. Offset N is N seconds later."""
WRITTEN_RECORDS = 10
"""What a feature that produces writes, and what is read back after it."""


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
    Feature("list-groups", "list the consumer groups"),
    Feature("group", "subscribe as a group, read every record, commit"),
    Feature("transaction", "produce inside a transaction and commit it", True),
    Feature("kip-848", "subscribe with the new group protocol, read every record"),
]
NAMES = [feature.name for feature in FEATURES]
WRITING = [feature.name for feature in FEATURES if feature.writes]
