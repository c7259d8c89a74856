"""Whole brokers with a second disk, in virtual time: it fails, and replicas move to it and back."""

import pytest
from raftlog_sim.world.disk import Keep
from raftlog_sim.world.more_disks import add_disks, further_of

from raftlog.base.errors import DiskError
from raftlog.broker.replicas.hosts import HostState
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster

PARTITIONS = 4


@pytest.fixture
def three():
    """Three brokers; the first has a second disk, and half of its replicas there."""
    cluster = Cluster(brokers=3, controllers=3).ready()
    node = cluster.world.nodes[1]
    node.crash(Keep.ALL)
    add_disks(node, 1)
    node.start()
    cluster.ready()
    cluster.create("orders", PARTITIONS, 3)
    cluster.run(2)
    return cluster


def node_of(cluster):
    return cluster.world.nodes[1]


def manager(cluster):
    return node_of(cluster).broker.manager


def lying(cluster):
    """Where replicas of the first broker lie: directory -> partition -> whether it is to come."""
    answer = cluster.ask(1, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
    return {
        each.log_dir: {
            p.partition_index: p.is_future_key for t in each.topics for p in t.partitions
        }
        for each in answer.results
    }


def errors(cluster):
    answer = cluster.ask(1, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4)
    return [each.error_code for each in answer.results]


def ask_move(cluster, path, *partitions):
    topic = AlterReplicaLogDirTopic("orders", partitions)
    body = AlterReplicaLogDirsRequest([AlterReplicaLogDir(path, [topic])])
    answer = cluster.ask(1, ApiKey.ALTER_REPLICA_LOG_DIRS, body, 2)
    return [each.error_code for each in answer.results[0].partitions]


def write_everywhere(cluster, text):
    for number in range(PARTITIONS):
        cluster.put("orders", [text], number=number)


def first_path(cluster):
    return next(iter(lying(cluster)))


def there(cluster):
    return sorted(lying(cluster)["further-0"])


def test_replicas_are_spread_and_stay_where_they_are(three):
    found = lying(three)
    assert [len(each) for each in found.values()] == [2, 2]
    write_everywhere(three, "one")
    node_of(three).crash(Keep.NONE)
    node_of(three).start()
    three.ready()
    assert lying(three) == found


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_disk_that_fails_takes_its_replicas_offline_and_no_other(three, call):
    second, before = further_of(node_of(three))[0], there(three)
    second.fail(call, error=DiskError, count=999)
    write_everywhere(three, "one")
    three.wait(lambda: errors(three) == [0, ErrorCode.KAFKA_STORAGE_ERROR], what="it is shown")
    states = {
        host.label: host.state for host in manager(three).hosts.values() if "orders" in host.label
    }
    offline = [name for name, state in states.items() if state is HostState.POISONED]
    assert sorted(offline) == [f"orders-{number}" for number in before]
    assert len(lying(three)[first_path(three)]) == 2
    assert ask_move(three, first_path(three), before[0]) == [ErrorCode.KAFKA_STORAGE_ERROR]
    write_everywhere(three, "two")

    node_of(three).crash(Keep.NONE)
    second.mend()
    node_of(three).start()
    three.ready()
    assert there(three) == before
    write_everywhere(three, "three")


def test_a_replica_in_a_failed_directory_votes_for_nobody_twice(three):
    """Its votes lie in the data directory: the same replica comes back with its term."""
    number = there(three)[0]
    group = three.world.nodes[1].broker.context.router.partition("orders", number).group
    term = manager(three).hosts[group].replica.term
    further_of(node_of(three))[0].fail("write", error=DiskError, count=999)
    write_everywhere(three, "one")
    three.wait(lambda: errors(three)[1] != 0, what="it fails")
    assert manager(three).hosts[group].replica is None
    assert manager(three).volume.store.hard_states[group].term >= term


def test_replicas_move_there_and_back(three):
    write_everywhere(three, "before")
    home, everything = first_path(three), list(range(PARTITIONS))
    for target in ("further-0", home, "further-0"):
        assert ask_move(three, target, *everything) == [0] * PARTITIONS
        write_everywhere(three, "during")
        three.wait(
            lambda to=target: lying(three)[to] == dict.fromkeys(everything, False),
            what=f"all replicas in {target}",
        )
        three.ready()
    node_of(three).crash(Keep.NONE)
    node_of(three).start()
    three.ready()
    assert there(three) == everything
    assert ask_move(three, "/nowhere", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]


def test_a_replica_on_its_way_is_shown_in_both(three):
    number = next(n for n in range(PARTITIONS) if n not in there(three))
    assert ask_move(three, "further-0", number) == [0]
    node_of(three).stalled = True
    three.run(0.5)
    context = node_of(three).broker.context
    assert list(context.log_directories.moving.values()) == [context.log_directories.all[1].prefix]
    node_of(three).stalled = False
    three.wait(lambda: lying(three)["further-0"].get(number) is False, what="the move")


def test_a_move_whose_disk_fails_is_taken_back(three):
    """A full disk is no failed one: the replica goes on where it was."""
    number = next(n for n in range(PARTITIONS) if n not in there(three))
    further_of(node_of(three))[0].fail("create", error=DiskError, count=1)
    assert ask_move(three, "further-0", number) == [0]
    three.wait(
        lambda: any(event.name == "replica-move-failed" for event in three.tracer.events),
        what="the failure is told",
    )
    three.ready()
    assert number in lying(three)[first_path(three)]
    assert errors(three) == [0, 0]
    assert ask_move(three, "further-0", number) == [0]
    three.wait(lambda: lying(three)["further-0"].get(number) is False, what="the second try")


@pytest.mark.parametrize("call", range(1, 80, 6))
def test_power_fails_during_a_move(three, call):
    write_everywhere(three, "before")
    number = next(n for n in range(PARTITIONS) if n not in there(three))
    failing = node_of(three).disk
    ask_move(three, "further-0", number)
    failing.crash_at, failing.crash_tears = failing.mutations + call, True
    three.run(3)
    if failing.crash_at is not None:  # it was over before
        failing.crash_at = None
    write_everywhere(three, "after")
    three.ready()
    places = [name for name, found in lying(three).items() if number in found]
    assert len(places) == 1
    values = [value for _, value in three.read_all("orders", number)]
    assert (values[0], values[-1]) == (b"before", b"after")


def test_what_a_failed_directory_kept_goes_once_it_works_again(three):
    """The broker, and the simulator's check, leave a failed directory alone."""
    node, second = node_of(three), further_of(node_of(three))[0]
    number = there(three)[0]
    second.fail("remove", error=DiskError, count=1)
    assert ask_move(three, first_path(three), number) == [0]
    three.wait(lambda: lying(three)[first_path(three)].get(number) is False, what="the move")
    three.run(1)
    kept = second.list("groups")
    assert len(kept) == 2, "the old directory could not be deleted"

    second.fail("write", error=DiskError)
    node.crash(Keep.SOME)
    node.start()
    assert errors(three) == [0, ErrorCode.KAFKA_STORAGE_ERROR]
    assert second.list("groups") == kept

    second.mend()
    boot = node.boots
    three.wait(lambda: node.up and node.boots > boot, what="the operator restarts the broker")
    three.ready()
    assert errors(three) == [0, 0]
    assert len(second.list("groups")) == 1
    assert number in lying(three)[first_path(three)]


def test_a_topic_that_is_deleted_while_it_moves_leaves_nothing(three):
    number = next(n for n in range(PARTITIONS) if n not in there(three))
    ask_move(three, "further-0", number)
    three.ask(1, ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicState("orders")]), 6)
    three.run(5)
    node = node_of(three)
    assert further_of(node)[0].list("groups") == []
    assert len(node.disk.list("groups")) == 1, "group 0"


def test_a_replica_that_is_to_come_begins_where_a_client_asked(three):
    three.create("single", 3, 1)
    three.run(1)
    topic = AlterReplicaLogDirTopic("single", [0, 1, 2])
    body = AlterReplicaLogDirsRequest([AlterReplicaLogDir("further-0", [topic])])
    answer = three.ask(1, ApiKey.ALTER_REPLICA_LOG_DIRS, body, 2)
    codes = sorted(each.error_code for each in answer.results[0].partitions)
    assert codes == [0, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE]
