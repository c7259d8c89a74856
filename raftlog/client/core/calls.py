"""The calls of a client that have one result: a record, a topic that is waited for, a question."""

from typing import Annotated, NamedTuple

from raftlog.base.arguments import between
from raftlog.base.limits import RECORD_TIMESTAMP_MS_MAX
from raftlog.base.units import WallMillis
from raftlog.client.core.arguments import PartitionIndex, TopicName
from raftlog.client.core.asks import Ask
from raftlog.client.core.batches import Headers


class Produce(NamedTuple):
    """A call that sends one record and completes with its `RecordPosition`. It waits for an unknown
    topic or partition."""

    topic: TopicName
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: PartitionIndex | None = None
    timestamp_ms: Annotated[WallMillis, between(-1, RECORD_TIMESTAMP_MS_MAX)] = WallMillis(-1)


class KnowTopic(NamedTuple):
    """A call that completes with a `TopicView` once the topic, and the partition if one is named,
    is known. It ends in `KafkaError` when either stays unknown."""

    topic: TopicName
    partition: PartitionIndex | None = None


Call = Produce | KnowTopic | Ask
