"""Reads for followers and clients that fail: what may pass, and what is damage."""

from types import SimpleNamespace

import pytest

from raftlog.base.errors import CorruptData, DiskError
from raftlog.base.ids import Chain, DirectoryId, NodeId, RaftIndex, ReplicaId, Term
from raftlog.base.limits import (
    LOG_READ_FAILURES_MAX,
    LOG_READ_HANDOVER_MS,
    LOG_READ_PLACES_MAX,
)
from raftlog.base.trace import NoTracer
from raftlog.base.units import millis
from raftlog.partition.background_tasks import BackgroundTasks
from raftlog.partition.maintenance.retention import AgeAsk
from raftlog.raft.membership import Membership
from raftlog.raft.output import LogRead, SnapshotRead
from raftlog.storage.segments import time_jobs
from raftlog.storage.segments.cold import EntriesRead
from tests.storage.test_times import append, segmented

NOW = 7
PAUSE = millis(LOG_READ_HANDOVER_MS)
ME = ReplicaId(NodeId(1), DirectoryId(1), RaftIndex(0))
FAILED = DiskError("sector cannot be read", on="a segment")


@pytest.fixture
def node():
    """Notes what it is told."""
    told = SimpleNamespace(answers=[], stepped_down=[], snapshots=[], leading=False, me=ME)
    told.handed_over, told.term = [], Term(1)
    told.hand_over = told.handed_over.append
    told.log_read_done = lambda *answer: told.answers.append(answer)
    told.snapshot_read_done = lambda *answer: told.snapshots.append(answer)
    told.step_down = lambda now, why: told.stepped_down.append((now, why))
    told.membership = Membership(voters=(ME, ReplicaId(NodeId(2), DirectoryId(2), RaftIndex(0))))
    return told


@pytest.fixture
def tasks(node):
    log = SimpleNamespace(
        last_index=9, durable_index=9, segments=(), gaps=(), cold_done=lambda value: None
    )
    return BackgroundTasks(log, node, NoTracer(), "g1")


def fail(tasks, first, times, error=FAILED):
    for _ in range(times):
        tasks._log_read(LogRead(1, first, 1_000), error, NOW)


def test_a_place_that_cannot_be_read_again_and_again_is_damage(tasks, node):
    """Seed 300085 of the simulator: the leader tried without end, and its follower waited."""
    fail(tasks, 5, LOG_READ_FAILURES_MAX - 1)
    assert tasks.damage is None
    fail(tasks, 5, 1)
    assert isinstance(tasks.damage, CorruptData)
    assert "entry 5 cannot be read" in str(tasks.damage)
    assert [now for now, _ in node.stepped_down] == [NOW]
    assert len(node.answers) == LOG_READ_FAILURES_MAX, "each read is answered"


def test_two_followers_that_fail_in_turns_are_counted_each(tasks, node):
    """Each failure at one place forgot those at the other, and both followers waited without
    end."""
    for _ in range(LOG_READ_FAILURES_MAX - 1):
        fail(tasks, 5, 1)
        fail(tasks, 6, 1)
    assert tasks.damage is None
    fail(tasks, 6, 1)
    assert tasks.damage is not None
    assert len(node.stepped_down) == 1


def test_a_read_that_succeeds_forgets_the_failures_before_it(tasks, node):
    found = EntriesRead(RaftIndex(5), Chain(1), ())
    for _ in range(3):
        fail(tasks, 5, LOG_READ_FAILURES_MAX - 1)
        tasks._log_read(LogRead(1, RaftIndex(5), 1_000), found, NOW)
    assert tasks.damage is None
    assert node.stepped_down == []


def test_places_that_fail_once_are_not_remembered_for_ever(tasks):
    for first in range(LOG_READ_PLACES_MAX * 3):
        fail(tasks, first, 1)
    assert len(tasks._reads_failed) == LOG_READ_PLACES_MAX
    assert tasks.damage is None


def fail_client(tasks, what, times, error=FAILED, now=NOW):
    for _ in range(times):
        tasks.client_read_done(what, error, now)


