"""A block judged by whole columns agrees with the scan of `raftlog.verify`, row by row.

The twin here folds the same rows with dictionaries and walks them. No Spark is needed.
"""

import random

import numpy as np
import pyarrow as pa
import pytest

from raftlog.spark.jobs import blocks
from raftlog.spark.jobs.blocks import BlockCarry, Rows, fold, judge, judged_blocks
from raftlog.spark.jobs.carries import by_number, carried, segments_of
from raftlog.verify.histories.interval import OPEN
from raftlog.verify.judging import holes, linearizability
from raftlog.verify.judging.linearizability import BEFORE_ALL

LISTED = BlockCarry(list_holes=True)
COLUMNS = ["offset", "what", "begin", "end", "op", "text"]


def some_rows(rng: random.Random, count: int, span: int) -> list[tuple]:
    made = []
    for op in range(count):
        begin = rng.randrange(20)
        what = rng.choice([0, 1, 2, 2, 2, 2, 4, 5, 6])
        end = OPEN if what == blocks.OWN and rng.random() < 0.2 else begin + rng.randrange(9)
        made.append((rng.randrange(span), what, begin, end, op, rng.choice([7, 7, 7, 8])))
    if rng.random() < 0.3:
        made.append((rng.randrange(span), blocks.BEGUN, 0, 0, -1, 0))
    rng.shuffle(made)
    return made


def as_rows(made: list[tuple]) -> Rows:
    return Rows(*np.array(made, dtype=np.int64).reshape(-1, 6).T.copy())


def walked(made: list[tuple]) -> tuple[list[linearizability.Row], int]:
    """The same rows for `linearizability.scan`, and the offsets with two values."""
    chain, conflicts = [], 0
    for offset in sorted({row[0] for row in made}):
        here = [row for row in made if row[0] == offset]
        told = {what: [row for row in here if row[1] == what] for what in range(7)}
        texts = {row[5] for what in (0, 1, 2) for row in told[what]}
        conflicts += len(texts) > 1
        append = None
        if told[blocks.BEGUN]:
            append = (BEFORE_ALL, BEFORE_ALL, -1)
        elif told[blocks.NOBODYS] or (texts and not told[blocks.OWN]):
            append = (BEFORE_ALL, OPEN, -1)
        elif texts:
            append = min(row[2:5] for row in told[blocks.OWN])

        def latest(what, told=told):
            found = [(-row[2], row[4]) for row in told[what]]
            return (-min(found)[0], min(found)[1]) if found else None

        def earliest(what, told=told):
            return min(((row[3], row[4]) for row in told[what]), default=None)

        chain.append(
            (
                offset,
                latest(blocks.EXACT),
                earliest(blocks.EXACT),
                earliest(blocks.AT_LEAST),
                latest(blocks.AT_MOST),
                append,
            )
        )
    return chain, conflicts


@pytest.mark.parametrize("seed", range(160))
def test_a_block_is_judged_as_by_walking_it(seed):
    rng = random.Random(f"block-{seed}")
    made = some_rows(rng, rng.randint(1, 14), rng.choice([3, 9, 30]))
    chain, conflicts = walked(made)
    first_end = rng.choice([0, 0, 2])
    carry = rng.choice([BlockCarry(), BlockCarry(rng.randrange(30), 99)])._replace(list_holes=True)
    found = judge(fold(as_rows(made)), carry, first_end)
    before = linearizability.Carry(carry.at, carry.op)
    violations, after = linearizability.scan(chain, before)
    assert found["violations"] == len(violations)
    assert found["conflicts"] == conflicts
    assert (found["latest"], found["latest_op"]) == tuple(after)
    if violations:
        first = violations[0]
        pair = found["first_offset"], found["first_before"], found["first_after"]
        assert pair == (first.offset, first.before, first.after)
    else:
        assert "first_offset" not in found
    segments = [
        each._replace(holder=None) for each in holes.segments_of(chain, first_end, (OPEN, None))
    ]
    assert segments_of([found], first_end) == segments
    inside = segments[1:] if segments and segments[0].stop == chain[0][0] else segments
    assert found["holes"] == len(inside)


@pytest.mark.parametrize("seed", range(80))
def test_a_carry_that_is_not_later_than_the_earliest_return_changes_nothing(seed):
    """So that most blocks of a log are judged once, whatever lies before them."""
    rng = random.Random(f"carry-{seed}")
    chain = fold(as_rows(some_rows(rng, 12, 9)))
    alone = judge(chain, BlockCarry(), 0)
    carry = BlockCarry(min(alone["earliest"], 100) - rng.randrange(3), 99)
    carried = judge(chain, carry, 0)
    for name in ("violations", "first_offset", "first_slot", "first_before", "first_after"):
        assert carried.get(name) == alone.get(name), name


@pytest.mark.parametrize("seed", range(80))
def test_blocks_that_are_put_together_agree_with_the_whole(seed):
    rng = random.Random(f"cut-{seed}")
    made = some_rows(rng, 14, 12)
    size, first_end = rng.randint(1, 6), rng.choice([0, 0, 2])
    whole = judge(fold(as_rows(made)), LISTED, first_end)
    folded = []
    for block in range(0, 12, size):
        here = [row for row in made if block <= row[0] < block + size]
        if here:
            folded.append(fold(as_rows(here)))
    alone = [{"number": 3, **judge(chain, LISTED, first_end)} for chain in folded]
    carries = carried(alone)
    found = [
        judge(chain, carry._replace(list_holes=True), first_end)
        for chain, carry in zip(folded, carries, strict=True)
    ]
    for name in ("violations", "conflicts"):
        assert sum(block[name] for block in found) == whole[name]
    assert (found[-1]["latest"], found[-1]["latest_op"]) == (whole["latest"], whole["latest_op"])
    assert segments_of(alone, first_end) == segments_of([whole], first_end)


def test_the_carry_of_one_key_does_not_reach_another():
    told = {"latest": 7, "latest_op": 1}
    chains = [{"number": 1, **told}, {"number": 1, **told}, {"number": 2, **told}]
    assert carried(chains) == [BlockCarry(), BlockCarry(7, 1), BlockCarry()]
    ((one, first), (two, second)) = by_number(chains)
    assert (one, len(first), two, len(second)) == (1, 2, 2, 1)


def test_a_task_answers_with_the_columns_that_spark_was_promised():
    made = [(5, blocks.OWN, 3, 9, 1, 7), (8, blocks.AT_LEAST, 0, 2, 4, 0)]
    table = pa.Table.from_pydict(dict(zip(COLUMNS, zip(*made, strict=True), strict=True)))
    key = (pa.scalar(2), pa.scalar(0))
    function = judged_blocks({(2, 0): BlockCarry(list_holes=True)}, {2: 4})
    (row,) = function(key, table).to_pylist()
    assert function(key, table).schema == blocks.ARROW_VERDICTS
    assert [field.split()[0] for field in blocks.VERDICTS.split(", ")] == list(row)
    assert (row["number"], row["first"], row["behind"]) == (2, 5, 8)
    assert (row["violations"], row["first_offset"], row["first_before"]) == (1, 8, 1)
    assert (row["hole_starts"], row["hole_stops"], row["hole_cuts"]) == ([6], [8], [False])


def test_a_block_that_has_one_offset():
    found = judge(fold(as_rows([(3, blocks.TEXT, 0, 0, -1, 7)])), BlockCarry(list_holes=True), 0)
    assert (found["first"], found["behind"], found["cut"], found["holes"]) == (3, 4, True, 0)
    assert (found["earliest"], found["latest_op"]) == (OPEN, -1)
