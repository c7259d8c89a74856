"""Goal: what a replica does with its log beside serving: bad content, damage, far-behind followers,
installs, log start, retention."""

from collections import deque

import pytest

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData, DiskFull
from raftlog.base.limits import REMOVAL_PAUSE_MS
from raftlog.base.units import millis
from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.config import PartitionConfig
from raftlog.partition.maintenance import leader_duties
from raftlog.partition.output import DeleteAnswer
from raftlog.raft.messages import Append, AppendRefused, RefusalReason
from raftlog.records.control import write_log_start
from raftlog.storage.replica import LogOptions, snapshot_name
from raftlog.storage.segments.snapshot import newest_snapshot
from tests.partition.group import ELECTION, FAR, Group
from tests.partition.test_replica_idempotence import assert_equal_tables
from tests.partition.test_replica_produce import errors, led

SMALL = LogOptions(segment_bytes=8 * 1024, window_bytes=2 * 1024)


def long_group(count=40, **options):
    group = led(options=SMALL, **options)
    for number in range(count):
        group.produce(1, b"%03d" % number + b"x" * 900, pid=1, epoch=0, first=number)
        group.settle()
    return group


def delete(group, number, offset):
    answers = []
    answer = group[number].delete_records(offset, FAR, answers.append, group.now, group.wall)
    if answer is not None:
        answers.append(answer)
    return answers


# --- content --------------------------------------------------------------------------------------


def captured_append(group):
    """The append with one batch that replica 1 is about to send to replica 2."""
    group.produce(1, b"payload")
    place = group.places[1]
    sent = place.take(group.now, group.wall)
    return next(m for m in sent if type(m) is Append and m.entries and m.to.node == 2)


def test_a_batch_that_fails_its_crc_is_refused_and_never_in_the_log():
    group = led()
    append = captured_append(group)
    entry = append.entries[0]
    rotten = bytearray(entry.batch)
    rotten[-1] ^= 1
    last = group[2].log.last_index
    bad = append._replace(entries=[entry._replace(batch=bytes(rotten))])
    group[2].receive([bad], group.now)
    sent = group.places[2].take(group.now, group.wall)
    refusals = [m for m in sent if type(m) is AppendRefused]
    assert [(m.reason, m.to, m.prev_index) for m in refusals] == [
        (RefusalReason.CONTENT, group[1].me, append.prev_index)
    ]
    assert group[2].log.last_index == last
    group[2].receive([append], group.now)
    assert group[2].log.last_index == last + 1


def test_a_refused_append_still_counts_as_hearing_the_leader():
    group = led()
    append = captured_append(group)
    entry = append.entries[0]
    bad = append._replace(entries=[entry._replace(batch=bytes(len(entry.batch) - 1))])
    group[2].receive([bad], group.now)
    assert group[2].leader == group[1].me


def test_a_batch_from_a_deposed_leader_is_not_even_refused_for_content():
    group = led()
    append = captured_append(group)
    group.isolate(1)
    group.advance(4 * ELECTION)
    entry = append.entries[0]
    bad = append._replace(entries=[entry._replace(batch=b"\0" * len(entry.batch))])
    group[2].receive([bad], group.now)
    sent = group.places[2].take(group.now, group.wall)
    assert all(m.reason is not RefusalReason.CONTENT for m in sent if type(m) is AppendRefused)


def test_a_small_batch_is_copied_out_of_the_receive_buffer():
    group = led()
    append = captured_append(group)
    frame = bytearray(append.entries[0].batch)
    view = append._replace(entries=[append.entries[0]._replace(batch=memoryview(frame))])
    group[2].receive([view], group.now)
    frame[:] = bytes(len(frame))
    held = group[2].log.entries(append.prev_index + 1, 1)[0].batch
    assert held == bytes(append.entries[0].batch)


def test_a_leader_whose_content_is_refused_and_sound_goes_on():
    group = led()
    append = captured_append(group)
    group.settle()
    refusal = AppendRefused(
        append.group,
        group[2].me,
        group[1].me,
        append.term,
        RefusalReason.CONTENT,
        append.prev_index,
        append.prev_index,
        append.prev_term,
    )
    group[1].receive([refusal], group.now)
    group.settle()
    assert group[1].is_leader
    assert group.places[1].outputs[-1].damage is None


