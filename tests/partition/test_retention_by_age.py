"""Retention by age in a group of three: what goes, whose clock decides, and what never goes."""

import struct

from raftlog.base.checksum import crc32c
from raftlog.base.probes import fired, reset
from raftlog.base.units import NEVER, millis
from raftlog.partition.config import PartitionConfig
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
    assert group[1]._serving.chores.check_at == NEVER
    assert [group[number]._upkeep.deadline for number in (1, 2, 3)] == [NEVER] * 3


def claiming(stamp, claim):
    """A batch with one record of `stamp` whose header says that the largest timestamp is `claim`.
    The record's own is a difference to the header's base, which stays."""
    batch = bytearray(batch_of(b"x", timestamp_ms=stamp))
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, claim)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_AT + 4 :]))
    return bytes(batch)
