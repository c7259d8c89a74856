"""`raftlog sim steps`: prints what a scenario says, step by step.

Other programs play it (`raftlog chaos`) and need no second reader of its language.
"""

import argparse
from pathlib import Path

from raftlog.base.errors import OperatingError
from raftlog_sim.commands import common
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import read_text


def add(parsers: common.Parsers) -> None:
    """Add `steps` to the commands."""
    parser = common.add_command(
        parsers, "steps", _steps, "the settings and steps of a scenario, each with its line",
        "steps leader-dies.txt --format json",
    )  # fmt: skip
    parser.add_argument("file", type=Path, help="a scenario")


def _steps(options: argparse.Namespace) -> int:
    path: Path = options.file
    try:
        told = _told(path)
    except OperatingError as error:
        raise common.refused(error) from None
    if options.format == "json":
        common.print_json(
            {
                "name": path.stem,
                "settings": [
                    {"line": line, "name": name, "value": value}
                    for line, name, value in told.settings
                ],
                "steps": [{"line": line, **step.document()} for line, step in told.steps],
            }
        )
        return common.DONE
    for line, name, value in told.settings:
        print(f"line {line}: set {name} {value}")
    for line, step in told.steps:
        print(f"line {line}: {step}")
    return common.DONE


def _told(path: Path) -> scenario_files.Told:
    try:
        text = read_text(path)
    except OperatingError as error:
        raise OperatingError(error.what, on=error.on, do="give the file of a scenario") from None
    if not scenario_files.is_scenario(text):
        raise OperatingError(
            "it is no scenario", on=str(path), do="write a line for each step: 100 crash node=n1"
        )
    return scenario_files.told(str(path), text)
