import asyncio

import pytest
import trio

from raftlog.base.errors import LocalMisuse
from raftlog.base.units import millis
from raftlog.client.core.asks import EARLIEST, LATEST, metadata
from raftlog.client.core.errors import KafkaError, OutcomeUnknown
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.fake_cluster import FakeCluster
from tests.client.fake_server import serving


async def test_a_record_goes_and_comes_back():
    cluster = FakeCluster()
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        await client.create_topic("t", partitions=2)
        position = await client.produce(
            "t", b"value", key=b"key", headers=(("h", b"1"),), timestamp_ms=5, partition=1
        )
        assert position == ("t", 1, 0, 5)
        place = TopicPartition("t", 1)
        client.assign({place: 0})
        (piece,) = await client.poll(seconds=20)
        assert isinstance(piece, FetchedBatches)
        (record,) = piece.records()
        assert record == ("t", 1, 0, 5, b"key", b"value", (("h", b"1"),))


async def test_many_records_are_pipelined_and_keep_order():
    cluster = FakeCluster()
    log = cluster.topic("t", 3)
    wanted = [b"%06d" % number for number in range(20_000)]
    outcomes: list[object] = []
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        for value in wanted:
            await client.send_soon("t", value, key=value[-1:], then=outcomes.append)
        await client.flush()
        assert client.unsettled_bytes == 0
    assert len(outcomes) == len(wanted)
    got = [partition.values() for partition in log]
    assert sorted(value for each in got for value in each) == wanted
    assert all(each == sorted(each) for each in got)


async def test_a_small_buffer_holds_the_sender_back():
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    async with serving(cluster) as bootstrap, Client(bootstrap, buffer_bytes=2000) as client:
        for number in range(500):
            await client.send_soon("t", b"%04d" % number)
            assert client.unsettled_bytes < 2000 + 100
    assert log[0].values() == [b"%04d" % number for number in range(500)]


async def test_a_cancelled_call_has_sent_nothing():
    """Every 256th call lets other tasks run. It did so after it had sent the record, and a
    cancellation there said to the caller that the record was not sent."""
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    sent: list[bytes] = []
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        await client.produce("t", b"first")
        for number in range(1000):
            value = b"%03d" % number
            with trio.CancelScope() as scope:
                scope.cancel()
                await client.send_soon("t", value)
                sent.append(value)
        await client.flush()
    assert 500 < len(sent) < 1000
    assert log[0].values() == [b"first", *sent]


async def test_tasks_side_by_side_produce():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    offsets: list[int] = []

    async def one(client: Client, value: bytes) -> None:
        offsets.append((await client.produce("t", value)).offset)

    async with (
        serving(cluster) as bootstrap,
        Client(bootstrap) as client,
        trio.open_nursery() as nursery,
    ):
        for number in range(200):
            nursery.start_soon(one, client, b"%d" % number)
    assert sorted(offsets) == list(range(200))


async def test_leaving_the_block_waits_for_what_was_sent():
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    async with serving(cluster) as bootstrap:
        async with Client(bootstrap) as client:
            await client.send_soon("t", b"x")
        assert log[0].values() == [b"x"]


async def test_an_error_that_nobody_watches_is_raised_by_flush():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    cluster.refuse(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, 0, ErrorCode.MESSAGE_TOO_LARGE)
    async with serving(cluster) as bootstrap:
        async with Client(bootstrap) as client:
            await client.send_soon("t", b"x")
            with pytest.raises(KafkaError):
                await client.flush()
            await client.produce("t", b"y")
        with pytest.raises(KafkaError):
            async with Client(bootstrap) as client:
                await client.send_soon("t", b"z")


