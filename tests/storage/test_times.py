"""Look-ups by time against a plain list of records, whatever headers claim and wherever the log
begins and ends.

The story: a look-up by time believed the headers, which may be too high, too low or unset, and
knew no lower limit: it answered offsets below the log start, from which five clients then read
nothing, or failed.
"""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raftlog_sim.world.disk import Keep

from raftlog.base.checksum import crc32c
from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import CorruptData
from raftlog.base.ids import Offset
from raftlog.records.batch import patch, read_header
from raftlog.records.record import records_of
from raftlog.storage.replica import index_name
from raftlog.storage.segments import time_jobs
from raftlog.storage.segments.cold import SegmentsRemoved, TimesScanned
from raftlog.storage.segments.jobs import verify_segment
from raftlog.storage.segments.sparse_index import NOT_KNOWN, read_index_file
from tests.records.test_timestamps import batch_at
from tests.storage.making import NOW_MS, Driver, new_disk

NOTHING = Offset(0)
BATCHES = st.lists(
    st.tuples(
        st.lists(st.integers(0, 40), min_size=1, max_size=4),
        st.sampled_from([-1, NOW_MS - 5, NOW_MS + 20, NOW_MS + 90_000]),
        st.sampled_from([0, 1, 4]),
        st.integers(1, 90),
    ),
    min_size=1,
    max_size=20,
)


def append(driver, times, claim, codec=0, size=20):
    log = driver.log
    batch = batch_at(
        [NOW_MS + time for time in times],
        claim=claim,
        codec=codec,
        base_offset=0,
        value=b"v" * size,
    )
    batch = bytearray(batch)
    patch(batch, log.next_offset, log.last_term)
    at = log.next_offset
    entry = Entry(
        log.last_index + 1, log.last_term, EntryKind.RECORDS, at, at + len(times), bytes(batch)
    )
    log.append([entry])
    return [(record.timestamp_ms, record.offset) for record in records_of(batch, CorruptData, "")]


def first(records, wanted, start, limit):
    inside = [pair for pair in records if start <= pair[1] < limit]
    return next((pair for pair in inside if pair[0] >= wanted), None)


def agree(driver, records, start, limit):
    """Every question has the answer that a list of the records gives."""
    inside = [time for time, offset in records if start <= offset < limit]
    assert driver.largest(limit) == max(inside, default=-1)
    for wanted in range(NOW_MS - 1, NOW_MS + 42, 3):
        hit = driver.look_up(wanted, limit)
        found = None if hit is None else (hit.timestamp_ms, hit.offset)
        assert found == first(records, wanted, start, limit), wanted


@given(BATCHES, st.floats(0, 1), st.floats(0, 1), st.integers(0, 3), st.booleans(), st.booleans())
@settings(max_examples=60)
def test_every_answer_is_that_of_a_plain_list(batches, low, high, unwritten, reopen, small_jobs):
    patience = pytest.MonkeyPatch()
    if small_jobs:
        patience.setattr(time_jobs, "TIMES_SCAN_BYTES", 1)
    driver = Driver(new_disk())
    driver.lead(1)
    records = []
    for ordinal, batch in enumerate(batches):
        if ordinal == len(batches) - unwritten:
            driver.settle()
        if ordinal == len(batches) // 2:
            driver.lead(2)
        records += append(driver, *batch)
    if not unwritten or reopen:
        driver.settle()
        driver.commit_all()
        driver.settle()
    if reopen:
        driver.crash(Keep.NONE)
    end = driver.log.next_offset
    agree(driver, records, 0, end)
    start = int(low * end)
    driver.log.set_log_start(start, driver.log.last_index)
    limit = start + int(high * (end - start))
    agree(driver, records, start, limit)
    agree(driver, records, start, end)
    patience.undo()


@given(BATCHES, st.floats(0, 1), BATCHES)
@settings(max_examples=40)
def test_what_was_computed_of_a_cut_log_is_forgotten(before, cut, after):
    driver = Driver(new_disk())
    driver.lead(1)
    records = [pair for batch in before for pair in append(driver, *batch)]
    driver.settle()
    agree(driver, records, 0, driver.log.next_offset)
    index = 2 + int(cut * (driver.log.last_index - 2))
    driver.log.truncate_from(index)
    records = records[: driver.log.next_offset]
    agree(driver, records, 0, driver.log.next_offset)
    driver.lead(2)
    records += [pair for batch in after for pair in append(driver, *batch)]
    driver.settle()
    agree(driver, records, 0, driver.log.next_offset)


def segmented():
    """Segments of several stretches, the headers of which say nothing."""
    driver = Driver(new_disk())
    driver.lead(1)
    records = [pair for n in range(40) for pair in append(driver, [n % 7, n], -1, size=60)]
    driver.settle()
    driver.commit_all()
    driver.settle()
    assert len(driver.log.segments) > 3
    return driver, records