def test_what_no_client_can_be_sent_is_left_to_another_leader(tasks, node):
    """Seed 320110 of the simulator: the leader told consumers of a failed disk without end. It
    hands over, and calls nothing damage: what it holds besides is good, and it may have to lead
    again."""
    fail_client(tasks, "segment 3", LOG_READ_FAILURES_MAX - 1)
    fail_client(tasks, "segment 4", 1)
    tasks.client_read_done("segment 3", None, NOW)
    fail_client(tasks, "segment 3", LOG_READ_FAILURES_MAX - 1)
    assert node.stepped_down == [], "a read that succeeds forgets the failures before it"
    fail_client(tasks, "segment 3", 1)
    assert len(node.stepped_down) == 1
    assert tasks.damage is None


def test_handing_over_for_clients_is_rare(tasks, node):
    """Where every replica has a bad sector leadership would go round and round."""
    fail_client(tasks, "segment 3", 10 * LOG_READ_FAILURES_MAX)
    assert len(node.stepped_down) == 1
    fail_client(tasks, "segment 3", 1, now=NOW + millis(LOG_READ_HANDOVER_MS))
    assert len(node.stepped_down) == 2


def test_failures_of_clients_and_followers_are_counted_apart(tasks, node):
    fail(tasks, 5, LOG_READ_FAILURES_MAX - 1)
    fail_client(tasks, RaftIndex(5), LOG_READ_FAILURES_MAX - 1)
    for place in range(3 * LOG_READ_PLACES_MAX):
        fail_client(tasks, f"segment {place}", 1)
    assert tasks.damage is None
    assert node.stepped_down == []
    fail(tasks, 5, 1)
    assert tasks.damage is not None, "clients do not make a follower's failures forgotten"


def test_who_alone_has_the_log_goes_on_with_what_can_be_read(tasks, node):
    node.membership = Membership(voters=(ME,))
    fail_client(tasks, "segment 3", 3 * LOG_READ_FAILURES_MAX)
    assert tasks.damage is None
    assert node.stepped_down == []


def test_a_job_that_failed_otherwise_is_no_failure_of_the_disk(tasks, node):
    fail_client(tasks, "segment 3", 3 * LOG_READ_FAILURES_MAX, TimeoutError())
    assert node.stepped_down == []


def test_a_wrong_checksum_is_damage_at_once(tasks, node):
    fail(tasks, 5, 1, CorruptData("a batch fails its CRC", on="a segment"))
    assert tasks.damage is not None
    assert len(node.stepped_down) == 1


def fail_snapshot(tasks, index, times, value=None):
    tasks._log.snapshot_position = SimpleNamespace(raft_index=RaftIndex(index))
    for _ in range(times):
        tasks._snapshot_read(SnapshotRead(1, None), RaftIndex(index), value, NOW)


def test_a_leader_that_cannot_install_anybody_hands_over_once(tasks, node):
    """It tried without end, and the follower waited without end. The replica's content is good, so
    it may lead again if no other can. It is not asked to step down for the same place again."""
    fail_snapshot(tasks, 5, LOG_READ_FAILURES_MAX - 1, FAILED)
    assert node.stepped_down == []
    fail_snapshot(tasks, 5, 1)
    assert [why for _, why in node.stepped_down] == ["the state before entry 6 cannot be read"]
    fail_snapshot(tasks, 5, 10)
    assert len(node.stepped_down) == 1
    assert tasks.damage is None
    assert len(node.snapshots) == LOG_READ_FAILURES_MAX + 10, "each read is answered"
    fail_snapshot(tasks, 7, LOG_READ_FAILURES_MAX)
    assert len(node.stepped_down) == 2


def test_a_snapshot_that_was_overtaken_is_no_failure(tasks, node):
    tasks._log.snapshot_position = SimpleNamespace(raft_index=RaftIndex(9))
    for _ in range(2 * LOG_READ_FAILURES_MAX):
        tasks._snapshot_read(SnapshotRead(1, None), RaftIndex(5), None, NOW)
    assert node.stepped_down == []


