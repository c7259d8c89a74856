"""`raftlog sim run` and `replay`: one case, a run folder, and whether two processes agree."""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from raftlog_sim.base.outcome import Outcome
from raftlog_sim.commands import common
from raftlog_sim.commands.telling import option_lines
from raftlog_sim.hunting import scenarios
from raftlog_sim.playing.cases import Case
from raftlog_sim.playing.divergence import first_divergence, turn_lines
from raftlog_sim.playing.run_folder import (
    REPORT,
    Circumstances,
    new_folder,
    report,
    utc_text,
    write,
)
from raftlog_sim.playing.seeds import drawn

_HASH_SEEDS: Final = ("1", "2")


def add(parsers: common.Parsers) -> None:
    """Add `run` and `replay` to the commands."""
    run = common.add_command(parsers, "run", _run, "run one seed", "run --seed 42 --double-check")
    run.add_argument(
        "--seed", type=common.seed, required=True, metavar="N",
        help="the number that decides everything; may be negative",
    )  # fmt: skip
    common.add_drawing(run)
    replay = common.add_command(
        parsers, "replay", _replay, "run a schedule, a plan or a run folder again",
        "replay runs/latest",
    )  # fmt: skip
    replay.add_argument("file", type=Path, help=common.CASE_HELP)
    common.add_mutant(replay)
    for each in (run, replay):
        each.add_argument(
            "--double-check", action="store_true",
            help="again in two processes under other hash seeds; find where they part",
        )  # fmt: skip
        each.add_argument(
            "--out", type=Path, metavar="DIR",
            help="the run folder to write; default: a new one below runs/",
        )  # fmt: skip
        each.add_argument("--no-folder", action="store_true", help="write no run folder")
        each.add_argument("--report", action="store_true", help="also report.html in the folder")
        each.add_argument(
            "--probes", action="store_true", help="say which rare paths of the product it passed"
        )
    turns = common.add_command(
        parsers,
        "turns",
        _turns,
        "print a line a turn of a run, to compare two",
        "turns runs/latest",
    )
    common.add_source(turns)


def _run(options: argparse.Namespace) -> int:
    common.switch_on(options.mutant)
    options.file = None
    return _play(options, drawn(options.seed, options.profile, options.subject))


def _replay(options: argparse.Namespace) -> int:
    options.seed = None
    return _play(options, common.case_of(options))


def _play(options: argparse.Namespace, case: Case) -> int:
    if not options.no_folder:
        common.check_folder(options.out)
    if options.format == "text":
        print("\n".join(option_lines(case)))
    began, start = utc_text(), time.perf_counter_ns()
    gc.disable()
    outcome = case.play(trace=not options.no_folder)
    gc.enable()
    folder = None
    if not options.no_folder:
        folder = new_folder("sim", outcome.seed, options.out)
        circumstances = Circumstances(
            command=("raftlog", "sim", *sys.argv[1:]),
            began=began,
            real_ns=time.perf_counter_ns() - start,
            mutant=options.mutant,
        )
        write(folder, case, outcome, circumstances)
        if options.report:
            report(folder, outcome)
    parted = _double_check(case, outcome, options) if options.double_check else ""
    differs = _unexpected(options, outcome)
    _tell(options, case, outcome, folder, parted, differs)
    if parted:
        return common.DISAGREED
    if differs is not None:
        return common.FAILED if differs else common.DONE
    return common.FAILED if outcome.failure else common.DONE


def _unexpected(options: argparse.Namespace, outcome: Outcome) -> list[str] | None:
    """Returns how a scenario's run differs from what its file expects.

    It is None for a file that expects nothing, and with a planted bug, for which the lines do not
    hold.
    """
    scenario = getattr(options, "scenario", None)
    if scenario is None or not scenario.expected_plain or options.mutant:
        return None
    return scenarios.differences(scenario, outcome)


def _tell(
    options: argparse.Namespace,
    case: Case,
    outcome: Outcome,
    folder: Path | None,
    parted: str,
    differs: list[str] | None,
) -> None:
    if options.format == "json":
        said = {"signature": outcome.signature, "digest": outcome.digest}
        document: dict[str, Any] = {**outcome.document, **said}
        if differs is not None:
            document |= {"as_expected": not differs, "differences": differs}
        if options.probes:
            document |= {"probes": dict(sorted(outcome.probes.items()))}
        if options.double_check:
            document |= {"double_check": not parted, "first_divergence": parted}
        common.print_json({**document, "folder": None if folder is None else str(folder)})
        return
    common.tell(outcome, case)
    scenario = getattr(options, "scenario", None)
    if scenario is not None and not scenario.expected_plain:
        print("nothing was expected: the file has no line that begins with =>")
    if differs is not None:
        print("\n    ".join(("not as the file expects:", *differs)) if differs else "as expected")
    if options.probes:
        passed = "".join(f"\n  {name} {n}" for name, n in sorted(outcome.probes.items()))
        print(f"rare paths passed, and how often:{passed or ' none'}")
    if options.double_check:
        print(parted or "the same run under three hash seeds")
    if folder is not None:
        print(f"run folder: {folder}")
        if outcome.failure:
            print(f"shrink: raftlog sim shrink {folder / case.file_name}")
            print(f"debug:  raftlog sim debug {folder / case.file_name}")
        page = folder / REPORT if options.report else f"raftlog verify {folder} --report {REPORT}"
        print(f"report: {page}")


# --- the same bytes in other processes ------------------------------------------------------------


def _double_check(case: Case, outcome: Outcome, options: argparse.Namespace) -> str:
    """Play the case in two more processes; returns where their traces part, "" when they agree."""
    for hash_seed in _HASH_SEEDS:
        if played_elsewhere(case, options.mutant, hash_seed)["digest"] != outcome.digest:
            here = os.environ.get("PYTHONHASHSEED", "0")
            one, other = (
                _elsewhere(["turns"], case, options.mutant, each) for each in (here, hash_seed)
            )
            parted = first_divergence(one.splitlines(), other.splitlines())
            return parted or "the same trace, but other histories, verdicts, counts or failures"
    return ""


def played_elsewhere(case: Case, mutant: str, hash_seed: str) -> dict[str, Any]:
    """Play a case in a process of its own; returns its document, with the outcome's `digest`.

    When the process gave no answer, the `failure` is of class worker-died.
    """
    found = _elsewhere(["replay", "--no-folder", "--format", "json"], case, mutant, hash_seed)
    try:
        said = json.loads(found)
    except ValueError:
        said = None
    if isinstance(said, dict) and "digest" in said:
        return said
    return {"digest": "", "failure": f"worker-died: {found[-300:]}"}


def _elsewhere(command: list[str], case: Case, mutant: str, hash_seed: str) -> str:
    with tempfile.TemporaryDirectory(prefix="raftlog-sim-") as home:
        path = Path(home) / case.file_name
        path.write_text(case.text(), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "raftlog_sim", *command, str(path), "--mutant", mutant],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stdout or done.stderr


def _turns(options: argparse.Namespace) -> int:
    lines = turn_lines(common.case_of(options))
    if options.format == "json":
        common.print_json({"turns": lines})
        return common.DONE
    for line in lines:
        print(line)
    return common.DONE
