"""Moves and creations leave files in another log directory. Whichever call power stopped, whichever
directory failed at the boots that follow, no later boot takes them for a second replica."""

import copy

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base.errors import DiskError, OperatingError
from raftlog.storage.boot.recovery import create_replica, delete_replica
from raftlog.storage.directories.directory_move import end_move
from raftlog.storage.files import opened
from raftlog.storage.replica import MOVING_FILE
from tests.storage.making import FOUNDERS, SPEC, TINY
from tests.storage.moving import (
    IN_THIRD,
    PREFIX,
    THERE,
    THIRD_PREFIX,
    Moving,
    copy_replica,
    spec_at,
)

PLACES = {"": SPEC.path, PREFIX: THERE, THIRD_PREFIX: IN_THIRD}
CALLS_MAX = 300


@pytest.fixture(scope="module")
def before():
    return Moving()


@pytest.fixture(scope="module")
def moved(before):
    """The replica lies in the second directory."""
    found = copy.deepcopy(before)
    found.move(THERE)
    found.whole()
    found.reopen()
    return found


def stopped_at_every_call(begun, act, prefixes, keep=Keep.SOME):
    """A world for each changing call of these disks: `act` was stopped there, and power failed."""
    for prefix in prefixes:
        for call in range(1, CALLS_MAX):
            world = copy.deepcopy(begun)
            disk = world.disks[prefix]
            disk.crash_at, disk.crash_tears = disk.mutations + call, call % 2 == 0
            try:
                act(world)
            except SimulatedCrashError:
                world.crash(keep, Stream(call, prefix))
                yield world
            else:
                break
        else:
            raise AssertionError("it never ends")


@pytest.mark.parametrize("lacking", ["failing", "unnamed"])
@pytest.mark.parametrize("way", ["there", "back", "on"])
def test_a_directory_that_lacks_at_a_boot_stops_neither_that_boot_nor_a_later_one(
    before, moved, way, lacking
):
    begun = before if way == "there" else moved
    target = {"there": THERE, "back": SPEC.path, "on": IN_THIRD}[way]
    count = 0
    for world in stopped_at_every_call(begun, lambda each: each.move(target), PLACES):
        for prefix in (PREFIX, THIRD_PREFIX):
            again = copy.deepcopy(world)
            again.boot(**{lacking: (prefix,)})
            count += 1
            path, _ = again.whole()
            assert again.whole() == (path, []), "a second boot says the same"
    assert count > 50, count


def test_the_only_files_are_kept_while_the_directory_that_counts_lacks(before):
    """They may be all that is left of it."""
    world = copy.deepcopy(before)
    world.switch(THERE)
    kept = world.first.list(SPEC.path)
    for lacking in ({"failing": (PREFIX,)}, {"unnamed": (PREFIX,)}):
        assert world.boot(**lacking) == []
        assert world.first.list(SPEC.path) == kept
    assert world.whole() == (THERE, [SPEC.path])


def test_the_only_files_are_kept_when_those_that_count_are_gone(before):
    """Regression: the boot deleted the last copy of what was acknowledged."""
    world = copy.deepcopy(before)
    world.switch(THERE)
    kept = world.first.list(SPEC.path)
    for name in world.other.list(SPEC.path):
        world.other.remove(f"{SPEC.path}/{name}")
    for _ in range(2):
        assert world.boot() == []
        assert world.first.list(SPEC.path) == kept
    world.other.remove(SPEC.path)
    assert world.boot() == []
    assert world.first.list(SPEC.path) == kept


@pytest.mark.parametrize("operation", ["list", "exists", "remove", "sync_dir"])
@pytest.mark.parametrize("counts", [SPEC.path, THERE, IN_THIRD])
def test_a_further_directory_that_fails_while_remains_are_settled_stops_no_boot(
    before, moved, counts, operation
):
    """Regression: the error stopped the start, at every boot as long as that disk failed."""
    world = copy.deepcopy(before if counts == THERE else moved)
    world.switch(counts)
    world.other.fail(operation, SPEC.path, count=99)
    assert world.boot() == ([SPEC.path] if counts == THERE and operation != "list" else [])
    assert [each.prefix for each in world.images if each.error is not None] == [PREFIX]
    world.other.forget_faults()
    path, _ = world.whole()
    assert path == counts


def test_a_data_directory_that_fails_while_remains_are_settled_stops_the_boot(before):
    world = copy.deepcopy(before)
    world.switch(THERE)
    world.first.fail("remove", SPEC.path)
    with pytest.raises(DiskError):
        world.boot()
    world.first.forget_faults()
    assert world.whole() == (THERE, [SPEC.path])


