"""Planning reads: memory, slices, cold; limits, Raft's own entries, timestamps, producer replay."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData
from raftlog.records.batch import read_header, split
from raftlog.records.control import Marker, write_marker
from raftlog.records.slices import FileSlice
from raftlog.storage.replica import LogOptions
from raftlog.storage.segments.cold import ColdRead, TimeHit
from raftlog.storage.segments.jobs import read_slice
from tests.storage.making import NOW_MS, SPEC, TINY, Driver, new_disk

BIG = LogOptions(segment_bytes=1 << 20, window_bytes=200_000, index_interval_bytes=8_000)


def filled(options=TINY, batches=12, size=60, count=2):
    driver = Driver(new_disk(), options)
    driver.lead(1)
    driver.append(batches // 2, count, size=size)
    driver.log.append([driver.control(EntryKind.MARKER, write_marker(Marker(-1, b"d")))])
    driver.append(batches - batches // 2, count, size=size)
    driver.settle()
    return driver


def offsets(data):
    return [read_header(batch).base_offset for batch in split(data, CorruptData, "test")]


def test_nothing_at_or_beyond_the_limit():
    driver = filled()
    assert driver.log.plan_read(24, 100, 24) == []
    assert driver.log.plan_read(10, 100, 10) == []
    assert driver.log.plan_read(10, 100, 5) == []


def test_near_the_end_small_reads_come_from_memory():
    driver = filled()
    (part,) = driver.log.plan_read(0, 1 << 20, 24)
    assert isinstance(part, bytes)
    assert offsets(part) == list(range(0, 24, 2))


def test_the_batch_that_holds_the_offset_comes_whole():
    driver = filled()
    for offset in range(24):
        assert offsets(driver.read(offset, bytes_max=1)) == [offset - offset % 2]


@pytest.mark.parametrize("limit", range(2, 25, 2))
def test_never_beyond_the_limit(limit):
    driver = filled()
    assert offsets(driver.read(0, limit=limit)) == list(range(0, limit, 2))


def test_large_written_ranges_are_slices_without_rafts_own_entries():
    driver = filled(BIG, batches=30, size=4000)
    plan = driver.log.plan_read(0, 1 << 20, driver.log.next_offset)
    assert len(plan) == 2
    assert all(isinstance(part, FileSlice) for part in plan)
    assert plan[0].position > 4096
    assert plan[1].position > plan[0].position + plan[0].size
    sent = b"".join(read_slice(driver.disk, part) for part in plan)
    assert offsets(sent) == list(range(0, 60, 2))


def test_slices_respect_bytes_max_at_batch_borders():
    driver = filled(BIG, batches=40, size=4000)
    size = len(driver.log.entries(2, 1)[0].batch)
    for wanted in (40_000, size * 5, size * 5 - 1, size * 5 + 1):
        plan = driver.log.plan_read(0, wanted, driver.log.next_offset)
        total = sum(len(part) for part in plan)
        assert total <= wanted
        assert total > wanted - 2 * size


def test_what_is_not_written_is_answered_from_memory():
    """A high watermark that the leader has not written yet: no slice goes beyond."""
    driver = filled(BIG, batches=4, size=4000)
    driver.append(20, size=8000)
    plan = driver.log.plan_read(8, 1 << 20, driver.log.next_offset)
    assert not any(isinstance(part, FileSlice) for part in plan)
    plan = driver.log.plan_read(0, 1 << 20, driver.log.next_offset)
    assert all(not isinstance(part, FileSlice) or part.size < 33_000 for part in plan)
    io_id, ops = driver.begin_round()
    driver.writer.perform(io_id, ops)
    driver.log.written(io_id)
    plan = driver.log.plan_read(8, 1 << 20, driver.log.next_offset)
    assert any(isinstance(part, FileSlice) for part in plan)
    assert driver.log.durable_index < driver.log.last_index == driver.log.written_index


def test_a_cold_slice_ends_before_what_is_not_written():
    """Though the index has a place of every batch, and the high watermark is ahead of the file."""
    options = attrs.evolve(BIG, window_bytes=4_000, index_interval_bytes=1)
    driver = filled(options, batches=12, size=2_000)
    driver.commit_all()
    driver.settle()
    written = driver.log.next_offset
    driver.append(3, 2, size=2_000)
    assert len(driver.log.segments) == 1
    plan = driver.log.plan_read(0, 1 << 20, driver.log.next_offset)
    assert all(isinstance(part, FileSlice) for part in plan)
    sent = offsets(b"".join(read_slice(driver.disk, part) for part in plan))
    assert sent == list(range(0, written, 2))


def test_cold_reads_verify_first_and_then_go_on_by_slices():
    driver = filled(batches=20)
    driver.commit_all()
    driver.settle()
    driver.crash(Keep.NONE)
    plan = driver.log.plan_read(0, 100, 40)
    assert isinstance(plan, ColdRead)
    driver.run(plan)
    jobs = 0
    offset = 0
    while offset < 20:
        plan = driver.log.plan_read(offset, 400, 40)
        if isinstance(plan, ColdRead):
            driver.run(plan)
            jobs += 1
            continue
        assert all(isinstance(part, FileSlice) for part in plan)
        found = offsets(b"".join(driver.part(part) for part in plan))
        assert found[0] == offset
        offset = found[-1] + 2
    assert jobs < 12


def test_late_results_change_nothing():
    driver = filled(batches=20)
    driver.commit_all()
    driver.settle()
    driver.crash(Keep.NONE)
    plan = driver.log.plan_read(0, 100, 40)
    value = plan.function(driver.disk, *plan.args)
    driver.log.cold_done(None)
    driver.log.cold_done("nonsense")
    driver.log.cold_done(value)
    driver.log.cold_done(value)
    driver.log.cold_done(value._replace(file_sequence=99))
    assert offsets(driver.read(0, bytes_max=1)) == [0]


def test_available_bytes_is_exact_near_the_end():
    driver = filled()
    log = driver.log
    sizes = [len(entry.batch) for entry in log.entries(2, 1 << 20)]
    assert log.available_bytes(0, 0) == 0
    assert log.available_bytes(24, 24) == 0
    last = log.segments[-1]
    inside = [
        entry for entry in log.entries(last.first_index, 1 << 20) if entry.kind is EntryKind.RECORDS
    ]
    first = inside[0].base_offset
    assert log.available_bytes(first, log.next_offset) == sum(len(one.batch) for one in inside)
    assert log.available_bytes(0, log.next_offset) >= sum(sizes) * 0.8


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=25),
    offset=st.integers(0, 25),
    bytes_max=st.integers(1, 4000),
    reopen=st.booleans(),
    trim=st.booleans(),
)
@settings(max_examples=40)
def test_every_plan_is_a_run_of_whole_batches(sizes, offset, bytes_max, reopen, trim):
    driver = Driver(new_disk())
    driver.lead(1)
    for ordinal, size in enumerate(sizes):
        driver.append(size=size)
        if ordinal % 5 == 2:
            driver.log.append([driver.control(EntryKind.MARKER, write_marker(Marker(-1, b"")))])
    driver.settle()
    driver.commit_all()
    driver.settle()
    if reopen:
        driver.crash(Keep.NONE)
    if trim:
        driver.log.trim_window(0)
    if offset >= len(sizes):
        assert driver.log.plan_read(offset, bytes_max, len(sizes)) == []
        return
    found = offsets(driver.read(offset, bytes_max=bytes_max))
    assert found == list(range(offset, offset + len(found)))
    data = driver.read(offset, bytes_max=bytes_max)
    assert len(found) == 1 or len(data) <= bytes_max


# --- timestamps -----------------------------------------------------------------------------------


def timed(reopen, unwritten=0):
    driver = Driver(new_disk())
    driver.lead(1)
    for minute in range(12):
        driver.append(1, 2, timestamp=NOW_MS + minute * 60_000)
    driver.settle()
    driver.commit_all()
    driver.settle()
    if reopen:
        driver.crash(Keep.NONE)
    for minute in range(12, 12 + unwritten):
        driver.append(1, 2, timestamp=NOW_MS + minute * 60_000)
    return driver


@pytest.mark.parametrize("reopen", [False, True])
@pytest.mark.parametrize("minute", range(14))
def test_first_record_at_or_after_a_timestamp(reopen, minute):
    driver = timed(reopen, unwritten=1)
    wanted = NOW_MS + minute * 60_000 - 30_000
    hit = driver.look_up(wanted)
    if minute == 13:
        assert hit is None
    else:
        assert hit == TimeHit(NOW_MS + minute * 60_000, 2 * minute, 1)


def test_nothing_beyond_the_limit_is_found():
    driver = timed(False)
    assert driver.look_up(NOW_MS + 5 * 60_000, 10) is None
    assert driver.look_up(NOW_MS + 5 * 60_000, 11).offset == 10


def test_a_file_that_is_not_made_yet_is_not_looked_at():
    driver = timed(False)
    files = len(driver.log.segments)
    while len(driver.log.segments) == files:
        driver.append(1, 2, timestamp=NOW_MS + 20 * 60_000)
    wanted = NOW_MS + 15 * 60_000
    assert driver.look_up(wanted) is not None


def test_a_batch_whose_inside_lies_answers_for_itself():
    from tests.records.making import with_body

    driver = timed(False)
    lying = bytearray(with_body(b"rubbish", count=2))
    header = read_header(lying)
    from raftlog.base.entries import Entry
    from raftlog.records.batch import patch

    patch(lying, driver.log.next_offset, 1)
    at = driver.log.next_offset
    entry = Entry(driver.log.last_index + 1, 1, EntryKind.RECORDS, at, at + 2, bytes(lying))
    driver.log.append([entry])
    driver.round()
    hit = driver.look_up(header.max_timestamp)
    assert hit is not None


# --- producers ------------------------------------------------------------------------------------


def test_replay_covers_what_is_not_written_yet():
    driver = filled()
    driver.append(producer_id=9, producer_epoch=0, base_sequence=0)
    driver.round()
    driver.append(producer_id=9, producer_epoch=0, base_sequence=1)
    replay = driver.run(driver.log.plan_producer_replay())
    sequences = [item.header.base_sequence for item in replay.items if item.control is None]
    assert sequences == [0, 1]
    assert replay.items[-1].raft_index == driver.log.last_index
    assert replay.end == driver.log.last_index + 1


def test_replay_after_a_truncation_forgets_what_went():
    driver = filled()
    driver.append(2, producer_id=9, producer_epoch=0, base_sequence=0)
    driver.round()
    driver.log.truncate_from(driver.log.last_index)
    replay = driver.run(driver.log.plan_producer_replay())
    assert len([item for item in replay.items if item.control is None]) == 1
    driver.lead(2)
    driver.round()
    replay = driver.run(driver.log.plan_producer_replay())
    assert [item.raft_index for item in replay.items][-1] == driver.log.last_index


# --- feeding followers ----------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [1, 200, 5000])
def test_entries_with_the_chain_before_them(bytes_max):
    driver = filled(batches=20)
    entries = driver.log.entries(1, 1 << 20)
    for first in range(1, driver.log.last_index + 1):
        read = driver.run(driver.log.plan_entries(first, bytes_max))
        assert read.prev_chain == driver.log.chain_at(first - 1)
        assert list(read.entries) == entries[first - 1 : first - 1 + len(read.entries)]
        total = sum(len(entry.batch) for entry in read.entries)
        assert total <= bytes_max or len(read.entries) == 1


def test_rot_behind_the_index_points_is_met_by_the_chain():
    """An alien batch between two points: the walk goes on to the next point, and refuses all."""
    driver = filled(batches=20)
    position = driver.log._window.position_of(3)
    path = driver.log.segments[0].path
    whole = bytearray(driver.log.entries(3, 1)[0].batch)
    whole[51] ^= 1  # the producer epoch, and the CRC made right again
    from raftlog.base.checksum import crc32c

    whole[17:21] = crc32c(bytes(whole[21:])).to_bytes(4, "big")
    driver.disk.overwrite(path, position, bytes(whole))
    with pytest.raises(CorruptData, match="chain"):
        driver.run(driver.log.plan_entries(3, 1))
    with pytest.raises(CorruptData, match="chain"):
        driver.run(driver.log.plan_verify(2, driver.log.last_index))


def test_a_short_slice_is_damage():
    driver = filled()
    path = driver.log.segments[0].path
    with pytest.raises(CorruptData, match="early"):
        read_slice(driver.disk, FileSlice(SPEC.replica.directory, path, 4096, 1 << 20))
