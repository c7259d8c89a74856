"""A batch of another partition in the place of ours is found: equal in size, offset and epoch.

A write that went astray leaves it so. The batch is whole, and only the chain tells. The first
reader of a file after a boot must compare it.
"""

import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base import probes
from raftlog.base.entries import EntryKind, Membership
from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.ids import ReplicaId
from raftlog.records.batch import read_header
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.control import build_control_entry, write_membership_body
from raftlog.storage.boot.recovery import ReplicaState
from raftlog.storage.segments import jobs
from raftlog.storage.segments.snapshot import write_snapshot
from tests.storage.making import ME, NOW_MS, OTHER, SPEC, Driver, batch_of, new_disk


def first_file(driver):
    return driver.log.segments[0].path


def twin_of(mine):
    """Another batch of equal size, base offset and epoch, with a right CRC."""
    alien = bytearray(batch_of(2, size=60, fill=b"x"))
    alien[:8], alien[12:16] = mine[:8], mine[12:16]
    return bytes(alien)


def one_for_two(driver):
    """Position and bytes of one batch in the place of the last two of the first segment: the file
    ends where it did, an entry early."""
    last = driver.log.segments[0].end_index - 1
    first, second = (driver.log.entries(index, 1)[0] for index in (last - 1, last))
    size, records = len(first.batch) + len(second.batch), second.next_offset - first.base_offset
    for more in range(size):
        builder = RecordBatchBuilder()
        for number in range(records):
            builder.append(b"x" * (more if number == 0 else 40), timestamp_ms=NOW_MS)
        alien = bytearray(builder.build())
        if len(alien) == size:
            alien[:8], alien[12:16] = first.batch[:8], first.batch[12:16]
            return driver.log._window.position_of(last - 1), bytes(alien)
    raise AssertionError(f"no batch of {size} bytes")


def without_snapshots(driver):
    for path in driver.disk.paths():
        if path.endswith(".snapshot"):
            driver.disk.vanish(path)


@pytest.mark.parametrize("ordinal", [0, 2])
def test_review_3_a_batch_of_another_partition(driver, ordinal):
    """Equal size, base offset and epoch, a right CRC: only the chain binds it to its place."""
    segment = driver.log.segments[ordinal]
    index = segment.first_index + 1
    position = driver.log._window.position_of(index)
    driver.disk.overwrite(segment.path, position, twin_of(driver.log.entries(index, 1)[0].batch))
    probes.reset()
    found = driver.crash(Keep.NONE)
    assert ("chain-refused-on-disk" in probes.fired()) is (ordinal == 2)
    if ordinal == 2:
        assert found.state is ReplicaState.DAMAGED
        assert driver.log.last_index < index
        return
    assert found.state is ReplicaState.INTACT
    with pytest.raises(CorruptData):
        driver.read(0)
    with pytest.raises(CorruptData):
        driver.run(driver.log.plan_entries(1, 100))


def test_a_batch_of_another_partition_is_not_found_by_its_time(driver):
    """No read has verified the segment since the boot: the chain at its end is compared first."""
    wanted = read_header(driver.log.entries(3, 1)[0].batch).max_timestamp
    limit, truth = driver.log.next_offset, driver.look_up(wanted, 100)
    position = driver.log._window.position_of(3)
    twin = twin_of(driver.log.entries(3, 1)[0].batch)
    driver.crash(Keep.NONE)
    assert not driver.log.segments[0].verified
    assert driver.look_up(wanted, limit) == truth
    driver.disk.overwrite(first_file(driver), position, twin)
    driver.crash(Keep.NONE)
    with pytest.raises(CorruptData, match="chain before"):
        driver.look_up(wanted, limit)


def test_a_batch_of_another_partition_before_a_second_fault(driver):
    """Seed 160: behind it a bit was flipped. The walk ended there, before the mark whose chain
    would have told, and the alien batch counted as ours: equal index and term, another entry."""
    segment = driver.log.segments[2]
    index, last = segment.first_index, driver.log.last_index
    position = driver.log._window.position_of(index)
    driver.disk.overwrite(segment.path, position, twin_of(driver.log.entries(index, 1)[0].batch))
    driver.disk.flip_bit(segment.path, driver.log._window.position_of(last) + 70)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.DAMAGED
    assert found.claimed == (last, 2)
    assert driver.log.last_index == index - 1


@pytest.mark.parametrize("how", ["flip", "twin"])
def test_damage_that_only_the_replay_meets(driver, how):
    """A sealed segment that its index vouches for, no snapshot behind it: the replay of producers
    is the first to read it. That is damage there, not a lost replica. Seed 4010648: producers were
    taken from a batch of another partition, which only the chain tells from ours."""
    without_snapshots(driver)
    position = driver.log._window.position_of(3)
    last = driver.log.last_index
    if how == "flip":
        driver.disk.flip_bit(first_file(driver), position + 70)
    else:
        twin = twin_of(driver.log.entries(3, 1)[0].batch)
        driver.disk.overwrite(first_file(driver), position, twin)
    found = driver.crash(Keep.NONE)
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (last, 2))
    assert driver.log.last_index == 2


@pytest.mark.parametrize("kind", ["crc", "chain"])
def test_damage_met_in_use_is_found_again_by_recovery(driver, kind):
    """The replica is reopened after a read met damage: recovery must not take the index file's word
    for that segment once more, or it would be reopened without end."""
    driver.crash(Keep.NONE)
    path = first_file(driver)
    position = 4096
    content = driver.disk.content(path)
    for _ in range(2):
        position += read_header(content, position).size
    if kind == "crc":
        driver.disk.flip_bit(path, position + 70)
    else:
        driver.disk.overwrite(path, position, twin_of(content[position:]))
    last = driver.log.last_index
    with pytest.raises(CorruptData):
        driver.read(0)
    found = driver.reopen()
    assert (found.state, found.claimed) == (ReplicaState.DAMAGED, (last, 2))
    assert driver.log.last_index == 2


