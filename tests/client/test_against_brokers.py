"""The client against real brokers that die, stand still and come back."""

from collections.abc import Callable

import pytest
import trio

from raftlog.client.core.asks import (
    EARLIEST,
    LATEST,
    alter_reassignments,
    delete_records,
    end_of_epoch,
    list_reassignments,
)
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.embed.cluster import Cluster
from raftlog.kafka.error_codes import ErrorCode
from raftlog.records.compression import CODEC_NAMES

pytestmark = pytest.mark.processes


async def read_all(client: Client, topic: str) -> dict[int, list[bytes]]:
    """Every record up to the present ends, by partition."""
    ends = await client.offsets(topic, LATEST)
    client.assign(await client.offsets(topic, EARLIEST))
    found: dict[int, list[bytes]] = {place.partition: [] for place in ends}
    while sum(map(len, found.values())) < sum(ends.values()):
        for piece in await client.poll(seconds=10):
            assert isinstance(piece, FetchedBatches), piece
            records = list(piece.records())
            values = found[piece.place.partition]
            assert [each.offset for each in records] == list(
                range(len(values), len(values) + len(records))
            )
            values += [each.value or b"" for each in records]
    client.assign({})
    return found


async def until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - counted by callbacks that know of no event
        await trio.sleep(0.01)


async def test_a_stream_through_kill_restart_and_pause():
    """20,000 keyed records in flight while one leader is killed and another stands still: each is
    acknowledged, lies in the log exactly once, and each key's records are in order."""
    count = 20_000
    offsets: dict[bytes, tuple[int, int]] = {}
    async with Cluster(brokers=3) as cluster, Client(cluster.bootstrap_servers) as client:
        await client.create_topic("t", partitions=3, replication_factor=3)

        async def stream() -> None:
            for number in range(count):
                value = b"%06d" % number

                def note(told, value=value):
                    offsets[value] = (told.partition, told.offset)

                await client.send_soon("t", value, key=b"%d" % (number % 50), then=note)
                if number % 200 == 0:
                    await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream)
            await until(lambda: len(offsets) >= count // 5)
            first = await cluster.aio.leader_of("t", 0)
            await cluster.aio.kill(first)
            await until(lambda: len(offsets) >= count // 3)
            await cluster.aio.restart(first)
            second = await cluster.aio.leader_of("t", 1)
            await cluster.aio.pause(second)
            await until(lambda: len(offsets) >= count // 2)
            await cluster.aio.resume(second)
        await client.flush()
        assert len(offsets) == count
        found = await read_all(client, "t")
        assert sorted(value for values in found.values() for value in values) == sorted(offsets)
        for value, (partition, offset) in offsets.items():
            assert found[partition][offset] == value
        for values in found.values():
            for key in range(50):
                mine = [value for value in values if int(value) % 50 == key]
                assert mine == sorted(mine)


async def test_a_reader_follows_its_leaders():
    async with Cluster(brokers=3) as cluster, Client(cluster.bootstrap_servers) as client:
        await client.create_topic("t", partitions=1, replication_factor=3)
        place = TopicPartition("t", 0)
        client.assign({place: 0})
        for number in range(3):
            await client.produce("t", b"%d" % number)
            (piece,) = await client.poll(seconds=30)
            assert isinstance(piece, FetchedBatches)
            assert [each.value for each in piece.records()] == [b"%d" % number]
            leader = await cluster.aio.leader_of("t")
            await cluster.aio.kill(leader)
            await cluster.aio.restart(leader)


async def test_the_whole_cluster_dies_and_comes_back():
    async with Cluster(brokers=3) as cluster, Client(cluster.bootstrap_servers) as client:
        await client.create_topic("t", partitions=1, replication_factor=3)
        await client.produce("t", b"before")
        for node in cluster.nodes:
            await cluster.aio.kill(node)
        positions = []

        async def produce() -> None:
            positions.append(await client.produce("t", b"after"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(produce)
            async with trio.open_nursery() as restarts:
                for node in cluster.nodes:
                    restarts.start_soon(cluster.aio.restart, node)
        assert positions[0].offset == 1
        assert await read_all(client, "t") == {0: [b"before", b"after"]}


@pytest.mark.parametrize("codec", CODEC_NAMES)
async def test_every_codec(codec):
    async with (
        Cluster(brokers=1) as cluster,
        Client(cluster.bootstrap_servers, compression=CODEC_NAMES[codec]) as client,
    ):
        await client.create_topic("t")
        values = [b"%05d" % number * 20 for number in range(500)]
        for value in values:
            await client.send_soon("t", value)
        await client.flush()
        assert await read_all(client, "t") == {0: values}


async def test_epochs_refusals_and_growth():
    async with (
        Cluster(brokers=3) as cluster,
        Client(cluster.bootstrap_servers) as client,
    ):
        await client.create_topic(
            "t", partitions=1, replication_factor=3, configs={"max.message.bytes": "500"}
        )
        place = TopicPartition("t", 0)
        await client.produce("t", b"x")
        before = (await client.offset(place, LATEST)).leader_epoch
        await cluster.aio.kill(await cluster.aio.leader_of("t"))
        await client.produce("t", b"y")
        after = (await client.offset(place, LATEST)).leader_epoch
        assert after > before
        assert await client.ask(end_of_epoch(place, before)) == (before, 1)
        with pytest.raises(KafkaError) as caught:
            await client.produce("t", bytes(1000))
        assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await client.produce("t", b"z")).offset == 2
        await client.create_partitions("t", 3)
        assert len((await client.describe("t")).partitions) == 3
        await client.delete_topic("t")
        assert "t" not in await client.topics()


async def test_a_partition_moves_and_records_are_deleted():
    async with (
        Cluster(brokers=4) as cluster,
        Client(cluster.bootstrap_servers) as client,
    ):
        await client.create_topic("t", partitions=1, replication_factor=3)
        place = TopicPartition("t", 0)
        for value in (b"x", b"y", b"z"):
            await client.produce("t", value)
        before = (await client.describe("t")).partitions[0].replica_nodes
        (new,) = {1, 2, 3, 4} - set(before)
        (asked,) = await client.ask(alter_reassignments({place: [*before[:2], new]}))
        assert asked.check().place == place
        with trio.fail_after(60):
            while moving := await client.ask(list_reassignments()):
                assert set(moving) == {place}
                await trio.sleep(0.05)
        after = (await client.describe("t")).partitions[0].replica_nodes
        assert set(after) == {*before[:2], new}
        (cancelled,) = await client.ask(alter_reassignments({place: None}))
        with pytest.raises(KafkaError) as caught:
            cancelled.check()
        assert caught.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await client.ask(delete_records(place, 2)) == 2
        assert (await client.offset(place, EARLIEST)).offset == 2
        assert await client.ask(delete_records(place)) == 3
        with pytest.raises(KafkaError) as caught:
            await client.ask(delete_records(place, 4))
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_min_insync_replicas_holds_writers_back():
    async with (
        Cluster(brokers=3) as cluster,
        Client(cluster.bootstrap_servers) as client,
    ):
        await client.create_topic(
            "t", partitions=1, replication_factor=3, configs={"min.insync.replicas": "3"}
        )
        await client.produce("t", b"x")
        leader = await cluster.aio.leader_of("t")
        other = next(node for node in cluster.nodes if node != leader)
        await cluster.aio.kill(other)
        with trio.move_on_after(1.0) as scope:
            await client.produce("t", b"y")
        assert scope.cancelled_caught
        await cluster.aio.restart(other)
        await client.flush()
        values = (await read_all(client, "t"))[0]
        assert values == [b"x", b"y"]
