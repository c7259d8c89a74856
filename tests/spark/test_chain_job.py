"""The Spark formulation gives the verdicts of the single process, on hundreds of small histories.

All histories of a shape are judged in one job: each is a key of its own.
"""

import json
import random
from collections.abc import Iterable

import pytest
from raftlog_sim.hunting.small_logs import KEY, SHAPES, generate

from raftlog.spark.jobs.chain_job import LENGTHS, LOG_STARTS, READS, SENDS, Tables, judge_tables
from raftlog.verify.histories.interval import Interval
from raftlog.verify.judging.facts import per_key
from tests.verify.folds import judge_in_parts

pytestmark = [pytest.mark.needs_command("java"), pytest.mark.filterwarnings("ignore")]

HISTORIES = 60


def sends(op: Interval, key: str) -> Iterable[tuple]:
    for number, (_, values, base) in enumerate(op.sends()):
        for place, value in enumerate(values):
            row = (op.index, number, place, json.dumps(value), op.type, op.start_ns, op.end_ns)
            yield (key, *row, len(values), base)


def reads(op: Interval, key: str) -> Iterable[tuple]:
    for pairs in op.reads().values():
        for offset, value in pairs:
            yield (key, op.index, op.type, op.end_ns, offset, json.dumps(value), pairs.end)


def lengths(op: Interval, key: str) -> Iterable[tuple]:
    if op.f in ("end", "empty", "start") and op.type == "ok":
        yield (key, op.index, op.f, op.value, op.start_ns, op.end_ns)


def log_starts(op: Interval, key: str) -> Iterable[tuple]:
    if op.f == "start" and op.type == "ok":
        yield (key, op.value)
    for _, start in per_key(op, (op.evidence or {}).get("log_start")):
        yield (key, start)


def tables(spark, histories: dict[str, list[Interval]]) -> Tables:
    made = []
    for rows, schema in (
        (sends, SENDS),
        (reads, READS),
        (lengths, LENGTHS),
        (log_starts, LOG_STARTS),
    ):
        found = [row for key, ops in histories.items() for op in ops for row in rows(op, key)]
        made.append(spark.createDataFrame(found, schema))
    return Tables(*made)


def grouped() -> list[tuple[str, bool, list[str]]]:
    """Shapes that can be judged together: of one mode, dense or sparse."""
    found: dict[tuple[str, bool], list[str]] = {}
    for name, shape in SHAPES.items():
        found.setdefault((shape.mode, not shape.sparse), []).append(name)
    return [(mode, dense, names) for (mode, dense), names in found.items()]


@pytest.mark.parametrize(("mode", "dense", "names"), grouped())
def test_the_verdicts_are_those_of_one_process(spark, mode, dense, names):
    histories, first_ends, expected = {}, {}, {}
    unpolled = dense  # so that both are played
    for name in names:
        for seed in range(HISTORIES):
            options, operations = generate(random.Random(f"spark-{name}-{seed}"), SHAPES[name])
            options["final_read"] = unpolled or None
            key = f"{name}-{seed}/0"
            histories[key] = operations
            expected[key] = judge_in_parts([operations], options).get(KEY)
            if KEY in options.get("first_end", {}):
                first_ends[key] = options["first_end"][KEY]
    judged = judge_tables(
        spark,
        tables(spark, histories),
        mode=mode,
        dense=dense,
        first_ends=first_ends,
        block=3,
        unpolled=unpolled,
    )
    invalid = 0
    for key, found in expected.items():
        mine = judged.get(key)
        if mine is None or found is None:
            assert found is None or not any(found.counts.values()), key
            assert mine is None or not any(mine.counts.values()), key
            continue
        assert dict(mine.counts) == dict(found.counts), (key, histories[key])
        assert mine.first == found.first, (key, histories[key])
        assert not mine.undecided
        invalid += any(found.counts.values())
    assert len(names) * 5 < invalid < len(names) * HISTORIES
