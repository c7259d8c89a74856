"""Measure the judge: operations a second and peak memory, on a synthetic valid history.

    scripts/bench_verify [--operations 1000000] [--runs 5] [--kind mixed|sends|batches] [--json]

An operation is a call with its return (two lines). Three figures, each the median of the runs with
its spread: reading and pairing the lines, judging what is in memory, and both together; in CPU
seconds, for the machine may be shared. Each run is a process of its own, so the peak memory is that
of one judgement.
"""

import argparse
import gc
import json
import platform
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from raftlog.verify import HistoryReader, intervals, judge_operations  # noqa: E402

PARTITIONS = 8
PROCESSES = 40
POLL_RECORDS = 20


def lines(operations: int, kind: str, seed: int) -> Iterator[str]:
    """Yields a valid history: processes take turns; every operation's point is its completion."""
    rng = random.Random(seed)
    options = {"read_consistency": "linearizable", "consumer": "assign", "pipelined": True}
    header = {"format": 1, "source": "sim", "seed": seed, "model": "log", "options": options}
    yield json.dumps(header) + "\n"
    logs: list[list[str]] = [[] for _ in range(PARTITIONS)]
    read_to = [[0] * PARTITIONS for _ in range(PROCESSES)]
    number = index = now = 0
    open_ops: list[tuple[int, str, int, object]] = []
    free = list(range(PROCESSES))
    started = 0
    while started < operations or open_ops:
        now += rng.randint(100, 2000)
        if started < operations and free and (not open_ops or rng.random() < 0.5):
            process = free.pop(rng.randrange(len(free)))
            part = rng.randrange(PARTITIONS)
            poll = kind == "mixed" and rng.random() < 0.3
            value: object = None
            if not poll:
                size = 10 if kind == "batches" else 1
                value = [f"k{number + at}#{number + at}" for at in range(size)]
                number += size
                value = value if size > 1 else value[0]
            f = "poll" if poll else "send"
            key = None if poll else f"orders/{part}"
            line = {"index": index, "time_ns": now, "process": process, "type": "invoke"}
            yield json.dumps({**line, "f": f, "key": key, "value": value}) + "\n"
            open_ops.append((process, f, part, value))
            started += 1
        else:
            process, f, part, value = open_ops.pop(rng.randrange(len(open_ops)))
            free.append(process)
            key = None
            if f == "send":
                key = f"orders/{part}"
                base = len(logs[part])
                logs[part].extend(value if isinstance(value, list) else [str(value)])
                answer: object = [base, value]
            else:
                first = read_to[process][part]
                last = min(first + POLL_RECORDS, len(logs[part]))
                read_to[process][part] = last
                pairs = [[at, logs[part][at]] for at in range(first, last)]
                answer = {f"orders/{part}": pairs}
            line = {"index": index, "time_ns": now, "process": process, "type": "ok"}
            yield json.dumps({**line, "f": f, "key": key, "value": answer}) + "\n"
        index += 1
    for part, log in enumerate(logs):  # a last read of each log, so that nothing stays unseen
        for first in range(0, len(log), 500):
            now += 1000
            pairs = [[at, log[at]] for at in range(first, min(first + 500, len(log)))]
            line = {"index": index, "time_ns": now, "process": PROCESSES + part, "type": "invoke"}
            yield json.dumps({**line, "f": "poll", "key": None, "value": None}) + "\n"
            line = {**line, "index": index + 1, "time_ns": now + 500, "type": "ok"}
            answer = {f"orders/{part}": pairs}
            yield json.dumps({**line, "f": "poll", "key": None, "value": answer}) + "\n"
            index += 2


def one_run(path: Path) -> None:
    """Judge the history at `path` in this process and print the figures."""
    gc.disable()  # as `judge` does
    with path.open("rb") as stream:
        begin = time.process_time()
        reader = HistoryReader(stream)
        operations, nemesis = intervals(reader)
        paired = time.process_time()
        judgement = judge_operations(reader.header, operations, nemesis, with_metrics=False)
        done = time.process_time()
    verdict = judgement.verdict
    bad = [result.name for result in verdict.failures()]
    print(
        json.dumps(
            {
                "operations": len(operations),
                "read_s": paired - begin,
                "judge_s": done - paired,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "failures": bad,
            }
        )
    )


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} (from {min(values):,.0f} to {max(values):,.0f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--kind", choices=("mixed", "sends", "batches"), default="mixed")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--one-run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--dir", type=Path, default=ROOT / "build", help="for the history")
    options = parser.parse_args()
    if options.one_run:
        one_run(options.one_run)
        return 0
    options.dir.mkdir(exist_ok=True)
    path = options.dir / f"bench_verify-{options.kind}-{options.operations}.jsonl"
    if not path.exists():
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(lines(options.operations, options.kind, 1))
    runs = []
    for _ in range(options.runs):
        command = [sys.executable, __file__, "--one-run", str(path)]
        runs.append(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))
    count = runs[0]["operations"]
    figures = {
        "read_per_s": [count / run["read_s"] for run in runs],
        "judge_per_s": [count / run["judge_s"] for run in runs],
        "both_per_s": [count / (run["read_s"] + run["judge_s"]) for run in runs],
        "peak_mb": [run["peak_mb"] for run in runs],
    }
    if options.json:
        machine = f"{platform.machine()}, Python {platform.python_version()}"
        document = {"version": 1, "kind": options.kind, "operations": count, "machine": machine}
        print(json.dumps({**document, "figures": figures, "failures": runs[0]["failures"]}))
    else:
        print(f"{count:,} operations ({2 * count:,} lines), {options.kind}, {options.runs} runs")
        for name, values in figures.items():
            print(f"  {name:12} {spread(values)}")
    return 1 if any(run["failures"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
