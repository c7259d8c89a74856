"""`raftlog sim scenarios`: list and run the named ones, or write down anew what comes of them."""

import argparse
from collections import Counter

from raftlog_sim import scenarios
from raftlog_sim.commands import common
from raftlog_sim.probe_names import missed_names


def add(parsers: common.Parsers) -> None:
    """`scenarios`."""
    parser = common.add_command(
        parsers, "scenarios", _scenarios, "run named scenarios, each against what it should give",
        "scenarios old-term-commit-by-count",
    )  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="only list them")
    parser.add_argument("--show", action="store_true", help="print the files")
    parser.add_argument("--no-mutants", action="store_true", help="only without planted bugs")
    common.add_probes(parser)
    parser.add_argument(
        "--rewrite", action="store_true", help="write down what came of them; review every line"
    )


def _scenarios(options: argparse.Namespace) -> int:
    wanted = [scenarios.load(name) for name in options.names or scenarios.names()]
    if options.list or options.show:
        return _listed(wanted, options)
    rows, probes = [], Counter[str]()
    with common.bar("scenarios", len(wanted)) as advance:
        for scenario in wanted:
            rows.append(_one(scenario, options, probes))
            advance(1)
    failed, missed = [row for row in rows if not row["ok"]], missed_names(probes)
    if options.format == "json":
        told = {"probes": dict(sorted(probes.items())), "probes_missed": missed}
        common.print_json({"scenarios": rows, "failed": len(failed), **told})
    else:
        print(f"{len(rows)} scenarios, {len(failed)} failed")
        common.tell_missed(options, missed)
    lacking = bool(missed) and options.probes == "require"
    return common.FAILED if failed or lacking else common.DONE


def _one(
    scenario: scenarios.Scenario, options: argparse.Namespace, probes: Counter[str]
) -> dict[str, object]:
    played = scenarios.play(scenario)
    probes.update(played.probes)
    found = played.lines
    if not options.no_mutants:
        found = found + scenarios.mutant_results(scenario)
    expected = [
        line for line in scenario.expected if not (options.no_mutants and scenarios.of_mutant(line))
    ]
    if options.rewrite:
        path = scenarios.FOLDER / f"{scenario.name}{scenarios.SUFFIX}"
        path.write_text(scenarios.rewritten(scenario, found), encoding="utf-8")
        expected = found
    ok = found == expected
    if options.format == "text":
        print(f"{'ok    ' if ok else 'FAILED'} {scenario.name}", flush=True)
        for line in found if not ok else ():
            print(f"    now      {line}")
        for line in expected if not ok else ():
            print(f"    expected {line}")
    return {"name": scenario.name, "ok": ok, "results": found, "expected": expected}


def _listed(wanted: list[scenarios.Scenario], options: argparse.Namespace) -> int:
    if options.format == "json":
        rows = [{"name": each.name, "title": each.title, "steps": each.case.size}
                for each in wanted]  # fmt: skip
        common.print_json({"scenarios": rows})
        return common.DONE
    for each in wanted:
        print(f"{each.name:34} {each.title}")
        if options.show:
            print("\n".join(["", *each.lines, *each.expected, ""]))
    return common.DONE
