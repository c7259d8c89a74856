"""`raftlog sim scenarios`: list and run named and own scenarios, or rewrite their results."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.base.probe_names import missed_names
from raftlog_sim.commands import common, own_scenarios, scenario_junit
from raftlog_sim.commands.names import no_such
from raftlog_sim.hunting import scenarios
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import PYSYNCOBJ, why_no_guests

_NOTE: Final = "nothing was expected: the file has no line that begins with =>"
Wanted = tuple[scenario_files.Scenario, Path | None]
"""A scenario, and its file when it is a user's own."""


def add(parsers: common.Parsers) -> None:
    """Add `scenarios` to the commands."""
    parser = common.add_command(
        parsers, "scenarios", _scenarios,
        "run named scenarios, or your own, each against what it should give",
        "scenarios old-term-commit-by-count my-scenarios/",
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", metavar="NAME|FILE|FOLDER",
        help="named ones (--list; of a checkout), files of your own, or folders with *.txt; "
        "nothing: all named ones",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--show", action="store_true", help="print the files")
    parser.add_argument("--no-mutants", action="store_true", help="only without planted bugs")
    parser.add_argument(
        "--junit", type=Path, metavar="FILE", help="also a JUnit XML file, a test case a scenario"
    )
    common.add_probes(parser)
    parser.add_argument(
        "--rewrite", action="store_true", help="write down what came of them; review every line"
    )


def _scenarios(options: argparse.Namespace) -> int:
    wanted = _wanted(options)
    if options.list or options.show:
        return _listed(wanted, options)
    if options.junit is not None:
        scenario_junit.check(options.junit)
    rows, probes = [], Counter[str]()
    no_guests = why_no_guests()
    with common.bar("scenarios", len(wanted)) as advance:
        for scenario, path in wanted:
            if no_guests and scenario.subject == PYSYNCOBJ:
                rows.append(_skipped(scenario, options, no_guests))
            else:
                rows.append(_one(scenario, path, options, probes))
            advance(1)
    if options.junit is not None:
        scenario_junit.write(options.junit, rows)
    of_brokers = any(each.subject != PYSYNCOBJ for each, _ in wanted)
    missed = missed_names(probes) if of_brokers else []
    failed = sum(row["ok"] is False for row in rows)
    skipped = sum(row["ok"] is None for row in rows)
    if options.format == "json":
        told = {"probes": dict(sorted(probes.items())), "probes_missed": missed}
        common.print_json({"scenarios": rows, "failed": failed, "skipped": skipped, **told})
    else:
        left_out = f", {skipped} skipped ({no_guests})" if skipped else ""
        print(f"{amount(len(rows), 'scenario')}, {failed} failed{left_out}")
        if options.probes != "count" or any(path is None for _, path in wanted):
            common.tell_missed(options, missed)  # a user's few files cannot reach every rare path
    if failed or (missed and options.probes == "require"):
        return common.FAILED
    return common.DISAGREED if skipped == len(rows) else common.DONE


def _wanted(options: argparse.Namespace) -> list[Wanted]:
    """Returns the wanted scenarios; a user's own are checked to the last line.

    Raises `UsageError` for an unknown name and `RefusedError` for a file that is no scenario.
    """
    if not options.names:
        return [(scenario_files.load(name), None) for name in scenario_files.names()]
    known, found = _known(), list[Wanted]()
    for word in options.names:
        if word in known:
            found.append((scenario_files.load(word), None))
            continue
        if not own_scenarios.is_path(word):
            raise common.UsageError(_unknown(word, known), "raftlog sim scenarios")
        try:
            own = [(own_scenarios.load(path), path) for path in own_scenarios.files_of([word])]
        except OperatingError as error:
            raise common.refused(error) from None
        found += own
        if not options.no_mutants:
            _check_mutants(own)
    return found


def _known() -> list[str]:
    """Returns the names of the checkout's scenarios; none where the simulator came as a package."""
    return scenario_files.names() if scenario_files.FOLDER.is_dir() else []


def _unknown(word: str, known: list[str]) -> str:
    if known:
        return no_such("scenario", word, known, "raftlog sim scenarios --list")
    return f"no file or folder {word[:80]}, and named scenarios are in a checkout only"


def _check_mutants(own: Sequence[Wanted]) -> None:
    for scenario, path in [each for each in own if each[0].mutants]:
        try:
            common.mutants_known(list(scenario.mutants))
        except (OperatingError, common.UsageError) as error:
            raise common.RefusedError(
                str(error), on=f"{path}:{scenario.line_of('mutants')}",
                do="name planted bugs that there are, or give --no-mutants",
            ) from None  # fmt: skip


def _skipped(
    scenario: scenario_files.Scenario, options: argparse.Namespace, why: str
) -> dict[str, Any]:
    """Returns the row of a scenario that cannot be played here; its file stays as it is."""
    if options.format == "text":
        print(f"skipped {scenario.name}", flush=True)
    expected = list(scenario.expected)
    return {
        "name": scenario.name, "ok": None, "skipped": why, "results": [], "expected": expected,
        "differences": [], "struck_nothing": [], "note": "",
    }  # fmt: skip


def _one(
    scenario: scenario_files.Scenario,
    path: Path | None,
    options: argparse.Namespace,
    probes: Counter[str],
) -> dict[str, Any]:
    played = scenarios.play(scenario)
    probes.update(played.probes)
    found = played.lines
    if not options.no_mutants:
        found = found + scenarios.mutant_results(scenario)
    expected = scenario.expected_plain if options.no_mutants else list(scenario.expected)
    if options.rewrite:
        file = path or scenario_files.FOLDER / f"{scenario.name}{scenario_files.SUFFIX}"
        file.write_text(scenario_files.rewritten(scenario, found), encoding="utf-8")
        expected = found
    differences = []
    if path is not None:
        differences = scenarios.differing(expected, found)
    elif found != expected:  # the file of a named one has every result
        differences += [f"now       {line}" for line in found]
        differences += [f"expected  {line}" for line in expected]
    row = {
        "name": scenario.name, "ok": not differences, "skipped": "", "results": found,
        "expected": expected, "differences": differences, "struck_nothing": played.struck_nothing,
        "note": "" if expected else _NOTE,
    }  # fmt: skip
    if options.format == "text":
        _tell(row, scenario.size)
    return row


def _tell(row: dict[str, Any], size: int) -> None:
    print(f"{'ok    ' if row['ok'] else 'FAILED'} {row['name']}", flush=True)
    if row["note"]:
        print(f"    {row['note']}; it gave")
    for line in row["differences"] or (row["results"] if row["note"] else ()):
        print(f"    {line}")
    if row["struck_nothing"]:
        print(f"    {common.told_in_vain(row['struck_nothing'], size)}")


def _listed(wanted: list[Wanted], options: argparse.Namespace) -> int:
    if options.format == "json":
        rows = [{"name": each.name, "title": each.title, "steps": each.size}
                for each, _ in wanted]  # fmt: skip
        common.print_json({"scenarios": rows})
        return common.DONE
    for each, _ in wanted:
        print(f"{each.name:34} {each.title}")
        if options.show:
            print("\n".join(["", *each.lines, *each.expected, ""]))
    return common.DONE
