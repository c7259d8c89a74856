"""Replicas start and go only for what names them; what failed comes back only through recovery."""

import copy
import hashlib

import attrs
import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.errors import DiskError
from raftlog.base.ids import METADATA_GROUP, ReplicaId
from raftlog.base.limits import REOPEN_BACKOFF_MS_MAX
from raftlog.base.probes import fired, reset
from raftlog.broker.deadlines import Timers
from raftlog.broker.replicas.hosts import HostState
from raftlog.broker.replicas.partition_manager import PartitionManager
from raftlog.metadata.broker_image import Removal
from raftlog.metadata.delta import StartReplica, delta_between
from raftlog.metadata.image import EMPTY_IMAGE
from raftlog.partition.producing.producer_snapshot import write_producers
from raftlog.partition.producing.producers import ProducerTable
from raftlog.storage.directories.data_dir import peek_directory
from raftlog.storage.replica import any_state
from raftlog.storage.segments.snapshot import write_snapshot
from tests.broker.cluster import Cluster


@pytest.fixture
def one():
    cluster = Cluster(brokers=1).ready()
    cluster.create("orders", 1, 1)
    cluster.put("orders", ["v"])
    return cluster


def parts(cluster):
    node = cluster.world.nodes[1]
    manager = node.broker.manager
    host = next(h for h in manager.hosts.values() if h.label == "orders-0")
    return node, manager, host


def start_of(host, epoch):
    me = host.spec.replica._replace(epoch=epoch)
    return StartReplica(
        group=host.spec.group,
        replica=me,
        topic_id=host.topic_id,
        partition=0,
        founding=host.founding,
        preferred=False,
    )


def removal_of(host, epoch):
    replica = host.spec.replica._replace(epoch=epoch)
    return Removal(group=host.spec.group, replica=replica, topic_id=host.topic_id, partition=0)


def test_the_replica_that_runs_is_not_started_again(one):
    _, manager, host = parts(one)
    replica = host.replica
    manager.start(start_of(host, host.spec.replica.epoch))
    one.run(0.1)
    assert parts(one)[2].replica is replica


def test_a_late_start_of_an_older_id_is_ignored(one):
    _, manager, host = parts(one)
    reset()
    manager.start(start_of(host, host.spec.replica.epoch - 1))
    one.run(0.1)
    assert parts(one)[2] is host
    assert fired()["late-start-ignored"] == 1


def test_a_late_delete_of_an_older_id_leaves_the_younger_alone(one):
    """The partition was placed again before the old delete came."""
    node, manager, host = parts(one)
    node.broker.handle([], node.broker.context.now, 0)
    manager.delete(removal_of(host, host.spec.replica.epoch - 1))
    one.run(0.5)
    assert parts(one)[2] is host
    assert one.read_all("orders") == [(0, b"v")]
    assert node.broker.volume.store.registrations[host.spec.group].replica == host.spec.replica


def test_a_delete_takes_exactly_its_replica_and_its_files(one):
    node, manager, host = parts(one)
    manager.delete(removal_of(host, host.spec.replica.epoch))
    manager.delete(removal_of(host, host.spec.replica.epoch))
    node.deliver_nothing()
    one.run(0.5)
    assert host.spec.group not in manager.hosts
    assert host.spec.group not in node.broker.volume.store.registrations
    assert not any(host.spec.path in path for path in node.disk.paths())
    assert METADATA_GROUP in manager.hosts


def test_a_younger_id_replaces_the_older_one_and_leaves_its_files(one):
    node, manager, host = parts(one)
    reset()
    manager.start(start_of(host, host.spec.replica.epoch + 1000))
    node.deliver_nothing()
    one.run(0.5)
    _, _, younger = parts(one)
    assert younger.spec.replica.epoch == host.spec.replica.epoch + 1000
    assert younger.state is HostState.RUNNING
    assert any(host.spec.path in path for path in node.disk.paths())
    assert fired()["replica-superseded"] == 1


def test_an_image_that_lacks_a_replica_deletes_nothing(one):
    node, manager, host = parts(one)
    image = attrs.evolve(node.broker.context.image, topics={}, names={}, places={})
    delta = delta_between(node.broker.context.image, image, node.number, node.directory)
    manager.apply(delta)
    one.run(0.5)
    assert parts(one)[2] is host
    assert host.replica is not None


def test_applying_everything_again_changes_nothing(one):
    node, manager, host = parts(one)
    image = node.broker.context.image
    manager.apply(delta_between(EMPTY_IMAGE, image, node.number, node.directory))
    one.run(0.5)
    assert parts(one)[2] is host


def test_a_registered_replica_without_files_is_lost_and_never_starts_empty(one):
    node, _, host = parts(one)
    one.kill(1)
    for name in [p for p in node.disk.paths() if p.startswith(host.spec.path)]:
        node.disk.vanish(name)
    node.start()
    one.run(2.0)
    _, _, again = parts(one)
    assert again.spec.replica != host.spec.replica or again.state is HostState.LOST
    assert again.replica is None or again.spec.replica.epoch > host.spec.replica.epoch


def test_a_registration_is_durable_before_the_replica_is_there(one, monkeypatch):
    """At the moment in which a replica could first vote, a power loss does not forget it."""
    node, manager, _ = parts(one)
    seen = []
    run = PartitionManager._run

    def look_first(self, host, recovered):
        disk = copy.deepcopy(node.disk)
        disk.crash(Keep.NONE)
        seen.append(peek_directory(disk).registrations.get(host.spec.group))
        run(self, host, recovered)

    monkeypatch.setattr(PartitionManager, "_run", look_first)
    one.create("others", 3, 1)
    assert [r.replica for r in seen] == [
        host.spec.replica for host in manager.hosts.values() if host.label.startswith("others")
    ]


