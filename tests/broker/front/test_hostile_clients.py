"""Whatever a client sends: an answer or a hang-up, exactly one of them, and the broker lives on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog_sim.world.client import ConnectionLostError, HeapClient

from raftlog.kafka.codec import encode_request
from raftlog.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from raftlog.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import SERVED, ApiKey
from tests.broker.cluster import Cluster, batch


@pytest.fixture(scope="module")
def one():
    """One broker for all examples: that it outlives them is the point."""
    cluster = Cluster(brokers=1).ready()
    cluster.create("orders", 1, 1)
    cluster.create("trimmed", 1, 1)
    cluster.client(1).close()
    cluster.run(0.001)
    return cluster


def frame_of(api_key, version, body):
    parts = encode_request(api_key, version, 0, "fuzz", body)
    return b"".join(bytes(part) for part in parts)[4:]


def produce(data, acks=-1, timeout_ms=1000, name="orders", number=0):
    partition = PartitionProduceData(number, data)
    return ProduceRequest(None, acks, timeout_ms, [TopicProduceData(name, b"", [partition])])


GOOD = batch(["a", "b", "c"])
FRAMES = [
    frame_of(ApiKey.PRODUCE, 11, produce(GOOD)),
    frame_of(ApiKey.PRODUCE, 3, produce(GOOD, acks=1)),
    frame_of(
        ApiKey.FETCH,
        12,
        FetchRequest(
            max_bytes=1000,
            topics=[FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])],
        ),
    ),
    frame_of(
        ApiKey.LIST_OFFSETS,
        7,
        ListOffsetsRequest(
            topics=[ListOffsetsTopic("orders", [ListOffsetsPartition(0, -1, -1)])],
        ),
    ),
    frame_of(ApiKey.METADATA, 12, MetadataRequest([MetadataRequestTopic(name="orders")], False)),
    frame_of(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest([CreatableTopic("t", 1, 1)], 1000, True)),
    frame_of(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        1,
        AlterPartitionReassignmentsRequest(
            1000, True, [ReassignableTopic("orders", [ReassignablePartition(0, [1])])]
        ),
    ),
    frame_of(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        ListPartitionReassignmentsRequest(1000, [ListPartitionReassignmentsTopics("orders", [0])]),
    ),
    frame_of(
        ApiKey.DELETE_RECORDS,
        2,
        DeleteRecordsRequest(
            [DeleteRecordsTopic("trimmed", [DeleteRecordsPartition(0, -1)])], 1000
        ),
    ),
]


def one_outcome(cluster, *frames):
    """Send the frames over a new connection; every one of them ends, once."""
    client = HeapClient(cluster.world.nodes[1]).connect()
    pending = [client.send_frame(frame) for frame in frames]
    cluster.wait(lambda: all(p.done for p in pending), 60.0, "every request ends")
    assert len(client.order) == len(dict.fromkeys(client.order))
    node = cluster.world.nodes[1]
    client.close()
    cluster.run(0.001)
    assert not node.broker.clients.connections
    assert cluster.metadata("orders").topics[0].error_code == 0
    cluster.client(1).close()
    cluster.run(0.001)
    return pending


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4))
def test_random_bytes(one, frames):
    one_outcome(one, *frames)


@given(
    st.sampled_from(sorted(SERVED)),
    st.integers(-1, 20),
    st.binary(max_size=120),
)
def test_random_bodies_behind_a_good_header(one, api_key, version, body):
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1"
    one_outcome(one, header + b"\xff\xff" + body)


@given(st.sampled_from(FRAMES), st.data())
@settings(max_examples=150)
def test_good_frames_with_changed_bytes(one, frame, data):
    changed = bytearray(frame)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    one_outcome(one, bytes(changed), frame)


@given(st.sampled_from(FRAMES), st.data())
def test_cut_frames(one, frame, data):
    size = data.draw(st.integers(0, len(frame) - 1))
    one_outcome(one, frame[:size])


@given(st.binary(max_size=300))
def test_records_that_are_no_batch(one, records):
    (pending,) = one_outcome(one, frame_of(ApiKey.PRODUCE, 11, produce(records)))
    assert not isinstance(pending.answer, ConnectionLostError)


@given(st.data())
@settings(max_examples=100)
def test_batches_with_changed_bytes_change_nothing_or_are_one_batch(one, data):
    changed = bytearray(GOOD)
    changed[data.draw(st.integers(0, len(GOOD) - 1))] ^= data.draw(st.integers(1, 255))
    one_outcome(one, frame_of(ApiKey.PRODUCE, 11, produce(bytes(changed))))
    replica = one.leader("orders").broker.context.router.replica("orders", 0)
    assert replica.high_watermark <= replica.log.next_offset


def test_acks_0_that_fails_is_hung_up_on(one):
    (pending,) = one_outcome(one, frame_of(ApiKey.PRODUCE, 11, produce(b"junk", acks=0)))
    assert isinstance(pending.answer, ConnectionLostError) or pending.answer is None


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_that_do_not_exist_are_answered(one, acks):
    (pending,) = one_outcome(one, frame_of(ApiKey.PRODUCE, 11, produce(GOOD, acks=acks)))
    assert isinstance(pending.answer, bytes)


def test_a_client_that_leaves_with_requests_open_leaves_nothing_behind(one):
    node = one.world.nodes[1]
    waiting = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1_000_000,
        max_bytes=1_000_000,
        topics=[FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])],
    )
    client = HeapClient(node).connect()
    for _ in range(10):
        client.request(ApiKey.FETCH, waiting, 12)
    one.run(0.01)
    replica = node.broker.context.router.replica("orders", 0)
    assert len(replica.fetches) == 10
    client.close()
    one.run(0.01)
    assert len(replica.fetches) == 0
    assert not node.broker.clients.connections
    assert len(node.broker.context.ledger) == 0


def test_requests_weigh_what_is_made_of_them(one):
    """Each of these is 45 KB and becomes a megabyte of objects for as long as it waits: 8 MiB of
    them, which one connection may have, held a quarter of a gigabyte."""
    topics = [FetchTopic("orders", partitions=[FetchPartition(partition_max_bytes=1000)])]
    topics += [FetchTopic("", partitions=())] * 15_000
    waiting = FetchRequest(
        max_wait_ms=60_000, min_bytes=1_000_000, max_bytes=1_000_000, topics=topics
    )
    node = one.world.nodes[1]
    client = HeapClient(node).connect()
    frame = frame_of(ApiKey.FETCH, 12, waiting)
    for _ in range(2):
        client.send_frame(frame)
        one.run(0.001)
    assert client.connection not in node.live.paused
    client.send_frame(frame)
    one.run(0.001)
    assert client.connection in node.live.paused, "three of them weigh more than 8 MiB"
    client.close()
    one.run(0.001)


def test_what_a_request_weighs_is_given_back_with_its_answer(one):
    node = one.world.nodes[1]
    client = HeapClient(node).connect()
    names = [MetadataRequestTopic(name="orders")] * 5_000
    pending = client.send_frame(frame_of(ApiKey.METADATA, 12, MetadataRequest(names, False)))
    one.wait(lambda: pending.done, 60.0, "an answer")
    account = node.broker.context.ledger._accounts[client.connection]
    assert (account.requests, account.request_bytes) == (0, 0)
    client.close()
    one.run(0.001)
