"""Write rounds: what is reported durable is; a failure is charged to whom it concerns, for good."""

import itertools
from pathlib import Path

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import HardState
from raftlog.base.errors import DiskError, DiskFull
from raftlog.runtime.real_ports import PosixDisk
from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.directories.data_dir import open_directory, peek_directory
from raftlog.storage.directories.store_records import hard_state_record
from raftlog.storage.files import write_whole
from raftlog.storage.ops import AppendBytes, CloseGroup, CreateFile, StoreRecords
from raftlog.storage.write_round import DirectoryWriter
from tests.storage.making import ME, SPEC, Driver, new_disk

A, B = 11, 12


@pytest.fixture
def driver():
    return Driver(new_disk())


@pytest.fixture
def disk(driver):
    return driver.disk


@pytest.fixture
def writer(driver):
    return driver.writer


def path_of(group):
    return f"{SPEC.path}/{group:020d}-0000000001.log"


def create(group, content=b"header"):
    return CreateFile(group, path_of(group), content)


def append(group, position, *parts):
    return AppendBytes(group, path_of(group), position, parts)


def good(result):
    assert (result.poisoned, result.failed) == (None, {}), result


def test_what_is_reported_survives(disk, writer):
    vote = hard_state_record(A, HardState(3, ME))
    good(
        writer.perform(
            1,
            [create(A), append(A, 6, b"one", b"two"), create(B), StoreRecords([vote])],
        )
    )
    good(writer.perform(2, [append(A, 12, b"three")]))
    disk.crash(Keep.NONE)
    assert disk.content(path_of(A)) == b"headeronetwothree"
    assert disk.content(path_of(B)) == b"header"
    assert peek_directory(disk).hard_states[A] == HardState(3, ME)


def test_written_comes_between_the_writes_and_the_syncs(disk, writer):
    good(writer.perform(1, [create(A)]))
    seen = []

    def on_written():
        seen.append((disk.content(path_of(A)), disk.durable_content(path_of(A))))

    good(writer.perform(2, [append(A, 6, b"body")], on_written))
    assert seen == [(b"headerbody", b"header")]
    assert disk.durable_content(path_of(A)) == b"headerbody"


def test_a_new_file_vouches_for_what_the_group_wrote_before(disk, writer):
    """A header that is durable while the entries below it are not would be taken for damage."""
    good(writer.perform(1, [create(A)]))
    later = CreateFile(A, path_of(99), b"next header")
    disk.fail("create", "99")
    result = writer.perform(2, [append(A, 6, b"body"), later])
    assert A in result.failed
    assert disk.durable_content(path_of(A)) == b"headerbody"


@pytest.mark.parametrize("syncfs_from", [1, 2, 3, 100])
def test_many_files_or_one_sync_of_all(disk, syncfs_from):
    writer = DirectoryWriter(disk, syncfs_from=syncfs_from)
    good(writer.perform(1, [create(A), create(B)]))
    vote = hard_state_record(A, HardState(3, ME))
    good(writer.perform(2, [append(A, 6, b"a"), append(B, 6, b"b"), StoreRecords([vote])]))
    disk.crash(Keep.NONE)
    assert disk.content(path_of(A)) == b"headera"
    assert disk.content(path_of(B)) == b"headerb"
    assert peek_directory(disk).hard_states[A].term == 3


def test_a_failed_write_fails_its_group_alone_and_for_good(disk, writer):
    """ENOSPC on write n, success on n+1: n+1 fails too until the replica reopened."""
    good(writer.perform(1, [create(A), create(B)]))
    disk.fail("write", path_of(A), error=DiskFull)
    result = writer.perform(2, [append(A, 6, b"lost"), append(B, 6, b"kept")])
    assert result.poisoned is None
    assert list(result.failed) == [A]
    assert isinstance(result.failed[A], DiskFull)
    again = writer.perform(3, [append(A, 10, b"after the hole"), append(B, 10, b"!")])
    assert list(again.failed) == [A]
    good(writer.perform(4, [append(B, 11, b"?")]))
    good(writer.perform(5, [CloseGroup(A)]))
    good(writer.perform(6, [append(A, 6, b"again")]))
    disk.crash(Keep.NONE)
    assert disk.content(path_of(A)) == b"headeragain"
    assert disk.content(path_of(B)) == b"headerkept!?"


