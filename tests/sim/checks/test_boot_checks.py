"""Oracles of a boot see a replica that is recovered with less than its files hold, or given up."""

import pytest
from raftlog_sim.checks.boot_checks import BootChecks, read_prefix
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.disk import Keep

from raftlog.base.errors import CorruptData
from raftlog.base.ids import NodeId
from raftlog.storage.boot import recovery
from raftlog.storage.segments.walk import Walk
from tests.broker.cluster import Cluster
from tests.storage.making import SPEC, Driver

WRITES = tuple(step(20 * n, "produce", slot=0, partition=0, count=3) for n in range(40))
BOOT = step(600, "power", 100, node="n1", keep="all")
OPTIONS = SimOptions(seed=5, brokers=1, controllers=1, replication=1, safety_ms=1_000)


def test_what_a_boot_finds_is_compared():
    result = simulate(Schedule(OPTIONS, (*WRITES, BOOT)))
    assert result.failure == ""
    for name in ("recovered-exactly", "lost-rightly"):
        assert result.invariants[name]["checked"] >= 2


def test_a_boot_that_leaves_a_file_out_is_seen(monkeypatch):
    """A planted bug: the youngest of several files counts for nothing."""
    find = recovery.find_live_files

    def without_the_last(disk, spec):
        found = find(disk, spec)
        return found._replace(live=found.live[:-1] or found.live)

    monkeypatch.setattr(recovery, "find_live_files", without_the_last)
    options = SimOptions(**{**vars_of(OPTIONS), "value_bytes": 3_000, "segment_bytes": 9_000})
    result = simulate(Schedule(options, (*WRITES, BOOT)))
    assert result.failure_class == "recovered-exactly"


def test_a_walk_that_refuses_a_good_batch_is_seen(monkeypatch):
    """A planted bug: every batch of three records fails its check. Boots and the reader of the
    oracle walk alike, so the batch itself is looked at."""
    fault_of = Walk._fault_of

    def refusing(self, batch, header):
        if header.records_count == 3 and not header.is_raft_entry:
            return "three is too many"
        return fault_of(self, batch, header)

    cluster, found = Cluster(brokers=1), []
    cluster.world.boot_checks = BootChecks(found.extend, lambda node: False)
    cluster.ready()
    cluster.create("orders", 1, 1)
    cluster.put("orders", ["one"])
    cluster.put("orders", ["a", "b", "c"])
    cluster.run(0.05)
    node = cluster.world.nodes[NodeId(1)]
    monkeypatch.setattr(Walk, "_fault_of", refusing)
    node.crash(Keep.ALL)
    node.start()
    cluster.run(0.5)
    assert [what for name, what in found if name == "recovered-exactly" and "is whole" in what]


def test_a_replica_that_is_given_up_is_seen(monkeypatch):
    """A planted bug: the head of every log is refused at a boot."""

    def refused(spec, files):
        raise CorruptData("no such beginning", on=files.live[0].path)

    monkeypatch.setattr(recovery, "_check_head", refused)
    result = simulate(Schedule(OPTIONS, (*WRITES, BOOT)))
    assert result.failure_class == "lost-rightly"


def vars_of(options):
    return options.document() | {"core": (), "fault_gaps_ms": ()}


@pytest.fixture
def driver():
    driver = Driver()
    driver.lead(1)
    driver.append(3)
    driver.settle()
    return driver


def path_of_last(driver):
    return driver.log.segments[-1].path


def test_the_prefix_ends_where_the_first_batch_is_torn(driver):
    whole = read_prefix(driver.disk, SPEC)
    assert whole == (driver.log.last_index, "")
    path = path_of_last(driver)
    size = len(driver.disk.content(path))
    driver.disk.flip_bit(path, size - 1)
    assert read_prefix(driver.disk, SPEC) == (driver.log.last_index - 1, "")
    driver.disk.shorten(path, size - 5)
    assert read_prefix(driver.disk, SPEC) == (driver.log.last_index - 1, "")
