"""Which candidates of a shrink fail as the original did, in whichever process they run."""

import itertools
import time
from types import SimpleNamespace

import attrs
import pytest
from raftlog_sim.base.minimise import Effort, one_by_one
from raftlog_sim.hunting import trials as trials_module
from raftlog_sim.hunting.shrink import _as_loads, _under_seed, _without_trio, shrink
from raftlog_sim.hunting.trials import Helpers, Original, trials
from raftlog_sim.playing.cases import BrokerCase
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step

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


def test_what_was_found_counts_when_a_helper_dies():
    effort = endless()
    with trials(Helpers(2, _fails)) as trials_of:
        assert trials_of(like_short(), effort).first([SHORT]) is None
    assert effort.stopped.startswith("a helper died: ")
    assert not effort.may_go_on()


def _fails() -> None:
    raise RuntimeError("no such mutant")


def _stuck() -> None:
    """Let each played candidate take no turn and never end."""
    trials_module.simulate = lambda *arguments, **more: time.sleep(3_600)


def test_who_is_stuck_in_a_turn_is_given_up_and_ended():
    """Regression: neither the time limit nor SIGTERM ended such a shrink. That this test ends is
    what it shows."""
    looks = itertools.count()
    effort = Effort(lambda: next(looks) > 3)
    with trials(Helpers(2, _stuck)) as trials_of:
        assert trials_of(like_short(), effort).first([SHORT, of_length(1)]) is None
    assert (effort.stopped, effort.tried) == ("time ran out", 0)


def test_what_is_played_here_is_given_up_when_time_is_out():
    looks = itertools.count()
    with trials(Helpers(1)) as trials_of:
        judge = trials_of(like_short(), Effort(lambda: next(looks) > 3))
        assert judge.first([SHORT]) is None


def test_what_is_confirmed_is_played_when_time_is_out_and_counted():
    effort = Effort(lambda: True)
    with trials(Helpers(2)) as trials_of:
        judge = trials_of(like_short(), effort)
        assert judge.confirms(SHORT)
        assert not judge.confirms(of_length(20))
    assert effort.tried == 2


def test_a_candidate_is_given_up():
    assert like_short().is_like(SHORT)
    assert not like_short().is_like(SHORT, lambda: True)
    assert not attrs.evolve(like_short(), events_max=5).is_like(SHORT)


def test_a_helper_gives_up_what_nobody_asks_any_more(monkeypatch):
    monkeypatch.setattr(trials_module, "_wanted", [SimpleNamespace(value=2)])
    assert trials_module._is_like(2, like_short(), SHORT.text())
    assert not trials_module._is_like(1, like_short(), SHORT.text())


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


STALLS = tuple(step(at, "stall", 10, node="n1") for at in range(0, 200, 20))


def shrunk(monkeypatch, brief, effort=None):
    """Returns the shrunk form of a failure of liveness that depends on a stall.

    `brief` says whether so many steps fail with a brief time to come to rest.
    """
    asked = {20: 0, 60: 0}

    def is_like(self, candidate, given_up=lambda: False):
        asked[self.liveness_seconds] += 1
        return brief(len(candidate.steps)) if self.liveness_seconds == 20 else bool(candidate.steps)

    monkeypatch.setattr(Original, "is_like", is_like)
    outcome = attrs.evolve(
        BrokerCase(schedule=SHORT).play(), failure="liveness: not reached", simulated_ns=10**9
    )
    options = attrs.evolve(SHORT.options, safety_ms=1_000)
    found = shrink(Schedule(options, STALLS), outcome, effort or endless())
    return len(found.steps), asked


def test_a_failure_of_liveness_shrinks_in_a_brief_time_and_is_confirmed(monkeypatch):
    steps, asked = shrunk(monkeypatch, bool)
    assert steps == 1
    assert asked[60] < asked[20] / 4


def test_a_failure_of_liveness_that_takes_longer_shrinks_all_the_same(monkeypatch):
    """Regression: it came back as it was, and as finished."""
    assert shrunk(monkeypatch, lambda steps: False)[0] == 1


def test_what_fails_in_a_brief_time_only_is_not_taken(monkeypatch):
    assert shrunk(monkeypatch, lambda steps: True)[0] == 1


def test_without_time_nothing_of_a_failure_of_liveness_is_played(monkeypatch):
    """Regression: twenty seconds of it were, and not counted."""
    effort = Effort(lambda: True)
    assert shrunk(monkeypatch, bool, effort) == (len(STALLS), {20: 0, 60: 0})
    assert effort.tried == 0


def test_another_seed_of_number_0_is_the_own_one():
    options = attrs.evolve(SHORT.options, seed=-7)
    schedule = attrs.evolve(SHORT, options=options)
    assert _under_seed(schedule, 0) == schedule
    assert _under_seed(schedule, 1).options.seed >= 0


def test_steps_that_send_nothing_are_no_load_without_an_end():
    nothing = [step(at, "produce", slot=0, partition=0, count=0) for at in range(0, 60, 10)]
    (load,) = _as_loads(SHORT.with_steps(nothing)).steps
    assert load.kind == "load"
