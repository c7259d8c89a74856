"""One scenario per kind of file, crashed at EVERY changing disk call.

All, none or part of the pending writes are kept; then the recovery invariants: what was reported
durable is there, what is there was once written at its place, nothing is called damaged, and a
second boot says the same.
"""

import copy

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.world.disk import Keep, SimulatedCrashError

from raftlog.base.entries import EntryKind, HardState, InstallPosition
from raftlog.base.errors import OperatingError
from raftlog.base.ids import ReplicaId
from raftlog.records.chain import chain_next
from raftlog.records.control import write_log_start
from raftlog.storage.boot.recovery import (
    ReplicaState,
    create_replica,
    delete_replica,
    recover_replica,
)
from raftlog.storage.directories.data_dir import (
    format_directory,
    is_formatted,
    open_directory,
    peek_directory,
    read_identity,
)
from raftlog.storage.files import write_whole
from raftlog.storage.replica import Registration, ReplicaSpec
from raftlog.storage.segments.jobs import remove_files
from raftlog.storage.segments.snapshot import newest_snapshot, write_snapshot
from raftlog.storage.write_round import DirectoryWriter
from tests.storage.making import FOUNDERS, IDENTITY, ME, OTHER, SPEC, TINY, Driver, new_disk

CRASHES = [(Keep.ALL, False), (Keep.NONE, True), (Keep.SOME, True)]


class Watched(Driver):
    """Remembers what was promised, and everything that ever lay in the log."""

    def __init__(self, *args, **options):
        self.votes = []
        self.ever = {}
        super().__init__(*args, **options)
        self.promised = {}
        self.reset_to = None

    def round(self, records=()):
        for index in range(self.log.first_index, self.log.last_index + 1):
            for entry in self.log.entries(index, 1) or ():
                self.ever.setdefault(entry.raft_index, []).append(entry)
        result = super().round(records)
        self.promised = {
            index: self.ever[index][-1]
            for index in range(self.log.first_index, self.log.durable_index + 1)
        }
        return result

    def truncate(self, index):
        """Truncate; the truncated entries are promised no longer."""
        self.log.truncate_from(index)
        self.promised = {at: entry for at, entry in self.promised.items() if at < index}

    def vote(self, term):
        state = HardState(term, OTHER)
        self.round([self.store.set_hard_state(SPEC.group, state)])
        self.votes.append(state)


def steady(driver):
    driver.lead(1)
    driver.append(4)
    driver.round()
    driver.commit_all()
    driver.round()


def append_rounds(driver):
    for _ in range(3):
        driver.append(2, 2)
        driver.round()


def roll(driver):
    for _ in range(3):
        driver.append(2, size=450)
        driver.round()
        driver.run_jobs()


def truncate(driver):
    driver.append(4)
    driver.round()
    driver.truncate(driver.log.last_index - 2)
    driver.lead(2)
    driver.append(1)
    driver.round()
    driver.run_jobs()
    driver.append(1)
    driver.round()


def truncate_a_whole_segment(driver):
    first = driver.log.last_index + 1
    driver.append(5, size=450)
    driver.round()
    driver.truncate(first)
    driver.round()
    driver.lead(2)
    driver.round()
    driver.run_jobs()


def install(driver):
    driver.append(2)
    driver.round()
    log = driver.log
    position = InstallPosition(
        raft_index=log.last_index + 10,
        term=4,
        chain=chain_next(log.last_chain, bytes(61)),
        next_offset=log.next_offset + 50,
        log_start=log.next_offset + 20,
        membership=FOUNDERS,
        membership_index=log.last_index + 3,
    )
    log.install(position, b"producer state")
    driver.reset_to = position.raft_index
    driver.round()
    driver.run_jobs()
    driver.lead(5)
    driver.append(2)
    driver.round()


def retain(driver):
    log = driver.log
    driver.append(4, size=450)
    driver.round()
    driver.commit_all()
    log.append([driver.control(EntryKind.LOG_START, write_log_start(log.next_offset))])
    driver.round()
    driver.commit_all()
    driver.round()
    log.set_log_start(log.next_offset, log.last_index)
    plan = log.plan_removal()
    (order,) = plan.args
    write_snapshot(driver.disk, SPEC, order.heads[0].position, b"producer state")
    driver.run(plan)
    driver.append(1)
    driver.round()


def votes(driver):
    for term in range(2, 6):
        driver.vote(term)


def store_generations(driver):
    """The file is full at every other vote."""
    for term in range(2, 7):
        if term % 2:
            driver.writer._store._end = 0
        driver.append(1)
        driver.vote(term)


def snapshots(driver):
    position = driver.log.position_before(1)
    for body in (b"one", b"two"):
        write_snapshot(driver.disk, SPEC, position, body)


