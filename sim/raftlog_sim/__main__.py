"""`python -m raftlog_sim`: run, sweep, mutants. `raftlog sim` runs this as a process of its own.

    run --seed N [--profile P] [--double-check] [--out DIR]     one seed; a run folder with --out
    sweep --seeds A..B [--jobs J] [--time-limit S]              many seeds
    mutants [--budget N] [NUMBER ...]                           planted bugs: each must be caught

Exit codes: 0 all well, 1 something failed, 2 a determinism check disagreed, 64 wrong usage.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from raftlog_sim import mutation
from raftlog_sim.options import PROFILES, draw_options
from raftlog_sim.simulation import Result, simulate

FAILED: Final = 1
DISAGREED: Final = 2
USAGE: Final = 64
MUTANT_BUDGET: Final = 60
_HASH_SEED: Final = "PYTHONHASHSEED"


def main(arguments: list[str]) -> int:
    """Run a command; its exit code."""
    options = _parser().parse_args(arguments)
    command = {"run": _run, "sweep": _sweep, "mutants": _mutants}[options.command]
    return command(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="raftlog sim",
        description="Whole clusters from a seed: the product's own brokers in virtual time.",
        epilog="Example: raftlog sim run --seed 42 --double-check",
    )
    parser.error = _usage_error  # type: ignore[method-assign, assignment]
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run one seed", epilog="Example: run --seed 42")
    run.add_argument("--seed", type=int, required=True)
    run.add_argument("--double-check", action="store_true", help="again under other hash seeds")
    run.add_argument("--out", type=Path, help="write a run folder here")
    sweep = commands.add_parser(
        "sweep", help="run many seeds", epilog="Example: sweep --seeds 1..100"
    )
    sweep.add_argument("--seeds", type=_range, required=True, metavar="A..B")
    sweep.add_argument("--jobs", type=int, default=2)
    sweep.add_argument("--time-limit", type=float, default=float("inf"), metavar="SECONDS")
    mutants = commands.add_parser(
        "mutants", help="planted bugs that must be caught", epilog="Example: mutants 1 3"
    )
    mutants.add_argument("numbers", nargs="*", type=int)
    mutants.add_argument("--budget", type=int, default=MUTANT_BUDGET, help="seeds for each")
    for each in (run, sweep):
        each.add_argument("--profile", choices=PROFILES, default="swarm")
    for each in (run, sweep, mutants):
        each.add_argument("--format", choices=("text", "json"), default="text")
        each.error = _usage_error  # type: ignore[method-assign, assignment]
    return parser


def _usage_error(message: str) -> None:
    print(f"raftlog sim: {message}", file=sys.stderr)
    raise SystemExit(USAGE)


def _range(text: str) -> range:
    low, dots, high = text.partition("..")
    if not dots or not (low.isdigit() and high.isdigit()) or int(low) > int(high):
        raise argparse.ArgumentTypeError(f"{text!r} is not A..B")
    return range(int(low), int(high) + 1)


# --- run
# --------------------------------------------------------------------------------------------


def _run(options: argparse.Namespace) -> int:
    chosen = draw_options(options.seed, options.profile)
    if options.format == "text":
        print(f"options: {json.dumps(chosen.document())}")
    result = simulate(chosen)
    if options.out is not None:
        _write_folder(options.out, result)
    agreed = True
    if options.double_check:
        agreed = all(
            _hash_elsewhere(options, hash_seed) == result.trace_hash for hash_seed in ("1", "2")
        )
    if options.format == "json":
        print(json.dumps({"version": 1, **result.document(), "double_check": agreed}))
    else:
        _print_result(result, options, agreed=agreed)
    if not agreed:
        return DISAGREED
    return FAILED if result.failure else 0


def _hash_elsewhere(options: argparse.Namespace, hash_seed: str) -> str:
    """The trace hash of the same seed in a process of its own, under another hash seed."""
    done = subprocess.run(
        [sys.executable, "-m", "raftlog_sim", "run", "--seed", str(options.seed),
         "--profile", options.profile, "--format", "json"],
        env={**os.environ, _HASH_SEED: hash_seed},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    return str(json.loads(done.stdout)["trace_hash"]) if done.stdout else done.stderr


def _print_result(result: Result, options: argparse.Namespace, *, agreed: bool) -> None:
    print(
        f"seed {result.options.seed}: {result.failure or 'ok'}; trace {result.trace_hash}, "
        f"{result.events} events, {result.simulated_ns / 1e9:.1f} simulated s, "
        f"{result.acknowledged} of {result.sent} records acknowledged, faults {result.faults}"
    )
    if options.double_check:
        print("the same trace under three hash seeds" if agreed else "TRACES DIFFER")
    if result.failure:
        print(f"replay: raftlog sim run --seed {options.seed} --profile {options.profile}")


def _write_folder(folder: Path, result: Result) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {
        "version": 1,
        "command": ["raftlog", "sim", "run", "--seed", str(result.options.seed)],
        "seed": result.options.seed,
        "metrics": {"events": result.events, "simulated_ns": result.simulated_ns},
        "probes": result.probes,
        **{key: value for key, value in result.document().items() if key != "seed"},
    }
    (folder / "run.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (folder / "history.jsonl").write_text(result.history)
    verdict: dict[str, Any] = {"version": 1, "verdict": "invalid", "invariants": result.invariants}
    if result.verdict is not None:
        verdict = result.verdict.document(result.invariants)
    (folder / "verdict.json").write_text(json.dumps(verdict, indent=1) + "\n")


# --- sweep
# ------------------------------------------------------------------------------------------


def run_seed(seed: int, profile: str) -> tuple[int, str, str, int, int]:
    """One seed in a worker: seed, failure, trace hash, events, simulated time."""
    gc.disable()
    result = simulate(draw_options(seed, profile))
    gc.enable()
    gc.collect()
    return seed, result.failure, result.trace_hash, result.events, result.simulated_ns


def _sweep(options: argparse.Namespace) -> int:
    began = time.perf_counter()
    failures: list[tuple[int, str]] = []
    events = simulated = done = 0
    for seed, failure, _, seed_events, seed_ns in _results(options, began):
        done, events, simulated = done + 1, events + seed_events, simulated + seed_ns
        if failure:
            failures.append((seed, failure))
            if options.format == "text":
                print(f"seed {seed}: {failure}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{done} of {len(options.seeds)} seeds", end="", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - began
    classes = Counter(failure.partition(":")[0] for _, failure in failures)
    document = {
        "version": 1,
        "seeds": done,
        "failures": [{"seed": seed, "failure": failure} for seed, failure in failures],
        "classes": dict(sorted(classes.items())),
        "seconds": round(seconds, 1),
        "seeds_per_hour": round(done / seconds * 3600),
        "events_per_second": round(events / seconds),
        "simulated_seconds": round(simulated / 1e9, 1),
    }
    if options.format == "json":
        print(json.dumps(document))
    else:
        print(
            f"{done} seeds, {len(failures)} failed {dict(classes) or ''}: {seconds:.1f} s, "
            f"{document['seeds_per_hour']} seeds an hour, {document['events_per_second']} events "
            f"a second, {simulated / 1e9:.0f} simulated s"
        )
        for seed, _ in failures[:5]:
            print(f"replay: raftlog sim run --seed {seed} --profile {options.profile}")
    return FAILED if failures or not done else 0


def _results(options: argparse.Namespace, began: float) -> Iterator[tuple[int, str, str, int, int]]:
    if options.jobs == 1:
        for seed in options.seeds:
            if time.perf_counter() - began > options.time_limit:
                return
            yield run_seed(seed, options.profile)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = []
        seeds = iter(options.seeds)
        for seed in seeds:
            waiting.append(pool.submit(run_seed, seed, options.profile))
            if len(waiting) >= 2 * options.jobs:
                yield waiting.pop(0).result()
            if time.perf_counter() - began > options.time_limit:
                break
        for each in waiting:
            yield each.result()


# --- mutants
# ----------------------------------------------------------------------------------------


def _mutants(options: argparse.Namespace) -> int:
    found = mutation.load()
    wanted = options.numbers or sorted(found)
    unknown = [number for number in wanted if number not in found]
    if unknown:
        _usage_error(f"no mutant {unknown[0]}; there are {sorted(found)}")
    rows = []
    for number in wanted:
        row = mutation.hunt(found[number], options.budget)
        rows.append(row)
        if options.format == "text":
            killed = f"killed by {row['by']} at seed {row['seed']}" if row["by"] else "SURVIVED"
            print(f"{number:3} {row['name']:40} {killed}", flush=True)
    if options.format == "json":
        print(json.dumps({"version": 1, "mutants": rows}))
    return FAILED if any(not row["by"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
