"""DescribeLogDirs: sizes, lags and room of the data directory."""

import pytest

from raftlog.base.errors import DiskError
from raftlog.broker.handlers import describe_log_dirs
from raftlog.kafka.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


@pytest.fixture
def three():
    cluster = Cluster(brokers=3, controllers=3).ready()
    cluster.create("orders", 2, 3)
    cluster.create("flights", 1, 1)
    return cluster


def ask(cluster, at=1, topics=None, version=5):
    body = DescribeLogDirsRequest(topics)
    return cluster.ask(at, ApiKey.DESCRIBE_LOG_DIRS, body, version)


def held(result):
    return {(t.name, p.partition_index): p for t in result.topics for p in t.partitions}


@pytest.mark.parametrize("version", range(1, 6))
def test_a_broker_tells_the_size_of_every_replica_and_the_room_that_is_left(three, version):
    three.put("orders", ["x" * 10_000], number=1)
    three.run(1)
    held_somewhere = []
    for node in three.world.nodes.values():
        answer = ask(three, at=node.number, version=version)
        (result,) = answer.results
        assert (answer.error_code, result.error_code) == (0, 0)
        found = held(result)
        held_somewhere += list(found)
        assert found["orders", 1].partition_size > 10_000 > found["orders", 0].partition_size > 0
        assert not [p for p in found.values() if p.offset_lag or p.is_future_key]
        if version >= 4:
            assert result.total_bytes > result.usable_bytes > 0
    assert sorted(held_somewhere) == sorted(
        [("orders", 0), ("orders", 1)] * 3 + [("flights", 0)]
    ), "and nothing of the cluster's own metadata"


def test_the_size_is_that_of_the_files(three):
    three.put("orders", ["x" * 10_000])
    three.run(1)
    node = three.world.nodes[2]
    replica = node.broker.context.router.replica("orders", 0)
    sizes = [node.disk.open(each.path).size() for each in replica.log.segments]
    assert held(ask(three, at=2).results[0])["orders", 0].partition_size == sum(sizes)


def test_only_what_was_asked_for_is_told(three):
    asked = [DescribableLogDirTopic("orders", [1, 1, 9]), DescribableLogDirTopic("ghost", [0])]
    assert list(held(ask(three, topics=asked).results[0])) == [("orders", 1)]
    assert ask(three, topics=[]).results[0].topics == ()


def test_a_file_system_that_does_not_answer_is_told_as_a_storage_error(three):
    def fails():
        raise DiskError("no such device", on="the data directory")

    three.world.nodes[1].disk.free_bytes = fails
    (result,) = ask(three).results
    assert (result.error_code, result.topics) == (56, ())


def test_requests_that_come_together_are_all_answered(three):
    pending = [
        three.client(1).request(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
        for _ in range(5)
    ]
    three.wait(lambda: all(each.done for each in pending), what="answers")
    assert {len(each.answer.results[0].topics) for each in pending} <= {1, 2}
    three.client(1).request(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
    three.run(1)
    assert ask(three).results[0].topics


def test_a_flood_of_questions_for_everything_makes_one_answer(three, monkeypatch):
    """Twenty bytes asked for a walk over all replicas, and thousands of them starved all others."""
    made = []
    everything = describe_log_dirs._all
    monkeypatch.setattr(
        describe_log_dirs, "_all", lambda context: made.append(1) or everything(context)
    )
    pending = [
        three.client(1).request(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
        for _ in range(50)
    ]
    three.wait(lambda: all(each.done for each in pending), what="answers")
    assert len({repr(each.answer) for each in pending}) <= len(made) <= 2
