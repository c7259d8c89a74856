"""`renew_spent` on disks of a simulated cluster: a topic in its last term, under new ids. And
`recluster`: a cluster whose metadata group is in its last term, under a new cluster id."""

import pytest
from raftlog_sim.base.stuck import StuckError
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import HardState
from raftlog.base.errors import OperatingError
from raftlog.base.ids import METADATA_GROUP, TERM_MAX, IoId, Term
from raftlog.base.units import WallMillis
from raftlog.runtime.offline.cluster import OfflineCluster, by_place
from raftlog.runtime.offline.directory import OfflineDirectory
from raftlog.runtime.offline.recluster import recluster
from raftlog.runtime.offline.renewal import renew_spent
from raftlog.storage.directories.data_dir import open_directory, peek_directory
from raftlog.storage.directories.store_records import hard_state_record
from raftlog.storage.directories.unfinished import UNFINISHED_FILE
from raftlog.storage.ops import StoreRecords
from raftlog.storage.write_round import DirectoryWriter
from tests.broker.cluster import Cluster

WALL = WallMillis(1_700_000_000_000)
NODES = (1, 2, 3)


def disks(cluster, nodes=NODES):
    return [cluster.world.nodes[node].disk for node in nodes]


def put_into_term(cluster, group, term):
    """As a lie, or a loop of elections, would have done, on every broker."""
    for disk in disks(cluster):
        writer = DirectoryWriter(disk)
        records = [hard_state_record(group, HardState(term, None))]
        assert writer.perform(IoId(1), [StoreRecords(records)]).poisoned is None
        writer.close()


def stop(cluster):
    cluster.run(1)
    for node in list(cluster.world.running()):
        cluster.kill(node.number)


def start(cluster):
    for node in NODES:
        cluster.restart(node)
    cluster.ready()


def group_of(cluster, name, number=0):
    image = cluster.world.running()[0].broker.context.image
    return image.topic(name).partitions[number].group


def in_the_last_term():
    """A topic whose leader has written records in the last term there is, all brokers down."""
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 2, 3)
    cluster.create("other", 1, 3)
    for number in range(5):
        cluster.put("orders", [f"v{number}"])
        cluster.put("orders", [f"w{number}"], number=1)
    cluster.put("other", ["x"])
    group = group_of(cluster, "orders")
    stop(cluster)
    put_into_term(cluster, group, Term(TERM_MAX - 1))
    start(cluster)
    for number in range(5, 10):
        cluster.put("orders", [f"v{number}"])
    assert cluster.partition("orders").leader_epoch == TERM_MAX
    stop(cluster)
    return cluster


def renew(cluster, carry_out=True, nodes=NODES):
    return renew_spent(disks(cluster, nodes), WALL, carry_out=carry_out)


def check_all_there(cluster):
    for number, letter in ((0, "v"), (1, "w")):
        count = 10 if letter == "v" else 5
        at = cluster.leader("orders", number).number
        found = cluster.read_all("orders", number, at)
        assert found == [(each, f"{letter}{each}".encode()) for each in range(count)]
    assert cluster.read_all("other", at=cluster.leader("other").number) == [(0, b"x")]
    assert cluster.put("orders", ["after"]) == 10
    assert 0 < cluster.partition("orders").leader_epoch < 100


def test_in_the_last_term_nobody_is_elected():
    cluster = in_the_last_term()
    start(cluster)
    with pytest.raises(StuckError, match="leader of orders-0"):
        cluster.leader("orders")


def test_the_copy_has_all_records_at_their_offsets_and_takes_more():
    cluster = in_the_last_term()
    start(cluster)
    before = cluster.metadata("orders").topics[0].topic_id
    stop(cluster)
    found = renew(cluster)
    assert [(each.name, each.records_until) for each in found.copies] == [
        ("orders-0", 10), ("orders-1", 5)
    ]  # fmt: skip
    assert found.copies[0].term == TERM_MAX
    assert found.stuck == ()
    start(cluster)
    check_all_there(cluster)
    assert cluster.metadata("orders").topics[0].topic_id != before
    cluster.run(10)
    for disk in disks(cluster):
        assert not any(before.hex() in name for name in disk.paths())


def test_without_consent_nothing_changes():
    cluster = in_the_last_term()
    before = [peek_directory(disk) for disk in disks(cluster)]
    found = renew(cluster, carry_out=False)
    assert [each.name for each in found.copies] == ["orders-0", "orders-1"]
    assert not found.carried_out
    assert [peek_directory(disk) for disk in disks(cluster)] == before


def test_run_again_it_changes_nothing_more():
    cluster = in_the_last_term()
    renew(cluster)
    before = [peek_directory(disk) for disk in disks(cluster)]
    again = renew(cluster)
    assert (again.copies, again.unfinished) == ((), False)
    assert [peek_directory(disk) for disk in disks(cluster)] == before


def test_a_controllers_directory_that_is_missing_is_asked_for():
    cluster = in_the_last_term()
    with pytest.raises(OperatingError, match="controller 3 is missing"):
        renew(cluster, nodes=(1, 2))


def test_a_spent_metadata_group_is_told():
    cluster = in_the_last_term()
    put_into_term(cluster, METADATA_GROUP, TERM_MAX)
    with pytest.raises(OperatingError, match="metadata group is spent as well"):
        renew(cluster)


def without_metadata_terms():
    """All brokers down, and group 0 in its last term, with records in the log of it."""
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 2, 3)
    cluster.create("other", 1, 1)
    for number in range(10):
        cluster.put("orders", [f"v{number}"])
    for number in range(5):
        cluster.put("orders", [f"w{number}"], number=1)
    cluster.put("other", ["x"])
    stop(cluster)
    put_into_term(cluster, METADATA_GROUP, Term(TERM_MAX - 1))
    start(cluster)
    cluster.create("late", 1, 3)
    cluster.put("late", ["y"])
    stop(cluster)
    assert peek_directory(disks(cluster)[0]).hard_states[METADATA_GROUP].term == TERM_MAX
    return cluster


