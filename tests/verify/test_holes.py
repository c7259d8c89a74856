"""Filling holes: the quick matching and the tiling agree with trying everything."""

import itertools
import random

from raftlog.verify.histories.interval import OPEN
from raftlog.verify.judging.holes import Filler, HoleSegment, fill


def by_trying_everything(segments, spare):
    """Place candidates one after the other at the first hole that is left, in every way."""
    limits = []
    for segment in reversed(segments):
        following = limits[-1] if limits else OPEN
        limits.append(segment.stop if segment.cut else following)
    limits.reverse()
    deadlines = {
        offset: (segment.deadline, limit)
        for segment, limit in zip(segments, limits, strict=True)
        for offset in range(segment.start, segment.stop)
    }

    def place(left, used):
        if not left:
            return True
        deadline, limit = deadlines[left[0]]
        for number, candidate in enumerate(spare):
            if number in used or candidate.invoked > deadline:
                continue
            stop = left[0] + candidate.size
            if stop <= limit and place([o for o in left if o >= stop], used | {number}):
                return True
        return False

    return place(sorted(deadlines), frozenset())


def random_case(rng, sizes):
    segments, at, deadline = [], 0, rng.randint(0, 3)
    for _ in range(rng.randint(1, 3)):
        length = rng.randint(1, 3)
        cut = rng.random() < 0.6
        segments.append(HoleSegment(at, at + length, deadline, None, cut))
        at += length + (rng.randint(1, 2) if cut else 0)
        deadline += rng.randint(0, 4)
    spare = [Filler(rng.choice(sizes), rng.randint(0, 8), None) for _ in range(rng.randint(0, 5))]
    return segments, spare


def agreement(sizes, seeds):
    seen = {True: 0, False: 0}
    for seed in range(seeds):
        segments, spare = random_case(random.Random(seed), sizes)
        expected = by_trying_everything(segments, spare)
        outcome = fill(segments, spare, 10**6)
        assert (outcome.count == 0) == expected, (seed, segments, spare)
        assert not outcome.exhausted
        seen[expected] += 1
    return min(seen.values())


def test_single_records_are_matched_exactly():
    assert agreement([1], 1500) > 100


def test_batches_are_tiled_exactly():
    assert agreement([1, 2, 3], 3000) > 300
    assert agreement([2, 3], 3000) > 100


def test_the_first_hole_that_stays_empty_is_named():
    segments = [HoleSegment(3, 5, 10, "x", True), HoleSegment(7, 8, 20, "y", True)]
    outcome = fill(segments, [Filler(1, 5, None), Filler(1, 15, None)], 100)
    assert [hole.offset for hole in outcome.unfilled] == [4]
    assert outcome.count == 1, "the later append fills the later hole"


def test_a_spent_budget_says_so():
    spare = [Filler(size, 0, None) for size in (2, 3, 5, 7, 11) for _ in range(6)]
    outcome = fill([HoleSegment(0, 167, 9, None, True)], spare, 20)
    assert outcome.exhausted
    assert outcome.count == 0


def test_a_hole_as_wide_as_the_world_costs_nothing():
    """An offset near 2^63 in a log taken for dense must not be walked one by one."""
    outcome = fill([HoleSegment(0, 2**62, 9, None, True)], [Filler(1, 0, None)], 100)
    assert outcome.count == 2**62 - 1
    outcome = fill([HoleSegment(0, 2**62, 9, None, True)], [Filler(2, 0, None)], 100)
    assert outcome.count == 1


def test_every_order_of_sizes_is_found():
    for sizes in itertools.permutations([1, 2, 3, 4]):
        segments, at = [], 0
        for size in sizes:
            segments.append(HoleSegment(at, at + size, 9, None, True))
            at += size + 1
        spare = [Filler(size, 0, None) for size in (4, 3, 2, 1)]
        assert fill(segments, spare, 10**4).count == 0
