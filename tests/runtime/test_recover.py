"""`recover_directory` on disks of a simulated cluster: two of three are gone, the third goes on."""

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.errors import OperatingError
from raftlog.base.ids import DirectoryId, IoId, NodeId
from raftlog.base.units import WallMillis
from raftlog.records.batch import read_header, split
from raftlog.records.record import records_of
from raftlog.runtime.offline.recover import FORCED, KEPT, recover_directory
from raftlog.storage.directories.data_dir import peek_directory
from raftlog.storage.directories.log_directories import LogDirectories, open_further
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.files import write_whole
from raftlog.storage.ops import StoreRecords
from raftlog.storage.write_round import DirectoryWriter
from tests.broker.cluster import Cluster
from tests.broker.replicas.test_scrubbing import filled, last_byte_of_batch
from tests.broker.replicas.test_scrubbing import wanted as damaged_wanted

WALL = WallMillis(1_700_000_000_000)
BOTH = frozenset({NodeId(1), NodeId(2)})


def stopped_cluster(brokers=3):
    cluster = Cluster(brokers, brokers).ready()
    cluster.create("orders", 2, brokers)
    for number in range(10):
        cluster.put("orders", [f"v{number}"])
        cluster.put("orders", [f"w{number}"], number=1)
    cluster.run(1)
    for node in cluster.world.running():
        cluster.kill(node.number)
    return cluster


def recover(cluster, node=3, lost=BOTH, carry_out=True):
    return recover_directory(cluster.world.nodes[node].disk, lost, WALL, carry_out=carry_out)


def wanted(letter):
    return [(number, f"{letter}{number}".encode()) for number in range(10)]


def read(cluster, number=0):
    at = cluster.leader("orders", number).number
    return cluster.read_all("orders", number, at)


def actions(recovery):
    return {each.name: each.action for each in recovery.groups}


def test_the_third_of_three_goes_on_alone_and_has_all_it_held():
    cluster = stopped_cluster()
    found = recover(cluster)
    assert actions(found) == {
        "__cluster_metadata-0": FORCED, "orders-0": FORCED, "orders-1": FORCED
    }  # fmt: skip
    assert found.absent == ()
    assert [each.next_offset for each in found.groups][1:] == [10, 10]
    cluster.restart(3)
    cluster.ready()
    assert read(cluster) == wanted("v")
    assert read(cluster, 1) == wanted("w")
    assert cluster.put("orders", ["after"]) == 10
    cluster.run(5)  # until the lost brokers are fenced, lest the topic is placed on one
    cluster.create("more", 1, 1)
    assert cluster.put("more", ["new"]) == 0


def test_without_consent_nothing_changes():
    cluster = stopped_cluster()
    disk = cluster.world.nodes[3].disk
    before = peek_directory(disk)
    found = recover(cluster, carry_out=False)
    assert set(actions(found).values()) == {FORCED}
    assert not found.carried_out
    after = peek_directory(disk)
    assert (after.hard_states, after.marks) == (before.hard_states, before.marks)
    for node in (1, 2, 3):
        cluster.restart(node)
    cluster.ready()
    assert read(cluster) == wanted("v")


def test_a_group_that_has_its_majority_is_left_alone():
    cluster = stopped_cluster()
    before = peek_directory(cluster.world.nodes[3].disk)
    found = recover(cluster, lost=frozenset({NodeId(1)}))
    assert set(actions(found).values()) == {KEPT}
    assert peek_directory(cluster.world.nodes[3].disk) == before


def test_run_again_it_changes_nothing_more():
    cluster = stopped_cluster()
    recover(cluster)
    before = peek_directory(cluster.world.nodes[3].disk)
    assert set(actions(recover(cluster)).values()) == {KEPT}
    assert peek_directory(cluster.world.nodes[3].disk) == before


def test_a_node_cannot_be_lost_on_its_own_disk():
    cluster = stopped_cluster()
    with pytest.raises(OperatingError, match="node 3 is this data directory's own"):
        recover(cluster, lost=frozenset({NodeId(3)}))


def test_lost_brokers_join_again_with_empty_disks_and_get_everything():
    cluster = stopped_cluster()
    recover(cluster)
    cluster.restart(3)
    cluster.ready()
    for node in (1, 2):
        cluster.wipe(node)
        cluster.restart(node)
    cluster.ready(60.0)

    def equal():
        replicas = [
            cluster.world.nodes[node].broker.context.router.replica("orders", 0)
            for node in (1, 2, 3)
        ]
        if any(isinstance(each, int) for each in replicas):
            return False
        return len({each.log.last_chain for each in replicas}) == 1 and all(
            len(each.membership.voters) == 3 and not each.membership.joint for each in replicas
        )

    cluster.wait(equal, 60.0, "three equal voters")
    cluster.kill(3)
    assert cluster.put("orders", ["after"]) == 10
    assert cluster.read_all("orders", at=cluster.leader("orders").number)[:10] == wanted("v")


