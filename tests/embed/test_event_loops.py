"""Clusters and replicated logs inside an event loop: the same code under asyncio and under trio."""

import asyncio
import threading

import pytest
import trio

import raftlog
from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.embed.cluster import Cluster
from raftlog.embed.event_loops import in_thread, in_thread_abandoned, in_thread_shielded

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
    """The start goes on in its thread; a block that was not entered is not left, so what was
    started is stopped before the cancellation arrives."""
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


class Held:
    """A call that runs until it is let go, and may then fail."""

    def __init__(self, error=None):
        self.begun, self.go_on, self.over = threading.Event(), threading.Event(), []
        self.error = error

    def __call__(self):
        self.begun.set()
        assert self.go_on.wait(20)
        self.over.append(True)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize("error", [None, OperatingError("mine")], ids=["result", "error"])
def test_a_cancellation_arrives_at_the_end_of_its_call(error):
    """It was asked for again after the call, where the next call took it up: a task that looped
    over calls was never cancelled."""
    call, after = Held(error), []

    async def task():
        await in_thread(call)
        after.append(True)

    async def main():
        running = asyncio.create_task(task())
        await asyncio.to_thread(call.begun.wait, 20)
        running.cancel()
        await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.sleep(0.01)
        assert not running.done()
        call.go_on.set()
        with pytest.raises(asyncio.CancelledError) as told:
            await running
        assert (call.over, after) == ([True], [])
        assert running.cancelling() == 2
        assert told.value.__cause__ is error

    asyncio.run(main())


async def loop_of_calls():
    while True:
        await in_thread(int)


async def loop_within(limit):
    async with limit:
        await loop_of_calls()


def test_a_timeout_of_asyncio_ends_a_loop_of_calls():
    """Nested, so that each must count the cancellation that it asked for, and no other."""

    async def main():
        async with asyncio.timeout(60) as outer:
            inner = asyncio.timeout(0.05)
            with pytest.raises(TimeoutError):
                await loop_within(inner)
            task = asyncio.current_task()
            assert task is not None
            assert (inner.expired(), outer.expired(), task.cancelling()) == (True, False, 0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop_of_calls(), 0.05)
            assert await in_thread(int) == 0

    asyncio.run(main())


@LOOPS
def test_a_read_is_not_waited_for(run):
    """Its thread may outlive the task, and the loop too, and makes no noise then."""
    call, noise = Held(OperatingError("nobody hears it")), []

    async def in_asyncio():
        asyncio.get_running_loop().set_exception_handler(lambda _, told: noise.append(told))
        running = asyncio.create_task(in_thread_abandoned(call))
        await asyncio.to_thread(call.begun.wait, 20)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def in_trio():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread_abandoned, call)
            await trio.to_thread.run_sync(call.begun.wait, 20)
            nursery.cancel_scope.cancel()

    before = threading.excepthook
    threading.excepthook = noise.append
    try:
        run(in_trio if run is trio.run else in_asyncio)
        assert call.over == []
        call.go_on.set()
        for each in threading.enumerate():
            if each.name == "raftlog call":
                each.join(20)
    finally:
        threading.excepthook = before
    assert noise == []


def test_a_cancelled_task_ends_in_whatever_it_does_with_a_log():
    async def main():
        async with raftlog.ReplicatedLog(replicas=1) as log:
            inside = asyncio.Event()

            async def follow():
                async for _ in log.follow(0):
                    inside.set()

            async def append():
                while True:
                    await log.append(b"x")
                    inside.set()

            await log.append(b"there")
            for loop in (follow, append):
                inside.clear()
                running = asyncio.create_task(loop())
                await inside.wait()
                running.cancel()
                done, _ = await asyncio.wait([running], timeout=30)
                assert [each.cancelled() for each in done] == [True]
            assert await log.end() >= 2

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
