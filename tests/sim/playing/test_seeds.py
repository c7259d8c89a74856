"""Two hundred seeds pass, all that they draw, sixty wide ones, twenty of groups, and a variation of
each third scenario: others than `scripts/check` sweeps (1 to 20). A few to a test, for on a busy
machine a seed may take ten seconds. `scripts/soak seeds` varies all scenarios."""

from itertools import pairwise

import pytest
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.playing.variations import varied_names
from raftlog_sim.schedules.drawing_admin import (
    controllers_come_and_go,
    controllers_take_turns,
    directories_are_used,
    moves_are_interrupted,
)
from raftlog_sim.schedules.drawing_brokers import brokers_come_and_go
from raftlog_sim.schedules.drawing_groups import IMPOSTORS
from raftlog_sim.schedules.drawing_moments import late_rounds
from raftlog_sim.schedules.options import DOSES, VOTERS_MAX, draw_options

FIRST, LAST, A_TEST = 101, 300, 5
LAST_WIDE = FIRST + 59
RANGES = [range(low, low + A_TEST) for low in range(FIRST, LAST + 1, A_TEST)]
WIDE = [range(low, low + A_TEST) for low in range(FIRST, LAST_WIDE + 1, A_TEST)]
GROUPS = [range(low, low + A_TEST) for low in range(FIRST, FIRST + 20, A_TEST)]
VARIED_SEEDS = range(FIRST, FIRST + len(varied_names()), 3)
VARIED = [VARIED_SEEDS[low : low + A_TEST] for low in range(0, len(VARIED_SEEDS), A_TEST)]


def failures(seeds, profile):
    """By the line that plays it again, what each failing one of these seeds says."""
    played = {seed: drawn(seed, profile).play().failure for seed in seeds}
    return {
        f"raftlog sim run --seed {seed} --profile {profile} --double-check": failure
        for seed, failure in played.items()
        if failure
    }


@pytest.mark.slow
@pytest.mark.parametrize("seeds", RANGES, ids=lambda seeds: f"{seeds[0]}..{seeds[-1]}")
def test_seeds_pass(seeds):
    assert failures(seeds, "swarm") == {}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", WIDE, ids=lambda seeds: f"{seeds[0]}..{seeds[-1]}")
def test_wide_seeds_pass(seeds):
    assert failures(seeds, "wide") == {}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", VARIED, ids=lambda seeds: f"{seeds[0]}..{seeds[-1]}")
def test_varied_seeds_pass(seeds):
    assert failures(seeds, "varied") == {}


@pytest.mark.slow
@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"{seeds[0]}..{seeds[-1]}")
def test_seeds_of_groups_pass(seeds):
    assert failures(seeds, "groups") == {}


def test_seeds_of_groups_have_members_and_what_strikes_them():
    schedules = [drawn(seed, "groups").schedule for seed in range(60)]
    assert {each.options.members for each in schedules} == {2, 3, 4, 5, 6}
    assert all(each.options.brokers >= 3 and not each.options.trio for each in schedules)
    assert all(each.options.replication == 3 for each in schedules)
    steps = [each for schedule in schedules for each in schedule.steps]
    aimed = {str(each) for each in steps if "coordinator:" in str(each)}
    assert {each.split()[1] for each in aimed} == {"partition", "pause", "clock-jump"}
    assert {each.argument("what") for each in steps if each.kind == "impostor"} == set(IMPOSTORS)
    moments = {each.argument("when") for each in steps if each.kind == "kill-coordinator"}
    assert moments == {"joins", "generation", "syncs", "assignment", "commits", "stable"}
    late = {each.argument("when") for each in steps if each.kind == "cut-coordinator"}
    assert late == {"generation", "assignment"}
    crashes = {dict(each.options.fault_gaps_ms)["crash"] for each in schedules}
    assert {150 * max(DOSES) << doubled for doubled in range(5)} | {0} == crashes


