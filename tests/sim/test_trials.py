"""Which candidates of a shrink fail as the original did, whoever plays them."""

import attrs
import pytest
from raftlog_sim.minimise import Effort, one_by_one
from raftlog_sim.options import SimOptions
from raftlog_sim.schedule import Schedule
from raftlog_sim.shrink import _without_trio
from raftlog_sim.simulation import simulate
from raftlog_sim.trials import Helpers, Original, trials

SHORT = Schedule(SimOptions(seed=3, safety_ms=10), ())
"""It passes, and so it is like an original whose signature is empty."""


def of_length(seconds):
    return attrs.evolve(SHORT, options=attrs.evolve(SHORT.options, safety_ms=1000 * seconds))


def like_short():
    return Original("", events_max=100_000, until_ns=simulate(SHORT).simulated_ns)


def endless():
    return Effort(lambda: False)


@pytest.mark.parametrize("count", [1, 2])
def test_the_first_in_order_is_taken_whoever_is_ready_first(count):
    effort = endless()
    candidates = [of_length(20), of_length(10), SHORT, of_length(5), SHORT]
    with trials(Helpers(count)) as trials_of:
        judge = trials_of(like_short(), effort)
        assert judge.first(candidates) == 2
        assert (effort.tried, effort.left) == (3, 0)
        assert judge.first(candidates[:2]) is None
        assert effort.tried == 3, "they are known not to fail so"
        assert judge.first([*candidates[:2], of_length(4), SHORT]) == 3


def test_nobody_tries_when_time_is_out():
    with trials(Helpers(2)) as trials_of:
        judge = trials_of(like_short(), Effort(lambda: True))
        assert judge.first([SHORT]) is None


def test_a_helper_that_fails_says_so():
    with trials(Helpers(2, _fails)) as trials_of, pytest.raises(Exception, match="terminated"):
        trials_of(like_short(), endless()).first([SHORT])


def _fails() -> None:
    raise RuntimeError("no such mutant")


def test_a_candidate_is_given_up():
    assert like_short().is_like(SHORT)
    assert not like_short().is_like(SHORT, lambda: True)
    assert not attrs.evolve(like_short(), events_max=5).is_like(SHORT)


def test_a_brief_time_to_come_to_rest():
    failure = simulate(SHORT, liveness_seconds=0).failure
    assert failure.startswith("liveness: not reached within 0.0 s")
    trio = attrs.evolve(SHORT, options=attrs.evolve(SHORT.options, trio=True))
    assert simulate(trio, liveness_seconds=0).failure == failure


class Luck:
    """Fails in trio mode, and without in one seed of some."""

    def __init__(self, lucky):
        self.first = one_by_one(
            lambda schedule: schedule.options.trio or schedule.options.seed % 7 in lucky, endless()
        )


def test_trio_mode_is_left_out_first_under_some_seeds():
    trio = attrs.evolve(SHORT, options=attrs.evolve(SHORT.options, trio=True))
    found = _without_trio(trio, Luck({5}))
    assert (found.options.trio, found.options.seed % 7) == (False, 5)
    assert _without_trio(trio, Luck(set())) == trio
    assert _without_trio(SHORT, Luck(set())) == SHORT
