"""Two hundred seeds pass, all that they draw: other ones than `scripts/check` sweeps (1 to 20).
A few to a test, for on a busy machine a seed may take ten seconds."""

import pytest
from raftlog_sim.cases import drawn

FIRST, LAST, A_TEST = 101, 300, 5
RANGES = [range(low, low + A_TEST) for low in range(FIRST, LAST + 1, A_TEST)]


def replay(seed):
    return f"raftlog sim run --seed {seed} --double-check"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", RANGES, ids=lambda seeds: f"{seeds[0]}..{seeds[-1]}")
def test_seeds_pass(seeds):
    failed = {}
    for seed in seeds:
        failure = drawn(seed, "swarm").play().failure
        if failure:
            failed[replay(seed)] = failure
    assert failed == {}


def test_there_are_two_hundred_of_them():
    assert len({seed for seeds in RANGES for seed in seeds}) == LAST - FIRST + 1 >= 200
