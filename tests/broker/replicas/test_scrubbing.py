"""Rot at rest under running brokers: found within the interval, repaired by peers, never served."""

import attrs
import pytest
from raftlog_sim.world.world import seconds

from raftlog.base.limits import BATCH_HEADER_BYTES
from raftlog.base.units import millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import read_header
from raftlog.storage.replica import LogOptions
from tests.broker.cluster import Cluster, values_of

INTERVAL_S = 4
HEADER = 4096


def scrubbed(interval_s):
    def configure(config):
        return attrs.evolve(
            config,
            log_sizes=LogOptions(segment_bytes=5000, window_bytes=300, index_interval_bytes=100),
            scrub_interval_ns=millis(1000 * interval_s),
        )

    return configure


def filled(brokers, interval_s=INTERVAL_S, values=40):
    cluster = Cluster(brokers, brokers, configure=scrubbed(interval_s)).ready()
    cluster.create("orders", 1, brokers)
    for number in range(values):
        cluster.put("orders", [f"{number:04}" * 20])
    cluster.run(1)
    return cluster


def wanted(values=40):
    return [(number, (f"{number:04}" * 20).encode()) for number in range(values)]


def replica_of(cluster, node):
    return cluster.world.nodes[node].broker.context.router.replica("orders", 0)


def last_byte_of_batch(cluster, node, segment):
    """Path, position of the last byte of the segment's second batch of records, and its offset."""
    path = replica_of(cluster, node).log.segments[segment].path
    content = cluster.world.nodes[node].disk.content(path)
    at, found = HEADER, []
    while at + BATCH_HEADER_BYTES <= len(content):
        header = read_header(content[at:])
        if not header.is_raft_entry:
            found.append((path, at + header.size - 1, header.base_offset))
        at += header.size
    return found[1]


def rot(cluster, node, segment=1):
    path, position, offset = last_byte_of_batch(cluster, node, segment)
    cluster.world.nodes[node].disk.flip_bit(path, position)
    return path, offset


def counted(cluster, node, name):
    return cluster.world.nodes[node].broker.context.counters[name]


def boots(cluster):
    return [node.broker.context.boot for node in cluster.world.running()]


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_rot_under_a_running_broker_is_repaired_by_peers_within_the_interval(who):
    cluster = filled(3)
    leader = cluster.leader("orders").number
    victim = leader if who == "leader" else leader % 3 + 1
    before = boots(cluster)
    rot(cluster, victim)
    cluster.run(INTERVAL_S)
    assert counted(cluster, victim, "scrub_damage_found") == 1
    cluster.run(2)
    cluster.ready()
    assert cluster.read_all("orders") == wanted()
    assert boots(cluster) == before
    chains = {replica_of(cluster, node).log.last_chain for node in (1, 2, 3)}
    assert len(chains) == 1
    assert not any(replica_of(cluster, node).node.damaged for node in (1, 2, 3))
    cluster.run(2 * INTERVAL_S)
    assert [counted(cluster, node, "scrub_damage_found") for node in (1, 2, 3)].count(0) == 2


def test_without_an_interval_nobody_looks():
    cluster = filled(3, interval_s=0)
    rot(cluster, 1)
    cluster.run(3 * INTERVAL_S)
    assert [counted(cluster, node, "scrub_bytes") for node in (1, 2, 3)] == [0, 0, 0]


def test_every_closed_segment_is_looked_at_within_the_interval():
    cluster = filled(1)
    looked = []
    disk = cluster.world.nodes[1].disk
    closed = [segment.path for segment in replica_of(cluster, 1).log.segments[:-1]]
    assert len(closed) > 5
    for _ in range(40):
        before = counted(cluster, 1, "scrub_segments")
        cluster.run(INTERVAL_S / 10)
        looked.append(counted(cluster, 1, "scrub_segments") - before)
    interval = 10
    windows = [sum(looked[at : at + interval]) for at in range(len(looked) - interval + 1)]
    assert min(windows) >= len(closed)
    assert max(looked) <= len(closed)  # spread over the time, in two passes an interval
    assert disk.exists(closed[0])