def test_a_leader_with_a_rotten_batch_steps_down_and_reports_damage():
    """No endless refuse-and-resend."""
    group = long_group()
    place = group.places[1]
    segment = group[1].log.segments[0]
    place.disk.flip_bit(segment.path, 4096 + 300)
    refusal = AppendRefused(
        7,
        group[2].me,
        group[1].me,
        group[1].term,
        RefusalReason.CONTENT,
        1,
        1,
        group[1].term,
    )
    group[1].receive([refusal], group.now)
    group.settle()
    assert any(isinstance(output.damage, CorruptData) for output in place.outputs)
    group.advance(3 * ELECTION)
    assert not group[1].is_leader or group[1].transferring is not None


def test_damage_found_by_a_handlers_read_is_reported():
    group = led()
    group[1].damage_found(CorruptData("bad"), group.now)
    group.settle()
    assert isinstance(group.places[1].outputs[-1].damage, CorruptData)


# --- followers that are far behind ----------------------------------------------------------------


def test_a_follower_that_was_away_is_fed_from_the_file():
    group = led(options=SMALL)
    group.crash(3)
    for number in range(30):
        group.produce(1, b"%03d" % number + b"x" * 900)
        group.settle()
    group.restart(3)
    group.advance(3 * ELECTION)
    assert group[3].log.last_index == group[1].log.last_index
    assert group[3].log.last_chain == group[1].log.last_chain


def test_a_follower_below_the_log_start_is_installed_with_its_producers():
    group = led(options=SMALL)
    group.produce(1, b"first", pid=5, epoch=0, first=0)
    group.settle()
    group.crash(3)
    for number in range(40):
        group.produce(1, b"%03d" % number + b"x" * 900, pid=1, epoch=0, first=number)
        group.settle()
    assert errors(delete(group, 1, 30) or [DeleteAnswer(ErrorCode.NONE)]) == [0]
    group.settle()
    assert group[1].log.first_index > 5
    group.restart(3)
    group.advance(4 * ELECTION)
    assert group[3].log.first_index > 5
    assert group[3].log.last_chain == group[1].log.last_chain
    assert_equal_tables(group)
    assert group[3].log_start == group[1].log_start == 30
    group.elect(3)
    retry = group.produce(3, b"first", pid=5, epoch=0, first=0)
    assert [(a.error, a.base_offset) for a in retry] == [(0, 0)]
    retry = group.produce(3, b"x", pid=1, epoch=0, first=39)
    assert [(a.error, a.base_offset) for a in retry] == [(0, 40)]


# --- log start ------------------------------------------------------------------------------------


def test_deleted_records_are_gone_on_every_replica_once_committed():
    group = long_group()
    answers = delete(group, 1, 20)
    assert answers == []
    group.settle()
    assert answers == [DeleteAnswer(ErrorCode.NONE, 20)]
    group.advance(ELECTION)
    for number in (1, 2, 3):
        assert group[number].log_start == 20
        assert group[number].log.first_index > 1
    assert group.read(1, 20)[0][0] == 20


def test_delete_everything_means_the_high_watermark():
    group = long_group(10)
    answers = delete(group, 1, -1)
    group.settle()
    assert answers == [DeleteAnswer(ErrorCode.NONE, 10)]


@pytest.mark.parametrize("offset", [11, -2])
def test_what_is_not_committed_cannot_be_deleted(offset):
    assert errors(delete(long_group(10), 1, offset)) == [ErrorCode.OFFSET_OUT_OF_RANGE]


def test_deleting_what_is_gone_is_done_at_once():
    group = long_group(10)
    delete(group, 1, 5)
    group.settle()
    assert delete(group, 1, 3) == [DeleteAnswer(ErrorCode.NONE, 5)]


def test_a_lower_deletion_behind_a_higher_one_takes_nothing_back():
    """Both markers were committed in one step, and the last one counted: the first client was told
    30, records from 10 on were read, and only a boot found 30 again."""
    group = long_group()
    answers = delete(group, 1, 30)
    lower = write_log_start(10)
    group[1].propose_control(EntryKind.LOG_START, lower, group.now, group.wall)
    group.settle()
    assert answers == [DeleteAnswer(ErrorCode.NONE, 30)]
    group.advance(ELECTION)
    assert [group[number].log_start for number in (1, 2, 3)] == [30, 30, 30]
    assert all(group[number].log.first_index > 1 for number in (1, 2, 3))
    group.crash(2)
    group.restart(2)
    group.advance(ELECTION)
    assert group[2].log_start == 30


def test_who_wants_less_than_is_under_way_waits_for_that():
    """One marker, however often the same is asked for where nothing is committed."""
    group = long_group()
    before = group[1].log.last_index
    answers = [delete(group, 1, 30), delete(group, 1, 10), delete(group, 1, 30)]
    assert group[1].log.last_index == before + 1
    group.settle()
    assert answers == [[DeleteAnswer(ErrorCode.NONE, 30)]] * 3