def swapped(cluster, into):
    """The brokers are started on the copies."""
    for node, disk in zip(NODES, into, strict=True):
        cluster.world.nodes[node].disk = disk
    start(cluster)


def check_copied_cluster(cluster, old_id, topic_id):
    assert cluster.world.running()[0].broker.context.cluster != old_id
    assert cluster.metadata("orders").topics[0].topic_id == topic_id
    for name, number, wanted in (
        ("orders", 0, [(each, f"v{each}".encode()) for each in range(10)]),
        ("orders", 1, [(each, f"w{each}".encode()) for each in range(5)]),
        ("other", 0, [(0, b"x")]),
        ("late", 0, [(0, b"y")]),
    ):
        at = cluster.leader(name, number).number
        assert cluster.read_all(name, number, at) == wanted
    assert cluster.put("orders", ["after"]) == 10
    cluster.create("more", 1, 3)
    assert cluster.put("more", ["new"]) == 0


def test_a_cluster_without_metadata_terms_is_copied_under_a_new_cluster_id():
    cluster = without_metadata_terms()
    old = peek_directory(disks(cluster)[0])
    into = [cluster.world.new_disk(node) for node in NODES]
    told = recluster(disks(cluster), into, WALL, carry_out=False)
    assert told.term == TERM_MAX
    assert all(disk.paths() == () for disk in into)
    found = recluster(disks(cluster), into, WALL, carry_out=True)
    assert found.new_cluster == told.new_cluster != old.identity.cluster
    assert peek_directory(disks(cluster)[0]) == old
    with pytest.raises(OperatingError, match="written already"):
        recluster(disks(cluster), into, WALL, carry_out=True)
    topic_id = next(iter(topic_ids(cluster, "orders")))
    swapped(cluster, into)
    check_copied_cluster(cluster, old.identity.cluster, topic_id)


def topic_ids(cluster, name):
    opened = [OfflineDirectory.open(disk) for disk in disks(cluster)]
    yield OfflineCluster(by_place(opened)).image.names[name]


def test_a_broker_that_is_missing_is_asked_for():
    cluster = without_metadata_terms()
    into = [cluster.world.new_disk(node) for node in NODES]
    with pytest.raises(OperatingError, match="controller 3 is missing"):
        recluster(disks(cluster, (1, 2)), into[:2], WALL, carry_out=True)


def test_a_copy_of_the_cluster_that_is_cut_short_anywhere_is_run_again():
    cuts = 0
    cluster = without_metadata_terms()
    topic_id = next(iter(topic_ids(cluster, "orders")))
    old_id = peek_directory(disks(cluster)[0]).identity.cluster
    while True:
        into, left = [cluster.world.new_disk(node) for node in NODES], [cuts]
        try:
            recluster(disks(cluster), [Cutting(disk, left) for disk in into], WALL, carry_out=True)
            break
        except PowerFails:
            for disk in into:
                disk.crash(Keep.NONE)
        for disk in into:  # no broker starts, or all is done
            if UNFINISHED_FILE in disk.list(""):
                with pytest.raises(OperatingError):
                    open_directory(disk)
        if not any(UNFINISHED_FILE in disk.list("") for disk in into):
            assert cuts < 20
        recluster(disks(cluster), into, WALL, carry_out=True)
        assert not any(UNFINISHED_FILE in disk.list("") for disk in into), cuts
        chains = [open_directory(disk).marks for disk in into]
        wanted = chains[0][METADATA_GROUP].chain
        assert all(each[METADATA_GROUP].chain == wanted for each in chains), cuts
        cuts += 5
    assert cuts > 100
    swapped(cluster, into)
    check_copied_cluster(cluster, old_id, topic_id)


CHANGES = ("write_at", "truncate", "sync", "sync_all", "sync_dir", "rename", "remove", "create")


class PowerFails(Exception):
    pass


class Cutting:
    """A disk that fails once so many calls have changed one of those that share `left`."""

    def __init__(self, inner, left):
        self.inner, self.left = inner, left

    def __getattr__(self, name):
        method = getattr(self.inner, name)

        def call(*args, **kwargs):
            if name in CHANGES:
                if self.left[0] == 0:
                    raise PowerFails
                self.left[0] -= 1
            result = method(*args, **kwargs)
            return Cutting(result, self.left) if hasattr(result, "write_at") else result

        return call


def cut_short(cluster, cuts):
    """Whether the work was cut after so many calls that change a disk, of whichever directory."""
    left = [cuts]
    try:
        renew_spent([Cutting(disk, left) for disk in disks(cluster)], WALL, carry_out=True)
    except PowerFails:
        for disk in disks(cluster):
            disk.crash(Keep.NONE)
        return True
    return False


def test_cut_short_anywhere_no_broker_starts_and_it_is_run_again():
    """Power fails at each mutating call in turn. A broker then starts only where nothing is done or
    all is; the next run ends it, with all records there."""
    cuts, refused = 0, 0
    while True:
        cluster = in_the_last_term()
        if not cut_short(cluster, cuts):
            break
        noted = [UNFINISHED_FILE in disk.list("") for disk in disks(cluster)]
        refused += any(noted)
        renew(cluster)
        assert not any(UNFINISHED_FILE in disk.list("") for disk in disks(cluster)), cuts
        start(cluster)
        check_all_there(cluster)
        cuts += 7
    assert cuts > 50
    assert refused > 5