def test_what_goes_is_what_only_the_lost_ones_held():
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    cluster.put("orders", ["a"])
    cluster.run(1)
    victim = 3
    cluster.kill(victim)
    cluster.put("orders", ["b"])
    for node in (1, 2):
        cluster.kill(node)
    found = recover(cluster, victim)
    (orders,) = [each for each in found.groups if each.name == "orders-0"]
    assert orders.next_offset == 1
    cluster.restart(victim)
    cluster.ready()
    assert read(cluster) == [(0, b"a")]


def damaged(where, segments=(2,), keep_indexes=False):
    """A stopped cluster of one broker with flipped bits in closed segments: in the `body` of a
    batch, or in its `header`. The offsets of these batches, and the number of all records."""
    cluster = filled(1, interval_s=3600)
    places = [last_byte_of_batch(cluster, 1, segment) for segment in segments]
    cluster.kill(1)
    disk = cluster.world.nodes[1].disk
    for path, last, _ in places:
        disk.flip_bit(path, last if where == "body" else head_of(disk, path, last))
    if not keep_indexes:
        for name in [name for name in disk.paths() if name.endswith(".index")]:
            disk.vanish(name)
    return cluster, [offset for _, _, offset in places]


def head_of(disk, path, last):
    """Where the producer id stands of the batch that ends at `last`."""
    at, content = 4096, disk.content(path)
    while at + read_header(content[at:]).size <= last:
        at += read_header(content[at:]).size
    return at + 43


def read_around(cluster):
    """All records that a client gets, when it goes on behind each batch, empty ones too."""
    found, offset = [], 0
    end = cluster.leader("orders").broker.context.router.replica("orders", 0).high_watermark
    while offset < end:
        answer = cluster.fetch("orders", offset)
        for batch in split(answer.records, ValueError, "fetched"):
            found += [(each.offset, each.value) for each in records_of(batch, ValueError, "")]
            offset = read_header(batch).next_offset
    return found


def orders_of(recovery):
    (orders,) = [each for each in recovery.groups if each.name == "orders-0"]
    return orders


@pytest.mark.parametrize("segments", [(2,), (1, 3)])
def test_a_sole_replica_loses_the_damaged_batches_alone_and_takes_records_again(segments):
    cluster, offsets = damaged("body", segments)
    told = orders_of(recover(cluster, 1, frozenset(), carry_out=False))
    assert (told.action, told.given_up_from) == (FORCED, None)
    assert told.holes == tuple((offset, offset + 1) for offset in offsets)
    assert "CRC" in told.why
    cluster.restart(1)  # nothing was given up: it still serves what is behind the damage
    cluster.ready()
    gaps = cluster.leader("orders").broker.context.router.replica("orders", 0).log.gaps
    assert [gap.first <= offset < gap.until for gap, offset in zip(gaps, offsets, strict=True)]
    cluster.kill(1)
    recover(cluster, 1, frozenset())
    cluster.restart(1)
    cluster.ready()
    cluster.leader("orders")
    assert cluster.put("orders", ["after"]) == len(damaged_wanted())
    wanted = [each for each in damaged_wanted() if each[0] not in offsets]
    assert read_around(cluster)[:-1] == wanted
    assert set(actions(recover_again(cluster)).values()) == {KEPT}
    assert not any("filled" in name for name in cluster.world.nodes[1].disk.paths())


@pytest.mark.parametrize("keep_indexes", [False, True])
def test_behind_a_damaged_header_the_places_of_the_index_file_serve(keep_indexes):
    cluster, (offset,) = damaged("header", keep_indexes=keep_indexes)
    ((first, until),) = orders_of(recover(cluster, 1, frozenset())).holes
    assert first <= offset < until
    # Without an index file all is lost up to the segment's end.
    assert (until - first <= 2) == keep_indexes
    cluster.restart(1)
    cluster.ready()
    cluster.leader("orders")
    wanted = [each for each in damaged_wanted() if not first <= each[0] < until]
    assert read_around(cluster) == wanted
    assert cluster.put("orders", ["after"]) == len(damaged_wanted())


def test_a_lost_beginning_of_a_term_costs_no_record():
    cluster = filled(1, interval_s=3600, values=20)
    cluster.kill(1)
    cluster.restart(1)
    cluster.ready()
    cluster.leader("orders")
    for number in range(20, 40):
        cluster.put("orders", [f"{number:04}" * 20])
    closed = cluster.leader("orders").broker.context.router.replica("orders", 0).log.segments[:-1]
    cluster.kill(1)
    disk = cluster.world.nodes[1].disk
    for segment in closed:
        for at, header in batches_of(disk.content(segment.path)):
            if header.is_raft_entry and header.leader_epoch == 2:
                disk.flip_bit(segment.path, at + header.size - 1)
                break
    found = orders_of(recover(cluster, 1, frozenset()))
    assert [until - first for first, until in found.holes] == [0]
    cluster.restart(1)
    cluster.ready()
    cluster.leader("orders")
    assert read_around(cluster) == damaged_wanted()
    assert cluster.put("orders", ["after"]) == 40


