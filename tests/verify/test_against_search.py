"""The near-linear check of the log agrees with the general search, on every shape of history."""

import random

import pytest
from raftlog_sim.hunting.small_logs import SHAPES, by_search, generate

from raftlog.verify import Header, judge_operations

LINEAR = ("linearizability", "inconsistent-offsets", "duplicate", "phantom", "G1a")
SEEDS = 250


@pytest.mark.parametrize("name", SHAPES)
def test_agrees_with_the_search(name):
    invalid = 0
    for seed in range(SEEDS):
        options, operations = generate(random.Random(f"{name}-{seed}"), SHAPES[name])
        expected = by_search(options, operations)
        verdict = judge_operations(Header(source="sim", options=options), operations).verdict
        found = [c for c in LINEAR if verdict.classes[c].count]
        assert (not found) == expected, (name, seed, found, operations)
        assert not any(verdict.classes[c].status == "unknown" for c in LINEAR)
        invalid += not expected
    assert SEEDS // 25 < invalid < SEEDS, "the sample has both kinds"
