"""A log of which many take hold at once: other processes, threads, and those who close it early."""

import asyncio
import subprocess
import sys
import threading
import time

import pytest
import trio

from raftlog.base.errors import LocalMisuse, RaftlogError
from raftlog.client.core.errors import NotDone, OutcomeUnknown
from raftlog.embed.replicated_log import ReplicatedLog

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

FOLLOWER = """
import sys
from raftlog.embed.replicated_log import ReplicatedLog

address, wanted = sys.argv[1], int(sys.argv[2])
with ReplicatedLog(3, cluster=address) as log:
    print("ready", flush=True)
    for entry in log.follow():
        print(entry.offset, entry.data.decode(), flush=True)
        if entry.offset == wanted - 1:
            break
"""


def test_several_processes_follow_at_once_while_the_leader_dies():
    with ReplicatedLog(replicas=3, processes=True) as log:
        address = log.cluster.bootstrap_servers
        followers = [
            subprocess.Popen(
                [sys.executable, "-c", FOLLOWER, address, "40"], stdout=subprocess.PIPE, text=True
            )
            for _ in range(3)
        ]
        try:
            for each in followers:
                assert each.stdout.readline() == "ready\n"
            for number in range(20):
                assert log.append(b"%d" % number) == number
            log.cluster.kill(log.cluster.leader_of("log"))
            for number in range(20, 40):
                assert log.append(b"%d" % number) == number
            seen = [each.communicate(timeout=60)[0] for each in followers]
        finally:
            for each in followers:
                each.kill()
                each.wait()
    assert seen == ["".join(f"{number} {number}\n" for number in range(40))] * 3


def test_appends_that_meet_the_death_of_the_leader_are_there_or_unknown():
    told: dict[bytes, int | None] = {}

    def append(log, worker):
        for number in range(40):
            data = b"%d-%d" % (worker, number)
            try:
                told[data] = log.append(data)
            except OutcomeUnknown:
                told[data] = None

    with ReplicatedLog(replicas=3) as log:
        log.append(b"first")
        workers = [threading.Thread(target=append, args=(log, at)) for at in range(4)]
        for each in workers:
            each.start()
        while len(told) < 40:
            time.sleep(0.001)
        log.cluster.kill(log.cluster.leader_of("log"))
        for each in workers:
            each.join()
        lies = {entry.data: entry.offset for entry in log.read()}
    assert len(told) == 160
    acknowledged = {data: offset for data, offset in told.items() if offset is not None}
    assert {data: lies.get(data) for data in acknowledged} == acknowledged


def test_closing_a_log_ends_the_calls_that_wait():
    """No majority is there, so an append and a follower wait. The block is left all the same, and
    both end by an error that says so."""
    errors: list[BaseException] = []

    def call(function):
        try:
            function()
        except RaftlogError as error:
            errors.append(error)

    with ReplicatedLog(replicas=3, timeout=3) as log:
        while True:
            try:
                log.append(b"a")
                break
            except RaftlogError:  # a busy machine: the cluster is young
                continue
        leader = log.cluster.leader_of("log")
        for broker in [each for each in log.cluster.alive if each != leader]:
            log.cluster.kill(broker)
        waiting = [
            threading.Thread(target=call, args=(lambda: log.append(b"b"),)),
            threading.Thread(target=call, args=(lambda: list(log.follow(1)),)),
        ]
        for each in waiting:
            each.start()
        time.sleep(0.2)  # whether a call has begun by now or not, it has to end
    for each in waiting:
        each.join(30)
        assert not each.is_alive()
    assert len(errors) == 2, errors
    with pytest.raises(LocalMisuse, match="is closed"):
        log.append(b"late")


def test_more_entries_than_the_client_holds_end_by_their_timeout_too():
    """Without a majority the client's buffer was full, and the call waited for room: for twice the
    log's timeout or longer, and so did the calls of other threads."""
    with ReplicatedLog(replicas=3, timeout=3600) as log:
        log.append(b"a")
        leader = log.cluster.leader_of("log")
        for broker in [each for each in log.cluster.alive if each != leader]:
            log.cluster.kill(broker)
        pieces = [b"%06d" % number + b"x" * 100_000 for number in range(1000)]
        with pytest.raises(OutcomeUnknown, match="not all is acknowledged within 1 s"):
            log.append_many(pieces, timeout=1)
        with pytest.raises((OutcomeUnknown, NotDone)):
            log.append(b"behind", timeout=0.5)
        log.cluster.start_all()
        log.append(b"b")
        numbers = [entry.data[:6] for entry in log.read() if len(entry.data) > 6]
    assert numbers == [b"%06d" % number for number in range(len(numbers))]


@pytest.mark.parametrize("cluster", ["", "no port", "h:0", "h:99999", ",", "kafka://h:9092"])
def test_an_address_that_is_none_is_refused_by_name(cluster):
    with pytest.raises((ValueError, RaftlogError)), ReplicatedLog(1, cluster=cluster, timeout=1):
        pass


def test_a_running_cluster_is_not_told_how_to_run():
    for more in ({"processes": True}, {"directory": "d"}):
        with pytest.raises(LocalMisuse, match="a running cluster has"):
            ReplicatedLog(1, cluster="127.0.0.1:9092", **more)


@pytest.mark.parametrize("data", ["text", None, 7, [b"x"]])
def test_a_wrong_type_leaves_the_log_as_it_was(data):
    with ReplicatedLog(replicas=1) as log:
        with pytest.raises(TypeError, match="data"):
            log.append(data)
        with pytest.raises(TypeError, match="pieces"):
            log.append_many([b"good", data])
        assert log.end() == 0
        assert log.append(b"good") == 0


@pytest.mark.parametrize("run", [trio.run, lambda main: asyncio.run(main())])
def test_the_awaitable_calls_have_timeouts_of_their_own(run):
    async def main():
        async with ReplicatedLog(replicas=3) as log:
            await log.append_many([b"a", b"b"], timeout=30)
            leader = await log.cluster.aio.leader_of("log")
            for broker in [each for each in log.cluster.alive if each != leader]:
                await log.cluster.aio.kill(broker)

            async def read():
                return [entry async for entry in log.read(timeout=0.5)]

            for call in (
                lambda: log.append(b"c", timeout=0.5),
                lambda: log.append_many([b"d"], timeout=0.5),
                lambda: log.start(timeout=0.5),
                lambda: log.end(timeout=0.5),
                lambda: log.trim(1, timeout=0.5),
                read,
            ):
                with pytest.raises((OutcomeUnknown, NotDone)):
                    await call()
            await log.cluster.aio.start_all()
            return [entry.data async for entry in log.read()][:2]

    assert run(main) == [b"a", b"b"]
