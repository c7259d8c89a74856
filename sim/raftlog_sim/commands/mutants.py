"""`raftlog sim mutants`: planted bugs that must be caught, and the table of who caught them."""

import argparse
import json
from pathlib import Path
from typing import Any, Final

from raftlog_sim import mutation, scenarios
from raftlog_sim.commands import common
from raftlog_sim.options import PROFILES

BUDGET: Final = 60
SURVIVED: Final = "SURVIVED"
BEGIN: Final = "<!-- table begins -->"
END: Final = "<!-- table ends -->"


def add(parsers: common.Parsers) -> None:
    """`mutants`."""
    mutants = common.add_command(
        parsers, "mutants", _mutants, "planted bugs that must be caught", "mutants 1 3"
    )
    mutants.add_argument("numbers", nargs="*", metavar="NUMBER")
    mutants.add_argument("--budget", type=int, default=BUDGET, help="seeds for each")
    mutants.add_argument("--from", dest="first", type=int, default=1, help="the first seed")
    mutants.add_argument(
        "--profile", choices=PROFILES, default="swarm", help="which seeds; mutants 35 need `trio`"
    )
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
    mutants.add_argument("--table", type=Path, metavar="FILE", help="put the table into a page")
    mutants.add_argument("--score", type=Path, metavar="FILE", help="rows of earlier runs, kept")
    mutants.add_argument("--none", action="store_true", help="hunt nothing, only make the table")
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
        profile=options.profile,
    )
    rows = []
    wanted = [] if options.none else options.numbers or list(found)
    with common.bar("mutants", len(wanted)) as advance:
        for number in wanted:
            row = mutation.hunt(number, plan)
            rows.append(row)
            advance(1)
            if options.format == "text":
                print(_line(row), flush=True)
    scored = rows if options.score is None else merged(options.score, rows)
    if options.table is not None:
        write_table(options.table, with_all(scored, found))
    if options.format == "json":
        common.print_json({"mutants": rows})
    return common.DONE if all(row["killed"] and _replays(row) for row in rows) else common.FAILED


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
    """Who caught it; where that is nobody of whom it was expected, of whom it was."""
    killers = ", ".join(
        f"{name}{'' if count == 1 else f' x {count}'}" for name, count in row["by"].items()
    )
    if row["by"].keys() & set(row["expected"]):
        return killers
    return f"{killers} (expected: {', '.join(row['expected'])})"


def _replays(row: dict[str, Any]) -> bool:
    """Whether its shrunk plan fails again in a process of its own, when there is one."""
    shrunk = row.get("shrunk")
    return not shrunk or bool(shrunk["replays"])


def table(rows: list[dict[str, Any]], named: dict[str, str]) -> str:
    """The score table, as Markdown. `named` tells per mutant which scenarios it fails."""
    lines = [
        "| mutant | caught in seeds by | first seed | seeds run | scenario | shrunk: steps, time |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"{row['number']} {row['name'].replace('-', ' ')}"
        by, seed = "**nothing**" if row["tried"] else "not hunted", ""
        if row["killed"]:
            by, seed = _by(row), str(row["seeds"][0])
        shrunk, small = row.get("shrunk"), ""
        if shrunk:
            small = f"{shrunk['steps'][0]} to {shrunk['steps'][1]}, {shrunk['seconds']:.0f} s"
            small += "" if _replays(row) else ", **does not replay**"
        scenario = named.get(row["number"], "")
        lines.append(f"| {name} | {by} | {seed} | {row['tried']} | {scenario} | {small} |")
    return "\n".join(lines) + "\n"


def with_all(rows: list[dict[str, Any]], found: dict[str, mutation.Mutant]) -> list[dict[str, Any]]:
    """A row for every mutant: those without one were not hunted."""
    known = {row["number"]: row for row in rows}
    return [
        known.get(each.number)
        or {"number": each.number, "name": each.name, "killed": False, "tried": 0}
        for each in found.values()
    ]


def scenario_kills() -> dict[str, str]:
    """Per mutant, the scenarios whose files say that it fails them."""
    found: dict[str, list[str]] = {}
    head = f"{scenarios.RESULT} mutant "
    for name in scenarios.names():
        for line in scenarios.load(name).expected:
            if line.startswith(head) and not line.endswith("SURVIVES"):
                found.setdefault(line.removeprefix(head).partition(":")[0], []).append(name)
    return {number: ", ".join(each) for number, each in found.items()}


def merged(score: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows of a score file, with these in the place of older ones; the file holds them."""
    known: dict[str, dict[str, Any]] = {}
    if score.exists():
        known = {row["number"]: row for row in json.loads(score.read_text(encoding="utf-8"))}
    known |= {row["number"]: row for row in rows}
    order = list(mutation.load())
    found = [known[number] for number in order if number in known]
    score.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def write_table(page: Path, rows: list[dict[str, Any]]) -> None:
    """Put the table between the two marks of a page that has them; else it is the page."""
    text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = table(rows, scenario_kills())
    page.write_text(f"{before}{BEGIN}\n\n{made}\n{END}{after}", encoding="utf-8")
