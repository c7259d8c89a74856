"""A replicated log that nobody opened: its first use opens it, and it may be closed or forgotten.

The story: a script made a `ReplicatedLog(address)`, called `start()`, and was told that the log is
not open. Clients of other systems connect with their first call.
"""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from raftlog.base.errors import LocalMisuse, RaftlogError
from raftlog.client.core.errors import NotDone
from raftlog.embed.cluster import Cluster
from raftlog.embed.event_loops import in_thread
from raftlog.embed.replicated_log import ReplicatedLog

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

FIRST_CALLS = {
    "append": lambda log: log.append(b"a"),
    "append_many": lambda log: log.append_many([b"a", b"b"]),
    "start": lambda log: log.start(),
    "end": lambda log: log.end(),
    "trim": lambda log: log.trim(0),
    "read": lambda log: [each.data for each in log.read()],
    "follow": lambda log: [each.data for each in log.follow(seconds=0.1)],
}
RESULTS = {
    "append": 0,
    "append_many": [0, 1],
    "start": 0,
    "end": 0,
    "trim": 0,
    "read": [],
    "follow": [],
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1) as running:
        yield running


def threads() -> list[str]:
    return sorted(each.name for each in threading.enumerate() if each.name.startswith("raftlog"))


@pytest.mark.parametrize("by_address", [False, True])
@pytest.mark.parametrize("name", FIRST_CALLS)
def test_each_method_opens_the_log(cluster: Cluster, name: str, by_address: bool):
    where = cluster.bootstrap_servers if by_address else cluster
    before = threads()
    log = ReplicatedLog(1, cluster=where, name=f"first-{name}-{by_address}")
    assert threads() == before
    assert FIRST_CALLS[name](log) == RESULTS[name]
    assert threads() != before
    log.close()
    assert threads() == before
    assert cluster.alive == [1]


@pytest.mark.parametrize("name", FIRST_CALLS)
@pytest.mark.parametrize("run", [trio.run, lambda main: asyncio.run(main())], ids=["trio", "aio"])
def test_each_awaitable_method_opens_the_log(cluster: Cluster, name: str, run):
    log = ReplicatedLog(1, cluster=cluster, name=f"awaited-{name}-{run is trio.run}")

    async def main():
        if name in ("read", "follow"):
            more = {"seconds": 0.1} if name == "follow" else {}
            result = [each.data async for each in getattr(log.aio, name)(**more)]
        else:
            result = await FIRST_CALLS[name](log.aio)
        await log.aio.close()
        await log.aio.close()
        with pytest.raises(LocalMisuse, match="is closed"):
            await log.aio.end()
        return result

    before = threads()
    assert run(main) == RESULTS[name]
    assert threads() == before


def test_a_log_starts_its_own_cluster_and_ends_it():
    before = threads()
    log = ReplicatedLog(replicas=1)
    assert log.append(b"a") == 0
    assert log.cluster.alive == [1]
    directory = log.cluster.directory
    log.close()
    assert not directory.exists()
    assert threads() == before