@pytest.mark.parametrize("operation", ["open", "create", "write", "rename"])
def test_each_failing_operation_of_a_creation(disk, writer, operation):
    disk.fail(operation, path_of(A))
    result = writer.perform(1, [create(A), append(A, 6, b"x"), create(B)])
    assert list(result.failed) == [A]
    assert disk.durable_content(path_of(B)) == b"header"


def test_a_rename_that_failed_and_was_done_is_durable(disk, writer):
    """Seed 5100032 with late errors of disks: a new segment was renamed, and the disk said that it
    was not. The replica was reopened, found the file under its name and acknowledged what it wrote
    there; the directory was never synced, so a power failure would have taken all of it."""
    disk.fail("rename", late=True)
    assert set(writer.perform(1, [create(A), append(A, 6, b"one")]).failed) == {A}
    assert disk.exists(path_of(A))
    good(writer.perform(2, [CloseGroup(A), append(A, 6, b"two")]))
    disk.crash(Keep.NONE)
    assert disk.content(path_of(A)) == b"headertwo"


def test_a_rename_in_doubt_whose_directory_cannot_be_synced_poisons(disk, writer):
    disk.fail("rename")
    disk.fail("sync_dir")
    assert writer.perform(1, [create(A)]).poisoned is not None


def test_a_small_file_whose_rename_failed_and_was_done_is_durable(disk):
    disk.fail("rename", late=True)
    with pytest.raises(DiskError):
        write_whole(disk, f"{SPEC.path}/head", b"content")
    disk.crash(Keep.NONE)
    assert disk.content(f"{SPEC.path}/head") == b"content"


@pytest.mark.parametrize(
    ("operation", "part"), [("sync", path_of(A)), ("sync_dir", ""), ("sync", "store")]
)
def test_a_failed_sync_poisons_the_directory(disk, writer, operation, part):
    """The pages are clean afterwards: a retry would succeed and prove nothing."""
    good(writer.perform(1, [create(A)]))
    disk.fail(operation, part)
    vote = hard_state_record(A, HardState(3, ME))
    ops = [create(B), append(A, 6, b"x"), StoreRecords([vote])]
    result = writer.perform(2, ops)
    assert isinstance(result.poisoned, DiskError)
    for io_id in (3, 4):
        assert writer.perform(io_id, [append(A, 6, b"y")]).poisoned is result.poisoned
    assert writer.perform(5, [CloseGroup(A)]).poisoned is result.poisoned


def test_a_failed_sync_of_all_poisons_too(disk):
    writer = DirectoryWriter(disk, syncfs_from=1)
    good(writer.perform(1, [create(A)]))
    disk.fail("sync_all")
    assert writer.perform(2, [append(A, 6, b"x")]).poisoned is not None


def test_a_store_that_cannot_be_written_poisons(disk, writer):
    disk.fail("write", "store")
    vote = hard_state_record(A, HardState(3, ME))
    assert writer.perform(1, [StoreRecords([vote])]).poisoned is not None


def test_written_is_not_reported_when_the_store_failed(disk, writer):
    disk.fail("write", "store")
    called = []
    vote = hard_state_record(A, HardState(3, ME))
    writer.perform(1, [StoreRecords([vote])], lambda: called.append(1))
    assert called == []


def test_the_store_needs_no_space(driver):
    """A full disk: votes still become durable, for the store's files were filled at format."""
    driver.disk.free = 0
    for term in range(1, 60):
        record = driver.store.set_hard_state(SPEC.group, HardState(term, ME))
        good(driver.writer.perform(term + 100, [StoreRecords([record])]))
    driver.disk.crash(Keep.NONE)
    assert peek_directory(driver.disk).hard_states[SPEC.group].term == 59


