"""Helpers of the tests of moves: one replica on a broker with three disks, as a boot finds them."""

from raftlog.base.entries import HardState
from raftlog.storage.boot.recovery import ReplicaState, create_replica, recover_replica
from raftlog.storage.directories.data_dir import format_directory, open_directory
from raftlog.storage.directories.directory_move import (
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
    directory_of,
    further_prefix,
    open_further,
)
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.ops import StoreRecords
from raftlog.storage.replica import (
    GROUPS_DIRECTORY,
    MOVING_FILE,
    SEGMENT_SUFFIX,
    Registration,
    ReplicaSpec,
)
from raftlog.storage.write_round import DirectoryWriter
from tests.storage.making import CLUSTER, FOUNDERS, IDENTITY, ME, SPEC, TINY, Driver, new_disk

PREFIX, THIRD_PREFIX = further_prefix(0xABC), further_prefix(0xDEF)
THERE, IN_THIRD = f"{PREFIX}/{SPEC.path}", f"{THIRD_PREFIX}/{SPEC.path}"
VOTE = HardState(3, ME)
_NAMES = {PREFIX: "/b", THIRD_PREFIX: "/c"}


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
    """One replica on three disks; `path` is where it is."""

    def __init__(self):
        self.first, self.other, self.third = new_disk(1), new_disk(2), new_disk(3)
        self.options = TINY
        format_directory(self.first, IDENTITY)
        self.boot()
        self.log = create_replica(self.disk, spec_at(SPEC.path), FOUNDERS, TINY).log
        self.begin(SPEC.path)

    def begin(self, path):
        """Register the replica, which has files at that path, and give it records and a vote."""
        self.path = path
        self.round(records=self.store.register(SPEC.group, Registration(ME, path)))
        self.append(6, size=300)
        self.round()
        self.round(records=[self.store.set_hard_state(SPEC.group, VOTE)])
        self.settle()
        self.commit_all()
        self.last_index, self.last_chain = self.log.last_index, self.log.last_chain

    @property
    def disks(self):
        """The disk of each directory, by prefix."""
        return {"": self.first, PREFIX: self.other, THIRD_PREFIX: self.third}

    def crash(self, keep, draws=None):
        """Power fails."""
        for disk in self.disks.values():
            disk.crash(keep, draws)

    def boot(self, failing=(), unnamed=()):
        """All disks, what a move left settled; the paths that were deleted. The `failing` ones take
        no write in this boot, and log.dirs does not name the `unnamed` ones."""
        self.image = open_directory(self.first)
        further, images = {}, []
        for prefix, disk in list(self.disks.items())[1:]:
            if prefix in unnamed:
                continue
            if prefix in failing:
                disk.fail("write", count=1)
            one = open_further(disk, IDENTITY, _NAMES[prefix], int(prefix[-16:], 16))
            assert (one.error is not None) == (prefix in failing), one
            further[prefix] = disk
            images.append(one)
        self.disk = LogDirectories(self.first, further)
        here = FurtherImage(name="/a", replicas=tuple(self.first.list(GROUPS_DIRECTORY)))
        registered = [each.path for each in self.image.registrations.values()]
        deleted, (_, *self.images) = settle_moves(self.disk, registered, [here, *images])
        self.store = StoreImage(self.image)
        self.writer = DirectoryWriter(self.disk, further=further)
        self.io_id = 0
        self.commit = 0
        return deleted

    def reopen(self):
        """Recover the replica where it is registered, to move it on."""
        self.path = self.image.registrations[SPEC.group].path
        mark = self.image.marks[SPEC.group]
        self.log = recover_replica(self.disk, spec_at(self.path), mark, TINY).log

    def move(self, new):
        old, log = self.switch(new)
        end_move(self.disk, old, new)
        self.log = log

    def switch(self, new):
        """Move the replica, and leave its old directory."""
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
        return old, log

    def whole(self):
        """A boot finds one copy, with everything that was acknowledged, and the vote."""
        deleted = self.boot()
        path = self.image.registrations[SPEC.group].path
        found = recover_replica(self.disk, spec_at(path), self.image.marks[SPEC.group], TINY)
        assert found.state is ReplicaState.INTACT, found.why
        assert (found.log.last_index, found.log.last_chain) == (self.last_index, self.last_chain)
        assert self.image.hard_states[SPEC.group] == VOTE
        for other in self.disks:
            if other != directory_of(path):
                assert not self.disks[other].exists(SPEC.path), (path, other)
        assert not self.disk.exists(f"{path}/{MOVING_FILE}")
        return path, deleted