def test_brokers_come_and_go_in_wide_seeds():
    """A broker that is to be forgotten was away by then, and its partitions were to be
    elsewhere."""
    left = 0
    for seed in range(100):
        options = draw_options(seed, "wide")
        steps = [each for each in brokers_come_and_go(options) if each.kind != "throttle"]
        for at, away in enumerate(steps):
            if away.kind in ("reassign", "unregister"):
                continue
            left += 1
            moves = steps[at - options.partitions : at]
            assert {each.kind for each in moves} == {"reassign"}
            gone = str(away.argument("node"))
            assert all(gone not in str(each.argument("nodes")).split("+") for each in moves)
            assert int(gone[1:]) > options.controllers
            tries, back = steps[at + 1 : at + 4], steps[at + 4]
            assert {each.kind for each in tries} == {"unregister"}
            ends_ms = away.at_ms + away.for_ms
            assert all(away.at_ms < each.at_ms <= ends_ms < back.at_ms for each in tries)
            assert gone in str(back.argument("nodes")).split("+")
            size = len(str(back.argument("nodes")).split("+"))
            assert size == options.replication
    assert left > 30


def test_wide_seeds_have_groups_of_up_to_five_voters():
    options = [draw_options(seed, "wide") for seed in range(200)]
    assert {each.replication for each in options} == {1, 2, 3, 4, 5}
    assert {each.controllers for each in options} == {1, 3, 5}
    assert {each.split_turns for each in options} == {False, True}
    assert len({(each.heartbeat_ms, each.election_ms) for each in options}) >= 5
    assert all(each.controllers <= each.brokers >= each.replication for each in options)


def test_there_are_two_hundred_of_them():
    assert len({seed for seeds in RANGES for seed in seeds}) == LAST - FIRST + 1 >= 200


def test_wide_seeds_change_controllers_directories_and_moves():
    """Each in a clear share of the seeds, and what comes of it can be: no directory that is not
    there, never more controllers than there may be, and a fault for each step of a move."""
    seeds, changed, moved, aimed = 200, 0, 0, set()
    for seed in range(seeds):
        options = draw_options(seed, "wide")
        controllers = [*controllers_come_and_go(options)]
        count = options.controllers
        for each in controllers:
            count += {"add-controller": 1, "remove-controller": -1}.get(each.kind, 0)
            assert 1 <= count <= VOTERS_MAX
        changed += bool(controllers)
        steps = [*directories_are_used(options)]
        assert bool(steps) <= (options.directories > 0) <= (not options.trio)
        moved += any(each.kind == "move-replicas" for each in steps)
        for each in steps:
            if each.kind == "move-replicas":
                assert 0 <= int(each.argument("to")) <= options.directories
            if each.kind == "break-directory":
                assert 0 <= int(each.argument("number")) < options.directories
        for each in moves_are_interrupted(options):
            if each.kind == "at-moment":
                aimed.add((each.argument("when"), each.argument("what")))
    assert seeds // 5 < changed < seeds // 2
    assert seeds // 6 < moved < seeds // 2
    steps_of_a_move = {"membership", "learner", "caught-up", "joint", "final"}
    assert {when for when, _ in aimed} == steps_of_a_move
    assert len(aimed) > 50


def test_wide_seeds_have_late_read_rounds_and_controllers_that_take_turns():
    """Rounds only where readers ask for them; and only a broker that does not vote yet is away."""
    late, turns = 0, 0
    for seed in range(200):
        options = draw_options(seed, "wide")
        rounds = [*late_rounds(options)]
        assert bool(rounds) <= options.linearizable
        late += any(each.kind == "transfer" for each in rounds)
        steps = [*controllers_take_turns(options)]
        for each in steps:
            if each.kind == "add-controller":
                turns += 1
                assert int(str(each.argument("node"))[1:]) > options.controllers
        cuts = [each for each in steps if "side=controller" in str(each)]
        assert len(cuts) in ((2, 3, 4) if steps else (0,))
    assert 20 < late < 100
    assert 20 < turns < 80


def test_two_administrators_want_the_same_now_and_then():
    wanted = [
        (each.at_ms, each.kind, each.argument("topic"))
        for seed in range(60)
        for each in drawn(seed, "swarm").schedule.steps
        if each.kind.endswith("-topic")
    ]
    soon = [
        (one, other)
        for one, other in pairwise(wanted)
        if one[1:] == other[1:] and 0 < other[0] - one[0] <= 32
    ]
    assert len(wanted) > 100
    assert len(wanted) // 6 < len(soon) < len(wanted) // 3