def test_a_sole_replica_serves_what_is_whole_and_says_what_is_not():
    cluster = filled(1)
    path, offset = rot(cluster, 1)
    cluster.run(INTERVAL_S)
    (gap,) = replica_of(cluster, 1).log.gaps
    assert gap.first <= offset < gap.until
    assert cluster.fetch("orders", offset).error_code == ErrorCode.CORRUPT_MESSAGE
    read = []
    at = 0
    while at < 40:
        answer = cluster.fetch("orders", at)
        if answer.error_code:
            assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
            at = gap.until
            continue
        read += [pair for pair in values_of(answer.records) if pair[0] >= at]
        at = read[-1][0] + 1
    assert read == [pair for pair in wanted() if not gap.first <= pair[0] < gap.until]
    assert cluster.produce("orders", ["more"]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (group,) = [
        row
        for row in cluster.world.nodes[1].broker.admin.status()["groups"]
        if row["name"] == "orders-0"
    ]
    (shown,) = group["gaps"]
    assert (shown["from"], shown["until"], shown["file"]) == (gap.first, gap.until, path)
    assert "CRC" in shown["why"]
    cluster.run(3 * INTERVAL_S)
    assert cluster.world.nodes[1].disk.exists(path)
    assert counted(cluster, 1, "scrub_damage_found") == 1
    events = [e for e in cluster.tracer.events if e.name == "segment-damaged"]
    assert len(events) == 1


def test_a_leader_whose_followers_are_damaged_too_goes_on_with_what_is_whole():
    """All three copies of one batch rot. Followers are reopened, and cannot be healed; the leader
    keeps its files, leads on, and serves the rest."""
    cluster = filled(3)
    leader = cluster.leader("orders").number
    for node in (1, 2, 3):
        _, offset = rot(cluster, node)
    cluster.run(3 * INTERVAL_S)
    codes = []
    for _ in range(20):
        cluster.run(0.2)
        at = cluster.leader("orders").number
        codes.append(cluster.fetch("orders", offset, at=at).error_code)
    assert codes[-1] == ErrorCode.CORRUPT_MESSAGE, codes
    last = replica_of(cluster, cluster.leader("orders").number).log.gaps[0].until
    assert values_of(cluster.fetch("orders", last).records)[0] == wanted()[last]
    assert leader in (1, 2, 3)


def fetched_twice(cluster, offset):
    first = cluster.fetch("orders", offset)
    second = cluster.fetch("orders", offset)
    return first, second


def test_an_offset_that_one_connection_asks_for_again_is_checked_first():
    cluster = filled(3, interval_s=3600)
    leader = cluster.leader("orders").number
    assert fetched_twice(cluster, 0)[1].error_code == 0
    _, offset = rot(cluster, leader)
    first = cluster.fetch("orders", offset, at=leader)
    assert first.error_code == 0  # it is served unread: the client's own check refuses it
    second = cluster.fetch("orders", offset, at=leader)
    assert second.error_code in (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert not second.records
    cluster.run(2)
    assert cluster.read_all("orders") == wanted()
    assert counted(cluster, leader, "scrub_rechecks") == 2


def test_a_place_is_checked_once_an_interval_however_often_it_is_asked_for():
    cluster = filled(1, interval_s=3600)
    for _ in range(10):
        assert cluster.fetch("orders", 5).error_code == 0
    assert counted(cluster, 1, "scrub_rechecks") == 1
    cluster.world.run_for(seconds(3600))
    for _ in range(3):
        assert cluster.fetch("orders", 5).error_code == 0
    assert counted(cluster, 1, "scrub_rechecks") == 2


def test_a_sector_that_cannot_be_read_again_and_again_is_damage():
    cluster = filled(3)
    leader = cluster.leader("orders").number
    path, position, _ = last_byte_of_batch(cluster, leader, 1)
    cluster.world.nodes[leader].disk.make_unreadable(path, position)
    cluster.run(2 * INTERVAL_S)
    cluster.ready()
    assert counted(cluster, leader, "scrub_damage_found") == 1
    assert cluster.read_all("orders") == wanted()


def test_a_sole_replica_that_boots_with_a_gap_leads_for_reading_only():
    cluster = filled(1, interval_s=3600)
    path, position, offset = last_byte_of_batch(cluster, 1, 2)
    replica = replica_of(cluster, 1)
    end = (replica.log.next_offset, replica.log.last_index)
    files = [segment.path for segment in replica.log.segments]
    cluster.kill(1)
    disk = cluster.world.nodes[1].disk
    disk.flip_bit(path, position)
    for name in [name for name in disk.paths() if name.endswith(".index")]:
        disk.vanish(name)  # else the boot takes the index's word, and the first read finds it
    for _ in range(2):
        cluster.restart(1)
        cluster.ready()
        cluster.leader("orders")
        replica = replica_of(cluster, 1)
        (gap,) = replica.log.gaps
        assert gap.first <= offset < gap.until
        assert (replica.log.next_offset, replica.log.last_index > end[1]) == (end[0], True)
        assert cluster.fetch("orders", offset).error_code == ErrorCode.CORRUPT_MESSAGE
        read = cluster.read_all("orders", offset=gap.until)
        assert read == wanted()[gap.until :]
        assert values_of(cluster.fetch("orders", 0).records)[0] == wanted()[0]
        answer = cluster.produce("orders", ["more"])
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "raftlog recover" in answer.error_message
        assert all(disk.exists(file) for file in files)
        cluster.kill(1)
    names = [event.name for event in cluster.tracer.events]
    assert names.count("replica-for-reading-only") == 2


def test_a_segment_that_is_not_durable_yet_is_not_looked_at():
    """Seed 10: a segment takes no more entries as soon as the next one begins, in memory. Its file
    was read before its round was written, was short, and the only replica read on for good."""
    cluster = filled(1)
    cluster.world.sync_ns = seconds(3 * INTERVAL_S)
    body = cluster.produce_body("orders", ["x" * 500])
    client = cluster.client(1)
    for _ in range(8):
        client.request(ApiKey.PRODUCE, body, 11)
    cluster.run(0.1)
    log = replica_of(cluster, 1).log
    assert log.segments[-2].end.raft_index > log.durable_index
    cluster.run(2 * INTERVAL_S)
    assert log.segments[-2].end.raft_index > log.durable_index
    assert counted(cluster, 1, "scrub_damage_found") == 0
    assert counted(cluster, 1, "scrub_passes") >= 2
    assert log.gaps == ()