SCENARIOS = {
    "append": append_rounds,
    "roll": roll,
    "truncate": truncate,
    "truncate a whole segment": truncate_a_whole_segment,
    "install": install,
    "retain": retain,
    "votes": votes,
    "store generations": store_generations,
    "snapshots": snapshots,
}


@pytest.fixture(scope="module")
def prepared():
    driver = Watched(new_disk())
    steady(driver)
    return driver


def run_until(driver, scenario, call, tears):
    """Run the scenario up to the changing call; False when it ended before."""
    disk = driver.disk
    disk.crash_at, disk.crash_tears = disk.mutations + call, tears
    try:
        scenario(driver)
    except SimulatedCrashError:
        return True
    disk.crash_at = None
    return False


def check_boot(driver, found):
    """The invariants of a boot."""
    assert found.state is ReplicaState.INTACT, found.why
    log = driver.log
    installed = driver.reset_to is not None and log.first_index == driver.reset_to + 1
    if not installed:
        for index, entry in driver.promised.items():
            assert log.term_at(index) == entry.term or index < log.first_index
    for index in range(log.first_index, log.last_index + 1):
        read = driver.run(log.plan_entries(index, 1)).entries[0]
        assert read in driver.ever[index]
        if index in driver.promised and not (installed and index <= driver.reset_to):
            assert read == driver.promised[index]
    promised = [index for index in driver.promised if not installed or index > driver.reset_to]
    assert log.last_index >= max(promised, default=0)
    stored = driver.image.hard_states.get(SPEC.group)
    if driver.votes:
        assert stored.term >= driver.votes[-1].term
    if installed:
        assert newest_snapshot(driver.disk, SPEC, driver.reset_to)[1] == b"producer state"


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(("keep", "tears"), CRASHES)
def test_every_changing_call(prepared, name, keep, tears):
    call = 0
    while True:
        call += 1
        driver = copy.deepcopy(prepared)
        driver.disk._entropy = Stream(call, "crash")
        if not run_until(driver, SCENARIOS[name], call, tears):
            break
        boot = driver.image.boot
        check_boot(driver, driver.crash(keep))
        assert driver.image.boot > boot
        shape = (driver.log.last_index, driver.log.last_chain, driver.log.terms.rows())
        check_boot(driver, driver.crash(Keep.NONE))
        assert shape == (driver.log.last_index, driver.log.last_chain, driver.log.terms.rows())
        if driver.log.first_index == 1:
            driver.lead(driver.log.last_term + 1)
            driver.append(2)
            driver.round()
            check_boot(driver, driver.crash(Keep.NONE))
    assert call > 3


@pytest.mark.parametrize(("keep", "tears"), CRASHES)
def test_format(keep, tears):
    """An unfinished format does not count, and can be made again."""
    call = 0
    while True:
        call += 1
        disk = new_disk(call)
        disk.crash_at, disk.crash_tears = call, tears
        try:
            format_directory(disk, IDENTITY)
        except SimulatedCrashError:
            disk.crash(keep)
            if not is_formatted(disk):
                format_directory(disk, IDENTITY)
            disk.crash(Keep.NONE)
            assert open_directory(disk).identity == IDENTITY
        else:
            break
    assert call > 8
    with pytest.raises(OperatingError, match="already formatted"):
        format_directory(disk, IDENTITY)
    assert read_identity(disk) == IDENTITY


@pytest.mark.parametrize(("keep", "tears"), CRASHES)
def test_boot(prepared, keep, tears):
    """A boot that dies at any call: the number never falls, votes stay, and the next boot's is
    higher than any that was reported."""
    call = 0
    while True:
        call += 1
        driver = copy.deepcopy(prepared)
        driver.vote(9)
        disk, boot = driver.disk, driver.image.boot
        disk.crash_at, disk.crash_tears = disk.mutations + call, tears
        try:
            image = open_directory(disk)
        except SimulatedCrashError:
            disk.crash(keep)
            assert peek_directory(disk).boot in (boot, boot + 1)
        else:
            assert image.boot == boot + 1
            disk.crash(Keep.NONE)
            assert peek_directory(disk).boot == boot + 1
            break
        assert open_directory(disk).boot > boot
        assert peek_directory(disk).hard_states[SPEC.group].term == 9
    assert call > 2


