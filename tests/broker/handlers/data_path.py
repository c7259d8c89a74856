"""Helpers of the tests of the data-path handlers: requests of one partition, and a led topic."""

from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from raftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster, values_of
from tests.partition.group import batch_of

WALL = 1_700_000_000_000


def led_topic(name="t", brokers=3, partitions=1, configs=(), seed=1, configure=None):
    cluster = Cluster(brokers, seed=seed, configure=configure).ready()
    cluster.create(name, partitions, min(3, brokers), configs=configs)
    cluster.wait(lambda: all(at_rest(cluster, name, n) for n in range(partitions)), 20.0, "leaders")
    return cluster


def at_rest(cluster, name, number):
    """The partition is led by its first choice, to whom a new one is handed over if need be."""
    for node in cluster.world.running():
        partition = node.broker.context.router.partition(name, number)
        replica = node.broker.context.router.replica(name, number)
        if isinstance(partition, int) or isinstance(replica, int):
            return False
        if partition.target[0] == replica.me and not replica.ready:
            return False
    return True


def topic_id(cluster, name="t"):
    return cluster.metadata(name).topics[0].topic_id


def produce_request(
    *batches, name="t", acks=-1, timeout_ms=5_000, topic=None, partitions=None, transactional=None
):
    """One batch per partition, from 0 on, unless the partitions are named."""
    numbers = range(len(batches)) if partitions is None else partitions
    data = [PartitionProduceData(n, b) for n, b in zip(numbers, batches, strict=True)]
    topic_data = TopicProduceData(name, topic or bytes(16), data)
    return ProduceRequest(transactional, acks, timeout_ms, [topic_data])


def produce(cluster, node, *batches, version=11, **options):
    """The answers of one request, one per partition."""
    body = produce_request(*batches, **options)
    answer = cluster.ask(node, ApiKey.PRODUCE, body, version)
    return answer.responses[0].partition_responses


def fetch_request(
    *offsets,
    name="t",
    topic=None,
    max_wait_ms=0,
    min_bytes=1,
    max_bytes=1 << 20,
    partition_bytes=1 << 20,
    epoch=-1,
    session_id=0,
    session_epoch=-1,
    replica_id=-1,
    isolation_level=0,
):
    """One offset per partition, from 0 on."""
    partitions = [
        FetchPartition(
            partition=number,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=partition_bytes,
        )
        for number, offset in enumerate(offsets)
    ]
    return FetchRequest(
        replica_id=replica_id,
        replica_state=ReplicaState(replica_id, -1),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(name, topic or bytes(16), partitions)],
    )


def fetch(cluster, node, *offsets, version=12, **options):
    """The answers of one request, one per partition."""
    answer = cluster.ask(node, ApiKey.FETCH, fetch_request(*offsets, **options), version)
    return answer.responses[0].partitions


def fetch_later(cluster, node, *offsets, version=12, **options):
    """A fetch that is on its way."""
    body = fetch_request(*offsets, **options)
    return cluster.client(node).request(ApiKey.FETCH, body, version)


def list_offsets_later(cluster, node, *timestamps, version=8, epoch=-1, replica_id=-1):
    """Asks partition 0, 1, ... for these timestamps."""
    partitions = [ListOffsetsPartition(n, epoch, t) for n, t in enumerate(timestamps)]
    body = ListOffsetsRequest(replica_id, 0, [ListOffsetsTopic("t", partitions)])
    return cluster.client(node).request(ApiKey.LIST_OFFSETS, body, version)


def list_offsets(cluster, node, *timestamps, **options):
    pending = list_offsets_later(cluster, node, *timestamps, **options)
    cluster.wait(lambda: pending.done, 20.0, "list offsets")
    return pending.answer.topics[0].partitions


def values(answer):
    return [value for _, value in values_of(answer.records)]


__all__ = [
    "WALL",
    "batch_of",
    "fetch",
    "fetch_later",
    "fetch_request",
    "led_topic",
    "list_offsets",
    "list_offsets_later",
    "produce",
    "produce_request",
    "topic_id",
    "values",
]
