"""The command line of `scripts/bench`."""

import argparse
from pathlib import Path

from benches import (
    consuming,
    creating,
    failing,
    grouping,
    idling,
    latency,
    measuring,
    producing,
    scaling,
    sealing,
    simulating,
    starting,
)

TOTAL = 200_000_000


def run(name: str, rounds: int, *, compiled: bool) -> dict:
    """Measure one thing."""
    if name == "produce":
        return producing.compare(name, rounds, 1024, 1_000_000, TOTAL)
    if name == "small-records":
        return producing.compare(name, rounds, 100, 1_000_000, TOTAL // 4)
    if name == "small-batches":
        return producing.compare(name, rounds, 1024, 16_384, TOTAL // 2)
    if name == "consume":
        return consuming.compare(rounds)
    if name == "latency":
        return latency.compare(rounds)
    if name == "create":
        return creating.measure(rounds)
    if name == "idle":
        return idling.measure(rounds)
    if name == "scale":
        return scaling.measure(rounds)
    if name == "groups":
        return grouping.measure(rounds)
    if name == "seal":
        return sealing.compare(rounds)
    if name == "start":
        return starting.measure(rounds)
    if name == "simulator":
        return simulating.measure(rounds, trio=not compiled)
    return failing.measure(rounds)


NAMES = [
    "produce",
    "small-records",
    "small-batches",
    "consume",
    "latency",
    "create",
    "failover",
    "idle",
    "scale",
    "groups",
    "seal",
    "start",
    "simulator",
]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description="Measure a three-broker cluster as ratios, and the simulator.",
        epilog="Example: scripts/bench produce latency --rounds 5 --out bench.json",
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], help="what to measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument(
        "--compiled", type=Path, metavar="DIR",
        help="measure the simulator as scripts/compile made it there",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    compiled = options.compiled is not None
    if compiled and options.names != ["simulator"]:
        parser.error("--compiled is for simulator alone")
    results: dict[str, object] = {}
    print(f"hardware: {measuring.hardware()}")
    for name in options.names or NAMES:
        print(name)
        results[name] = run(name, options.rounds, compiled=compiled)
        if options.out:
            measuring.save(results, options.out)
    return 0
