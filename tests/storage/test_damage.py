"""Damage below the durable mark is found, never cut, never served; and it is repaired by the log.

Scenarios of the same faults in whole clusters are called review-N-* (sim/scenarios).
"""

import copy
import os

import attrs
import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import EntryKind, Membership
from raftlog.base.errors import CorruptData, DiskError, RaftlogError
from raftlog.base.ids import ReplicaId
from raftlog.records.batch import read_header
from raftlog.records.control import write_log_start, write_membership_body
from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.replica import index_name, snapshot_name
from raftlog.storage.segments.snapshot import newest_snapshot, write_snapshot
from tests.storage.making import ME, SPEC, Driver, batch_of, new_disk


def files(driver):
    return [segment.path for segment in driver.log.segments]


def last_batch(driver):
    """Path and position of the last entry."""
    segment = driver.log.segments[-1]
    return segment.path, driver.log._window.position_of(driver.log.last_index)


def serves_only_truth(driver, truth):
    """Reads of everything give the truth from the start, or damage; never anything else."""
    try:
        found = driver.read_all(300)
    except RaftlogError:
        return False
    assert found == truth[: len(found)]
    return len(found) == len(truth)


STRIDE = 1 if os.environ.get("RAFTLOG_EVERY_BIT") else 7


@pytest.mark.slow
@pytest.mark.parametrize("ordinal", [0, 1, 2])
def test_no_flipped_bit_is_served_or_cut(prepared, ordinal):
    """Goal: law 7, on every kind of byte: in steps that meet every field of some batch (with
    RAFTLOG_EVERY_BIT one by one)."""
    path = files(prepared)[ordinal]
    truth, size = prepared.read_all(), len(prepared.disk.content(path))
    positions = range(4096, size, STRIDE)
    for position in positions:
        driver = copy.deepcopy(prepared)
        driver.disk.flip_bit(path, position, position % 8)
        last = driver.log.last_index
        found = driver.crash(Keep.NONE)
        if found.state is ReplicaState.DAMAGED:
            assert found.claimed == (last, 2)
            assert driver.log.last_index < last
            assert serves_only_truth(driver, truth) is False or truth != driver.read_all()
        else:
            assert ordinal < 2, "the last segment is always walked"
            assert driver.log.last_index == last
            assert not serves_only_truth(driver, truth)


def test_review_1_everything_is_known_from_the_head(driver):
    """Retention drops the segments with the last term start and the last membership entry; every
    index file is deleted; start: index, term, membership, chain come from the head's header."""
    body = write_membership_body(Membership((ME, ReplicaId(9, 9, 9))))
    driver.log.append([driver.control(EntryKind.MEMBERSHIP, body)])
    driver.append(8, size=300)
    driver.round()
    driver.commit_all()
    log = driver.log
    log.append([driver.control(EntryKind.LOG_START, write_log_start(log.next_offset - 1))])
    driver.round()
    driver.commit_all()
    driver.settle()
    log.set_log_start(log.next_offset - 1, log.last_index)
    plan = log.plan_removal()
    (order,) = plan.args
    write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producers")
    driver.run(plan)
    driver.settle()
    assert log.first_index > 14
    shape = (log.first_index, log.prev_term, log.prev_chain, log.last_index, log.last_chain)
    memberships = log.memberships
    for path in driver.disk.paths():
        if path.endswith(".index"):
            driver.disk.vanish(path)
    found = driver.crash(Keep.NONE)
    log = driver.log
    assert found.state is ReplicaState.INTACT
    assert shape == (
        log.first_index,
        log.prev_term,
        log.prev_chain,
        log.last_index,
        log.last_chain,
    )
    assert found.memberships == tuple(memberships)
    assert log.term_at(log.first_index) == 2
    assert found.producers.snapshot == b"producers"
    assert found.log_starts[-1][1] == log.next_offset - 1


def test_an_index_file_that_is_made_again_is_named(driver):
    path = index_name(driver.log.segments[0].path)
    driver.disk.flip_bit(path, 20)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.INTACT
    assert [each[:2] for each in found.mended] == [("index-rebuilt", path)]
    assert driver.crash(Keep.NONE).mended == (), "it is whole now"


@pytest.mark.parametrize("ordinal", [0, 1])
def test_review_2_a_sealed_segment_cut_at_a_batch_border(driver, ordinal):
    """Every remaining batch is whole; only the next header's index and chain tell. The log counts
    up to the last place whose chain is known."""
    segment = driver.log.segments[ordinal]
    known = max(point.raft_index for point in segment.index.points())
    assert segment.first_index < known < segment.end_index - 1
    position = driver.log._window.position_of(segment.end_index - 1)
    driver.disk.shorten(segment.path, position)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.DAMAGED
    assert driver.log.last_index == known - 1


