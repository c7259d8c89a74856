"""Silence is told by the monotonic clock of one leader, and by nothing else."""

from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.units import millis
from raftlog.partition.producing.expiry import SilenceWatch

LIMIT_MS = 800


def test_a_new_leader_expires_nobody_for_one_expiration():
    watch = SilenceWatch()
    assert watch.cut_off(millis(10**9), LIMIT_MS) == -1
    watch.look(millis(1_000), 5, LIMIT_MS)
    assert watch.cut_off(millis(1_799), LIMIT_MS) == -1
    assert watch.cut_off(millis(1_800), LIMIT_MS) == 5


def test_the_cut_off_is_what_the_clock_showed_an_expiration_ago():
    watch = SilenceWatch()
    for tenth in range(40):
        watch.look(millis(100 * tenth), 1_000 + tenth, LIMIT_MS)
    assert watch.cut_off(millis(3_900), LIMIT_MS) == 1_031
    assert len(watch._seen) <= 10


def test_leadership_that_ends_forgets_what_was_seen():
    watch = SilenceWatch()
    watch.look(millis(0), 5, LIMIT_MS)
    watch.reset()
    assert watch.cut_off(millis(10_000), LIMIT_MS) == -1


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10**6)), min_size=1, max_size=60))
def test_whoever_wrote_within_an_expiration_is_never_cut_off(steps):
    """Writers at random instants, with a log clock that leaps as it likes but never back."""
    watch, now_ms, clock_ms = SilenceWatch(), 0, 0
    wrote = []
    for pause_ms, leap_ms in steps:
        now_ms, clock_ms = now_ms + pause_ms, clock_ms + leap_ms
        watch.look(millis(now_ms), clock_ms, LIMIT_MS)
        wrote.append((now_ms, clock_ms))
        cut_off = watch.cut_off(millis(now_ms), LIMIT_MS)
        assert all(seen >= cut_off for at, seen in wrote if now_ms - at < LIMIT_MS)
        assert len(watch._seen) <= 10