def batches_of(content):
    at = 4096
    while at + 61 <= len(content) and (header := read_header(content, at)).magic == 2:
        yield at, header
        at += header.size


def recover_again(cluster):
    cluster.kill(1)
    return recover(cluster, 1, frozenset())


CHANGES = ("write_at", "truncate", "sync", "sync_all", "sync_dir", "rename", "remove", "create")


class PowerFails(Exception):
    pass


def test_cut_short_anywhere_it_is_run_again():
    """Power fails at each mutating call in turn; the next run ends it, with all records there."""
    cuts = 0
    while True:
        cluster = stopped_cluster()
        node = cluster.world.nodes[3]
        if not cut_short(cluster, node, cuts):
            break
        recover(cluster)
        cluster.restart(3)
        cluster.ready()
        assert read(cluster) == wanted("v"), cuts
        assert read(cluster, 1) == wanted("w"), cuts
        cuts += 3
    assert cuts > 12


def test_a_filling_that_is_cut_short_anywhere_is_run_again():
    cuts = 0
    while True:
        cluster, offsets = damaged("body")
        if not cut_short(cluster, cluster.world.nodes[1], cuts, frozenset()):
            break
        recover(cluster, 1, frozenset())
        disk = cluster.world.nodes[1].disk
        assert not any("filled" in name for name in disk.paths()), cuts
        cluster.restart(1)
        cluster.ready()
        wanted = [each for each in damaged_wanted() if each[0] not in offsets]
        assert read_around(cluster) == wanted, cuts
        cuts += 3
    assert cuts > 60


def cut_short(cluster, node, cuts, lost=BOTH):
    """Whether the recovery was cut after so many calls that change the disk."""
    left = [cuts]

    class Cutting:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            method = getattr(self.inner, name)

            def call(*args, **kwargs):
                if name in CHANGES:
                    if left[0] == 0:
                        raise PowerFails
                    left[0] -= 1
                result = method(*args, **kwargs)
                return Cutting(result) if hasattr(result, "write_at") else result

            return call

    try:
        recover_directory(Cutting(node.disk), lost, WALL, carry_out=True)
    except PowerFails:
        node.disk.crash(Keep.NONE)
        return True
    return False


def moved_to_a_further_directory(cluster, name):
    """The replica `orders-0` of node 3 lies in a further directory, as after a move; its disk."""
    disk = cluster.world.nodes[3].disk
    further = cluster.world.new_disk(3)
    image = peek_directory(disk)
    prefix = open_further(further, image.identity, "further", DirectoryId(77)).prefix
    group = next(
        each.group for each in recover(cluster, carry_out=False).groups if each.name == name
    )
    old = image.registrations[group].path
    both = LogDirectories(disk, {prefix: further})
    both.make_dir(f"{prefix}/{old}")
    for file in disk.list(old):
        write_whole(both, f"{prefix}/{old}/{file}", disk.content(f"{old}/{file}"))
        disk.remove(f"{old}/{file}")
    records = StoreImage(image).relocate(group, f"{prefix}/{old}")
    writer = DirectoryWriter(disk)
    assert writer.perform(IoId(1), [StoreRecords(records)]).poisoned is None
    writer.close()
    return further, group


def test_replicas_in_further_log_directories_are_recovered_when_these_are_named():
    cluster = stopped_cluster()
    further, group = moved_to_a_further_directory(cluster, "orders-0")
    disk = cluster.world.nodes[3].disk
    with pytest.raises(OperatingError, match="name every further path"):
        recover(cluster)
    found = recover_directory(disk, BOTH, WALL, carry_out=True, further=[further])
    assert actions(found)["orders-0"] == FORCED
    again = recover_directory(disk, BOTH, WALL, carry_out=True, further=[further])
    assert set(actions(again).values()) == {KEPT}
    (orders,) = [each for each in again.groups if each.group == group]
    assert (orders.next_offset, orders.committed, len(orders.voters)) == (10, 10, 1)


def test_a_directory_that_is_no_further_one_is_refused():
    cluster = stopped_cluster()
    disk = cluster.world.nodes[3].disk
    with pytest.raises(OperatingError, match="no further log directory"):
        recover_directory(disk, BOTH, WALL, carry_out=True, further=[cluster.world.new_disk(3)])