def test_a_replica_that_cannot_be_opened_is_tried_again_with_growing_pauses(one):
    node, _, host = parts(one)
    one.kill(1)
    node.disk.fail("open", host.spec.path, count=4)
    node.disk.fail("list", host.spec.path, count=3)
    node.start()
    one.ready(30.0)
    _, _, again = parts(one)
    assert again.state is HostState.RUNNING
    assert one.read_all("orders") == [(0, b"v")]


def test_a_failed_deletion_is_tried_again(one):
    node, manager, host = parts(one)
    node.disk.fail("remove", host.spec.path, count=2)
    manager.delete(removal_of(host, host.spec.replica.epoch))
    node.deliver_nothing()
    one.run(60.0)
    assert not any(host.spec.path in path for path in node.disk.paths())


def test_pauses_between_reopenings_grow_and_are_bounded(one, monkeypatch):
    _, manager, host = parts(one)
    asked = []

    def note(timers, deadline, *_):
        asked.append(deadline - manager.turn.now)

    monkeypatch.setattr(Timers, "at", note)
    for _ in range(12):
        manager._wait(host, DiskError("no"))
    assert [pause // 10**6 for pause in asked] == [
        *(100 * 2**n for n in range(7)),
        *[REOPEN_BACKOFF_MS_MAX] * 5,
    ]
    assert host.state is HostState.WAITING


def test_the_id_of_another_node_or_directory_is_a_bug(one):
    _, manager, host = parts(one)
    other = host.spec.replica._replace(node=9)
    start = attrs.evolve(start_of(host, 10**6), replica=ReplicaId(*other))
    with pytest.raises(AssertionError):
        manager.start(start)


def test_settings_reach_a_running_replica():
    cluster = Cluster(brokers=1).ready()
    cluster.create("orders", 1, 1, configs=[("max.message.bytes", "100")])
    _, _, host = parts(cluster)
    assert host.config.max_message_bytes == 100
    assert cluster.produce("orders", ["x" * 200]).error_code == 10


def test_an_elder_runs_again_when_the_younger_one_is_deleted_before_it_was_registered(one):
    node, manager, host = parts(one)
    elder = host.spec.replica.epoch
    manager.start(start_of(host, elder + 1000))
    image = node.broker.context.image
    delta = delta_between(EMPTY_IMAGE, image, node.number, node.directory)
    manager.apply(attrs.evolve(delta, delete=(removal_of(host, elder + 1000),)))
    node.deliver_nothing()
    one.run(0.5)
    again = manager.hosts[host.spec.group]
    assert (again.spec.replica.epoch, again.state) == (elder, HostState.RUNNING)
    assert one.read_all("orders") == [(0, b"v")]


def test_an_elder_never_begins_again_when_the_younger_one_is_deleted(one):
    """The younger id leaves first; the older one is still a voter, and would be one without its
    log and its vote."""
    node, manager, host = parts(one)
    elder = host.spec.replica.epoch
    manager.start(start_of(host, elder + 1000))
    node.deliver_nothing()
    one.run(0.5)
    image = node.broker.context.image
    delta = delta_between(EMPTY_IMAGE, image, node.number, node.directory)
    manager.apply(attrs.evolve(delta, delete=(removal_of(host, elder + 1000),)))
    node.deliver_nothing()
    one.run(0.5)
    assert host.spec.group not in manager.hosts
    registered = node.broker.volume.store.registrations[host.spec.group].replica
    assert registered.epoch == elder + 1000, "it may not be forgotten that the elder was before it"
    one.kill(1)
    node.start()
    one.run(2.0)
    assert host.spec.group not in node.broker.manager.hosts


def test_the_last_registration_goes_with_the_last_of_its_elders(one):
    node, manager, host = parts(one)
    elder = host.spec.replica.epoch
    manager.start(start_of(host, elder + 1000))
    node.deliver_nothing()
    one.run(0.5)
    manager.delete(removal_of(host, elder + 1000))
    manager.delete(removal_of(host, elder))
    node.deliver_nothing()
    one.run(0.5)
    assert host.spec.group not in node.broker.volume.store.registrations


# --- bad state files ------------------------------------------------------------------------------


def boot_with_state(cluster, body):
    """A boot that finds this as the state behind the first entry of the partition."""
    node, _, host = parts(cluster)
    unjudged = attrs.evolve(host.spec, check_state=any_state)
    log = host.replica.log
    behind = attrs.evolve(log.position_before(1), raft_index=1, term=log.term_at(1))
    write_snapshot(node.disk, unjudged, behind, body)
    cluster.run(0.5)
    cluster.kill(1)
    cluster.restart(1)
    cluster.run(3)
    return parts(cluster)[2]


def test_a_bad_state_file_does_not_stop_a_broker(one):
    """The story: recovery looked at the digest of the file only and called the replica intact; what
    the body said was read in the turn that ran it, and that error was nobody's. The broker stopped
    at each boot, with every other group that it had."""
    host = boot_with_state(one, b"state of nothing")
    assert host.state is HostState.RUNNING
    one.put("orders", ["w"])


def test_a_state_file_of_a_later_release_keeps_its_replica_closed(one):
    host = parts(one)[2]
    body = write_producers(ProducerTable(), group=host.spec.group, before=2)
    content = body[:4] + (2).to_bytes(2, "big") + body[6:-16]
    later = content + hashlib.blake2b(content, digest_size=16).digest()
    host = boot_with_state(one, later)
    assert host.state is HostState.WAITING
    assert "version 2" in host.why
    assert parts(one)[1].hosts[METADATA_GROUP].state is HostState.RUNNING
