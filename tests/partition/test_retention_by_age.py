"""Retention by age in a group of three: what goes, whose clock decides, and what never goes."""

import struct

import pytest

from raftlog.base.checksum import crc32c
from raftlog.base.probes import fired, reset
from raftlog.base.units import NEVER, millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.storage.replica import LogOptions
from raftlog.storage.segments.time_jobs import scan_times
from tests.partition.group import ELECTION, WALL, Group, batch_of

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
JAN_2013 = 1_356_998_400_000
MAX_TIMESTAMP_AT, CRC_AT = 35, 17


def config_of(**settings):
    return PartitionConfig(retention_check_ns=millis(500), **settings)


def led_group(**settings):
    group = Group(config=config_of(**settings))
    group.elect(1)
    return group


def fill(group, *stamps, leader=1):
    """One batch for each timestamp, each in a segment of its own."""
    for number, stamp in enumerate(stamps):
        group.produce(leader, b"%d" % number, timestamp_ms=stamp)
        group.advance(millis(1_100))


def starts(group):
    return [group[number].log_start for number in (1, 2, 3)]


def test_what_is_older_goes_on_every_replica_and_what_is_not_stays():
    group = led_group(retention_ms=HOUR_MS, segment_ms=1_000)
    fill(group, WALL - 2 * HOUR_MS, WALL - HOUR_MS - 60_000, WALL - HOUR_MS + 600_000, WALL)
    group.advance(millis(3_000))
    assert starts(group) == [2, 2, 2]
    assert group.read(1, 2) == [(2, b"2"), (3, b"3")]
    assert [group[number].log.segments[0].base_offset for number in (1, 2, 3)] == [2, 2, 2]


def test_nothing_goes_by_age_without_a_bound():
    group = led_group(segment_ms=1_000)
    fill(group, JAN_2013, JAN_2013, WALL)
    group.advance(millis(5_000))
    assert starts(group) == [0, 0, 0]


def test_a_quiet_log_empties_and_its_files_go():
    """The active segment rolls when it is past retention, and nothing is ever appended again but
    the marker itself."""
    group = led_group(retention_ms=2_000)
    group.produce(1, b"one", b"two", timestamp_ms=WALL)
    group.advance(millis(20_000))
    assert starts(group) == [2, 2, 2]
    assert group.read(1, 2) == []
    for number in (1, 2, 3):
        log = group[number].log
        assert [segment.base_offset for segment in log.segments] == [2]
        files = group.places[number].disk.list(group.places[number].spec.path)
        assert len([name for name in files if name.endswith(".log")]) == 1, files
    group.produce(1, b"three")
    group.settle()
    assert [offset for offset, _ in group.read(1, 2)] == [2]


def test_an_active_segment_goes_at_the_check_after_all_in_it_is_old():
    """The story: a record of 2013, alone in its partition, was there until a segment was a week
    old."""
    reset()
    group = led_group(retention_ms=7 * DAY_MS)
    group.produce(1, b"one", b"two", timestamp_ms=JAN_2013)
    group.advance(millis(1_600))
    assert starts(group) == [2, 2, 2]
    for number in (1, 2, 3):
        assert [segment.base_offset for segment in group[number].log.segments] == [2]
    assert "segment-rolled-by-age" not in fired()
    group.produce(1, b"three", timestamp_ms=WALL)
    group.advance(millis(5_000))
    assert starts(group) == [2, 2, 2]
    assert group.read(1, 2) == [(2, b"three")]


@pytest.mark.parametrize("fresh_first", [False, True])
def test_one_fresh_record_keeps_its_active_segment(fresh_first):
    group = led_group(retention_ms=HOUR_MS)
    stamps = [JAN_2013, JAN_2013, WALL]
    for stamp in reversed(stamps) if fresh_first else stamps:
        group.produce(1, b"x", timestamp_ms=stamp)
    group.advance(millis(10_000))
    assert starts(group) == [0, 0, 0]
    group.wall += HOUR_MS
    group.advance(millis(1_600))
    assert starts(group) == [3, 3, 3]


@pytest.mark.parametrize(("stamp", "claim", "start"), [(WALL, JAN_2013, 0), (JAN_2013, WALL, 1)])
def test_a_headers_claim_neither_deletes_nor_keeps_an_active_segment(stamp, claim, start):
    group = led_group(retention_ms=HOUR_MS)
    group.send(1, claiming(stamp, claim))
    group.advance(millis(3_000))
    assert starts(group) == [start] * 3


