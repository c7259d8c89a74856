"""Clusters and replicated logs inside an event loop: the same code under asyncio and under trio."""

import asyncio
import threading

import pytest
import trio

import raftlog
from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.embed.cluster import Cluster
from raftlog.embed.event_loops import in_thread, in_thread_shielded

pytestmark = pytest.mark.processes


def under_asyncio(main):
    return asyncio.run(main())


LOOPS = pytest.mark.parametrize("run", [under_asyncio, trio.run], ids=["asyncio", "trio"])


def make_topic(servers: str) -> None:
    with BlockingClient(servers) as client:
        client.create_topic("t", partitions=1, replication_factor=3)


@LOOPS
def test_a_cluster(run):
    async def main():
        async with raftlog.Cluster(brokers=3) as cluster:
            await in_thread(make_topic, cluster.bootstrap_servers)
            leader = await cluster.aio.leader_of("t")
            await cluster.aio.kill(leader)
            assert await cluster.aio.leader_of("t") != leader
            await cluster.aio.restart(leader)
            await cluster.aio.wait_until_healthy()
            await cluster.aio.pause(leader)
            await cluster.aio.resume(leader)
            await cluster.aio.shut_down(leader)
            await cluster.aio.start_all()
            assert cluster.alive == [1, 2, 3]
            return cluster.directory

    assert not run(main).exists()


@LOOPS
def test_a_replicated_log(run):
    async def main():
        async with raftlog.ReplicatedLog(replicas=3) as log:
            assert await log.append(b"first") == 0
            assert await log.append_many([b"second", b"third"]) == [1, 2]
            assert (await log.start(), await log.end()) == (0, 3)
            assert [entry.data async for entry in log.read(1)] == [b"second", b"third"]
            followed = [entry.offset async for entry in log.follow(seconds=0.5)]
            assert followed == [0, 1, 2]
            await log.cluster.aio.kill(await log.cluster.aio.leader_of("log"))
            assert await log.append(b"fourth") == 3

    run(main)


def threads() -> list[str]:
    return sorted(each.name for each in threading.enumerate() if each.name.startswith("raftlog"))


def test_a_start_that_asyncio_cancels_leaves_nothing_behind():
    """The start goes on in its thread; the cancellation arrives in the block, and the block's end
    stops what was started."""
    before = threads()
    clusters: list[Cluster] = []

    async def inside():
        clusters.append(Cluster(brokers=1))
        async with clusters[0]:
            await asyncio.sleep(3600)

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(inside(), 0.01)
        await asyncio.sleep(0)  # the task itself goes on

    asyncio.run(main())
    with pytest.raises(LocalMisuse):
        print(clusters[0].bootstrap_servers)
    assert threads() == before


@LOOPS
def test_results_and_errors_come_through(run):
    async def main():
        assert await in_thread(divmod, 7, 2) == (3, 1)
        with pytest.raises(OperatingError, match="mine"):
            await in_thread(fails)
        return await in_thread_shielded(threading.get_ident)

    def fails():
        raise OperatingError("mine")

    assert run(main) != threading.get_ident()


def test_a_call_is_waited_for_when_it_is_cancelled_twice():
    begun, go_on, over = threading.Event(), threading.Event(), []

    def call():
        begun.set()
        assert go_on.wait(20)
        over.append(True)

    async def task():
        await in_thread(call)
        assert over == [True]
        await asyncio.sleep(3600)

    async def main():
        running = asyncio.create_task(task())
        await asyncio.to_thread(begun.wait, 20)
        running.cancel()
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.sleep(0.01)
        assert not running.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert running.cancelling() == 2

    asyncio.run(main())


async def test_a_blocking_method_in_a_trio_task_says_what_to_await():
    """trio's own error came out: "this is a blocking function; call it from a thread"."""
    async with Cluster(brokers=1) as cluster, raftlog.ReplicatedLog(1, cluster=cluster) as log:
        with pytest.raises(LocalMisuse, match=r"cluster\.aio"):
            cluster.kill(1)
        with pytest.raises(LocalMisuse, match="trio task"):
            log.cluster.leader_of("log")
        with pytest.raises(LocalMisuse, match="async with"):
            cluster.stop()
        assert await log.append(b"x") == 0  # it was not stopped in part


async def test_a_blocking_start_in_a_trio_task_says_so_and_starts_nothing():
    """It hung: the brokers' thread had been started, and could not be told to end."""
    before = threads()
    with pytest.raises(LocalMisuse, match="async with"):
        Cluster(brokers=1).start()
    with pytest.raises(LocalMisuse, match="async with"):
        raftlog.ReplicatedLog(1).__enter__()
    assert threads() == before
