"""Seeds on Spark: every seed once, in order, the same outcome as here, stopped when told to."""

from functools import partial

import pytest
from raftlog_sim.commands.sweep import run_seed
from raftlog_sim.hunting import spark_sweep

pytestmark = [pytest.mark.needs_command("java"), pytest.mark.filterwarnings("ignore")]


def play(seed: int, factor: int) -> int:
    return seed * factor


def nothing() -> None:
    return None


def never() -> bool:
    return False


def test_every_seed_once_and_in_order(spark):
    costs = spark_sweep.Costs()
    calls = [(seed, 3) for seed in range(100)]
    found = list(spark_sweep.rows("local[2]", calls, play, nothing, never, costs))
    assert found == [seed * 3 for seed in range(100)]
    assert (costs.seeds, costs.cores) == (100, 2)
    assert costs.tasks < 100  # the first wave has a seed a task, later ones many
    assert "100 seeds in" in costs.text()
    assert spark.range(3).count() == 3  # a session that was there before stays


def test_a_sweep_stops_between_waves(spark):
    answers = iter([False, True])
    costs = spark_sweep.Costs()
    calls = ((seed, 1) for seed in range(10**9))
    found = list(spark_sweep.rows("local[2]", calls, play, nothing, partial(next, answers), costs))
    assert found == list(range(2 * spark_sweep.TASKS_A_CORE))


def test_a_seed_is_the_same_there_as_here(spark):
    calls = [(3, "swarm", "brokers", "", False, False)]
    costs = spark_sweep.Costs()
    (there,) = spark_sweep.rows("local[2]", calls, run_seed, nothing, never, costs)
    here = run_seed(*calls[0])
    assert (there.trace_hash, there.failure, there.events) == (
        here.trace_hash,
        here.failure,
        here.events,
    )


@pytest.mark.parametrize(
    ("busy", "seeds", "expected"), [(0.0, 0, 1000), (10.0, 100, 10), (50.0, 5, 1)]
)
def test_a_task_gets_about_a_second_of_seeds(busy, seeds, expected):
    costs = spark_sweep.Costs(seeds=seeds, busy_seconds=busy)
    assert spark_sweep._next_size(costs) == expected
