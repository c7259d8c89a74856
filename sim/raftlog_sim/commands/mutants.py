"""`raftlog sim mutants`: hunts planted bugs that must be caught, and tabulates what caught them."""

import argparse
import json
import textwrap
from pathlib import Path
from typing import Any, Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.commands import ablating, common, judge_table, patches
from raftlog_sim.hunting import judge_hunt, mutation
from raftlog_sim.playing import scenario_files
from raftlog_sim.schedules.options import PROFILES

BUDGET: Final = 60
HISTORIES: Final = judge_hunt.JudgeHunt().histories
SURVIVED: Final = "SURVIVED"
BEGIN: Final = "<!-- table begins -->"
END: Final = "<!-- table ends -->"
NEVER: Final = 1 << 62
"""Stands for the first failing seed of a mutant that no seed catches."""
COLUMNS: Final = 100


def add(parsers: common.Parsers) -> None:
    """Add `mutants` to the commands."""
    mutants = common.add_command(
        parsers, "mutants", _mutants, "planted bugs that must be caught", "mutants 1 24b"
    )
    mutants.add_argument(
        "numbers", nargs="*", metavar="NUMBER", help="which ones (--list), or all of them"
    )
    mutants.add_argument(
        "--budget", type=common.positive, default=BUDGET, metavar="N",
        help=f"seeds for each; default: {BUDGET}",
    )  # fmt: skip
    mutants.add_argument(
        "--from", dest="first", type=common.seed, default=1, metavar="N",
        help="the first seed; default: 1",
    )  # fmt: skip
    mutants.add_argument(
        "--profile",
        choices=PROFILES,
        default="swarm",
        help="which faults a seed may draw; mutants 35 need `trio`; default: swarm",
    )
    mutants.add_argument(
        "--kills",
        type=common.positive,
        default=1,
        metavar="N",
        help="go on for so many failing seeds or histories; default: 1",
    )
    mutants.add_argument(
        "--shrink",
        type=common.seconds,
        default=0.0,
        metavar="SECONDS",
        help="shrink the first one, for so long; default: not at all",
    )
    mutants.add_argument(
        "--jobs", type=common.jobs, default=2, metavar="J",
        help="play so many candidates at a time when shrinking; default: 2",
    )  # fmt: skip
    mutants.add_argument(
        "--seconds",
        type=common.seconds,
        default=600.0,
        metavar="SECONDS",
        help="CPU time for each, shrinking not counted; default: 600",
    )
    mutants.add_argument(
        "--histories", type=common.count, default=HISTORIES, metavar="N",
        help="small histories for each mutant of the judge (24 to 24z), which no seed hunts; "
        f"default: {HISTORIES}",
    )  # fmt: skip
    mutants.add_argument(
        "--corpora", type=Path, action="append", default=[], metavar="DIR",
        help="public histories, as for scripts/corpora, for mutants of the judge; may be repeated",
    )  # fmt: skip
    patches.add_to(mutants)
    ablating.add_to(mutants)
    mutants.add_argument("--table", type=Path, metavar="FILE", help="put the table into a page")
    mutants.add_argument("--score", type=Path, metavar="FILE", help="rows of earlier runs, kept")
    mutants.add_argument("--none", action="store_true", help="hunt nothing, only make the table")
    mutants.add_argument("--list", action="store_true", help="only list them")


def _mutants(options: argparse.Namespace) -> int:
    found = mutation.load()
    common.mutants_known(options.numbers)
    if options.list:
        return _list(found, options)
    if ablating.is_wanted(options):
        return ablating.run(options)
    if options.corpora and not judge_hunt.public_histories(options.corpora):
        raise common.UsageError(f"no public history in {', '.join(map(str, options.corpora))}")
    patches.check(options)
    _check_kept(options)
    rows = []
    wanted = options.numbers or ([] if options.patch else list(found))
    wanted = [] if options.none else wanted
    with common.bar("mutants", len(wanted)) as advance:
        for number in wanted:
            row = _hunted(found[number], options)
            rows.append(row)
            if options.score is not None:  # after each one: all of them take hours
                merged(options.score, rows)
            advance(1)
            if options.format == "text":
                print(_line(row), flush=True)
    scored = rows if options.score is None else merged(options.score, rows)
    own = patches.hunted(options, hunt_of(options))
    if options.table is not None:
        others = scored if own else with_all(scored, found)
        write_table(options.table, [*others, *patches.for_table(own)])
    if options.format == "json":
        common.print_json({"mutants": [*rows, *own]})
    if not patches.all_decided(own):
        return common.DISAGREED
    rows += own
    return common.DONE if all(map(_holds, rows)) else common.FAILED


