"""The trio and the blocking consumer over real sockets, against the scripted coordinator."""

import inspect

import pytest
import trio

from raftlog.base.errors import LocalMisuse, WrongType, WrongValue
from raftlog.client.blocking_consumer import BlockingConsumer
from raftlog.client.consumer import Consumer
from raftlog.client.core.errors import CommitFailed, KafkaError
from raftlog.client.core.group_asks import OffsetAndMetadata
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.fake_cluster import FakeCluster
from tests.client.fake_server import serving
from tests.client.group.fake_groups import FakeGroups
from tests.client.test_blocking import served
from tests.client.test_fetcher import fill

OPTIONS = {"group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 50}
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_of(partitions=2, batches=2):
    cluster = FakeCluster()
    cluster.groups = FakeGroups(cluster)
    for each in cluster.topic("t", partitions):
        fill(each, batches)
    return cluster


class Listener:
    """Plain and async methods both."""

    def __init__(self):
        self.told = []

    def on_partitions_assigned(self, partitions):
        self.told.append(("assigned", partitions))

    async def on_partitions_revoked(self, partitions):
        await trio.lowlevel.checkpoint()
        self.told.append(("revoked", partitions))


async def test_poll_gives_records_by_partition_and_leaving_commits_and_says_goodbye():
    cluster = cluster_of()
    listener = Listener()
    async with serving(cluster) as bootstrap:
        async with Consumer(bootstrap, **OPTIONS) as consumer:
            consumer.subscribe(["t"], listener=listener)
            assert consumer.subscription() == ["t"]
            found = {}
            while sum(map(len, found.values())) < 12:
                for place, records in (await consumer.poll(seconds=20, max_records=5)).items():
                    found.setdefault(place, []).extend(record.offset for record in records)
            assert found == {ZERO: list(range(6)), ONE: list(range(6))}
            assert consumer.assignment() == [ZERO, ONE]
        assert cluster.groups.groups["g"].offsets == {("t", 0): (6, ""), ("t", 1): (6, "")}
        assert cluster.groups.groups["g"].members == {}
    assert listener.told == [("assigned", [ZERO, ONE]), ("revoked", [ZERO, ONE])]


async def test_iteration_gives_one_record_after_the_other_and_commits_what_came():
    cluster = cluster_of(1)
    options = {**OPTIONS, "enable_auto_commit": False}
    async with serving(cluster) as bootstrap, Consumer(bootstrap, **options) as consumer:
        consumer.subscribe(["t"])
        async for record in consumer:
            if record.offset == 3:
                await consumer.commit()
                break
        assert await consumer.committed(ZERO) == OffsetAndMetadata(4)
        assert await consumer.position(ZERO) == 4
        await consumer.commit({ZERO: 2})
        assert await consumer.committed(ZERO) == OffsetAndMetadata(2)


async def _poll_and_fail(bootstrap):
    async with Consumer(bootstrap, **OPTIONS) as consumer:
        consumer.subscribe(["t"])
        assert await consumer.poll(seconds=20)
        raise ZeroDivisionError


async def test_after_an_error_in_the_block_nothing_is_committed_and_the_member_leaves():
    """The records of the last poll may not have been done with."""
    cluster = cluster_of(1)
    async with serving(cluster) as bootstrap:
        with pytest.raises(ZeroDivisionError):
            await _poll_and_fail(bootstrap)
    assert cluster.groups.groups["g"].offsets == {}
    assert cluster.groups.groups["g"].members == {}


async def test_a_refused_group_is_raised_by_poll():
    cluster = cluster_of()
    cluster.refuse(ApiKey.JOIN_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    async with serving(cluster) as bootstrap, Consumer(bootstrap, **OPTIONS) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
            await consumer.poll(seconds=20)


async def test_offsets_by_place_and_time():
    cluster = cluster_of(1)
    async with serving(cluster) as bootstrap, Consumer(bootstrap, **OPTIONS) as consumer:
        assert await consumer.beginning_offsets([ZERO]) == {ZERO: 0}
        assert await consumer.end_offsets([ZERO]) == {ZERO: 6}
        assert (await consumer.offsets_for_times({ZERO: -1}))[ZERO].offset == 6
        consumer.assign([ZERO])
        consumer.seek_to_end()
        assert await consumer.position(ZERO) == 6
        consumer.seek(ZERO, 5)
        (records,) = (await consumer.poll(seconds=20)).values()
        assert [record.offset for record in records] == [5]
        consumer.pause(ZERO)
        consumer.seek_to_beginning(ZERO)
        assert await consumer.poll(seconds=0.05) == {}
        consumer.resume(ZERO)
        assert await consumer.poll(seconds=20)
        consumer.unsubscribe()
        assert consumer.assignment() == []


async def test_two_tasks_may_not_poll_at_once():
    cluster = cluster_of()
    async with (
        serving(cluster) as bootstrap,
        Consumer(bootstrap, **OPTIONS) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.poll)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with pytest.raises(LocalMisuse, match="another task"):
            await consumer.poll()


async def test_bad_calls_are_named_at_the_door():
    with pytest.raises(WrongType, match="no option"):
        Consumer("localhost", groupid="g")
    with pytest.raises(WrongType, match="group_id"):
        Consumer("localhost", group_id=b"g")
    with pytest.raises(WrongValue, match="auto_offset_reset"):
        Consumer("localhost", auto_offset_reset="smallest")
    consumer = Consumer("localhost", group_id="g", partition_assignment_strategy="range")
    with pytest.raises(WrongType, match="topics"):
        consumer.subscribe("t")
    with pytest.raises(WrongValue, match="topics"):
        consumer.subscribe(["/"])
    with pytest.raises(LocalMisuse, match="no topics"):
        consumer.subscribe([])
    with pytest.raises(LocalMisuse, match="not open"):
        await consumer.poll()
    with pytest.raises(WrongType, match="places"):
        consumer.pause("t-0")
    with pytest.raises(LocalMisuse, match="t-0 is not assigned"):
        consumer.pause(ZERO)


def test_the_blocking_consumer_does_the_same():
    cluster = cluster_of(1)
    told = []

    class Plain:
        def on_partitions_assigned(self, partitions):
            told.append(partitions)

    with served(cluster) as bootstrap:
        with BlockingConsumer(bootstrap, **OPTIONS) as consumer:
            consumer.subscribe(["t"], listener=Plain())
            offsets = []
            for record in consumer:
                offsets.append(record.offset)
                if record.offset == 5:
                    break
            assert offsets == list(range(6))
            consumer.commit()
            assert consumer.committed(ZERO) == OffsetAndMetadata(6)
            assert consumer.position(ZERO) == 6
            assert consumer.assignment() == [ZERO]
            assert told == [[ZERO]]
            consumer.seek(ZERO, 5)
            assert list(consumer.poll(seconds=20)) == [ZERO]
            cluster.groups.expire("g", next(iter(cluster.groups.groups["g"].members)))
            with pytest.raises(CommitFailed):
                consumer.commit()
        assert cluster.groups.groups["g"].members == {}
        with pytest.raises(LocalMisuse, match="not open"):
            BlockingConsumer(bootstrap, **OPTIONS).poll()


def test_both_faces_have_the_same_methods():
    plain = {name for name in dir(Consumer) if not name.startswith("_")}
    assert plain == {name for name in dir(BlockingConsumer) if not name.startswith("_")}
    for name in plain:
        wanted = inspect.signature(getattr(Consumer, name))
        assert inspect.signature(getattr(BlockingConsumer, name)) == wanted, name