def test_a_full_disk_and_a_replica_reopened(driver):
    """A batch that did not fit leaves no hole and no ack; with space back the replica goes on."""
    driver.lead(1)
    driver.append(2)
    driver.settle()
    driver.disk.free = 30
    driver.append(3)
    result = driver.perform(*driver.begin_round())
    assert isinstance(result.failed[SPEC.group], DiskFull)
    durable = driver.log.durable_index
    driver.append(1)
    assert driver.perform(*driver.begin_round()).failed
    driver.disk.free = None
    driver.writer.perform(driver.io_id + 1, [CloseGroup(SPEC.group)])
    found = driver.reopen()
    assert found.state is ReplicaState.INTACT
    assert driver.log.last_index >= durable
    driver.append(4)
    driver.settle()
    assert driver.crash(Keep.NONE).state is ReplicaState.INTACT


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are listed in /proc")
def test_a_segment_that_takes_no_more_entries_is_closed(tmp_path):
    """Segments stayed open for writing after the next one had begun. Retention removed their names,
    and up to 512 of them, a gibibyte each, went on filling the disk."""
    driver = Driver(PosixDisk(str(tmp_path)))
    driver.lead(1)
    for _ in range(4):
        driver.append(2, size=450)
        driver.round()
    assert len(driver.log.segments) > 3
    assert open_below(tmp_path, ".log") == [f"{tmp_path}/{driver.log.segments[-1].path}"]
    driver.writer.close()
    assert open_below(tmp_path) == []


def open_below(folder, suffix=""):
    """Returns the files of a folder that this process has open."""
    fds = Path("/proc/self/fd")
    held = [str(fd.readlink()) for fd in fds.iterdir() if fd.is_symlink() and fd.exists()]
    return [path for path in held if path.startswith(f"{folder}/") and path.endswith(suffix)]


def test_files_are_closed_when_there_are_too_many(disk, monkeypatch):
    monkeypatch.setattr("raftlog.storage.write_round.OPEN_FILES_MAX", 3)
    writer = DirectoryWriter(disk)
    groups = range(20, 30)
    for number, group in enumerate(groups):
        good(writer.perform(number, [create(group)]))
    assert len(writer._open) <= 3
    good(writer.perform(100, [append(group, 6, b"x") for group in groups]))
    for group in groups:
        assert disk.durable_content(path_of(group)) == b"headerx"


class TestMoreFilesThanMayBeOpen:
    """The story: each file that was opened closed one other, if that was clean. In one round over
    three thousand groups none is, so all of them stayed open, for good: the bound was none, and the
    process had no descriptor left for its sockets."""

    GROUPS = range(20, 40)

    @pytest.fixture(params=[2, 10**9], ids=["syncfs", "each"])
    def crowded(self, disk, monkeypatch, request):
        monkeypatch.setattr("raftlog.storage.write_round.OPEN_FILES_MAX", 3)
        writer = DirectoryWriter(disk, syncfs_from=request.param)
        good(writer.perform(1, [create(group) for group in self.GROUPS]))
        return writer

    def test_a_round_over_all_of_them_keeps_the_bound(self, disk, crowded):
        held = []
        disk_open = disk.open

        def counting(*args, **options):
            held.append(len(crowded._open))
            return disk_open(*args, **options)

        disk.open = counting
        good(crowded.perform(2, [append(group, 6, b"x") for group in self.GROUPS]))
        assert max(held) == 3
        assert len(crowded._open) == 3
        good(crowded.perform(3, [append(group, 7, b"y") for group in reversed(self.GROUPS)]))
        disk.crash(Keep.NONE)
        assert {disk.content(path_of(group)) for group in self.GROUPS} == {b"headerxy"}

    def test_groups_that_write_twice_in_a_round_are_whole(self, disk, crowded):
        ops = [append(group, 6, b"x") for group in self.GROUPS]
        good(crowded.perform(2, ops + [append(group, 7, b"y") for group in self.GROUPS]))
        disk.crash(Keep.NONE)
        assert {disk.content(path_of(group)) for group in self.GROUPS} == {b"headerxy"}

    def test_an_early_sync_that_fails_poisons_the_directory(self, disk, crowded):
        disk.fail("sync_all" if crowded._syncfs_from < 4 else "sync", "", count=1)
        written = []
        ops = [append(group, 6, b"x") for group in self.GROUPS]
        result = crowded.perform(2, ops, lambda: written.append(2))
        assert result.poisoned is not None
        assert written == []
        assert crowded.perform(3, []).poisoned is not None


def test_a_store_of_another_directory_is_refused(disk):
    from raftlog.base.errors import CorruptData
    from raftlog.storage.directories.store_file import StoreFiles, StoreOwner

    with pytest.raises(CorruptData, match="store of node 1"):
        StoreFiles(disk, StoreOwner(bytes(16), 1, 5))