def test_deletions_that_cannot_be_committed_are_bounded(monkeypatch):
    """Those that wait, and the markers of those that gave up."""
    monkeypatch.setattr(leader_duties, "DELETES_PENDING_MAX", 4)
    group = long_group()
    group.isolate(1, notice=False)
    waiting = [delete(group, 1, 20) for _ in range(5)]
    assert [errors(each) for each in waiting] == [[], [], [], [], [ErrorCode.REQUEST_TIMED_OUT]]
    for offset in range(21, 30):
        at_once = group.now
        group[1].delete_records(offset, at_once, print, group.now, group.wall)
        group.advance(1)
    assert group[1].log.last_index <= group[1].commit + 4


def test_markers_of_retention_are_not_counted_for_ever():
    config = PartitionConfig(retention_bytes=10_000, retention_check_ns=millis(50))
    group = long_group(config=config)
    for number in range(40, 120):
        group.produce(1, b"%03d" % number + b"x" * 900, pid=1, epoch=0, first=number)
        group.advance(millis(60))
    assert group[1].log_start > 50
    assert not group[1]._serving.duties._markers


def test_a_follower_deletes_nothing_on_demand():
    assert errors(delete(long_group(3), 2, 1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_truncated_marker_deletes_nothing():
    """Appended, not committed, truncated by the next leader."""
    group = long_group(20)
    group.isolate(1, notice=False)
    answers = delete(group, 1, 15)
    group.elect_without(1)
    group.heal()
    group.advance(3 * ELECTION)
    assert errors(answers) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [group[number].log_start for number in (1, 2, 3)] == [0, 0, 0]
    assert [group[number].log.first_index for number in (1, 2, 3)] == [1, 1, 1]


def test_an_uncommitted_marker_found_at_boot_acts_when_it_is_committed():
    group = long_group(20)
    for number in (2, 3):
        group.places[number].held = True
    delete(group, 1, 15)
    group.settle()
    group.crash(1)
    group.restart(1)
    assert group[1].log_start == 0
    for number in (2, 3):
        group.places[number].held = False
    group.advance(4 * ELECTION)
    group.elect(1)
    assert group[1].log_start in (0, 15)
    assert len({group[number].log_start for number in (1, 2, 3)}) == 1


def test_the_log_start_survives_a_boot():
    group = long_group()
    delete(group, 1, 25)
    group.settle()
    group.advance(ELECTION)
    for number in (1, 2, 3):
        group.crash(number)
    for number in (1, 2, 3):
        group.restart(number)
    group.elect(2)
    assert [group[number].log_start for number in (1, 2, 3)] == [25, 25, 25]


def test_what_a_slow_disk_held_up_goes_when_it_is_done():
    """Found by reading: the segments below the log start waited for the next one to be durable, and
    were looked at again with the next commit only; an idle topic has none."""
    group = long_group(20)
    group.places[1].held = True
    for number in range(20, 40):
        group.produce(1, b"%03d" % number + b"x" * 900, pid=1, epoch=0, first=number)
        group.settle()
    delete(group, 1, 39)
    group.settle()
    assert group[1].log_start == 39
    assert group[1].log.segments[0].base_offset < 20
    group.places[1].held = False
    group.settle()
    assert len(group[1].log.segments) == 1


def test_retention_by_size_keeps_at_least_the_bound():
    config = PartitionConfig(retention_bytes=20_000, retention_check_ns=millis(500))
    group = long_group(config=config)
    before = sum(segment.size_hint for segment in group[1].log.segments)
    group.advance(millis(1_500))
    after = sum(segment.size_hint - 4096 for segment in group[1].log.segments)
    assert before > after >= 20_000
    assert group[1].log_start > 0
    assert len({group[number].log_start for number in (1, 2, 3)}) == 1


def test_without_a_bound_nothing_goes():
    group = long_group(config=PartitionConfig(retention_check_ns=millis(500)))
    group.advance(millis(3_000))
    assert group[1].log_start == 0


def test_changed_settings_act_at_once():
    group = long_group()
    config = PartitionConfig(retention_bytes=10_000, retention_check_ns=millis(500))
    group[1].configure(config, group.now)
    group.advance(millis(100))
    assert group[1].log_start > 0


def test_a_delete_times_out():
    group = long_group(5)
    group.isolate(1, notice=False)
    answers = []
    group[1].delete_records(3, group.now + millis(50), answers.append, group.now, group.wall)
    group.advance(millis(60))
    assert errors(answers) == [ErrorCode.REQUEST_TIMED_OUT]


# --- a failed disk --------------------------------------------------------------------------------


def test_a_removal_that_failed_by_a_passing_error_is_tried_again():
    """Not at each commit, and not only when the log start moves on, which may be never."""
    group = long_group(40)
    place, following = group.places[1], group[1].log.segments[-2]
    for segment in group[1].log.segments[1:-1]:
        path = f"{place.spec.path}/{snapshot_name(segment.first_index)}"
        place.disk.fail("read", path, count=1)
    delete(group, 1, following.base_offset)
    group.settle()
    group.produce(1, b"too early", pid=1, epoch=0, first=40)
    group.settle()
    assert group[1].log.first_index == 1
    group.advance(millis(REMOVAL_PAUSE_MS))
    group.produce(1, b"again", pid=1, epoch=0, first=41)
    group.settle()
    assert group[1].log.first_index == group[2].log.first_index == following.first_index


def test_a_full_disk_fails_this_replica_and_the_others_go_on():
    """The leader's write fails: its client hears of it or of the commit by the others; another
    leads."""
    group = led()
    place = group.places[1]
    place.disk.fail("write", place.spec.path, error=DiskFull, count=10**6)
    answers = group.produce(1, b"x" * 1_000)
    group.settle()
    assert group[1].failed
    assert errors(answers) in ([ErrorCode.REQUEST_TIMED_OUT], [ErrorCode.NONE])
    assert errors(group.produce(1, b"y")) == [ErrorCode.KAFKA_STORAGE_ERROR]
    group.advance(4 * ELECTION)
    leader = max((group[2], group[3]), key=lambda replica: replica.term)
    assert leader.is_leader or group.leader().me.node in (2, 3)


def test_restarted_after_a_crash_in_the_middle_of_writes_it_catches_up():
    group = Group(options=SMALL)
    group.elect(1)
    for number in range(30):
        group.produce(1, b"x" * 700)
        if number % 5 == 0:
            group.settle()
    group.crash(2)
    group.settle()
    group.restart(2)
    group.advance(3 * ELECTION)
    assert group[2].log.last_chain == group[1].log.last_chain


def test_a_snapshot_that_is_gone_when_it_is_read_is_asked_for_again():
    """The log start moved on between asking for the head's snapshot and reading it."""
    group = led(options=SMALL)
    group.crash(3)
    for number in range(40):
        group.produce(1, b"x" * 900, pid=1, epoch=0, first=number)
        group.settle()
    delete(group, 1, 30)
    group.settle()
    leader = group.places[1]
    leader.jobs_held = True
    group.restart(3)
    group.advance(2 * ELECTION)
    wanted = [job for job in leader.jobs if job.function is newest_snapshot]
    assert len(wanted) == 1
    leader.jobs = deque(job for job in leader.jobs if job is not wanted[0])
    group[1].job_done(wanted[0].token, None, group.now)
    leader.jobs_held = False
    group.advance(3 * ELECTION)
    assert group[3].log.last_chain == group[1].log.last_chain
    assert_equal_tables(group)


def test_an_idle_replica_gives_its_memory_back_and_serves_on():
    """A thousand partitions that were busy once must not keep a full window each."""
    group = led(options=LogOptions(segment_bytes=1 << 20))
    for number in range(12):
        group.produce(1, b"%03d" % number + b"x" * 20_000)
        group.settle()
    group.advance(ELECTION)
    held = [group[number].log.entries(2, 1) for number in (1, 2, 3)]
    assert all(held)
    group.advance(millis(6_000))
    assert [group[number].log.entries(2, 1) for number in (1, 2, 3)] == [None, None, None]
    assert [int(value[:3]) for _, value in group.read(1)] == list(range(12))
    group.produce(1, b"999")
    group.settle()
    assert group.read(2, 12) == [] or group.read(2, 12) == [(12, b"999")]
    assert group.read(1, 12) == [(12, b"999")]


def test_a_busy_replica_keeps_its_window():
    group = led(options=LogOptions(segment_bytes=1 << 20))
    for number in range(12):
        group.produce(1, b"%03d" % number + b"x" * 20_000)
        group.advance(millis(1_000))
    assert group[1].log.entries(4, 1) is not None


def test_a_follower_that_returns_to_an_idle_group_is_fed_from_the_file():
    group = led(options=LogOptions(segment_bytes=1 << 20))
    group.crash(3)
    for number in range(12):
        group.produce(1, b"%03d" % number + b"x" * 20_000)
        group.settle()
    group.advance(millis(6_000))
    group.restart(3)
    group.advance(3 * ELECTION)
    assert group[3].log.last_chain == group[1].log.last_chain
