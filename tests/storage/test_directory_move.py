"""A replica moves to another disk: crashed at every changing call of either disk, it is whole and
knows its vote, in one of the two places."""

import copy

import pytest
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base.entries import HardState
from raftlog.base.errors import DiskError, OperatingError
from raftlog.storage.boot.recovery import ReplicaState, create_replica, recover_replica
from raftlog.storage.directories.data_dir import format_directory, open_directory
from raftlog.storage.directories.directory_move import (
    MOVING_FILE,
    copy_replica,
    end_move,
    settle_moves,
)
from raftlog.storage.directories.log_directories import (
    FurtherImage,
    LogDirectories,
    further_prefix,
    open_further,
)
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.ops import StoreRecords
from raftlog.storage.replica import GROUPS_DIRECTORY, Registration, ReplicaSpec
from raftlog.storage.write_round import DirectoryWriter
from tests.storage.making import CLUSTER, FOUNDERS, IDENTITY, ME, SPEC, TINY, Driver, new_disk

PREFIX = further_prefix(0xABC)
THERE = f"{PREFIX}/{SPEC.path}"
VOTE = HardState(3, ME)


def spec_at(path):
    return ReplicaSpec(cluster=CLUSTER, group=SPEC.group, replica=ME, path=path)


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
