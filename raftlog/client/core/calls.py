"""The calls of a client that have one result: a record, a topic that is waited for, a question."""

from typing import Annotated, NamedTuple

from raftlog.base.arguments import between
from raftlog.base.limits import RECORD_TIMESTAMP_MS_MAX
from raftlog.base.units import WallMillis
from raftlog.client.core.arguments import PartitionIndex, TopicName
from raftlog.client.core.asks import Ask
from raftlog.client.core.batches import Headers


class Produce(NamedTuple):
    """A call: one record, completed with its `RecordPosition`. Waits for an unknown topic or
    partition."""

    topic: TopicName
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: PartitionIndex | None = None
    timestamp_ms: Annotated[WallMillis, between(-1, RECORD_TIMESTAMP_MS_MAX)] = WallMillis(-1)


class KnowTopic(NamedTuple):
    """A call: completed with a `TopicView` when the topic is known, and this partition of it if one
    is named; `KafkaError` when it stays unknown."""

    topic: TopicName
    partition: PartitionIndex | None = None


Call = Produce | KnowTopic | Ask
