"""`raftlog sim scenarios`: list and run the named ones, or write down anew what comes of them."""

import argparse
from collections import Counter

from raftlog.base.amounts import amount
from raftlog_sim import scenario_files, scenarios
from raftlog_sim.cases import PYSYNCOBJ, why_no_guests
from raftlog_sim.commands import common
from raftlog_sim.commands.names import no_such
from raftlog_sim.probe_names import missed_names


def add(parsers: common.Parsers) -> None:
    """`scenarios`."""
    parser = common.add_command(
        parsers, "scenarios", _scenarios, "run named scenarios, each against what it should give",
        "scenarios old-term-commit-by-count",
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="which ones (--list), or all of them"
    )
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--show", action="store_true", help="print the files")
    parser.add_argument("--no-mutants", action="store_true", help="only without planted bugs")
    common.add_probes(parser)
    parser.add_argument(
        "--rewrite", action="store_true", help="write down what came of them; review every line"
    )


def _scenarios(options: argparse.Namespace) -> int:
    wanted = [scenario_files.load(name) for name in _names(options)]
    if options.list or options.show:
        return _listed(wanted, options)
    rows, probes = [], Counter[str]()
    no_guests = why_no_guests()
    with common.bar("scenarios", len(wanted)) as advance:
        for scenario in wanted:
            if no_guests and scenario.subject == PYSYNCOBJ:
                rows.append(_skipped(scenario, options, no_guests))
            else:
                rows.append(_one(scenario, options, probes))
            advance(1)
    of_brokers = any(each.subject != PYSYNCOBJ for each in wanted)
    missed = missed_names(probes) if of_brokers else []
    failed = sum(row["ok"] is False for row in rows)
    skipped = sum(row["ok"] is None for row in rows)
    if options.format == "json":
        told = {"probes": dict(sorted(probes.items())), "probes_missed": missed}
        common.print_json({"scenarios": rows, "failed": failed, "skipped": skipped, **told})
    else:
        left_out = f", {skipped} skipped ({no_guests})" if skipped else ""
        print(f"{amount(len(rows), 'scenario')}, {failed} failed{left_out}")
        common.tell_missed(options, missed)
    if failed or (missed and options.probes == "require"):
        return common.FAILED
    return common.DISAGREED if skipped == len(rows) else common.DONE


def _names(options: argparse.Namespace) -> list[str]:
    """Those that are wanted. Raises `UsageError` for one that there is not."""
    known = scenario_files.names()
    for name in options.names:
        if name not in known:
            raise common.UsageError(
                no_such("scenario", name, known, "raftlog sim scenarios --list"),
                "raftlog sim scenarios",
            )
    return options.names or known


def _skipped(
    scenario: scenario_files.Scenario, options: argparse.Namespace, why: str
) -> dict[str, object]:
    """The row of what cannot be played here: its file is as it was, and nothing is known of it."""
    if options.format == "text":
        print(f"skipped {scenario.name}", flush=True)
    expected = list(scenario.expected)
    return {
        "name": scenario.name, "ok": None, "skipped": why, "results": [], "expected": expected
    }  # fmt: skip


def _one(
    scenario: scenario_files.Scenario, options: argparse.Namespace, probes: Counter[str]
) -> dict[str, object]:
    played = scenarios.play(scenario)
    probes.update(played.probes)
    found = played.lines
    if not options.no_mutants:
        found = found + scenarios.mutant_results(scenario)
    expected = scenario.expected_plain if options.no_mutants else list(scenario.expected)
    if options.rewrite:
        path = scenario_files.FOLDER / f"{scenario.name}{scenario_files.SUFFIX}"
        path.write_text(scenario_files.rewritten(scenario, found), encoding="utf-8")
        expected = found
    ok = found == expected
    if options.format == "text":
        print(f"{'ok    ' if ok else 'FAILED'} {scenario.name}", flush=True)
        for line in found if not ok else ():
            print(f"    now      {line}")
        for line in expected if not ok else ():
            print(f"    expected {line}")
    return {
        "name": scenario.name, "ok": ok, "skipped": "", "results": found, "expected": expected
    }  # fmt: skip


def _listed(wanted: list[scenario_files.Scenario], options: argparse.Namespace) -> int:
    if options.format == "json":
        rows = [{"name": each.name, "title": each.title, "steps": each.size}
                for each in wanted]  # fmt: skip
        common.print_json({"scenarios": rows})
        return common.DONE
    for each in wanted:
        print(f"{each.name:34} {each.title}")
        if options.show:
            print("\n".join(["", *each.lines, *each.expected, ""]))
    return common.DONE