def test_review_2_the_active_segment_cut_at_a_batch_border(driver):
    path, position = last_batch(driver)
    last, first = driver.log.last_index, driver.log.segments[-1].first_index
    driver.disk.shorten(path, position)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.DAMAGED
    assert (driver.log.last_index, found.claimed) == (first - 1, (last, 2))
    assert driver.disk.content(path)[position:] == b""


def test_review_4_rot_below_the_mark_is_not_a_torn_tail(driver):
    path, position = last_batch(driver)
    last = driver.log.last_index
    driver.disk.flip_bit(path, position + 70)
    content = driver.disk.content(path)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.DAMAGED
    assert found.claimed == (last, 2)
    assert path in found.why
    assert found.mended == ()
    assert driver.disk.content(path) == content
    assert driver.log.mark(driver.log.last_index) is None


def test_what_is_younger_than_the_mark_is_a_torn_tail(driver):
    marked = driver.image.marks
    driver.append(2)
    io_id, ops = driver.begin_round()
    driver.writer.perform(io_id, ops)
    path, position = last_batch(driver)
    last = driver.log.last_index
    driver.disk.flip_bit(path, position + 70)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.INTACT
    assert [each[:2] for each in found.mended] == [("torn-tail-cut", path)]
    assert found.mended[0].why
    assert driver.log.last_index == last - 1
    assert len(driver.disk.content(path)) == position
    assert SPEC.group in driver.image.marks
    assert marked is not driver.image.marks


def damaged_at_the_end(driver):
    path, position = last_batch(driver)
    last = driver.log.last_index
    driver.disk.flip_bit(path, position + 70)
    lost = [
        entry for index in range(last - 1, last + 1) for entry in [driver.log.entries(index, 1)[0]]
    ]
    driver.crash(Keep.NONE)
    return lost


def test_repair_by_the_log(driver):
    """The entries come again from a leader; the header of the new file remembers the damage until
    the log is whole, through crashes too."""
    lost = damaged_at_the_end(driver)
    claimed = driver.log.damaged_until
    assert claimed == (lost[-1].raft_index, 2)
    found = driver.crash(Keep.NONE)
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, claimed)
    driver.log.append(lost)
    assert driver.log.damaged_until == claimed
    driver.round()
    assert driver.log.damaged_until is None
    driver.settle()
    found = driver.crash(Keep.NONE)
    assert (found.state, found.claimed) == (ReplicaState.INTACT, None)
    assert driver.log.last_index == lost[-1].raft_index


def test_an_unfinished_repair_is_remembered(driver):
    """Two entries are lost, one came again, then a crash: still damaged, by the header alone."""
    path, _ = last_batch(driver)
    last = driver.log.last_index
    position = driver.log._window.position_of(last - 1)
    lost = driver.log.entries(last - 1, 1 << 20)
    driver.disk.flip_bit(path, position + 70)
    driver.crash(Keep.NONE)
    driver.log.append(lost[:1])
    driver.settle()
    assert driver.log.mark(0) is not None
    found = driver.crash(Keep.NONE)
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (last, 2))
    assert driver.log.last_index == last - 1
    driver.log.append(lost[1:])
    driver.settle()
    assert driver.crash(Keep.NONE).state is ReplicaState.INTACT


def test_a_later_term_ends_the_damage(driver):
    """The lost entries were never committed: the next leader's log is shorter, and later."""
    damaged_at_the_end(driver)
    driver.lead(3)
    driver.settle()
    assert driver.log.damaged_until is None
    assert driver.crash(Keep.NONE).state is ReplicaState.INTACT


def test_review_17_an_old_segment_with_a_flipped_base_offset(driver):
    """It lies outside the CRC; nothing of the segment is served before it was walked."""
    path = files(driver)[0]
    position = driver.log._window.position_of(3)
    driver.disk.flip_bit(path, position + 7)
    assert driver.crash(Keep.NONE).state is ReplicaState.INTACT
    with pytest.raises(CorruptData, match="offset"):
        driver.read(0)
    with pytest.raises(CorruptData):
        driver.run(driver.log.plan_verify(1, 3))


@pytest.mark.parametrize("ordinal", [0, 1, 2])
def test_one_bad_header_copy_is_survived(driver, ordinal):
    for position in (100, 3000):
        driver.disk.flip_bit(files(driver)[ordinal], position)
        found = driver.crash(Keep.NONE)
        if position == 100:
            assert found.state is ReplicaState.INTACT
        else:
            assert found.state in (ReplicaState.DAMAGED, ReplicaState.LOST)
            assert (found.state is ReplicaState.LOST) == (ordinal == 0)


