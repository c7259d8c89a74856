"""`raftlog sim mutants --patch FILE`: a bug of a user's own, planted in a copy of the product."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.commands import common, judge_table, own_scenarios
from raftlog_sim.commands.names import no_such
from raftlog_sim.hunting import patched_hunt
from raftlog_sim.hunting.mutation import Hunt
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.scenario_files import Scenario
from raftlog_sim.schedules.options import PROFILES

ON: Final = "raftlog sim mutants"


def add_to(mutants: argparse.ArgumentParser) -> None:
    """Add the options to the command."""
    mutants.add_argument(
        "--patch", type=Path, action="append", default=[], metavar="FILE",
        help="a bug of your own: a unified diff of raftlog/, applied to a copy and hunted on seeds "
        "and then on all named scenarios, until one fails that passes without it; may be repeated",
    )  # fmt: skip
    mutants.add_argument(
        "--scenario", action="append", default=[], metavar="NAME|FILE|FOLDER",
        help="with --patch: play these scenarios, before the seeds, and no others; may be repeated",
    )  # fmt: skip


def check(options: argparse.Namespace) -> None:
    """Raise `UsageError` for options that exclude each other."""
    if options.scenario and not options.patch:
        raise common.UsageError("--scenario needs --patch FILE", ON)
    if options.patch and options.score is not None:
        raise common.UsageError("--score keeps rows of numbered bugs only, none of --patch", ON)
    if options.patch and options.none:
        raise common.UsageError("--patch does not go with --none", ON)


def hunted(options: argparse.Namespace, plan: Hunt) -> list[dict[str, Any]]:
    """Hunt each patch and print its row when it is known; returns all rows.

    Raises `RefusedError` for a patch that does not apply.
    """
    if not options.patch:
        return []
    scenarios = _scenarios(options.scenario)
    rows = []
    with common.bar("patches", len(options.patch)) as advance:
        for patch in options.patch:
            row = _one(patch, plan, scenarios, named=bool(options.scenario))
            rows.append(row)
            advance(1)
            if options.format == "text":
                print(_line(row), flush=True)
    return rows


def all_decided(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether every row decides about its patch."""
    return all(map(patched_hunt.is_decided, rows))


def for_table(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the rows for the table of all mutants, where `killed` means: by a seed."""
    return [{**row, "killed": bool(row["seeds"])} for row in rows]


def _one(patch: Path, plan: Hunt, scenarios: list[Scenario], *, named: bool) -> dict[str, Any]:
    try:
        return patched_hunt.hunt(patch, plan, scenarios, scenarios_first=named)
    except OperatingError as error:
        raise common.refused(error) from None


def _scenarios(words: Sequence[str]) -> list[Scenario]:
    """Returns the named scenarios, or all of the checkout; none where there is no checkout."""
    known = scenario_files.names() if scenario_files.FOLDER.is_dir() else []
    if not words:
        return [scenario_files.load(name) for name in known]
    found = list[Scenario]()
    for word in words:
        if word in known:
            found.append(scenario_files.load(word))
        elif own_scenarios.is_path(word):
            try:
                found += [own_scenarios.load(path) for path in own_scenarios.files_of([word])]
            except OperatingError as error:
                raise common.refused(error) from None
        else:
            raise common.UsageError(no_such("scenario", word, known, f"{ON} --list"), ON)
    return found


def _line(row: dict[str, Any]) -> str:
    """Returns the row for people."""
    told = "SURVIVED"
    if row["seeds"]:
        profile = "" if row["profile"] == PROFILES[0] else f"{row['profile']} "
        told = f"killed by {judge_table.killers(row)} at {profile}seed {row['seeds'][0]}"
    for name, by in row["scenarios"].items():
        told = f"killed by {by} in scenario {name}"
    if not patched_hunt.is_decided(row):
        told = "UNDECIDED"
    if shrunk := row.get("shrunk"):
        told += f"; {amount(shrunk['steps'][0], 'step')} became {shrunk['steps'][1]}"
    tried = [amount(row["tried"], "seed")] if row["tried"] else []
    tried += [amount(row["played"], "scenario")] if row["played"] else []
    lines = [f"{row['number']} {row['name']:40} {told} ({', '.join(tried)})"]
    lines += [f"    {row['what']}"] if row["what"] and row["killed"] else []
    lines += [f"    fails without the patch, too: {each}" for each in row["without_patch"]]
    return "\n".join(lines)