def test_remains_that_could_not_be_deleted_outlive_two_more_moves(moved):
    world = copy.deepcopy(moved)
    world.other.fail("remove", count=99)
    old, world.log = world.switch(SPEC.path)
    with pytest.raises(DiskError):
        end_move(world.disk, old, SPEC.path)
    world.move(IN_THIRD)
    world.move(SPEC.path)
    world.other.forget_faults()
    assert world.whole() == (SPEC.path, [THERE])


@pytest.mark.parametrize("draw", range(8))
def test_power_fails_while_a_copy_is_deleted(before, draw):
    """Removals become durable in any order."""
    begun = copy.deepcopy(before)
    copy_replica(begun.disk, begun.path, THERE)
    begun.disk.remove(f"{SPEC.path}/{MOVING_FILE}")
    begun.disk.sync_dir(SPEC.path)
    for call in range(1, CALLS_MAX):
        world = copy.deepcopy(begun)
        world.other.crash_at = world.other.mutations + call
        try:
            delete_replica(world.disk, THERE)
        except SimulatedCrashError:
            world.crash(Keep.SOME, Stream(draw, f"{call}"))
            assert world.whole()[0] == SPEC.path
        else:
            break
    assert call > 4, "it was stopped somewhere"


def test_a_full_disk_keeps_no_replica_from_leaving_it(before):
    world = copy.deepcopy(before)
    world.first.free = 0
    copy_replica(world.disk, SPEC.path, THERE)
    assert not any(name.startswith(MOVING_FILE) for name in world.first.list(SPEC.path))
    world.first.free = None
    world.switch(THERE)
    assert world.whole() == (THERE, [SPEC.path])


def test_a_full_disk_left_no_word_and_the_mark_of_the_copy_stays_while_that_disk_fails(moved):
    world = copy.deepcopy(moved)
    world.switch(SPEC.path)
    world.other.remove(f"{SPEC.path}/{MOVING_FILE}")
    world.other.sync_dir(SPEC.path)
    assert world.boot(failing=(PREFIX,)) == []
    assert world.whole() == (SPEC.path, [THERE])


def created(world, prefix):
    """The files of a replica, before it is registered."""
    world.log = create_replica(world.disk, spec_at(PLACES[prefix]), FOUNDERS, TINY).log


def registered(world, prefix):
    """The replica runs: it has records, and a vote."""
    created(world, prefix)
    world.begin(PLACES[prefix])
    return world


@pytest.fixture(scope="module")
def empty(before):
    """The broker does not have the replica yet."""
    world = copy.deepcopy(before)
    world.round(records=[world.store.unregister(SPEC.group)])
    delete_replica(world.disk, SPEC.path)
    return world


@pytest.mark.parametrize("keep", Keep)
@pytest.mark.parametrize("left", PLACES)
def test_a_creation_that_was_cut_short_is_no_second_replica(empty, left, keep):
    """The next boot may place the replica elsewhere; what lies at the first place has no record."""
    begun = list(stopped_at_every_call(empty, lambda each: created(each, left), [left], keep))
    whole = copy.deepcopy(empty)
    created(whole, left)
    assert len(begun) > 4, "it was stopped somewhere"
    for world in (*begun, whole):
        # A directory that fails does not say what it holds.
        world.boot(failing=(left,) if left else ())
        other = next(prefix for prefix in PLACES if prefix != left)
        registered(world, other)
        path, deleted = world.whole()
        assert path == PLACES[other]
        assert deleted in ([], [PLACES[left]])
    assert deleted == [PLACES[left]]


def test_a_first_segment_with_records_is_a_second_replica(before):
    """The copy of an operator stops the start, though it has the name of a creation."""
    world = copy.deepcopy(before)
    create_replica(world.disk, spec_at(THERE), FOUNDERS, TINY)
    (name,) = world.disk.list(THERE)
    assert name in world.disk.list(SPEC.path)
    with opened(world.disk, f"{THERE}/{name}", write=True) as file:
        file.write_at(file.size(), [b"x"])
    with pytest.raises(OperatingError) as found:
        world.boot()
    assert f"/b/{SPEC.path}" in found.value.on


def test_a_log_that_begins_with_a_later_file_is_a_second_replica(before):
    """An install or a repair begins such a file, so a replica ran there."""
    world = copy.deepcopy(before)
    create_replica(world.disk, spec_at(THERE), FOUNDERS, TINY)
    (name,) = world.disk.list(THERE)
    world.disk.rename(f"{THERE}/{name}", f"{THERE}/{name.replace('1.log', '2.log')}")
    with pytest.raises(OperatingError):
        world.boot()