def test_behind_a_lost_header_nothing_is_taken_for_committed(driver):
    """The file might have begun a new log: what older files hold then proves nothing."""
    path = files(driver)[1]
    first, last = driver.log.segments[1].first_index, driver.log.last_index
    driver.disk.flip_bit(path, 100)
    driver.disk.flip_bit(path, 3000)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.DAMAGED
    assert driver.log.last_index == first - 1
    assert found.commit_hint == 0
    assert found.claimed == (last, 2)


def test_what_a_truncation_made_void_is_not_claimed(driver):
    """The header of the file that a truncation began is lost. Entries of the older file above the
    cut are void, so the replica must not refuse candidates because of them."""
    driver.lead(3)
    driver.round()
    driver.log.truncate_from(driver.log.last_index)
    driver.settle()
    last = driver.log.last_index
    path = driver.log.segments[-1].path
    assert driver.log.segments[-1].first_index == last + 1
    driver.disk.flip_bit(path, 100)
    driver.disk.flip_bit(path, 3000)
    found = driver.crash(Keep.NONE)
    assert driver.log.last_index == last
    assert found.claimed is None or found.claimed == (last, 2)


@pytest.mark.parametrize("ordinal", [0, 1, 2])
def test_a_lost_file(driver, ordinal):
    segments = list(driver.log.segments)
    last = driver.log.last_index
    driver.disk.vanish(segments[ordinal].path)
    found = driver.crash(Keep.NONE)
    if ordinal == 0:
        assert found.state is ReplicaState.LOST
        assert found.log is None
        return
    assert found.state is ReplicaState.DAMAGED
    assert found.claimed == (last, 2)
    assert driver.log.last_index == segments[ordinal].first_index - 1


def test_a_lost_directory(driver):
    for path in files(driver):
        driver.disk.vanish(path)
        if driver.disk.exists(index_name(path)):
            driver.disk.vanish(index_name(path))
    assert driver.crash(Keep.NONE).state is ReplicaState.LOST


def test_deleting_all_indexes_changes_nothing(driver):
    truth = driver.read_all()
    shape = (driver.log.last_index, driver.log.last_chain, driver.log.terms.rows())
    for round_number in range(2):
        for path in driver.disk.paths():
            if path.endswith(".index"):
                driver.disk.vanish(path)
                assert round_number == 0 or path
        assert driver.crash(Keep.NONE).state is ReplicaState.INTACT
        assert shape == (driver.log.last_index, driver.log.last_chain, driver.log.terms.rows())
        assert driver.read_all(300) == truth
    assert driver.disk.exists(index_name(files(driver)[0]))


def test_a_damaged_index_is_rebuilt(driver):
    truth = driver.read_all()
    for path in files(driver)[:2]:
        driver.disk.flip_bit(index_name(path), 50)
    assert driver.crash(Keep.NONE).state is ReplicaState.INTACT
    assert driver.read_all() == truth


def test_an_index_of_another_file_is_not_trusted(driver):
    """Mutant 17: an index file trusted over the log."""
    first, second = files(driver)[:2]
    content = driver.disk.content(index_name(second))
    target = index_name(first)
    driver.disk.shorten(target, 0)
    driver.disk.overwrite(target, 0, content)
    truth = driver.read_all()
    assert driver.crash(Keep.NONE).state is ReplicaState.INTACT
    assert driver.read_all() == truth


def test_a_segment_of_another_group_under_our_name(driver):
    """A misdirected file: its header says whose it is."""
    path = files(driver)[1]
    header = bytearray(driver.disk.content(path)[:4096])
    other = Driver(new_disk(9))
    alien = bytearray(other.disk.content(files(other)[0])[:4096])
    assert alien[:2048] != header[:2048]
    driver.disk.overwrite(path, 0, bytes(alien))
    assert driver.crash(Keep.NONE).state is ReplicaState.DAMAGED


# --- snapshots ---------------------------------------------------------------------------------


def test_snapshots_an_older_one_stands_in(driver):
    log = driver.log
    newest = log.segments[2].first_index
    older = log.segments[1].first_index
    assert newest_snapshot(driver.disk, SPEC, log.last_index)[1] == b"at %d" % newest
    path = [path for path in driver.disk.paths() if path.endswith(".snapshot")][-1]
    driver.disk.flip_bit(path, 60)
    assert newest_snapshot(driver.disk, SPEC, log.last_index)[1] == b"at %d" % older
    found = driver.crash(Keep.NONE)
    assert found.producers.before == older


def test_a_snapshot_of_another_log_is_passed_over(driver):
    """Seed 6000616: what was committed elsewhere had its snapshot here before its entries were
    durable; after a crash the log ended in entries that were never committed."""
    log = driver.log
    newest, older = log.segments[2].first_index, log.segments[1].first_index
    there = attrs.evolve(log.position_before(newest), term=log.last_term + 1)
    write_snapshot(driver.disk, SPEC, there, b"of another log")
    assert newest_snapshot(driver.disk, SPEC, log.last_index)[1] == b"of another log"
    found = driver.crash(Keep.NONE)
    assert (found.producers.before, found.producers.snapshot) == (older, b"at %d" % older)