def test_a_closed_segment_is_not_known_until_somebody_asks_and_then_kept():
    driver, records = segmented()
    assert [segment.largest_timestamp for segment in driver.log.segments[:-1]] == [None] * (
        len(driver.log.segments) - 1
    )
    driver.largest()
    driver.run_jobs()
    segments = driver.log.segments
    for segment, following in pairwise(segments):
        low, high = segment.base_offset, following.base_offset
        expected = max(time for time, offset in records if low <= offset < high)
        assert segment.largest_timestamp == expected
        path = index_name(segment.path)
        stored = read_index_file(driver.disk.content(path), driver.options.interval_bytes, path)
        assert stored.sparse.largest() == expected
    assert segments[-1].largest_timestamp is None
    driver.round()
    known = [segment.largest_timestamp for segment in segments[:-1]]
    driver.crash(Keep.NONE)
    assert [segment.largest_timestamp for segment in driver.log.segments[:-1]] == known


def test_what_was_computed_before_a_boot_is_not_computed_again():
    driver, records = segmented()
    driver.largest()
    driver.run_jobs()
    driver.round()
    driver.crash(Keep.NONE)
    scanned = []
    run = driver.run
    driver.run = lambda cold: scanned.append(run(cold)) or scanned[-1]
    wanted = NOW_MS + 9
    assert driver.look_up(wanted).offset == first(records, wanted, 0, len(records))[1]
    assert not any(isinstance(value, TimesScanned) for value in scanned)


def test_a_job_of_one_segment_computes_its_largest_timestamp():
    """The way of retention by time: one segment at a time, in the background."""
    driver, records = segmented()
    segment = driver.log.segments[1]
    steps = 0
    while (step := driver.log.times().largest_of(segment, NOTHING)) is not None:
        driver.run(step)
        steps += 1
    assert steps
    low, high = segment.base_offset, driver.log.segments[2].base_offset
    assert segment.largest_timestamp == max(t for t, offset in records if low <= offset < high)
    assert driver.log.segments[0].largest_timestamp is None
    active = driver.log.segments[-1]
    assert driver.log.times().largest_of(active, NOTHING) is None, "all below is known"


def test_a_segment_that_grows_is_known_until_it_grows():
    """And is not believed when records were cut off and others came."""
    driver, records = segmented()
    active = driver.log.segments[-1]
    know(driver, active)
    inside = [time for time, offset in records if offset >= active.base_offset]
    assert active.largest_now == max(inside)
    assert active.largest_timestamp is None
    append(driver, [99], -1, size=60)
    assert driver.log.segments[-1].largest_now is None
    driver.settle()
    know(driver, active)
    assert active.largest_now == NOW_MS + 99
    late = driver.log.times().largest_of(active, Offset(active.seen.until + 1))
    driver.log.truncate_from(driver.log.last_index)
    assert active.largest_now is None
    driver.run(late)
    assert active.largest_now is None, "what was read is cut off by now"


def know(driver, segment):
    until = driver.log.next_offset
    while (step := driver.log.times().largest_of(segment, until)) is not None:
        driver.run(step)


def test_a_segment_that_has_left_the_log_is_not_computed():
    driver, _ = segmented()
    segment, kept = driver.log.segments[:2]
    assert driver.log.times().largest_of(segment, NOTHING) is not None
    driver.log.cold_done(SegmentsRemoved(kept.first_index))
    assert driver.log.segments[0] is kept
    assert driver.log.times().largest_of(segment, NOTHING) is None


def test_a_job_takes_a_bounded_piece_of_the_log(monkeypatch):
    monkeypatch.setattr(time_jobs, "TIMES_SCAN_BYTES", 1)
    driver, _ = segmented()
    result = driver.run(driver.log.times().first_at(NOW_MS + 39, driver.log.next_offset))
    assert isinstance(result, TimesScanned)
    assert len(result.stretches) == 1


def test_a_segment_that_was_walked_in_part_is_walked_again_first():
    """A walk of a segment that grew meanwhile ends short: its index does not know the rest."""
    driver, _ = segmented()
    active, end = driver.log.segments[-1], driver.log.next_offset
    assert active.index is not None
    active.verified = False
    driver.log.set_log_start(active.base_offset, driver.log.last_index)
    times = driver.log.times()
    for plan in (times.first_at(NOW_MS, end), times.largest(end), times.largest_of(active, end)):
        assert plan is not None
        assert plan.function is verify_segment


def test_stretches_that_are_known_are_not_read_again():
    driver, _ = segmented()
    driver.largest()
    plan = driver.log.times().first_at(NOW_MS + 39, driver.log.next_offset)
    (order,) = plan.args
    assert plan.function is time_jobs.find_time
    assert len(order.ranges) == 1


def test_an_index_file_of_the_version_before_is_not_believed():
    """Its timestamps came from headers."""
    driver, _ = segmented()
    driver.largest()
    driver.run_jobs()
    path = index_name(driver.log.segments[0].path)
    content = bytearray(driver.disk.content(path)[:-4])
    assert content[9] == 2
    content[9] = 1
    old = read_index_file(bytes(content) + crc32c(bytes(content)).to_bytes(4, "big"), 1, path)
    assert old.sparse.largest() is None
    assert all(point.timestamp == NOT_KNOWN for point in old.sparse.points())
    assert len(old.sparse) > 1


def test_nothing_is_read_of_a_log_whose_records_are_all_gone():
    driver, _ = segmented()
    end = driver.log.next_offset
    driver.log.set_log_start(end, driver.log.last_index)
    assert driver.look_up(NOW_MS) is None
    assert driver.largest() == -1
    assert read_header(driver.log.entries(driver.log.last_index, 1)[0].batch).max_timestamp == -1