def test_what_comes_after_the_ages_were_read_stays():
    """The job has read the old records; a fresh one comes before the next check, which would let
    go what the job saw."""
    group = led_group(retention_ms=HOUR_MS)
    group.produce(1, b"old", timestamp_ms=JAN_2013)
    leader = group.places[1]
    leader.jobs_held = True
    group.advance(millis(600))
    assert leader.jobs, "the check has asked for the ages"
    group.produce(1, b"fresh", timestamp_ms=WALL)
    leader.jobs_held = False
    group.settle()
    assert group[1].log.segments[-1].seen.until == 1, "the job knows of the old one"
    group.advance(millis(5_000))
    assert starts(group) == [0, 0, 0]
    assert group.read(1) == [(0, b"old"), (1, b"fresh")]


def test_what_is_not_committed_holds_its_active_segment():
    """All of it is old, and a client waits for the last record."""
    group = led_group(retention_ms=HOUR_MS)
    group.produce(1, b"one", timestamp_ms=JAN_2013)
    group.isolate(1, notice=False)
    waits = group.produce(1, b"two", timestamp_ms=JAN_2013)
    group.advance(millis(600))
    assert waits == []
    assert group[1].log_start == 0
    group.heal()
    group.advance(millis(5_000))
    assert [answer.base_offset for answer in waits] == [1]
    assert starts(group) == [2, 2, 2]


def test_an_active_segment_waits_for_clocks_that_agree():
    group = led_group(retention_ms=HOUR_MS)
    group.produce(1, b"one", timestamp_ms=WALL)
    group.wall += 30 * DAY_MS
    group.places[1].clocks.apart = {2, 3}
    group.advance(millis(5_000))
    assert starts(group) == [0, 0, 0]
    group.places[1].clocks.apart = {3}
    group.advance(millis(1_000))
    assert starts(group) == [1, 1, 1]


def test_what_was_read_of_an_active_segment_is_not_read_again():
    """Checks that find nothing new begin no job; more records cost what they hold, at most one
    stretch of the index more. One fresh record is enough to keep the rest unread."""
    group = led_group(retention_ms=HOUR_MS)
    group.produce(1, b"x" * 9_000, timestamp_ms=WALL)
    for _ in range(5):
        group.produce(1, b"x" * 9_000, timestamp_ms=JAN_2013)
    group.advance(millis(20_000))
    assert len(scans(group)) == 1, "it holds a record that keeps it"
    group = Group(
        config=config_of(retention_ms=HOUR_MS),
        options=LogOptions(segment_bytes=64 * 1024, index_interval_bytes=4_096),
    )
    group.elect(1)
    group.places[1].clocks.apart = {2, 3}
    for _ in range(5):
        group.produce(1, b"x" * 9_000, timestamp_ms=JAN_2013)
        group.advance(millis(1_100))
    jobs = scans(group)
    assert [order.first for order in jobs] == [0, 0, 1, 2, 3], "a stretch is read until it is whole"
    assert all(len(order.ends) <= 2 for order in jobs)
    group.advance(millis(20_000))
    assert len(scans(group)) == len(jobs)


def scans(group):
    """Returns the arguments of the leader's jobs that read timestamps."""
    jobs = [job for output in group.places[1].outputs for job in output.jobs]
    return [args[0] for _, function, args in jobs if function is scan_times]


def test_numbered_batches_are_known_after_their_active_segment_went():
    """A producer that did not hear the answer sends its batch again: it is in the log already,
    also after all replicas were restarted."""
    group = led_group(retention_ms=HOUR_MS)
    numbered = {"pid": 7, "epoch": 0, "timestamp_ms": JAN_2013}
    group.produce(1, b"one", first=0, **numbered)
    group.advance(millis(2_000))
    assert starts(group) == [1, 1, 1]
    for number in (1, 2, 3):
        group.crash(number)
    for number in (1, 2, 3):
        group.restart(number)
    group.elect(2)
    answers = []
    for first, value in ((0, b"one"), (1, b"two")):
        answers.append(group.produce(2, value, first=first, **numbered))
        group.settle()
    told = [(each.error, each.base_offset) for (each,) in answers]
    assert told == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]
    assert starts(group) == [1, 1, 1]


