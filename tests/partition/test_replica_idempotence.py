"""Goal: a retry is found once, with its first offset, wherever the table came from: memory,
failover, boot, truncation, install; and every replica has the same table at the same raft
index."""

import pytest

from raftlog.base.units import WallMillis, millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.storage.replica import LogOptions
from tests.partition.group import ELECTION, Keep, batch_of
from tests.partition.test_replica_produce import errors, led, unready_leader

DAY_MS = 86_400_000


def assert_equal_tables(group):
    states = group.producer_states()
    assert len({repr(state) for state in states.values()}) == 1, states


def filled_group(count=8, **options):
    """Five batches each of two producers."""
    group = led(**options)
    for number in range(count):
        group.produce(1, b"%d" % number, pid=number % 2, epoch=0, first=number // 2)
    group.settle()
    return group


def test_a_retry_of_a_committed_batch_is_answered_at_once_with_its_offset():
    group = filled_group()
    answers = group.produce(1, b"5", pid=1, epoch=0, first=2)
    assert [(a.error, a.base_offset) for a in answers] == [(0, 5)]
    assert group[1].log.next_offset == 8


def test_a_retry_of_an_uncommitted_batch_waits_for_its_commit():
    """The prototype answered at once: an acknowledgement before durability."""
    group = led()
    for place in group.places.values():
        place.held = True
    first = group.produce(1, b"a", pid=7, epoch=0, first=0)
    retry = group.produce(1, b"a", pid=7, epoch=0, first=0)
    group.settle()
    assert (first, retry) == ([], [])
    for place in group.places.values():
        place.held = False
    group.settle()
    assert [a.base_offset for a in first + retry] == [0, 0]
    assert group.read(1) == [(0, b"a")]


def test_a_retry_of_a_batch_that_enough_hold_only_later_waits():
    group = led(config=PartitionConfig(min_insync_replicas=3))
    group.places[3].held = True
    first = group.produce(1, b"a", pid=7, epoch=0, first=0)
    group.settle()
    retry = group.produce(1, b"a", pid=7, epoch=0, first=0)
    group.settle()
    assert group[1].high_watermark == 1
    assert (first, retry) == ([], [])
    group.places[3].held = False
    group.settle()
    assert errors(first + retry) == [0, 0]


def test_a_waiting_retry_times_out_and_hears_of_a_lost_leadership():
    group = led()
    group.isolate(1, notice=False)
    group.produce(1, b"a", pid=7, epoch=0, first=0)
    short = group.produce(1, b"a", pid=7, epoch=0, first=0, timeout_ns=millis(100))
    long = group.produce(1, b"a", pid=7, epoch=0, first=0)
    group.advance(millis(150))
    assert (errors(short), long) == ([ErrorCode.REQUEST_TIMED_OUT], [])
    group.advance(5 * ELECTION)
    assert errors(long) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(
    ("epoch", "first", "error"),
    [
        (0, 9, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (-1, 0, ErrorCode.INVALID_RECORD),
        (1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_a_wrong_sequence_appends_nothing(epoch, first, error):
    group = filled_group()
    batch = batch_of(b"x", pid=1, epoch=max(epoch, 0), first=first)
    if epoch < 0:
        from tests.records.making import changed

        batch = changed(batch, producer_epoch=-1)
    assert errors(group.send(1, batch)) == [error]
    assert group[1].log.next_offset == 8


def test_an_older_epoch_is_fenced():
    group = led()
    group.produce(1, b"a", pid=1, epoch=3, first=0)
    refused = group.produce(1, b"b", pid=1, epoch=2, first=0)
    assert errors(refused) == [ErrorCode.INVALID_PRODUCER_EPOCH]


def test_five_batches_in_flight_are_taken_in_one_turn():
    group = led()
    answers = [group.produce(1, b"x", pid=1, epoch=0, first=n)[:] for n in range(5)]
    assert answers == [[]] * 5
    group.settle()
    assert group[1].high_watermark == 5


def test_all_replicas_have_one_table():
    group = filled_group()
    assert_equal_tables(group)


def test_a_retry_across_a_failover_is_found():
    """Redpanda #3039: duplicates in spite of idempotence, when producer state was reset at
    failover."""
    group = filled_group()
    group.elect(2)
    answers = group.produce(2, b"7", pid=1, epoch=0, first=3)
    assert [(a.error, a.base_offset) for a in answers] == [(0, 7)]
    assert errors(group.produce(2, b"x", pid=1, epoch=0, first=9)) == [45]
    group.advance(ELECTION)
    assert_equal_tables(group)


def test_a_retry_of_an_unacknowledged_batch_that_survived_the_failover():
    """The leader dies after a follower has the batch: the retry finds it, and waits for the
    commit."""
    group = led()
    group.places[1].held = group.places[3].held = True
    answers = group.produce(1, b"a", pid=7, epoch=0, first=0)
    group.settle()
    assert answers == []
    group.crash(1)
    group.places[3].held = False
    group.advance(4 * ELECTION)
    leader = group.leader().me.node
    retry = group.produce(leader, b"a", pid=7, epoch=0, first=0)
    group.settle()
    assert [(a.error, a.base_offset) for a in retry] == [(0, 0)]
    assert group.read(leader) == [(0, b"a")]


def test_a_retry_of_a_batch_that_was_cut_off_is_a_new_batch():
    group = led()
    group.produce(1, b"0", pid=7, epoch=0, first=0)
    group.settle()
    group.isolate(1, notice=False)
    group.produce(1, b"1", pid=7, epoch=0, first=1)
    group.elect_without(1)
    group.heal()
    group.advance(3 * ELECTION)
    group.elect(1)
    assert_equal_tables(group)
    retry = group.produce(1, b"1", pid=7, epoch=0, first=1)
    group.settle()
    assert errors(retry) == [0]
    assert [value for _, value in group.read(1)] == [b"0", b"1"]


@pytest.mark.parametrize("keep", list(Keep))
def test_after_a_boot_the_table_is_what_the_log_says(keep):
    group = filled_group()
    for number in (1, 2, 3):
        group.crash(number, keep)
    for number in (1, 2, 3):
        group.restart(number)
    group.elect(1)
    answers = group.produce(1, b"7", pid=1, epoch=0, first=3)
    assert [(a.error, a.base_offset) for a in answers] == [(0, 7)]
    group.advance(ELECTION)
    assert_equal_tables(group)


SMALL = LogOptions(segment_bytes=8 * 1024)


def rolled_group():
    """Several segments, so that boots begin from a snapshot."""
    group = led(options=SMALL)
    for number in range(40):
        group.produce(1, b"x" * 900, pid=number % 4, epoch=0, first=number // 4)
        group.settle()
    assert len(group[1].log.segments) > 4
    return group


def test_producer_snapshots_are_written_beside_segments():
    group = rolled_group()
    for place in group.places.values():
        snapshots = [path for path in place.disk.paths() if path.endswith(".snapshot")]
        assert len(snapshots) >= 4, snapshots


def test_a_boot_begins_from_the_newest_snapshot_and_ends_with_the_same_table():
    group = rolled_group()
    before = group.producer_states()[3]
    group.crash(3)
    group.restart(3)
    assert group.places[3].recovered.producers.snapshot is not None
    assert group.producer_states()[3] == before


def test_truncation_below_the_newest_roll_leaves_no_wrong_snapshot():
    """An isolated leader rolls segments that no other replica has; they are cut off. No
    snapshot of what was cut may be found at the next boot."""
    group = led(options=SMALL)
    group.produce(1, b"kept", pid=1, epoch=0, first=0)
    group.settle()
    group.isolate(1, notice=False)
    for number in range(30):
        group.produce(1, b"x" * 900, pid=2, epoch=0, first=number)
        group.take(group.places[1])
        group.places[1].perform(group.now)
        group.places[1].run_jobs(group.now)
    assert len(group[1].log.segments) > 3
    group.elect_without(1)
    group.produce(group.leader().me.node, b"also", pid=1, epoch=0, first=1)
    group.settle()
    group.heal()
    group.advance(3 * ELECTION)
    assert_equal_tables(group)
    for number in range(30):
        group.produce(group.leader().me.node, b"y" * 900, pid=3, epoch=0, first=number)
        group.settle()
    group.crash(1)
    group.restart(1)
    group.advance(ELECTION)
    assert_equal_tables(group)
    assert group[1]._tracker.producers.state_of(2) is None


def test_expiry_goes_by_the_log_and_not_by_the_wall_clocks():
    """A producer that is silent for an expiration by the leader's monotonic clock goes. A marker
    carries the cut-off to all replicas. A producer that writes stays."""
    config = PartitionConfig(retention_check_ns=millis(300), producer_expiration_ms=2_000)
    group = filled_group(config=config)
    for number in range(12):
        group.wall = WallMillis(group.wall + 400)
        group.produce(1, b"young", pid=9, epoch=0, first=number, timestamp_ms=group.wall)
        group.advance(millis(400))
    assert_equal_tables(group)
    assert [pid for pid, _ in group[2]._tracker.producers.states()] == [9]
    answers = group.produce(1, b"x", pid=1, epoch=0, first=77)
    group.settle()
    assert errors(answers) == [0]


def test_a_wall_clock_that_jumps_forgets_nobody():
    """Seed 115 of the simulator: the clock of a new leader was six days ahead. Its term start
    carried a cut-off of five days from now, every producer was forgotten, and one that was in the
    middle of a retry had its record stored a second time."""
    group = filled_group(config=PartitionConfig(retention_check_ns=millis(300)))
    before = group[2]._tracker.producers.states()
    assert before
    for days in (6, 60, 1):
        group.wall = WallMillis(group.wall + days * DAY_MS)
        group.produce(group.leader().me.node, b"young", pid=9, epoch=0, first=days)
        group.advance(millis(1_000))
        group.crash(group.leader().me.node)
        group.advance(6 * ELECTION)
        for number in (1, 2, 3):
            if group[number] is None:
                group.restart(number)
        group.advance(2 * ELECTION)
    assert_equal_tables(group)
    after = dict(group.leader()._tracker.producers.states())
    assert set(dict(before)) <= set(after)


def test_an_idle_group_writes_no_markers():
    group = filled_group(config=PartitionConfig(retention_check_ns=millis(1_000)))
    group.advance(millis(5_000))
    last = group[1].log.last_index
    group.wall = WallMillis(group.wall + 2 * DAY_MS)
    group.advance(millis(60_000))
    assert group[1].log.last_index == last


def test_log_append_time_replays_to_the_same_table():
    """The stored timestamp counts, which is the leader's, and not the one that the producer
    sent."""
    group = led(config=PartitionConfig(log_append_time=True))
    group.produce(1, b"a", pid=7, epoch=0, first=0, timestamp_ms=1_000)
    group.settle()
    assert_equal_tables(group)
    group.crash(2)
    group.restart(2)
    group.advance(ELECTION)
    assert_equal_tables(group)


def test_a_parked_produce_that_is_refused_in_its_turn_hears_it():
    """The batch before it decides that: this one repeats its number with other records."""
    group, leader, _ = unready_leader()
    first = group.send(leader, batch_of(b"1", b"2", pid=7, epoch=0, first=0))
    gap = group.send(leader, batch_of(b"9", pid=7, epoch=0, first=5))
    assert (first, gap) == ([], [])
    group.blocked = None
    group.advance(ELECTION)
    assert errors(first) == [ErrorCode.NONE]
    assert errors(gap) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
