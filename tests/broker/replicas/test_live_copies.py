"""Replicas that move to another disk of their broker serve while they are copied, at a rate."""

import pytest
from raftlog_sim.world.disk import Keep
from raftlog_sim.world.more_disks import add_disks, further_of

from raftlog.base.errors import DiskError
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster
from tests.broker.handlers.test_alter_configs import BROKER, DELETE, SET, settings_of
from tests.broker.replicas.test_further_directories import ask_move
from tests.broker.replicas.test_throttled_moves import set_all

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
COUNT, VALUE = 60, b"x" * 4_000
HOME = "further-0"


@pytest.fixture
def one():
    """One broker with three disks; topic `orders` has one replica, 240 kB in `further-0`."""
    cluster = Cluster(brokers=1).ready()
    node = cluster.world.nodes[1]
    node.crash(Keep.ALL)
    add_disks(node, 2)
    node.start()
    cluster.ready()
    cluster.create("orders", 1, 1, configs=[("segment.bytes", "65536")])
    assert ask_move(cluster, HOME, 0) == [0]
    cluster.wait(lambda: rows(cluster)[HOME] is not None, what="it lies there")
    for at in range(COUNT):
        cluster.put("orders", [b"%04d" % at + VALUE])
    return cluster


def rows(cluster):
    """Directory -> (size, lag, is future) of the replica, or None."""
    answer = cluster.ask(1, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
    found = {}
    for each in answer.results:
        here = [p for t in each.topics if t.name == "orders" for p in t.partitions]
        found[each.log_dir] = (
            (here[0].partition_size, here[0].offset_lag, here[0].is_future_key) if here else None
        )
    return found


def paced(cluster, rate):
    set_all(cluster, "1", BROKER, (RATE, SET, str(rate)) if rate else (RATE, DELETE, None))


def lies_in(cluster, name):
    found = [each for each, row in rows(cluster).items() if row is not None]
    return found == [name] and rows(cluster)[name][2] is False


def whole(cluster, count=COUNT):
    values = [value for _, value in cluster.read_all("orders")]
    assert [int(value[:4]) for value in values] == list(range(count))


def test_it_serves_while_it_is_copied_and_shows_how_far_it_is(one):
    paced(one, 20_000)
    assert ask_move(one, "further-1", 0) == [0]
    one.run(3.0)
    size, lag, is_future = rows(one)["further-1"]
    assert 40_000 < size < 80_000
    assert (0 < lag < COUNT, is_future) == (True, True)
    assert rows(one)[HOME][2] is False
    began = one.world.now
    for at in range(COUNT, COUNT + 10):
        one.put("orders", [b"%04d" % at + VALUE])
    whole(one, COUNT + 10)
    assert (one.world.now - began) / 1e9 < 1.0
    assert rows(one)["further-1"][2], "the copy goes on"
    paced(one, None)
    one.wait(lambda: lies_in(one, "further-1"), 5.0, "moved")
    whole(one, COUNT + 10)


def test_a_copy_keeps_its_rate_and_ends(one):
    paced(one, 100_000)
    began = one.world.now
    assert ask_move(one, "further-1", 0) == [0]
    one.wait(lambda: lies_in(one, "further-1"), 20.0, "moved")
    assert 2.0 <= (one.world.now - began) / 1e9 <= 6.0
    assert ask_move(one, HOME, 0) == [0]
    paced(one, None)
    began = one.world.now
    one.wait(lambda: lies_in(one, HOME), 5.0, "moved back")
    assert (one.world.now - began) / 1e9 < 1.5


def test_the_rate_is_shown_with_its_source(one):
    set_all(one, "1", BROKER, (RATE, SET, "20000"))
    assert settings_of(one, "1")[RATE] == ("20000", 2, False)
    paced(one, None)
    assert RATE not in settings_of(one, "1")


def test_a_copy_that_is_taken_back_is_gone(one):
    paced(one, 20_000)
    assert ask_move(one, "further-1", 0) == [0]
    one.run(2.0)
    assert ask_move(one, HOME, 0) == [0]
    assert lies_in(one, HOME)
    one.wait(lambda: not further_of(one.world.nodes[1])[1].list("groups"), 3.0, "deleted")
    one.put("orders", [b"%04d" % COUNT])
    whole(one, COUNT + 1)


def test_a_copy_is_sent_elsewhere_and_the_last_word_counts(one):
    home, *_ = rows(one)
    paced(one, 20_000)
    for to in ("further-1", home, "further-1", home):
        assert ask_move(one, to, 0) == [0]
        one.run(0.3)
        found = rows(one)
        assert found[to] is not None
        assert found[to][2] is True
    paced(one, None)
    one.wait(lambda: lies_in(one, home), 5.0, "moved")
    assert further_of(one.world.nodes[1])[1].list("groups") == []
    whole(one)


def test_a_replica_that_is_reopened_is_copied_on(one):
    node = one.world.nodes[1]
    paced(one, 40_000)
    assert ask_move(one, "further-1", 0) == [0]
    one.run(3.0)
    group = node.broker.context.router.partition("orders", 0).group
    host = node.broker.manager.hosts[group]
    node.broker.manager.failed(group, host.replica, DiskError("a read failed", on="a test"))
    one.run(1.0)
    assert host.replica is not None
    for at in range(COUNT, COUNT + 5):
        one.put("orders", [b"%04d" % at + VALUE])
    one.wait(lambda: lies_in(one, "further-1"), 20.0, "moved")
    whole(one, COUNT + 5)
    node.crash(Keep.NONE)
    node.start()
    one.ready()
    whole(one, COUNT + 5)


def test_a_disk_that_fails_in_the_middle_takes_the_move_back(one):
    paced(one, 40_000)
    assert ask_move(one, "further-1", 0) == [0]
    one.run(1.0)
    further_of(one.world.nodes[1])[1].fail("write", error=DiskError, count=1)
    one.wait(lambda: lies_in(one, HOME), 5.0, "taken back")
    assert any(event.name == "replica-move-failed" for event in one.tracer.events)
    whole(one)


def test_a_topic_that_is_deleted_while_it_is_copied_leaves_nothing(one):
    paced(one, 20_000)
    assert ask_move(one, "further-1", 0) == [0]
    one.run(1.0)
    one.ask(1, ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState("orders")]), 6)
    one.run(3.0)
    assert [each.list("groups") for each in further_of(one.world.nodes[1])] == [[], []]
    assert ask_move(one, "further-1", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("call", range(1, 60, 7))
def test_power_fails_while_it_is_copied(one, call):
    paced(one, 100_000)
    failing = one.world.nodes[1].disk
    ask_move(one, "further-1", 0)
    failing.crash_at, failing.crash_tears = failing.mutations + call, True
    one.run(4.0)
    failing.crash_at = None
    one.ready()
    assert sum(row is not None for row in rows(one).values()) == 1
    whole(one)