def _check_kept(options: argparse.Namespace) -> None:
    """Raise `RefusedError`, before the work, when the results cannot be kept."""
    if options.table is not None:
        common.check_folder(options.table.parent)
    if options.score is not None:
        try:
            merged(options.score, [])
        except OperatingError as error:
            raise common.refused(error) from None


def _hunted(mutant: mutation.Mutant, options: argparse.Namespace) -> dict[str, Any]:
    if mutant.of == mutation.JUDGE:
        plan = judge_hunt.JudgeHunt(
            histories=options.histories,
            kills=options.kills,
            seconds=options.seconds,
            corpora=tuple(options.corpora),
        )
        return judge_hunt.hunt(mutant.number, plan)
    return mutation.hunt(mutant.number, hunt_of(options))


def hunt_of(options: argparse.Namespace) -> mutation.Hunt:
    """Returns the hunt that the options ask for."""
    return mutation.Hunt(
        budget=options.budget,
        first=options.first,
        kills=options.kills,
        shrink_seconds=options.shrink,
        shrink_jobs=options.jobs,
        seconds=options.seconds,
        profile=options.profile,
    )


def _holds(row: dict[str, Any]) -> bool:
    """Whether the mutant was killed, its shrunk plan replays, and the unchanged judge was right."""
    return bool(row["killed"]) and _replays(row) and judge_table.control_holds(row)


def _list(found: dict[str, mutation.Mutant], options: argparse.Namespace) -> int:
    if options.format == "json":
        rows = [{"number": each.number, "name": each.name} for each in found.values()]
        common.print_json({"mutants": rows})
    else:
        for each in found.values():
            print(f"{each.number:4} {each.name}")
    return common.DONE


def _line(row: dict[str, Any]) -> str:
    if judge_table.is_of_judge(row):
        return judge_table.line(row)
    killed = SURVIVED
    if row["killed"]:
        killed = f"killed by {_by(row)} at seed {row['seeds'][0]}"
    shrunk = row.get("shrunk")
    if shrunk:
        steps = amount(shrunk["steps"][0], "step")
        killed += f"; {steps} became {shrunk['steps'][1]} in {shrunk['seconds']} s"
    tried = amount(row["tried"], "seed")
    return f"{row['number']:4} {row['name']:40} {killed} ({tried}, {row['seconds']} s)"


def _by(row: dict[str, Any]) -> str:
    """Returns what caught a mutant; with what was expected to, if none of that did.

    A mutant that only a scenario can catch has no expectation of seeds.
    """
    killers = judge_table.killers(row)
    if not row["expected"] or row["by"].keys() & set(row["expected"]):
        return killers
    return f"{killers} (expected: {', '.join(row['expected'])})"


def _of_profile(row: dict[str, Any]) -> str:
    """Returns the words before a row's seed: the profile of the hunt, unless it is the swarm."""
    profile = row.get("profile", PROFILES[0])
    return "" if profile == PROFILES[0] else f"{profile} "


def _replays(row: dict[str, Any]) -> bool:
    """Whether the row's shrunk plan, if any, failed again in a process of its own."""
    shrunk = row.get("shrunk")
    return not shrunk or bool(shrunk["replays"])


