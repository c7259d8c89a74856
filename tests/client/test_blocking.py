import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.base.units import millis
from raftlog.client.blocking import COLLECTED_MAX, BlockingClient
from raftlog.client.core.asks import LATEST, metadata
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.fake_cluster import FakeCluster
from tests.client.fake_server import serving


@contextmanager
def served(cluster: FakeCluster) -> Iterator[str]:
    """The fake brokers in a thread of their own."""
    started, found = threading.Event(), []

    async def main():
        async with serving(cluster) as bootstrap:
            found.append((bootstrap, trio.lowlevel.current_trio_token(), trio.Event()))
            started.set()
            await found[0][2].wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    started.wait()
    bootstrap, token, stop = found[0]
    try:
        yield bootstrap
    finally:
        token.run_sync_soon(stop.set)
        thread.join()


def test_the_same_methods_block():
    cluster = FakeCluster()
    with served(cluster) as bootstrap, BlockingClient(bootstrap) as client:
        client.create_topic("t", partitions=2)
        place = TopicPartition("t", 1)
        assert client.produce("t", b"v", partition=1, timestamp_ms=3) == ("t", 1, 0, 3)
        assert client.topics() == ["t"]
        assert len(client.describe("t").partitions) == 2
        assert client.offset(place, LATEST).offset == 1
        assert client.offsets("t", LATEST) == {TopicPartition("t", 0): 0, place: 1}
        assert len(client.ask(metadata()).brokers) == 3
        client.assign({place: 5})
        client.seek(place, 0)
        (piece,) = client.poll(seconds=20)
        assert isinstance(piece, FetchedBatches)
        client.unassign(place)
        assert client.poll(seconds=0.01) == []
        with pytest.raises(KafkaError):
            client.create_topic("t")


def test_send_soon_collects_and_flush_waits():
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    wanted = [b"%05d" % number for number in range(COLLECTED_MAX * 5 + 7)]
    seen = []
    with served(cluster) as bootstrap, BlockingClient(bootstrap) as client:
        for value in wanted:
            client.send_soon("t", value, then=seen.append)
        client.flush()
        assert len(seen) == len(wanted)
        assert log[0].values() == wanted
        client.send_soon("t", b"last")
    assert log[0].values()[-1] == b"last"


def test_many_threads_may_use_it():
    cluster = FakeCluster()
    log = cluster.topic("t", 1)

    def work(name):
        for number in range(300):
            client.send_soon("t", b"%d %03d" % (name, number))
        client.produce("t", b"%d end" % name)

    with served(cluster) as bootstrap, BlockingClient(bootstrap) as client:
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = log[0].values()
    assert len(values) == 4 * 301
    for name in range(4):
        mine = [value for value in values if value.startswith(b"%d " % name)]
        assert mine == sorted(mine)


def test_no_thread_is_left_behind():
    with served(FakeCluster()) as bootstrap:
        before = threading.active_count()
        with BlockingClient(bootstrap) as client:
            client.topics()
            assert threading.active_count() > before
        with pytest.raises(ValueError, match="mine"), BlockingClient(bootstrap):
            raise ValueError("mine")
        assert threading.active_count() == before
        with pytest.raises(OperatingError):
            client.topics()


def test_a_block_that_fails_does_not_wait_for_the_cluster():
    cluster = FakeCluster()
    cluster.topic("t", 1)

    def work(bootstrap):
        with BlockingClient(bootstrap) as client:
            client.produce("t", b"x")
            cluster.paused.add(1)
            client.send_soon("t", b"y")
            client._hand_over()
            raise ValueError("mine")

    with served(cluster) as bootstrap:
        with pytest.raises(ValueError, match="mine"):
            work(bootstrap)
        cluster.paused.clear()


def test_calls_end_by_their_timeout_while_there_is_no_room():
    """One thread waits for room with what it collected. Calls of others waited behind it for as
    long, whatever their timeout was. All that was taken arrives once, in order."""
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    taken = [b"first"]
    with (
        served(cluster) as bootstrap,
        BlockingClient(bootstrap, buffer_bytes=20_000, delivery_timeout_ns=millis(3600_000)) as c,
    ):
        c.produce("t", b"first")
        cluster.paused |= {1, 2, 3}

        def fill() -> None:
            for number in range(2 * COLLECTED_MAX):
                value = b"%05d" % number * 20
                taken.append(value)
                c.send_soon("t", value)

        filler = threading.Thread(target=fill)
        filler.start()
        while c._client._core.has_room():
            time.sleep(0.001)
        for call in (c.produce, c.send_soon):
            with pytest.raises(NotDone, match=r"no room or no leader within 0\.2 s \(t\)"):
                call("t", b"refused", timeout=0.2)
        with pytest.raises(OutcomeUnknown, match=r"not all is acknowledged within 0\.2 s"):
            c.flush(timeout=0.2)
        cluster.paused.clear()
        filler.join()
        c.flush()
    values = log[0].values()
    assert values == taken


def test_an_error_that_nobody_watches_is_raised_at_the_end():
    cluster = FakeCluster()
    cluster.topic("t", 1)
    cluster.refuse(ApiKey.PRODUCE, ErrorCode.INVALID_RECORD)
    with (
        served(cluster) as bootstrap,
        pytest.raises(KafkaError),
        BlockingClient(bootstrap) as client,
    ):
        client.send_soon("t", b"x")


def test_misuse_is_told_early():
    with pytest.raises(LocalMisuse):
        BlockingClient("")
    with pytest.raises(LocalMisuse):
        BlockingClient("host").topics()


def test_a_cluster_that_is_not_there():
    with (
        BlockingClient("127.0.0.1:1", call_timeout_ns=millis(200)) as client,
        pytest.raises(NotDone, match="no metadata in time"),
    ):
        client.produce("t", b"x")


def test_when_nobody_is_there_the_error_says_where_and_why():
    """The call gave up while its request waited for a connection; the error told of that, in an
    inner word ("withdrawn"), and not of the connection that was refused."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with BlockingClient(address, call_timeout_ns=millis(700)) as client:
            for ask in (client.topics, lambda: client.produce("t", b"x")):
                with pytest.raises((OperatingError, NotDone)) as told:
                    ask()
                assert f"failed ({address})" in str(told.value)
                assert "withdrawn" not in str(told.value)


def test_records_collected_together_wait_together_for_a_partition_that_is_not_there():
    """Each of a hundred records for a partition that did not exist was waited for after the one
    before it: a Spark job that named a wrong partition took minutes to fail, or days.
    """
    cluster = FakeCluster()
    cluster.topic("t")
    refused = []
    with served(cluster) as bootstrap, BlockingClient(bootstrap, topic_wait_ns=1) as client:
        client.produce("t", b"first")
        for number in range(COLLECTED_MAX - 2):
            client.send_soon("t", b"%d" % number, partition=7, then=refused.append)
        client.send_soon("t", b"last", partition=7)
        client.send_soon("t", b"good", partition=0)
        assert isinstance(client.failure, KafkaError)
        with pytest.raises(KafkaError, match="t has 1 partition, numbered from 0") as told:
            client.flush()
        assert client.failure is None
    assert told.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(refused) == COLLECTED_MAX - 2
    assert {each.on for each in refused} == {"t-7"}
    assert cluster.topics["t"][0].values() == [b"first", b"good"]
    assert cluster.count(ApiKey.METADATA) < 10
