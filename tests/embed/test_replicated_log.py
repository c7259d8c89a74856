import threading
from functools import partial
from pathlib import Path

import pytest
import trio

import raftlog
from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.embed.cluster import Cluster
from raftlog.embed.replicated_log import ReplicatedLog

pytestmark = pytest.mark.processes


def test_append_read_end():
    with raftlog.ReplicatedLog(replicas=3) as log:
        assert log.end() == 0
        assert list(log.read(0)) == []
        assert [log.append(b"%d" % number) for number in range(3)] == [0, 1, 2]
        assert log.append_many([b"3", b"4"]) == [3, 4]
        assert log.end() == 5
        assert [(each.offset, each.data) for each in log.read(2)] == [
            (2, b"2"),
            (3, b"3"),
            (4, b"4"),
        ]
        assert log.start() == 0
        with pytest.raises(KafkaError):
            list(log.follow(17, seconds=1))


def test_it_survives_its_leader():
    with ReplicatedLog(replicas=3) as log:
        log.append(b"a")
        log.cluster.kill(log.cluster.leader_of("log"))
        assert log.append(b"b") == 1
        assert log.end() == 2
        assert [each.data for each in log.read()] == [b"a", b"b"]


def test_follow_sees_what_comes():
    with ReplicatedLog(replicas=1) as log:
        log.append(b"0")
        seen = []
        follower = threading.Thread(
            target=lambda: seen.extend(each.data for each in log.follow(0, seconds=2))
        )
        follower.start()
        for number in range(1, 4):
            log.append(b"%d" % number)
        follower.join()
        assert seen == [b"0", b"1", b"2", b"3"]


def test_reading_stops_at_the_end_of_the_call():
    with ReplicatedLog(replicas=1) as log:
        log.append_many([b"x"] * 10)
        reading = log.read(5)
        log.append_many([b"y"] * 10)
        assert [each.offset for each in reading] == [5, 6, 7, 8, 9]


def test_logs_side_by_side_and_again(tmp_path: Path):
    with Cluster(brokers=1, directory=tmp_path) as cluster:
        with (
            ReplicatedLog(1, cluster=cluster, name="a") as a,
            ReplicatedLog(1, cluster=cluster, name="b") as b,
        ):
            assert (a.append(b"1"), b.append(b"2")) == (0, 0)
        assert cluster.alive == [1]
    with ReplicatedLog(1, directory=tmp_path, name="a") as again:
        assert [each.data for each in again.read()] == [b"1"]
    with pytest.raises(LocalMisuse):
        ReplicatedLog(directory=tmp_path, cluster=Cluster())
    with pytest.raises(LocalMisuse):
        again.append(b"late")


def test_without_a_majority_every_call_ends_by_its_timeout():
    with ReplicatedLog(replicas=3, timeout=20) as log:
        log.append_many([b"a", b"b"])
        leader = log.cluster.leader_of("log")
        for broker in [each for each in log.cluster.alive if each != leader]:
            log.cluster.kill(broker)
        with pytest.raises((OutcomeUnknown, NotDone)):
            log.append(b"c", timeout=0.5)
        with pytest.raises((OutcomeUnknown, NotDone)):
            log.append_many([b"d"], timeout=0.5)
        for call in (log.end, log.start, log.read):
            with pytest.raises((OutcomeUnknown, NotDone)):
                call(timeout=0.5)
        with pytest.raises((OutcomeUnknown, NotDone)):
            log.trim(1, timeout=0.5)
        log.cluster.start_all()
        assert [each.data for each in log.read()][:2] == [b"a", b"b"]


def test_the_logs_own_timeout_is_for_calls_that_name_none():
    with ReplicatedLog(replicas=3, timeout=0.7) as log:
        while True:  # the first calls of a new cluster may take longer
            try:
                log.append(b"a")
                break
            except (OutcomeUnknown, NotDone):
                continue
        log.cluster.kill(1)
        log.cluster.kill(2)
        for call in (partial(log.append, b"b"), partial(log.append_many, [b"c"]), log.end):
            with pytest.raises((OutcomeUnknown, NotDone, KafkaError)):
                call()


def test_trimmed_entries_are_gone_and_offsets_stay():
    with ReplicatedLog(replicas=1) as log:
        log.append_many([b"%d" % number for number in range(10)])
        assert log.trim(4) == 4
        assert (log.start(), log.end()) == (4, 10)
        assert [each.offset for each in log.read(4)] == [4, 5, 6, 7, 8, 9]
        assert log.trim(2) == 4  # forgotten entries do not come back
        with pytest.raises(KafkaError):
            list(log.read(3))
        with pytest.raises(KafkaError):
            log.trim(11)
        assert log.append(b"10") == 10


def test_a_log_is_used_by_address():
    with ReplicatedLog(replicas=1, name="shared") as log:
        log.append(b"here")
        address = log.cluster.bootstrap_servers
        with ReplicatedLog(1, cluster=address, name="shared") as other:
            assert other.append(b"there") == 1
            with pytest.raises(LocalMisuse, match="another program"):
                _ = other.cluster
        assert [each.data for each in log.read()] == [b"here", b"there"]
    unreachable = ReplicatedLog(1, cluster="127.0.0.1:1", timeout=1)
    with pytest.raises((OutcomeUnknown, NotDone, KafkaError, OperatingError)), unreachable:
        pass


def test_the_awaitable_log_trims_too():
    async def use():
        async with ReplicatedLog(replicas=1) as log:
            await log.append_many([b"a", b"b"])
            assert await log.trim(1) == 1
            return [each.data async for each in log.read(1)]

    assert trio.run(use) == [b"b"]