# --- fewer batches of as many bytes -------------------------------------------------------------


def test_one_batch_for_two_is_met_by_the_replay(driver):
    """The walk came to the end of the file, and to no fault, an entry before the segment's end:
    nothing was compared there."""
    without_snapshots(driver)
    position, alien = one_for_two(driver)
    driver.disk.overwrite(first_file(driver), position, alien)
    assert driver.crash(Keep.NONE).state is ReplicaState.DAMAGED


@pytest.mark.parametrize("reader", ["follower", "time"])
def test_one_batch_for_two_is_read_by_nobody(driver, reader):
    wanted, limit = read_header(driver.log.entries(3, 1)[0].batch).max_timestamp, 100
    position, alien = one_for_two(driver)
    driver.disk.overwrite(first_file(driver), position, alien)
    assert driver.crash(Keep.NONE).state is ReplicaState.INTACT
    entries = driver.log.plan_entries(1, 1 << 20)
    readers = {
        "follower": lambda: driver.run(entries),
        "time": lambda: driver.look_up(wanted, limit),
    }
    with pytest.raises(CorruptData, match="entries end before"):
        readers[reader]()


# --- a range that a follower refused ------------------------------------------------------------


def test_a_refused_range_is_verified_to_the_end_of_its_files(driver):
    """The chain is known there only: a twin in the middle of the range was held to be sound."""
    position = driver.log._window.position_of(3)
    twin = twin_of(driver.log.entries(3, 1)[0].batch)
    driver.crash(Keep.NONE)
    driver.run(driver.log.plan_verify(2, 4))
    driver.disk.overwrite(first_file(driver), position, twin)
    with pytest.raises(CorruptData, match="chain before"):
        driver.run(driver.log.plan_verify(2, 4))


def test_a_refused_range_is_verified_in_its_own_files_only(driver):
    first, second = driver.log.segments[:2]
    for last, files in ((first.end_index - 1, [first]), (second.first_index, [first, second])):
        (walks,) = driver.log.plan_verify(1, last).args
        assert [segment.path for segment, _ in walks] == [file.path for file in files]


def test_a_batch_of_another_partition_inside_a_stretch_is_not_sent(driver):
    """It came after the file was verified: looking for exact places compares the chain again."""
    held = {at: driver.log.entries(at, 1)[0] for at in range(2, driver.log.segments[0].end_index)}
    places = {at: driver.log._window.position_of(at) for at in held}
    driver.crash(Keep.NONE)
    driver.run(driver.log.plan_read(0, 1, driver.log.next_offset))
    segment = driver.log.segments[0]
    assert segment.verified
    points = [point.raft_index for point in segment.index.points()]
    inside = next(at for at in held if at not in points and points[0] < at < points[-1])
    twin = twin_of(held[inside].batch)
    driver.disk.overwrite(segment.path, places[inside], twin)
    with pytest.raises(CorruptData, match="the index"):
        driver.read(held[inside].base_offset)


def test_a_refused_range_before_raft_s_own_entries_is_sound(driver):
    """They take no offset: the chain behind them was compared where the range ended."""
    driver.lead(3)
    driver.settle()
    last = driver.log.last_index
    driver.run(driver.log.plan_verify(last - 2, last - 1))


# --- what a boot takes from an index -----------------------------------------------------------


def test_a_membership_of_another_term_is_not_ours():
    """An entry of a tail that was cut, with the index, the kind and the size of ours."""
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(1, 2, size=60)
    ours, strays = (Membership((ME, other)) for other in (OTHER, ReplicaId(3, 0x3333, 5)))
    driver.log.append([driver.control(EntryKind.MEMBERSHIP, write_membership_body(ours))])
    index = driver.log.last_index
    driver.append(11, 2, size=60)
    driver.settle()
    for segment in driver.log.segments[1:]:  # so that the replay does not come here
        before = driver.log.position_before(segment.first_index)
        write_snapshot(driver.disk, SPEC, before, b"producers")
    driver.commit_all()
    driver.settle()
    entry, position = driver.log.entries(index, 1)[0], driver.log._window.position_of(index)
    stray = build_control_entry(
        EntryKind.MEMBERSHIP, group=SPEC.group, term=9, raft_index=index, timestamp_ms=NOW_MS,
        base_offset=entry.base_offset, body=write_membership_body(strays),
    )  # fmt: skip
    assert len(stray.batch) == len(entry.batch)
    assert driver.crash(Keep.NONE).memberships[-1] == (index, ours)
    assert not driver.log.segments[0].verified
    driver.disk.overwrite(first_file(driver), position, stray.batch)
    found = driver.crash(Keep.NONE)
    assert found.state is ReplicaState.DAMAGED
    assert driver.log.last_index < index


def test_a_full_disk_does_not_hide_damage(driver, monkeypatch):
    """The index file that vouched for the segment cannot be written again; it is removed."""
    position = driver.log._window.position_of(3)
    twin = twin_of(driver.log.entries(3, 1)[0].batch)
    driver.crash(Keep.NONE)
    driver.disk.overwrite(first_file(driver), position, twin)

    def full(*call):
        raise DiskError("no space", on=str(call[1]))

    monkeypatch.setattr(jobs, "write_whole", full)
    with pytest.raises(CorruptData):
        driver.run(driver.log.plan_entries(1, 100))
    assert driver.reopen().state is ReplicaState.DAMAGED
