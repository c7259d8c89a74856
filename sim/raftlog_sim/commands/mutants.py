"""`raftlog sim mutants`: planted bugs that must be caught, and the table of who caught them."""

import argparse
from pathlib import Path
from statistics import median
from typing import Any, Final

from raftlog_sim import mutation
from raftlog_sim.commands import common

BUDGET: Final = 60
SURVIVED: Final = "SURVIVED"


def add(parsers: common.Parsers) -> None:
    """`mutants`."""
    mutants = common.add_command(
        parsers, "mutants", _mutants, "planted bugs that must be caught", "mutants 1 3"
    )
    mutants.add_argument("numbers", nargs="*", metavar="NUMBER")
    mutants.add_argument("--budget", type=int, default=BUDGET, help="seeds for each")
    mutants.add_argument("--from", dest="first", type=int, default=1, help="the first seed")
    mutants.add_argument("--kills", type=int, default=1, help="go on for so many failing seeds")
    mutants.add_argument(
        "--shrink",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="shrink the first one, for that much CPU time",
    )
    mutants.add_argument(
        "--seconds", type=float, default=600.0, help="CPU time for each, shrinking not counted"
    )
    mutants.add_argument("--table", type=Path, metavar="FILE", help="write a Markdown table")
    mutants.add_argument("--list", action="store_true", help="only list them")


def _mutants(options: argparse.Namespace) -> int:
    found = mutation.load()
    unknown = [number for number in options.numbers if number not in found]
    if unknown:
        raise common.UsageError(f"no mutant {unknown[0]}; there are {', '.join(found)}")
    if options.list:
        return _list(found, options)
    plan = mutation.Hunt(
        budget=options.budget,
        first=options.first,
        kills=options.kills,
        shrink_seconds=options.shrink,
        seconds=options.seconds,
    )
    rows = []
    wanted = options.numbers or list(found)
    with common.bar("mutants", len(wanted)) as advance:
        for number in wanted:
            row = mutation.hunt(number, plan)
            rows.append(row)
            advance(1)
            if options.format == "text":
                print(_line(row), flush=True)
    if options.table is not None:
        options.table.write_text(table(rows, plan), encoding="utf-8")
    if options.format == "json":
        common.print_json({"mutants": rows})
    return common.DONE if all(row["killed"] for row in rows) else common.FAILED


def _list(found: dict[str, mutation.Mutant], options: argparse.Namespace) -> int:
    if options.format == "json":
        rows = [{"number": each.number, "name": each.name} for each in found.values()]
        common.print_json({"mutants": rows})
    else:
        for each in found.values():
            print(f"{each.number:4} {each.name}")
    return common.DONE


def _line(row: dict[str, Any]) -> str:
    killed = SURVIVED
    if row["killed"]:
        killed = f"killed by {_by(row)} at seed {row['seeds'][0]}"
    shrunk = row.get("shrunk")
    if shrunk:
        killed += (
            f"; {shrunk['steps'][0]} steps became {shrunk['steps'][1]} in {shrunk['seconds']} s"
        )
    return f"{row['number']:4} {row['name']:40} {killed} ({row['tried']} seeds, {row['seconds']} s)"


def _by(row: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}{'' if count == 1 else f' x {count}'}" for name, count in row["by"].items()
    )


def table(rows: list[dict[str, Any]], plan: mutation.Hunt) -> str:
    """The score table, as Markdown."""
    lines = [
        "| mutant | caught by | first seed | seeds to a kill | shrunk: steps, events, time |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"{row['number']} {row['name'].replace('-', ' ')}"
        if not row["killed"]:
            lines.append(f"| {name} | **not within {row['tried']} seeds** | | | |")
            continue
        gaps = [
            later - earlier
            for earlier, later in zip([plan.first - 1, *row["seeds"]], row["seeds"], strict=False)
        ]
        shrunk = row.get("shrunk")
        small = ""
        if shrunk:
            small = f"{shrunk['steps'][0]} → {shrunk['steps'][1]}, "
            small += f"{shrunk['events'][0]} → {shrunk['events'][1]}, {shrunk['seconds']:.0f} s"
        lines.append(f"| {name} | {_by(row)} | {row['seeds'][0]} | {median(gaps):.0f} | {small} |")
    return "\n".join(lines) + "\n"
