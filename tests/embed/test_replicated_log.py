import threading
from pathlib import Path

import pytest

import raftlog
from raftlog.base.errors import LocalMisuse
from raftlog.client.core.errors import KafkaError
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
