"""Goal: who is in sync, from what the leader knows: each way out, each way back, and time."""

from types import SimpleNamespace

from raftlog.base.ids import ReplicaId
from raftlog.base.units import NEVER
from raftlog.partition.in_sync import NOTHING_HELD, InSyncSet

LAG = 1_000
A, B, C, D = (ReplicaId(node, 0xD0 + node, 1) for node in (1, 2, 3, 4))


def follower(match, contact=0, covered=False):
    return SimpleNamespace(match=match, last_contact=contact, covered=covered)


def leading(*voters, now=0, last=0, me=A):
    in_sync = InSyncSet(LAG)
    in_sync.lead(me, voters or (A, B, C), last, now)
    return in_sync


def refresh(in_sync, progress, last=0, commit=0, now=0):
    return in_sync.refresh(progress, last=last, commit=commit, now=now)


def test_a_new_leader_counts_all_its_voters_before_any_was_heard():
    in_sync = leading(last=50)
    assert in_sync.members == (A, B, C)
    progress = {B: follower(0), C: follower(0)}
    assert not refresh(in_sync, progress, last=50, commit=0, now=LAG)
    assert in_sync.members == (A, B, C)


def test_silence_puts_out_after_the_lag_and_not_at_it():
    in_sync = leading()
    progress = {B: follower(5, contact=0), C: follower(5, contact=900)}
    refresh(in_sync, progress, last=5, now=LAG)
    assert in_sync.members == (A, B, C)
    assert refresh(in_sync, progress, last=5, now=LAG + 1)
    assert in_sync.members == (A, C)


def test_the_deadline_names_the_instant_of_the_next_change():
    in_sync = leading()
    progress = {B: follower(5, contact=100), C: follower(5, contact=900)}
    refresh(in_sync, progress, last=5, now=900)
    assert in_sync.deadline == 900 + LAG // 8
    refresh(in_sync, progress, last=5, now=1_050)
    assert in_sync.deadline == 100 + LAG + 1
    assert in_sync.members == (A, B, C)
    assert refresh(in_sync, progress, last=5, now=in_sync.deadline)
    assert in_sync.members == (A, C)


def test_being_behind_puts_out_though_it_talks():
    in_sync = leading()
    progress = {B: follower(0, contact=0), C: follower(9)}
    refresh(in_sync, progress, last=9, now=10)
    progress = {B: follower(0, contact=LAG + 1), C: follower(9, contact=LAG)}
    refresh(in_sync, progress, last=9, now=LAG + 2)
    assert in_sync.members == (A, C)


def test_a_growing_log_does_not_put_out_a_follower_that_keeps_pace():
    """Kafka's rule: who reaches the end that the log had a moment ago was caught up then."""
    in_sync = leading(A, B)
    for step in range(1, 60):
        now = step * 100
        progress = {B: follower(step - 1, contact=now)}
        refresh(in_sync, progress, last=step, now=now)
        assert in_sync.members == (A, B), step