def test_the_store_grows_with_what_it_holds(driver):
    """Many groups, many rounds: generations follow one another, and the image is always whole."""
    for store in driver.writer._store._files:
        store.truncate(8192)
    driver.writer._store._end = 8192
    for number in range(120):
        vote = hard_state_record(number % 40, HardState(number + 1, ME))
        good(driver.writer.perform(number + 50, [StoreRecords([vote])]))
    image = open_directory(driver.disk)
    assert image.hard_states[39] == HardState(120, ME)
    assert len(image.hard_states) == 40


class TestStepByStep:
    """The story: a simulated machine wrote and synced a round at one instant and only told of it
    later, so a power failure never found a byte that was written and not synced. A round is a plain
    value now, and its performer may stop between any two steps."""

    VOTE = hard_state_record(A, HardState(3, ME))

    def begun(self, writer, *ops, io_id=2):
        return writer.begin(io_id, list(ops))

    def kinds(self, steps):
        found = []
        while steps.next is not None:
            found.append(steps.next.name)
            steps.take()
        return found

    def test_a_round_says_what_its_next_step_asks_of_the_disk(self, writer):
        good(writer.perform(1, [create(A), create(B)]))
        later = CreateFile(A, path_of(99), b"next")
        steps = self.begun(
            writer, append(A, 6, b"a"), later, append(B, 6, b"b"), StoreRecords([self.VOTE])
        )
        assert self.kinds(steps) == [
            "WRITE", "SYNC_FILE", "WRITE", "SYNC_FILE", "RENAME", "SYNC_DIRECTORY",
            "WRITE", "WRITE", "SYNC_FILE", "SYNC_FILE",
        ]  # fmt: skip
        good(steps.result)

    def test_many_files_are_one_step(self, disk):
        writer = DirectoryWriter(disk, syncfs_from=2)
        good(writer.perform(1, [create(A), create(B)]))
        steps = self.begun(writer, append(A, 6, b"a"), append(B, 6, b"b"))
        assert self.kinds(steps) == ["WRITE", "WRITE", "SYNC_ALL"]

    def test_a_round_of_nothing_has_no_step(self, writer):
        steps = self.begun(writer)
        assert (steps.next, steps.written) == (None, True)
        good(steps.result)

    @pytest.mark.parametrize("choices", list(itertools.product(range(3), range(2))))
    def test_the_last_syncs_come_in_any_order(self, disk, writer, choices):
        good(writer.perform(1, [create(A), create(B)]))
        steps = self.begun(
            writer, append(A, 6, b"a"), append(B, 6, b"b"), StoreRecords([self.VOTE])
        )
        while not steps.written:
            assert steps.choices == 1
            steps.take()
        assert steps.choices == 3
        first, second = choices
        steps.take(first)
        steps.take(second)
        assert steps.choices == 1
        steps.take()
        good(steps.result)
        disk.crash(Keep.NONE)
        assert (disk.content(path_of(A)), disk.content(path_of(B))) == (b"headera", b"headerb")
        assert peek_directory(disk).hard_states[A] == HardState(3, ME)

    @pytest.mark.parametrize("keep", list(Keep))
    @pytest.mark.parametrize("done", range(10))
    def test_power_fails_before_any_step(self, keep, done):
        """Durable bytes stay, and a new file is there under its name whole or not at all."""
        driver = Driver(new_disk(done))
        disk, writer = driver.disk, driver.writer
        good(writer.perform(1, [create(A), append(A, 6, b"old")]))
        later = CreateFile(A, path_of(99), b"next header")
        steps = self.begun(
            writer, append(A, 9, b"new"), later, AppendBytes(A, later.path, 11, [b"more"]),
            StoreRecords([self.VOTE]),
        )  # fmt: skip
        for _ in range(done):
            steps.take()
        assert (steps.result is not None) == (done == 10)
        disk.crash(keep)
        assert disk.content(path_of(A))[:9] == b"headerold"
        if disk.exists(later.path):
            assert disk.content(later.path)[:11] == b"next header"
            assert disk.content(path_of(A)) == b"headeroldnew"
        if keep is Keep.ALL and done > 0:
            assert disk.content(path_of(A)) == b"headeroldnew"
        open_directory(disk)

    def test_a_rename_in_doubt_is_followed_by_its_directory(self, disk, writer):
        steps = self.begun(writer, create(A), append(A, 6, b"x"))
        disk.fail("rename", late=True)
        assert self.kinds(steps) == ["WRITE", "SYNC_FILE", "RENAME", "SYNC_DIRECTORY"]
        assert set(steps.result.failed) == {A}