def test_a_snapshot_under_another_name_is_damage(driver):
    """A write that went astray: the whole of a younger snapshot lies in an older one's file, and
    would be taken for the state before entries that it has counted already."""
    log = driver.log
    younger = f"{SPEC.path}/{snapshot_name(log.segments[2].first_index)}"
    older = f"{SPEC.path}/{snapshot_name(log.segments[1].first_index)}"
    astray = driver.disk.content(younger)
    driver.disk.vanish(younger)
    driver.disk.overwrite(older, 0, astray)
    assert driver.disk.content(older) == astray
    assert newest_snapshot(driver.disk, SPEC, log.last_index) is None


def test_a_producer_batch_is_replayed_once(driver):
    driver.append(1, producer_id=5, producer_epoch=0, base_sequence=0)
    driver.settle()
    found = driver.crash(Keep.NONE)
    ids = [item.header.producer_id for item in found.producers.items if item.control is None]
    assert ids == [5]
    for path in driver.disk.paths():
        if path.endswith(".snapshot"):
            driver.disk.vanish(path)
    found = driver.crash(Keep.NONE)
    kinds = [item.control.kind for item in found.producers.items if item.control]
    assert kinds == [EntryKind.TERM_START, EntryKind.TERM_START]
    assert (found.producers.snapshot, found.producers.before) == (None, 1)
    assert found.producers.end == driver.log.last_index + 1


def planned_removal(driver):
    """The job that removes all but the last segment, and its order."""
    log = driver.log
    log.append([driver.control(EntryKind.LOG_START, write_log_start(log.next_offset))])
    driver.round()
    driver.commit_all()
    log.set_log_start(log.next_offset, log.last_index)
    plan = log.plan_removal()
    return plan, plan.args[0]


def absent(disk, position):
    disk.vanish(f"{SPEC.path}/{snapshot_name(position.raft_index + 1)}")


def rotten(disk, position):
    disk.flip_bit(f"{SPEC.path}/{snapshot_name(position.raft_index + 1)}", 60)


def unreadable(disk, position):
    disk.make_unreadable(f"{SPEC.path}/{snapshot_name(position.raft_index + 1)}", 60)


def of_an_older_term(disk, position):
    write_snapshot(disk, SPEC, attrs.evolve(position, term=position.term - 1), b"producers")


def of_other_entries(disk, position):
    write_snapshot(disk, SPEC, attrs.evolve(position, chain=position.chain ^ 1), b"producers")


BAD_HEADS = [absent, rotten, unreadable, of_an_older_term, of_other_entries]


@pytest.mark.parametrize("spoil", BAD_HEADS)
def test_a_log_begins_where_its_state_can_be_read(driver, spoil):
    """Not where a boot would find none to go on from."""
    plan, order = planned_removal(driver)
    last, second, *_ = [head.position for head in order.heads]
    write_snapshot(driver.disk, SPEC, last, b"producers")
    write_snapshot(driver.disk, SPEC, second, b"producers")
    spoil(driver.disk, last)
    driver.run(plan)
    assert driver.log.first_index == second.raft_index + 1
    if spoil is not unreadable:  # a boot fails by that until it counts as damage
        assert driver.crash(Keep.NONE).state is ReplicaState.INTACT
        assert driver.log.first_index == second.raft_index + 1


@pytest.mark.parametrize("spoil", BAD_HEADS)
def test_nothing_is_removed_while_no_state_can_be_read(driver, spoil):
    plan, order = planned_removal(driver)
    for head in order.heads:
        write_snapshot(driver.disk, SPEC, head.position, b"producers")
        spoil(driver.disk, head.position)
    kept = driver.disk.paths()
    with pytest.raises(CorruptData if spoil is not unreadable else DiskError):
        driver.run(plan)
    assert driver.disk.paths() == kept
    assert driver.log.first_index == 1


def test_a_log_without_its_head_snapshot_is_lost(driver):
    """The head's producer state is data: without it a retry would count as new."""
    plan, order = planned_removal(driver)
    write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producers")
    driver.run(plan)
    driver.settle()
    for path in driver.disk.paths():
        if path.endswith(".snapshot"):
            driver.disk.flip_bit(path, 60)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.LOST
    assert "snapshot" in found.why


def test_unreadable_sectors_are_an_error_not_an_end(driver):
    """A read that fails says nothing about the bytes: recovery does not go on."""
    path, position = last_batch(driver)
    driver.disk.make_unreadable(path, position)
    driver.disk.crash(Keep.NONE)
    with pytest.raises(RaftlogError, match="cannot be read"):
        driver.reopen()
    assert read_header(batch_of()).magic == 2