def run_tasks(tasks, driver):
    """Every job of the replica, one after another, until there is none."""
    for _ in range(200):
        jobs = tasks.take_jobs()
        if not jobs:
            return
        for job in jobs:
            try:
                value = job.function(driver.disk, *job.args)
            except (CorruptData, DiskError) as error:
                value = error
            tasks.done(job.token, value, NOW)
    raise AssertionError("the tasks never end")


def asked(segment, kept_from_ms=2**62):
    return AgeAsk(segment, segment.end.next_offset, kept_from_ms)


def test_of_a_segment_that_grows_is_learned_what_it_held_when_asked(node):
    """It goes on growing while jobs read it; the question ends all the same."""
    driver, records = segmented()
    tasks = BackgroundTasks(driver.log, node, NoTracer(), "g1")
    active = driver.log.segments[-1]
    ask = asked(active)
    tasks.learn_largest(ask)
    records += append(driver, [90], -1, size=60)
    assert driver.log.segments[-1] is active
    run_tasks(tasks, driver)
    inside = [time for time, offset in records if active.base_offset <= offset < ask.until]
    assert active.seen.largest == max(inside)
    assert active.seen.until >= ask.until
    assert active.largest_now is None, "not of all that it holds now"
    tasks.learn_largest(ask)
    assert tasks.take_jobs() == []


def test_one_young_record_ends_the_reading_of_a_segment(node, monkeypatch):
    monkeypatch.setattr(time_jobs, "TIMES_SCAN_BYTES", 1)
    driver, _ = segmented()
    tasks = BackgroundTasks(driver.log, node, NoTracer(), "g1")
    segment = driver.log.segments[0]
    assert len(segment.index) > 1
    tasks.learn_largest(asked(segment, kept_from_ms=0))
    run_tasks(tasks, driver)
    assert segment.largest_now is None
    assert segment.seen.largest >= 0


def test_the_largest_timestamp_of_a_closed_segment_is_computed_in_the_background(node):
    """The way of retention by time, which believes no header."""
    driver, records = segmented()
    tasks = BackgroundTasks(driver.log, node, NoTracer(), "g1")
    segment, following = driver.log.segments[:2]
    tasks.learn_largest(asked(segment))
    tasks.learn_largest(asked(segment))
    run_tasks(tasks, driver)
    inside = [time for time, offset in records if offset < following.base_offset]
    assert segment.largest_timestamp == max(inside)
    assert following.largest_timestamp is None
    tasks.learn_largest(asked(following))
    run_tasks(tasks, driver)
    assert following.largest_timestamp is not None


def test_records_that_rot_before_their_timestamps_are_computed_are_damage(node):
    driver, _ = segmented()
    tasks = BackgroundTasks(driver.log, node, NoTracer(), "g1")
    segment = driver.log.segments[0]
    driver.disk.flip_bit(segment.path, segment.end_position - 3)
    tasks.learn_largest(asked(segment))
    run_tasks(tasks, driver)
    assert isinstance(tasks.damage, CorruptData)
    assert segment.largest_timestamp is None


def found_in_closed(node, leading, successors):
    """Returns the effects of damage in a closed segment of this replica."""
    node.leading, node.successors = leading, successors
    driver, _ = segmented()
    tasks = BackgroundTasks(driver.log, node, NoTracer(), "g1")
    segment = driver.log.segments[0]
    driver.disk.flip_bit(segment.path, segment.end_position - 3)
    tasks.found_damage(CorruptData("rot", on=f"{segment.path}, entry 3 at byte 7"), NOW)
    run_tasks(tasks, driver)
    return tasks, driver


@pytest.mark.parametrize(("leading", "successors"), [(False, 0), (True, 2)])
def test_a_replica_that_others_can_repair_is_given_up(node, leading, successors):
    tasks, driver = found_in_closed(node, leading, successors)
    assert isinstance(tasks.damage, CorruptData)
    assert len(node.stepped_down) == 1
    assert driver.log.gaps == ()