def test_a_lowered_bound_acts_at_the_next_check():
    group = led_group(retention_ms=30 * DAY_MS, segment_ms=1_000)
    fill(group, WALL - DAY_MS, WALL - DAY_MS, WALL)
    group.advance(millis(2_000))
    assert starts(group) == [0, 0, 0]
    for number in (1, 2, 3):
        group[number].configure(config_of(retention_ms=HOUR_MS, segment_ms=1_000), group.now)
    group.advance(millis(1_600))
    assert starts(group) == [2, 2, 2]


def test_a_headers_claim_deletes_nothing():
    """The header says 2013, the record says now: a claim must not delete it. The other way round
    nothing is kept by a claim."""
    group = led_group(retention_ms=HOUR_MS, segment_ms=1_000)
    for stamp, claim in ((WALL, JAN_2013), (WALL, WALL)):
        group.send(1, claiming(stamp, claim))
        group.advance(millis(1_100))
    group.advance(millis(3_000))
    assert starts(group) == [0, 0, 0]
    group = led_group(retention_ms=HOUR_MS, segment_ms=1_000)
    for stamp, claim in ((JAN_2013, WALL), (WALL, WALL)):
        group.send(1, claiming(stamp, claim))
        group.advance(millis(1_100))
    group.advance(millis(3_000))
    assert starts(group) == [1, 1, 1]


def test_a_clock_that_most_voters_do_not_share_deletes_nothing():
    """The leader's wall clock jumps 30 days ahead: every record looks old to it."""
    reset()
    group = led_group(retention_ms=HOUR_MS, segment_ms=1_000)
    fill(group, WALL, WALL, WALL)
    group.wall += 30 * DAY_MS
    group.places[1].clocks.apart = {2, 3}
    group.advance(millis(5_000))
    assert starts(group) == [0, 0, 0]
    assert "retention-waits-for-clocks" in fired()
    group.places[1].clocks.apart = {3}
    group.advance(millis(1_000))
    assert starts(group) == [3, 3, 3], "two of three say so: it is that late"


def test_a_clock_that_went_back_deletes_nothing_and_is_no_harm():
    group = led_group(retention_ms=HOUR_MS, segment_ms=1_000)
    fill(group, WALL - HOUR_MS + 10_000, WALL)
    group.wall -= 30 * DAY_MS
    group.advance(millis(20_000))
    assert starts(group) == [0, 0, 0]
    group.wall += 30 * DAY_MS
    group.advance(millis(2_000))
    assert starts(group) == [1, 1, 1]


def test_a_new_leader_goes_on_where_the_old_one_stopped():
    group = led_group(retention_ms=HOUR_MS, segment_ms=1_000)
    fill(group, WALL - HOUR_MS + 2_000, WALL - HOUR_MS + 20_000, WALL)
    group.advance(millis(2_000))
    assert starts(group) == [1, 1, 1]
    group.isolate(1)
    group.advance(4 * ELECTION)
    group.heal()
    group.advance(millis(20_000))
    assert starts(group) == [2, 2, 2]


def test_after_a_restart_of_all_the_ages_are_known_again():
    group = led_group(retention_ms=HOUR_MS, segment_ms=1_000)
    fill(group, WALL - HOUR_MS + 30_000, WALL)
    for number in (1, 2, 3):
        group.crash(number)
    for number in (1, 2, 3):
        group.restart(number)
    group.advance(millis(40_000))
    assert starts(group) == [1, 1, 1]


def test_nothing_is_due_once_a_log_is_empty():
    group = led_group(retention_ms=2_000)
    group.produce(1, b"one", timestamp_ms=WALL)
    group.advance(millis(20_000))
    assert starts(group) == [1, 1, 1]
    assert group[1]._serving.duties.check_at == NEVER
    assert [group[number]._upkeep.deadline for number in (1, 2, 3)] == [NEVER] * 3


def claiming(stamp, claim):
    """A batch with one record of `stamp` whose header says that the largest timestamp is `claim`.
    The record's own is a difference to the header's base, which stays."""
    batch = bytearray(batch_of(b"x", timestamp_ms=stamp))
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, claim)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_AT + 4 :]))
    return bytes(batch)
