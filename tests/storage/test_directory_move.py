"""A replica moves to another disk: crashed at every changing call of either disk, it is whole and
knows its vote, in one of the two places."""

import copy

import pytest
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData, DiskError, OperatingError
from raftlog.storage.boot.recovery import ReplicaState, create_replica, recover_replica
from raftlog.storage.directories.data_dir import format_directory, open_directory
from raftlog.storage.directories.directory_move import (
    MOVING_FILE,
    StretchToCopy,
    begin_copy,
    copy_stretch,
    end_move,
    finish_copy,
    settle_moves,
)
from raftlog.storage.directories.log_directories import (
    FurtherImage,
    LogDirectories,
    further_prefix,
    open_further,
)
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.files import opened, write_whole
from raftlog.storage.ops import StoreRecords
from raftlog.storage.replica import (
    GROUPS_DIRECTORY,
    SEGMENT_SUFFIX,
    Registration,
    ReplicaSpec,
    index_name,
)
from raftlog.storage.write_round import DirectoryWriter
from tests.storage.making import CLUSTER, FOUNDERS, IDENTITY, ME, SPEC, TINY, Driver, new_disk

PREFIX = further_prefix(0xABC)
THERE = f"{PREFIX}/{SPEC.path}"
VOTE = HardState(3, ME)


def spec_at(path):
    return ReplicaSpec(cluster=CLUSTER, group=SPEC.group, replica=ME, path=path)


def copy_replica(disk, old, new):
    """Segments first, one by one, as while a replica serves; then what is left."""
    begin_copy(disk, new)
    copied = {}
    for name in disk.list(old):
        if name.endswith(SEGMENT_SUFFIX):
            while True:
                position = copied.get(name, 0)
                done = copy_stretch(disk, StretchToCopy(old, new, name, position, 500))
                copied[name] = position + done.byte_count
                if done.whole:
                    break
    return finish_copy(disk, old, new, tuple(copied.items()))


class Moving(Driver):
    """One replica on two disks; `path` is where it is."""

    def __init__(self):
        self.first, self.other = new_disk(1), new_disk(2)
        self.options = TINY
        format_directory(self.first, IDENTITY)
        self.boot()
        self.path = SPEC.path
        self.log = create_replica(self.disk, spec_at(self.path), FOUNDERS, TINY).log
        self.round(records=self.store.register(SPEC.group, Registration(ME, self.path)))
        self.append(6, size=300)
        self.round()
        self.round(records=[self.store.set_hard_state(SPEC.group, VOTE)])
        self.settle()
        self.commit_all()
        self.last_index, self.last_chain = self.log.last_index, self.log.last_chain

    def boot(self):
        """Both disks, what a move left settled; the paths that were deleted."""
        self.image = open_directory(self.first)
        further = open_further(self.other, IDENTITY, "/b", 0xABC)
        assert further.error is None, further.error
        self.disk = LogDirectories(self.first, {PREFIX: self.other})
        here = FurtherImage(name="/a", replicas=tuple(self.first.list(GROUPS_DIRECTORY)))
        registered = [each.path for each in self.image.registrations.values()]
        deleted = settle_moves(self.disk, registered, [here, further])
        self.store = StoreImage(self.image)
        self.writer = DirectoryWriter(self.disk, further={PREFIX: self.other})
        self.io_id = 0
        self.commit = 0
        return deleted

    def move(self, new):
        old, log = self.path, self.log
        copied = copy_replica(self.disk, old, new)
        assert copied > 0
        # The log is closed: the round carries the store's records alone.
        del self.log
        self.io_id += 1
        records = self.store.relocate(SPEC.group, new)
        result = self.writer.perform(self.io_id, [StoreRecords(records)])
        assert (result.poisoned, result.failed) == (None, {}), result
        self.path = new
        end_move(self.disk, old, new)
        self.log = log

    def whole(self):
        """A boot finds one copy, with everything that was acknowledged, and the vote."""
        deleted = self.boot()
        path = self.image.registrations[SPEC.group].path
        found = recover_replica(self.disk, spec_at(path), self.image.marks[SPEC.group], TINY)
        assert found.state is ReplicaState.INTACT, found.why
        assert (found.log.last_index, found.log.last_chain) == (self.last_index, self.last_chain)
        assert self.image.hard_states[SPEC.group] == VOTE
        other = THERE if path == SPEC.path else SPEC.path
        assert not self.disk.exists(other), (path, other)
        assert not self.disk.exists(f"{path}/{MOVING_FILE}")
        return path, deleted


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
    moving.disk.remove(f"{THERE}/{MOVING_FILE}")
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