def test_a_follower_slower_than_the_log_falls_out():
    in_sync = leading(A, B)
    for step in range(1, 60):
        now = step * 100
        refresh(in_sync, {B: follower(step // 4, contact=now)}, last=step * 10, now=now)
    assert in_sync.members == (A,)


def test_a_new_entry_starts_the_clock_of_an_idle_set():
    in_sync = leading(A, B)
    refresh(in_sync, {B: follower(5, covered=True)}, last=5, now=100)
    assert in_sync.deadline == NEVER
    in_sync.watch(500)
    assert in_sync.deadline == 500 + LAG // 8


def test_covered_and_caught_up_needs_no_clock():
    in_sync = leading()
    progress = {B: follower(5, covered=True), C: follower(5, covered=True)}
    refresh(in_sync, progress, last=5, now=100)
    assert in_sync.deadline == NEVER
    refresh(in_sync, progress, last=5, now=LAG * 50)
    assert in_sync.members == (A, B, C)


def test_a_broken_link_puts_out_at_once_and_only_a_word_on_a_new_session_lets_back():
    in_sync = leading()
    in_sync.link_down(2)
    assert in_sync.members == (A, C)
    progress = {B: follower(9, contact=50), C: follower(9, contact=50)}
    refresh(in_sync, progress, last=9, commit=9, now=50)
    assert in_sync.members == (A, C)
    in_sync.link_up(2, 55)
    refresh(in_sync, progress, last=9, commit=9, now=60)
    assert in_sync.members == (A, C)
    progress[B] = follower(9, contact=55)
    refresh(in_sync, progress, last=9, commit=9, now=60)
    assert in_sync.members == (A, B, C)


def test_a_fenced_broker_is_out_until_it_is_fenced_no_more():
    in_sync = leading()
    progress = {B: follower(9, contact=50), C: follower(9, contact=50)}
    in_sync.fence([3])
    refresh(in_sync, progress, last=9, commit=9, now=50)
    assert in_sync.members == (A, B)
    in_sync.fence([])
    refresh(in_sync, progress, last=9, commit=9, now=60)
    assert in_sync.members == (A, B, C)


def test_who_is_out_returns_when_its_synced_log_reaches_the_committed_end():
    in_sync = leading()
    in_sync.link_down(2)
    in_sync.link_up(2, 1)
    refresh(in_sync, {B: follower(7, 50), C: follower(9, 50)}, last=20, commit=8, now=50)
    assert in_sync.members == (A, C)
    refresh(in_sync, {B: follower(8, 60), C: follower(9, 60)}, last=20, commit=8, now=60)
    assert in_sync.members == (A, B, C)


def test_who_returned_has_its_time_again():
    in_sync = leading(A, B)
    in_sync.link_down(2)
    in_sync.link_up(2, 1)
    refresh(in_sync, {B: follower(8, 5_000)}, last=20, commit=8, now=5_000)
    refresh(in_sync, {B: follower(8, 5_900)}, last=20, commit=8, now=5_900)
    assert in_sync.members == (A, B)
    refresh(in_sync, {B: follower(8, 6_100)}, last=20, commit=8, now=6_100)
    assert in_sync.members == (A,)


def test_a_silent_one_does_not_return_by_an_old_match():
    in_sync = leading(A, B)
    refresh(in_sync, {B: follower(0, 0)}, last=9, commit=0, now=LAG + 1)
    assert in_sync.members == (A,)
    refresh(in_sync, {B: follower(9, 0)}, last=9, commit=9, now=LAG + 2)
    assert in_sync.members == (A,)


def test_in_a_joint_configuration_the_incoming_voters_count():
    in_sync = leading(A, B, C)
    in_sync.follow_membership(A, (A, D), 9, 10)
    assert in_sync.members == (A, D)


def test_a_leader_that_is_no_voter_does_not_count_itself():
    in_sync = leading(A, B, C)
    in_sync.follow_membership(A, (B, C), 9, 10)
    assert in_sync.members == (B, C)
    assert in_sync.held_by(2, {B: follower(4), C: follower(6)}, durable=99) == 4


def test_a_new_voter_begins_with_its_time_and_an_old_one_keeps_its_state():
    in_sync = leading(A, B)
    in_sync.link_down(2)
    in_sync.follow_membership(A, (A, B, C), 9, 500)
    assert in_sync.members == (A, C)


def test_held_by_counts_durable_copies_of_members():
    in_sync = leading()
    progress = {B: follower(4), C: follower(6)}
    assert [in_sync.held_by(n, progress, 9) for n in (1, 2, 3, 4)] == [9, 6, 4, NOTHING_HELD]
    in_sync.link_down(3)
    assert [in_sync.held_by(n, progress, 9) for n in (1, 2, 3)] == [9, 4, NOTHING_HELD]


def test_a_voter_that_the_node_does_not_know_yet_is_not_counted():
    in_sync = leading(A, B)
    refresh(in_sync, {}, now=1)
    assert in_sync.members == (A,)
    assert in_sync.held_by(1, {}, 3) == 3


def test_a_follower_has_no_in_sync_set():
    in_sync = leading()
    in_sync.clear()
    assert (in_sync.members, in_sync.deadline, len(in_sync)) == ((), NEVER, 0)
    in_sync.link_down(2)
    assert in_sync.members == ()
