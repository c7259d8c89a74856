"""A replica moves to another disk: crashed at every changing call of either disk, it is whole and
knows its vote, in one of the two places."""

import copy

import pytest
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base.errors import CorruptData, DiskError, OperatingError
from raftlog.storage.boot.recovery import recover_replica
from raftlog.storage.directories.directory_move import (
    StretchToCopy,
    begin_copy,
    copy_stretch,
    finish_copy,
)
from raftlog.storage.files import opened, write_whole
from raftlog.storage.replica import MOVING_FILE, SEGMENT_SUFFIX, index_name
from tests.storage.making import SPEC, TINY
from tests.storage.moving import THERE, Moving, copy_replica, spec_at


@pytest.fixture(scope="module")
def before():
    return Moving()


def test_a_move_there_and_back(before):
    moving = copy.deepcopy(before)
    moving.move(THERE)
    assert moving.whole() == (THERE, [])
    moving.path = THERE
    moving.log = recover_replica(
        moving.disk, spec_at(THERE), moving.image.marks[SPEC.group], TINY
    ).log
    moving.move(SPEC.path)
    assert moving.whole() == (SPEC.path, [])


@pytest.mark.parametrize("way", ["there", "back"])
@pytest.mark.parametrize(("keep", "tears"), [(Keep.ALL, False), (Keep.NONE, True)])
@pytest.mark.parametrize("disk", ["first", "other"])
def test_crashed_at_every_call(before, way, keep, tears, disk):
    begun = copy.deepcopy(before)
    target = THERE
    if way == "back":
        begun.move(THERE)
        begun.whole()
        begun.path, target = THERE, SPEC.path
        mark = begun.image.marks[SPEC.group]
        begun.log = recover_replica(begun.disk, spec_at(THERE), mark, TINY).log
    seen = {}
    for call in range(1, 200):
        moving = copy.deepcopy(begun)
        crashing = getattr(moving, disk)
        crashing.mutations = 0
        crashing.crash_at, crashing.crash_tears = call, tears
        try:
            moving.move(target)
        except SimulatedCrashError:
            pass
        else:
            break
        moving.first.crash(keep)
        moving.other.crash(keep)
        path, _ = moving.whole()
        seen[path] = seen.get(path, 0) + 1
        assert moving.whole() == (path, []), "a second boot says the same"
    else:
        raise AssertionError("the move never ends")
    assert call > 3, "it was crashed somewhere"
    copies_are_made_here = (disk == "other") == (way == "there")
    source = SPEC.path if target == THERE else THERE
    assert (seen.get(source, 0) > 0) or not copies_are_made_here, seen
    assert seen.get(target, 0) > 0 or disk == "other", seen


def test_a_copy_of_an_operator_stops_the_start_and_both_are_named(before):
    moving = copy.deepcopy(before)
    copy_replica(moving.disk, SPEC.path, THERE)
    for path in (SPEC.path, THERE):
        moving.disk.remove(f"{path}/{MOVING_FILE}")
    with pytest.raises(OperatingError) as found:
        moving.boot()
    assert f"/a/{SPEC.path}" in found.value.on
    assert f"/b/{SPEC.path}" in found.value.on


def test_a_copy_that_fails_leaves_the_replica_as_it_is(before):
    moving = copy.deepcopy(before)
    moving.other.fail("write", count=99, skip=2)
    with pytest.raises(DiskError):
        copy_replica(moving.disk, SPEC.path, THERE)
    moving.other.forget_faults()
    assert moving.whole() == (SPEC.path, [THERE])


def test_an_unfinished_copy_is_begun_again(before):
    moving = copy.deepcopy(before)
    moving.other.fail("sync", count=1, skip=1)
    with pytest.raises(DiskError):
        copy_replica(moving.disk, SPEC.path, THERE)
    moving.move(THERE)
    assert moving.whole() == (THERE, [])


def begun(before):
    """A copy of everything, and what finishing it needs to know."""
    moving = copy.deepcopy(before)
    begin_copy(moving.disk, THERE)
    copied = {}
    for name in moving.disk.list(SPEC.path):
        if name.endswith(SEGMENT_SUFFIX):
            write_whole(moving.disk, f"{SPEC.path}/{index_name(name)}", b"index")
            order = StretchToCopy(SPEC.path, THERE, name, 0, 1 << 20, (index_name(name),))
            copied[name] = copy_stretch(moving.disk, order).byte_count
    return moving, copied


def files(disk, path):
    found = {}
    for name in disk.list(path):
        if name != MOVING_FILE:
            with opened(disk, f"{path}/{name}") as file:
                found[name] = file.read_at(0, file.size())
    return found


def finished(moving, copied):
    size = finish_copy(moving.disk, SPEC.path, THERE, tuple(copied.items()))
    found = files(moving.disk, THERE)
    assert found == files(moving.disk, SPEC.path)
    assert size == sum(map(len, found.values()))
    return moving


def test_what_a_segment_gained_while_it_was_copied_is_copied_last(before):
    moving, copied = begun(before)
    moving.append(2, size=300)
    moving.round()
    moving.settle()
    assert list(copied) != moving.disk.list(SPEC.path), "a segment came"
    finished(moving, copied)


def test_a_segment_that_was_removed_while_it_was_copied_goes_from_the_copy(before):
    moving, copied = begun(before)
    name = next(iter(copied))
    moving.disk.remove(f"{SPEC.path}/{name}")
    gone = StretchToCopy(SPEC.path, THERE, name, copied.pop(name), 1 << 20)
    assert copy_stretch(moving.disk, gone) is None
    finished(moving, copied)
    assert not moving.disk.exists(f"{THERE}/{name}")


def test_a_file_that_was_written_again_while_it_was_copied_is_copied_again(before):
    moving, copied = begun(before)
    (name, *_) = (each for each in moving.disk.list(THERE) if each.endswith(".index"))
    path = f"{SPEC.path}/{name}"
    size = len(files(moving.disk, SPEC.path)[name])
    for content in (b"x" * size, b"longer than before" * size, b"", b"short"):
        write_whole(moving.disk, path, content)
        finished(moving, copied)


@pytest.mark.parametrize("size", [-1, 1])
def test_a_copy_that_is_not_what_was_copied_is_refused(before, size):
    """Shorter: its bytes went. Longer: somebody else wrote. Neither may become the replica."""
    moving, copied = begun(before)
    name = next(iter(copied))
    with opened(moving.disk, f"{THERE}/{name}", write=True) as file:
        if size < 0:
            file.truncate(copied[name] - 1)
        else:
            file.write_at(copied[name], [b"x"])
    with pytest.raises(CorruptData, match="bytes lie in a copy of"):
        finish_copy(moving.disk, SPEC.path, THERE, tuple(copied.items()))
