"""Folds over parts of a history give the verdicts and witnesses of the whole.

Parts are cut at random, merged in random order, and the chain is scanned in blocks of random size.
"""

import pickle
import random

import pytest
from raftlog_sim.hunting.small_logs import KEY, SHAPES, generate

from raftlog.verify import Header, judge_operations
from tests.verify import folds
from tests.verify.folds import judge_in_parts

VALUES = ("inconsistent-offsets", "duplicate", "phantom", "G1a", "lost-write", "unseen")
CONFLICTS = ("inconsistent-offsets", "duplicate", "phantom", "G1a")
SEEDS = 300


def in_parts(rng, operations):
    shuffled = rng.sample(operations, len(operations))
    cuts = sorted(rng.randint(0, len(shuffled)) for _ in range(rng.randint(0, 3)))
    return [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]


@pytest.mark.parametrize("name", SHAPES)
def test_parts_agree_with_the_whole(name):
    witnesses = 0
    for seed in range(SEEDS):
        rng = random.Random(f"folds-{name}-{seed}")
        options, operations = generate(rng, SHAPES[name])
        if seed % 2:
            options["final_read"] = True
        judged = judge_operations(
            Header(source="sim", options=options), operations, with_metrics=False
        ).verdict
        whole = judged.classes
        parts = judge_in_parts(in_parts(rng, operations), options, block=rng.randint(1, 4))
        found = parts.get(KEY)
        if found is None:
            assert not any(result.count for result in whole.values())
            continue
        conflict = any(whole[one].count for one in CONFLICTS)
        assert conflict == any(found.counts[one] for one in CONFLICTS), (seed, operations)
        if not SHAPES[name].batches:  # whose place in a batch is wrong depends on who is met first
            for one in CONFLICTS:
                assert bool(found.counts[one]) == bool(whole[one].count), (one, seed, operations)
        linear = conflict or bool(found.counts["linearizability"])
        assert linear == bool(whole["linearizability"].count), (seed, operations)
        if conflict:
            continue
        for one in VALUES:
            assert found.counts[one] == whole[one].count, (one, seed, operations)
        witness = whole["linearizability"].witness
        if (
            witness is not None
            and witness.detail["kind"] == "pair"
            and len(witness.operations) == 2
        ):
            indexes = [op.index for op in witness.operations]
            assert found.first == (witness.offset, *indexes), (seed, operations)
            witnesses += 1
    assert witnesses > 0


def test_rows_are_plain_values():
    options, operations = generate(random.Random(3), SHAPES["retention"])
    mode = options["read_consistency"]
    for op in operations:
        for rows in (folds.value_rows(op), folds.batch_rows(op), folds.offset_rows(op, mode)):
            for row in rows:
                assert pickle.loads(pickle.dumps(row)) == row


@pytest.mark.parametrize(
    ("rows", "merge"),
    [
        (folds.value_rows, folds.merge_value),
        (folds.batch_rows, folds.merge_batch),
        (lambda op: folds.offset_rows(op, "linearizable"), folds.merge_offset),
    ],
)
def test_merges_forget_order_and_grouping(rows, merge):
    for seed in range(60):
        rng = random.Random(seed)
        _, operations = generate(rng, SHAPES["crowded"])
        made = [row for op in operations for row in rows(op)]
        whole = folds.reduce_by_key(made, merge)
        rng.shuffle(made)
        half = len(made) // 2
        parts = [folds.reduce_by_key(part, merge) for part in (made[:half], made[half:])]
        again = folds.reduce_by_key([row for part in parts for row in part.items()], merge)
        assert again == whole
        twice = folds.reduce_by_key([*made, *made], merge)
        assert twice == whole