async def test_a_refused_record_raises_where_it_is_awaited():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    cluster.refuse(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        with pytest.raises(KafkaError) as caught:
            await client.produce("t", b"x")
        assert caught.value.code == ErrorCode.INVALID_RECORD
        await client.flush()


async def test_an_error_of_the_block_comes_out_bare():
    async with serving(FakeCluster()) as bootstrap:
        with pytest.raises(ValueError, match="mine"):
            async with Client(bootstrap):
                raise ValueError("mine")


async def test_a_cancelled_block_leaves_nothing_behind():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    async with serving(cluster) as bootstrap:
        with trio.move_on_after(0.05) as scope:
            async with Client(bootstrap) as client:
                client.assign({TopicPartition("t", 0): 0})
                while True:
                    await client.poll(seconds=100)
        assert scope.cancelled_caught


async def test_a_cancelled_call_is_forgotten():
    cluster = FakeCluster()
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        with trio.move_on_after(0.02):
            await client.produce("missing", b"x")
        assert await client.topics() == []


async def test_connections_that_break_are_made_again():
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        await client.produce("t", b"0")
        for number in range(1, 10):
            cluster.losses[ApiKey.PRODUCE] = number % 2
            cluster.cuts[ApiKey.PRODUCE] = number % 3
            await client.produce("t", b"%d" % number)
    assert log[0].values() == [b"%d" % number for number in range(10)]


async def test_large_records_pass_in_both_directions():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    value = bytes(range(256)) * (3 << 12)
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        for _ in range(4):
            await client.send_soon("t", value)
        await client.flush()
        client.assign({TopicPartition("t", 0): 0})
        seen = 0
        while seen < 4:
            for piece in await client.poll(seconds=20):
                assert isinstance(piece, FetchedBatches)
                for record in piece.records():
                    assert record.value == value
                    seen += 1


async def test_offsets_topics_and_refusals_of_the_cluster():
    cluster = FakeCluster()
    async with (
        serving(cluster) as bootstrap,
        Client(bootstrap, topic_wait_ns=millis(100)) as client,
    ):
        await client.create_topic("b", partitions=3)
        await client.create_topic("a")
        assert await client.topics() == ["a", "b"]
        await client.produce("b", b"x", partition=2)
        assert (await client.offset(TopicPartition("b", 2), LATEST)).offset == 1
        ends = await client.offsets("b", LATEST)
        assert list(ends.items()) == [(TopicPartition("b", at), at // 2) for at in range(3)]
        assert set((await client.offsets("b", EARLIEST)).values()) == {0}
        with pytest.raises(KafkaError) as caught:
            await client.create_topic("a")
        assert caught.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        with pytest.raises(KafkaError):
            await client.describe("missing")
        with pytest.raises(KafkaError):
            await client.offsets("missing", LATEST)
        assert len((await client.describe("b")).partitions) == 3
        assert len((await client.ask(metadata())).brokers) == 3


async def test_a_new_partition_takes_records_at_once():
    """The client that made it knew the topic as it was, and was refused by its own memory."""
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        await client.produce("t", b"old", partition=0)
        cluster.grow("t")
        assert (await client.produce("t", b"new", partition=1)).partition == 1
    assert log[1].values() == [b"new"]


async def test_a_topic_that_shrinks_while_room_is_waited_for_is_looked_at_again():
    cluster = FakeCluster()
    cluster.topic("t", 2)
    async with serving(cluster) as bootstrap, Client(bootstrap, buffer_bytes=100) as client:
        await client.produce("t", b"x", partition=1)
        cluster.paused.update((1, 2, 3))
        await client.send_soon("t", bytes(200), partition=0)
        client.give_up()
        async with trio.open_nursery() as nursery:

            async def one_more():
                with pytest.raises(KafkaError, match="t-1"):
                    await client.send_soon("t", b"y", partition=1)

            nursery.start_soon(one_more)
            await trio.sleep(0.05)
            cluster.topic("t", 1)
            view = client._core.cache.topics["t"]
            view.partitions = view.partitions[:1]
            cluster.paused.clear()


async def test_trouble_stands_still_until_sought():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    place = TopicPartition("t", 0)
    async with serving(cluster) as bootstrap, Client(bootstrap) as client:
        await client.produce("t", b"x")
        client.assign({place: 17})
        (trouble,) = await client.poll(seconds=20)
        assert isinstance(trouble, Trouble)
        assert await client.poll(seconds=0.05) == []
        client.seek(place, 0)
        (piece,) = await client.poll(seconds=20)
        assert isinstance(piece, FetchedBatches)
        client.unassign(place)
        assert await client.poll(seconds=0.05) == []


async def test_nobody_there_is_an_error_in_bounded_time():
    async with Client("127.0.0.1:1", call_timeout_ns=millis(300)) as client:
        with pytest.raises(Exception, match="no metadata in time"):
            await client.produce("t", b"x")


async def test_an_unknown_outcome_is_told():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    async with (
        serving(cluster) as bootstrap,
        Client(bootstrap, delivery_timeout_ns=millis(200)) as client,
    ):
        await client.produce("t", b"x")
        cluster.paused.add(1)
        with pytest.raises(OutcomeUnknown):
            await client.produce("t", b"y")


def test_options_are_judged_early():
    for text in ("", "host:", "host:x", "host:0", "host:70000", ":9092"):
        with pytest.raises(LocalMisuse):
            Client(text)
    with pytest.raises(LocalMisuse):
        Client("host", nonsense=1)
    with pytest.raises(LocalMisuse):
        Client("host", acks=2)
    assert Client("a, b:1,[::1]:2,[::1]").options.bootstrap == (
        ("a", 9092),
        ("b", 1),
        ("::1", 2),
        ("::1", 9092),
    )


async def test_a_client_that_is_not_open_says_so():
    with pytest.raises(LocalMisuse):
        await Client("host").topics()


def test_a_client_inside_asyncio_says_what_to_use_instead():
    """It raised whatever the first trio call in it found missing."""

    async def main():
        async with Client("127.0.0.1:9092"):
            pass

    with pytest.raises(LocalMisuse, match="BlockingClient") as told:
        asyncio.run(main())
    assert "asyncio.to_thread" in told.value.do