def test_many_threads_open_it_once(monkeypatch: pytest.MonkeyPatch):
    log, barrier = ReplicatedLog(replicas=1), threading.Barrier(8)
    starts: list[Cluster] = []
    start = Cluster.start

    def counted(cluster: Cluster) -> Cluster:
        starts.append(cluster)
        return start(cluster)

    monkeypatch.setattr(Cluster, "start", counted)
    offsets: list[int] = []

    def first() -> None:
        barrier.wait()
        offsets.append(log.append(b"x"))

    workers = [threading.Thread(target=first) for _ in range(8)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert sorted(offsets) == list(range(8))
    assert threads().count("raftlog client") == 1
    log.close()
    assert starts == [log.cluster]


def test_an_opening_that_fails_is_tried_again_by_the_next_call(tmp_path: Path):
    """Nobody listens, then somebody does. `with` and a first call raise the same error."""
    with Cluster(brokers=1, directory=tmp_path) as running:
        address = running.bootstrap_servers
    log = ReplicatedLog(1, cluster=address, timeout=30)
    for _ in range(2):
        with pytest.raises(NotDone, match="attempts to connect") as told:
            log.append(b"x", timeout=0.3)
    with pytest.raises(NotDone) as by_with, ReplicatedLog(1, cluster=address, timeout=0.3):
        pass
    assert str(by_with.value) == str(told.value)
    with Cluster(brokers=1, directory=tmp_path) as running:
        if running.bootstrap_servers != address:
            pytest.skip("another process took the port")
        assert log.append(b"x") == 0
        log.close()


def test_a_cluster_that_does_not_run_yet():
    cluster = Cluster(brokers=1)
    log = ReplicatedLog(1, cluster=cluster)
    with pytest.raises(LocalMisuse, match="the cluster is not running"):
        log.end()
    with cluster:
        assert log.end() == 0
        log.close()


def test_the_timeout_of_a_call_includes_the_opening():
    log = ReplicatedLog(1, cluster="127.0.0.1:1", timeout=1000)
    for call in FIRST_CALLS:
        if call == "follow":
            continue
        arguments = {"append": [b"a"], "append_many": [[b"a"]], "trim": [0]}.get(call, [])
        began = time.perf_counter()
        with pytest.raises(NotDone):
            getattr(log, call)(*arguments, timeout=0.2)
        assert time.perf_counter() - began < 60
    with pytest.raises(NotDone):
        list(log.follow(timeout=0.2))
    log.close()


@pytest.mark.parametrize("arguments", [(None,), ("text",), ([b"x"],)])
def test_a_wrong_argument_opens_nothing(arguments: tuple[object, ...]):
    before = threads()
    log = ReplicatedLog(replicas=1)
    with pytest.raises(TypeError, match="data must be"):
        log.append(*arguments)
    with pytest.raises(ValueError, match="timeout must be"):
        log.end(timeout=-1)
    assert threads() == before


@pytest.mark.parametrize("address", ["", "no port", "h:0", ","])
def test_an_address_that_is_none_is_refused_when_the_log_is_made(address: str):
    with pytest.raises(ValueError, match=r"^cluster (must be|names)"):
        ReplicatedLog(1, cluster=address)


@pytest.mark.parametrize("used", [False, True])
def test_a_closed_log_stays_closed(cluster: Cluster, used: bool):
    log = ReplicatedLog(1, cluster=cluster, name=f"closed-{used}")
    if used:
        log.append(b"a")
    for _ in range(3):
        log.close()
    for call in FIRST_CALLS.values():
        with pytest.raises(LocalMisuse, match=r"the log 'closed-\w+' is closed: make a new"):
            call(log)
    with pytest.raises(LocalMisuse, match="is closed"), log:
        pass
    with ReplicatedLog(1, cluster=cluster, name=f"closed-{used}") as again:
        assert again.end() == (1 if used else 0)


def test_with_takes_over_a_log_that_is_open(cluster: Cluster):
    log = ReplicatedLog(1, cluster=cluster, name="taken")
    log.append(b"a")
    before = threads()
    with log as same:
        assert same is log
        assert log.append(b"b") == 1
        assert threads() == before
        log.close()
    with pytest.raises(LocalMisuse, match="is closed"):
        log.append(b"c")


def test_a_signal_handler_closes_what_the_same_thread_is_opening(monkeypatch: pytest.MonkeyPatch):
    """The handler runs between two instructions of `Cluster.start`."""
    before, log, start = threads(), ReplicatedLog(replicas=1), Cluster.start

    def interrupted(cluster: Cluster) -> Cluster:
        started = start(cluster)
        log.close()
        return started

    monkeypatch.setattr(Cluster, "start", interrupted)
    with pytest.raises(LocalMisuse, match="is closed"):
        log.append(b"x")
    assert threads() == before


async def test_in_a_trio_task_it_says_what_to_await_and_stays_as_it_was(cluster: Cluster):
    log = ReplicatedLog(1, cluster=cluster, name="blocked")
    for _ in range(2):
        with pytest.raises(LocalMisuse, match="async with ReplicatedLog"):
            log.append(b"x")
        assert await log.aio.append(b"x") == _
    with pytest.raises(LocalMisuse, match="async with ReplicatedLog"):
        log.close()
    assert await in_thread(log.append, b"y") == 2
    await log.aio.close()


def test_a_log_that_is_collected_unclosed_ends_and_warns():
    before = threads()

    def forget() -> Path:
        log = ReplicatedLog(replicas=1)
        log.append(b"a")
        return log.cluster.directory

    directory = forget()
    with pytest.warns(ResourceWarning, match="ReplicatedLog 'log' was not closed"):
        gc.collect()
    deadline = time.perf_counter() + 30
    while threads() != before and time.perf_counter() < deadline:
        time.sleep(0.01)
    assert threads() == before
    assert not directory.exists()


def test_a_closed_log_is_collected_in_silence(cluster: Cluster):
    log = ReplicatedLog(1, cluster=cluster, name="silent")
    log.append(b"a")
    log.close()
    del log
    gc.collect()  # a warning is an error in these tests


FORGETS = """
import sys, threading
from raftlog.embed.replicated_log import ReplicatedLog

how, address = sys.argv[1:]
if how == "address":
    log = ReplicatedLog(1, cluster=address, name="exits")
else:
    log = ReplicatedLog(replicas=3, processes=how == "processes")
print(log.append(b"x"), flush=True)
if how != "address":
    print(log.cluster.directory, flush=True)
if how == "minority":
    log.cluster.kill(1)
    log.cluster.kill(2)
    def waits():
        try:
            log.append(b"y")
        except Exception:
            pass
    threading.Thread(target=waits, daemon=True).start()
    try:
        log.append(b"z", timeout=0.2)
    except Exception as error:
        print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize("how", ["inside", "processes", "minority", "address"])
def test_a_program_that_forgets_its_log_ends(cluster: Cluster, how: str):
    program = [sys.executable, "-W", "always::ResourceWarning", "-c", FORGETS]
    ended = subprocess.run(
        [*program, how, cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert "was not closed" in ended.stderr
    assert "Traceback" not in ended.stderr
    offset, *more = ended.stdout.splitlines()
    assert offset == "0"
    if how != "address":
        assert not Path(more[0]).exists()
    if how == "minority":
        assert more[1] in ("OutcomeUnknown", "NotDone")


def test_an_error_of_the_block_closes_it_too(cluster: Cluster):
    log = ReplicatedLog(1, cluster=cluster, name="failed")
    with pytest.raises(RaftlogError), log:
        log.trim(7)
    with pytest.raises(LocalMisuse, match="is closed"):
        log.end()