def test_a_power_loss_while_a_generation_is_begun(prepared):
    """A boot begins a generation in the file of the one before the last. Its power failed while the
    image was on its way: the sectors of the image had arrived and those of the header had not. So
    an old header stood in front of a frame of another generation and whole frames of its own. The
    boot took that for damage of the whole directory, though the other file held the truth. Votes,
    registrations and every replica of the node were lost to a crash at start."""
    for seed in range(48):
        driver = copy.deepcopy(prepared)
        for term in range(7, 11):
            driver.vote(term)
        disk = driver.disk
        disk._entropy = Stream(seed, "crash")
        begun = open_directory(disk).boot
        call = 0
        while True:
            call += 1
            crashed = copy.deepcopy(disk)
            crashed.crash_at, crashed.crash_tears = crashed.mutations + call, True
            try:
                DirectoryWriter(crashed)
            except SimulatedCrashError:
                crashed.crash(Keep.SOME)
            else:
                break
            image = open_directory(crashed)
            assert image.boot == begun + 1
            assert image.hard_states[SPEC.group].term == 10, (seed, call)
        assert call > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_killed_process_and_then_a_power_loss(prepared, name):
    """A process was killed between a write and its sync. The next boot read from the kernel's
    memory what had never reached the disk, took it for durable and acknowledged it to the leader,
    which committed by that; then the power failed. Every disk a boot reads from must be synced
    before anything that it says is believed: the boot promises all of it again."""
    call = 0
    while True:
        call += 1
        driver = copy.deepcopy(prepared)
        if not run_until(driver, SCENARIOS[name], call, tears=True):
            break
        driver.disk.crash_at = None
        check_boot(driver, driver.reopen())
        said = (driver.log.durable_index, driver.log.last_chain, driver.log.first_index)
        votes = driver.image.hard_states
        check_boot(driver, driver.crash(Keep.NONE))
        assert (driver.log.durable_index, driver.log.last_chain, driver.log.first_index) == said
        assert driver.image.hard_states == votes
    assert call > 3


@pytest.mark.parametrize(("keep", "tears"), CRASHES)
def test_recovery_itself(prepared, keep, tears):
    """A crash while a torn tail is cut and indexes are rebuilt: the next boot does it again."""
    call = 0
    while True:
        call += 1
        driver = copy.deepcopy(prepared)
        driver.append(5, size=450)
        driver.round()
        path = driver.log.segments[-1].path
        size = len(driver.disk.content(path))
        driver.disk.overwrite(path, size, b"torn" * 40)
        for file in driver.disk.paths():
            if file.endswith(".index"):
                driver.disk.vanish(file)
        mark = driver.image.marks.get(SPEC.group)
        disk = driver.disk
        disk.crash_at, disk.crash_tears = disk.mutations + call, tears
        try:
            recover_replica(disk, SPEC, mark, TINY)
        except SimulatedCrashError:
            check_boot(driver, driver.crash(keep))
        else:
            break
    assert call > 2


@pytest.mark.parametrize(("keep", "tears"), CRASHES)
def test_create_register_delete(prepared, keep, tears):
    """A second replica comes and goes: registered means whole, and the first one is untouched."""
    other = ReplicaSpec(
        cluster=SPEC.cluster,
        group=8,
        replica=ReplicaId(ME.node, ME.directory, 77),
        path="groups/" + "bb" * 16 + "-0-77",
    )
    registration = Registration(other.replica, other.path)
    call = 0
    while True:
        call += 1
        driver = copy.deepcopy(prepared)
        disk = driver.disk
        disk.crash_at, disk.crash_tears = disk.mutations + call, tears
        try:
            create_replica(disk, other, FOUNDERS, TINY)
            driver.round(driver.store.register(other.group, registration))
            driver.round([driver.store.unregister(other.group)])
            delete_replica(disk, other.path)
        except SimulatedCrashError:
            check_boot(driver, driver.crash(keep))
        else:
            break
        if other.group in driver.image.registrations:
            assert recover_replica(disk, other, None, TINY).state is ReplicaState.INTACT
        else:
            again = create_replica(disk, other, FOUNDERS, TINY)
            assert (again.state, again.log.last_index) == (ReplicaState.INTACT, 0)
    assert call > 8
    assert not disk.exists(other.path)


def test_whole_files_are_old_or_new():
    """`write_whole` replaces a file: after a crash at any call one of the two contents is there."""
    for keep, tears in CRASHES:
        call = 0
        while True:
            call += 1
            disk = new_disk(call)
            write_whole(disk, "name", b"old" * 300)
            disk.crash_at, disk.crash_tears = disk.mutations + call, tears
            try:
                write_whole(disk, "name", b"new!" * 300)
            except SimulatedCrashError:
                disk.crash(keep)
                assert disk.content("name") in (b"old" * 300, b"new!" * 300)
            else:
                disk.crash(Keep.NONE)
                assert disk.content("name") == b"new!" * 300
                break
        assert call > 4


def test_removing_files_twice_is_fine():
    disk = new_disk()
    write_whole(disk, "a.log", b"x")
    remove_files(disk, ("a.log", "b.log"))
    remove_files(disk, ("a.log", "b.log"))
    assert disk.paths() == ()
