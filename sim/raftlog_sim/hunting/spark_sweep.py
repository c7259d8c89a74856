"""Seeds on Spark: the same rows as the local sweep, from as many machines as the master has.

Tasks carry the seeds, and waves carry the tasks. Starting a Python task costs some 25 ms, so a task
gets about a second of seeds, measured on the wave before. A wave is a few tasks for each core, so
that the wait for its last one is short. Rows come back in the order of their seeds, wave by wave. A
worker ends with its task, so a leak in a seed ends there too.

Workers import raftlog_sim: on a cluster it must be installed on every machine, for the same
Python. This is the only file of the simulator that imports pyspark.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar, final

import attrs

from raftlog.base.amounts import amount

Row = TypeVar("Row")
Call = tuple[Any, ...]

TASKS_A_CORE: Final = 4
FIRST_SEEDS_A_TASK: Final = 1
TASK_SECONDS: Final = 1.0
SEEDS_A_TASK_MAX: Final = 1_000


@final
@attrs.define(eq=False)
class Costs:
    """The cost of the fan-out, beside the seeds themselves."""

    cores: int = 0
    seeds: int = 0
    tasks: int = 0
    busy_seconds: float = 0.0
    """Seconds in which workers played seeds, summed over workers."""
    wall_seconds: float = 0.0

    def text(self) -> str:
        """Returns one line for people."""
        over = max(0.0, self.wall_seconds * self.cores - self.busy_seconds)
        each = 1000 * over / max(1, self.seeds)
        return (
            f"Spark: {amount(self.seeds, 'seed')} in {amount(self.tasks, 'task')} on "
            f"{amount(self.cores, 'core')}; beside the "
            f"seeds {each:.1f} core-ms a seed"
        )


class _Played(NamedTuple):
    """The result of a task."""

    rows: list[Any]
    seconds: float


def rows(
    master: str,
    calls: Iterable[Call],
    play: Callable[..., Row],
    prepare: Callable[[], None],
    passed: Callable[[], bool],
    costs: Costs,
) -> Iterator[Row]:
    """Yields the result of `play(*call)` for every call, in order.

    It stops between waves when `passed()`. `prepare` is called once in each worker. The workers
    import both by their names.
    """
    context, mine = _context(master)
    try:
        costs.cores = context.defaultParallelism
        waiting, size = iter(calls), FIRST_SEEDS_A_TASK
        while not passed():
            wave = list(islice(waiting, costs.cores * TASKS_A_CORE * size))
            if not wave:
                return
            began = time.perf_counter()
            tasks = [wave[at : at + size] for at in range(0, len(wave), size)]
            work = partial(_work, play, prepare)
            found = context.parallelize(tasks, len(tasks)).mapPartitions(work).collect()
            costs.wall_seconds += time.perf_counter() - began
            _count(costs, wave, found)
            size = _next_size(costs)
            for played in found:
                yield from played.rows
    finally:
        if mine:
            context.stop()


def _work(
    play: Callable[..., Any], prepare: Callable[[], None], tasks: Iterator[Sequence[Call]]
) -> Iterator[_Played]:
    """Play the calls of a task, in a worker."""
    prepare()
    for calls in tasks:
        began = time.perf_counter()
        played = [play(*call) for call in calls]
        yield _Played(played, time.perf_counter() - began)


def _count(costs: Costs, wave: Sequence[Call], found: Sequence[_Played]) -> None:
    costs.seeds += len(wave)
    costs.tasks += len(found)
    costs.busy_seconds += sum(played.seconds for played in found)


def _next_size(costs: Costs) -> int:
    """Returns how many seeds take a task about TASK_SECONDS."""
    each = costs.busy_seconds / max(1, costs.seeds)
    return max(1, min(SEEDS_A_TASK_MAX, int(TASK_SECONDS / max(each, 1e-6))))


def _context(master: str) -> tuple[Any, bool]:
    """Returns the running context, or one of our own, and whether it is our own."""
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - the local sweep needs no Spark

    running = SparkContext._active_spark_context
    if running is not None:
        return running, False
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "false",
    }
    conf = SparkConf().setMaster(master).setAppName("raftlog sim sweep").setAll(settings.items())
    context = SparkContext(conf=conf)
    context.setLogLevel("ERROR")
    return context, True