def table(rows: list[dict[str, Any]], named: dict[str, str]) -> str:
    """Returns the score table, as Markdown. `named` maps a mutant to the scenarios that it
    fails."""
    lines = [
        "| mutant | caught in seeds by | first seed | seeds run | scenario | shrunk: steps, time |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"{row['number']} {row['name'].replace('-', ' ')}"
        by, seed = "**nothing**" if row["tried"] else "not hunted", ""
        if row["killed"]:
            by, seed = _by(row), f"{_of_profile(row)}{row['seeds'][0]}"
        shrunk, small = row.get("shrunk"), ""
        if shrunk:
            small = f"{shrunk['steps'][0]} to {shrunk['steps'][1]}, {shrunk['seconds']:.0f} s"
            small += "" if _replays(row) else ", **does not replay**"
        scenario = named.get(row["number"], "") or ", ".join(row.get("scenarios", ()))
        lines.append(f"| {name} | {by} | {seed} | {row['tried']} | {scenario} | {small} |")
    return "\n".join(lines) + "\n"


def summary(rows: list[dict[str, Any]], named: dict[str, str]) -> str:
    """Returns the score of the rows of `table` in a few sentences, as Markdown.

    For the median a mutant that no seed caught counts as caught after all others.
    """
    hunted = [row for row in rows if row["tried"]]
    caught = [row for row in hunted if row["killed"]]
    by_scenario = [
        row
        for row in rows
        if not row["killed"] and (row["number"] in named or row.get("scenarios"))
    ]
    first = sorted([row["seeds"][0] for row in caught] + [NEVER] * (len(hunted) - len(caught)))
    shrunk = [row["shrunk"] for row in rows if row.get("shrunk")]
    lines = [
        f"{amount(len(rows), 'planted bug')} of the brokers: {len(caught)} caught by a seed, "
        f"{len(by_scenario)} by their scenarios only, "
        f"{len(rows) - len(caught) - len(by_scenario)} by nothing; "
        f"{len(rows) - len(hunted)} of them were not hunted on seeds."
    ]
    if first:
        middle = first[len(first) // 2]
        said = "no seed" if middle == NEVER else f"seed {middle}"
        lines.append(f"The median of those hunted: {said}.")
    if shrunk:
        seconds = sorted(each["seconds"] for each in shrunk)
        unfinished = sum(not each.get("finished", True) for each in shrunk)
        lines.append(
            f"{len(shrunk)} first failing seeds shrank to at most "
            f"{amount(max(each['steps'][1] for each in shrunk), 'step')}, a load counted as "
            "one, in "
            f"{seconds[len(seconds) // 2]:.0f} s (median) and {seconds[-1]:.0f} s (worst); "
            f"{unfinished} could have gone on when their time was over."
        )
    return textwrap.fill(" ".join(lines), COLUMNS) + "\n"


def with_all(rows: list[dict[str, Any]], found: dict[str, mutation.Mutant]) -> list[dict[str, Any]]:
    """Returns a row for every mutant; a mutant without one was not hunted."""
    known = {row["number"]: row for row in rows}
    return [
        known.get(each.number)
        or {"number": each.number, "name": each.name, "of": each.of, "killed": False, "tried": 0}
        for each in found.values()
    ]


def scenario_kills() -> dict[str, str]:
    """Returns, per mutant, the scenarios whose files say that the mutant fails them."""
    found: dict[str, list[str]] = {}
    head = f"{scenario_files.RESULT} mutant "
    for name in scenario_files.names():
        for line in scenario_files.load(name).expected:
            if line.startswith(head) and not line.endswith("SURVIVES"):
                found.setdefault(line.removeprefix(head).partition(":")[0], []).append(name)
    return {number: ", ".join(each) for number, each in found.items()}


def merged(score: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace older rows of a score file by these; returns all its rows.

    Raises `OperatingError` when the file cannot be read or written.
    """
    try:
        return _merged(score, rows)
    except (OSError, ValueError, TypeError, KeyError) as error:
        do = "name a file that an earlier run wrote, or a new one"
        raise OperatingError(f"no score can be kept: {error!r}", on=str(score), do=do) from error


def _merged(score: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}
    if score.exists():
        known = {row["number"]: row for row in json.loads(score.read_text(encoding="utf-8"))}
    known |= {row["number"]: row for row in rows}
    order = list(mutation.load())
    found = [known[number] for number in order if number in known]
    whole = score.with_name(score.name + ".new")
    lines = ",\n".join(map(json.dumps, found))  # a row is one line, so a difference shows rows
    whole.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    whole.replace(score)
    return found


def write_table(page: Path, rows: list[dict[str, Any]]) -> None:
    """Put the table between the two marks of a page; a page without marks becomes the table.

    The table of the judge's mutants goes between marks of its own, where there are any.
    """
    text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    of_judge = [row for row in rows if judge_table.is_of_judge(row)]
    others = [row for row in rows if not judge_table.is_of_judge(row)]
    named = scenario_kills()
    text = _between(text, BEGIN, END, f"{summary(others, named)}\n{table(others, named)}")
    if judge_table.BEGIN in text:
        text = _between(text, judge_table.BEGIN, judge_table.END, judge_table.table(of_judge))
    page.write_text(text, encoding="utf-8")


def _between(text: str, begin: str, end: str, made: str) -> str:
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{made}\n{end}{after}"
