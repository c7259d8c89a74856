"""Two hundred seeds pass, all that they draw, sixty wide ones, and a variation of each scenario:
others than `scripts/check` sweeps (1 to 20). A few to a test, for on a busy machine a seed may take
ten seconds."""

import pytest
from raftlog_sim.options import draw_options
from raftlog_sim.seeds import drawn
from raftlog_sim.variations import varied_names

FIRST, LAST, A_TEST = 101, 300, 5
LAST_WIDE = FIRST + 59
RANGES = [range(low, low + A_TEST) for low in range(FIRST, LAST + 1, A_TEST)]
WIDE = [range(low, low + A_TEST) for low in range(FIRST, LAST_WIDE + 1, A_TEST)]
LAST_VARIED = FIRST + len(varied_names()) - 1
VARIED = [
    range(low, min(low + 2 * A_TEST, LAST_VARIED + 1))
    for low in range(FIRST, LAST_VARIED + 1, 2 * A_TEST)
]


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


def test_wide_seeds_have_groups_of_up_to_five_voters():
    options = [draw_options(seed, "wide") for seed in range(200)]
    assert {each.replication for each in options} == {1, 2, 3, 4, 5}
    assert {each.controllers for each in options} == {1, 3, 5}
    assert {each.split_turns for each in options} == {False, True}
    assert len({(each.heartbeat_ms, each.election_ms) for each in options}) >= 5
    assert all(each.controllers <= each.brokers >= each.replication for each in options)


def test_there_are_two_hundred_of_them():
    assert len({seed for seeds in RANGES for seed in seeds}) == LAST - FIRST + 1 >= 200