@pytest.mark.parametrize("successors", [0, 1])
def test_a_leader_without_a_sound_majority_of_others_keeps_its_files(node, successors):
    tasks, driver = found_in_closed(node, True, successors)
    assert tasks.damage is None
    (gap,) = driver.log.gaps
    assert driver.log.segments[0].base_offset <= gap.first < gap.until
    assert gap.until == driver.log.segments[1].base_offset
    tasks.found_damage(CorruptData("rot", on=driver.log.segments[0].path), NOW)
    run_tasks(tasks, driver)
    assert driver.log.gaps == (gap,)


def test_a_leader_with_a_gap_hands_over_once_another_voter_can_lead(node):
    """Regression: it looked for one only when it found the damage. The voter that could lead came
    up later, and followers that needed what lay in the gap waited for ever."""
    tasks, _ = found_in_closed(node, True, 0)
    tasks.hand_over_gap(NOW)
    assert node.handed_over == []
    node.successors = 1
    for now in (NOW, NOW + 1, NOW + PAUSE - 1):
        tasks.hand_over_gap(now)
        assert node.handed_over == [NOW], "that one may not be able to win"
    node.term = Term(2)
    tasks.hand_over_gap(NOW + PAUSE)
    assert node.handed_over == [NOW, NOW + PAUSE]
    node.leading = False
    tasks.hand_over_gap(NOW + 2 * PAUSE)
    assert len(node.handed_over) == 2
    assert node.stepped_down == []


def test_a_leader_that_cannot_bring_a_voter_to_its_end_steps_down(node):
    """Its gap may lie between that voter and the end; others may elect that voter all the same."""
    tasks, _ = found_in_closed(node, True, 1)
    tasks.hand_over_gap(NOW)
    tasks.hand_over_gap(NOW + PAUSE)
    assert node.handed_over == [NOW]
    assert [now for now, _ in node.stepped_down] == [NOW + PAUSE]


def test_a_replica_that_comes_to_lead_with_its_gap_leads_for_a_while(node):
    """Regression: two of them handed over to each other at once, and no follower was sent what the
    one had and the other lacked."""
    tasks, _ = found_in_closed(node, True, 0)
    node.leading, node.successors = False, 1
    tasks.hand_over_gap(NOW)
    node.leading = True
    tasks.hand_over_gap(NOW + PAUSE - 1)
    assert node.handed_over == []
    tasks.hand_over_gap(NOW + PAUSE)
    assert node.handed_over == [NOW + PAUSE]


@pytest.mark.parametrize("leading", [True, False])
def test_a_log_without_a_gap_is_not_handed_over(node, leading):
    node.leading, node.successors = leading, 2
    driver, _ = segmented()
    BackgroundTasks(driver.log, node, NoTracer(), "g1").hand_over_gap(NOW)
    assert (node.handed_over, node.stepped_down) == ([], [])


def test_a_sole_voter_never_gives_its_files_up(node):
    node.membership = Membership(voters=(ME,))
    tasks, driver = found_in_closed(node, False, 0)
    assert tasks.damage is None
    assert len(driver.log.gaps) == 1


def test_a_batch_that_rots_in_memory_is_damage_once_a_follower_refuses_it(node, monkeypatch):
    node.leading, node.successors = True, 2
    driver, _ = segmented()
    tasks = BackgroundTasks(driver.log, node, NoTracer(), "g1")
    (held,) = driver.log.entries(driver.log.last_index, 1)
    tasks.verify(held.raft_index, held.raft_index, NOW)
    run_tasks(tasks, driver)
    assert tasks.damage is None
    rotten = bytearray(held.batch)
    rotten[-1] ^= 1
    entries = [held._replace(batch=bytes(rotten))]
    monkeypatch.setattr(type(driver.log), "entries", lambda *_: entries)
    tasks.verify(held.raft_index, held.raft_index, NOW)
    assert isinstance(tasks.damage, CorruptData)
    assert len(node.stepped_down) == 1
