"""`raftlog sim mutants --without KIND` and `--ablate`: which faults the discovery of a bug
needs."""

import argparse
from typing import Any, Final

from raftlog.base.amounts import amount
from raftlog_sim.commands import common
from raftlog_sim.hunting import ablation, mutation
from raftlog_sim.hunting.ablation import AblationResult
from raftlog_sim.schedules.options import FAULTS, VARIED

ON: Final = "raftlog sim mutants"


def add_to(mutants: argparse.ArgumentParser) -> None:
    """Add the options to the command."""
    mutants.add_argument(
        "--without", action="append", default=[], choices=FAULTS, metavar="KIND",
        help="hunt once with all kinds of faults and once without this one (a name of "
        "fault_gaps_ms, such as crash), and tell whether it is found as soon; may be repeated",
    )  # fmt: skip
    mutants.add_argument(
        "--ablate", action="store_true", help="the same, without each kind of faults in turn"
    )


def is_wanted(options: argparse.Namespace) -> bool:
    """Whether the options ask for such a hunt."""
    return bool(options.without or options.ablate)


def run(options: argparse.Namespace) -> int:
    """Hunt each mutant with all kinds of faults, and without each wanted kind; returns the exit
    code.

    Raises `UsageError` for options that exclude each other.
    """
    _check(options)
    kinds = list(FAULTS) if options.ablate else list(dict.fromkeys(options.without))
    plan = mutation.Hunt(
        budget=options.budget, first=options.first, seconds=options.seconds, profile=options.profile
    )
    rows = [_ablated(number, plan, kinds, options) for number in options.numbers]
    if options.format == "json":
        common.print_json({"mutants": rows})
    return common.DONE if all(row["killed"] for row in rows) else common.FAILED


def _check(options: argparse.Namespace) -> None:
    asked = "--ablate" if options.ablate else "--without"
    if not options.numbers:
        raise common.UsageError(f"{asked} needs the numbers of mutants (--list)", ON)
    for mutant in common.mutants_known(options.numbers):
        if mutant.of == mutation.JUDGE:
            what = f"mutant {mutant.number} is a bug of the judge: no fault helps to find it"
            raise common.UsageError(what, ON)
    others = {
        "--without": bool(options.without and options.ablate),
        "--kills": options.kills > 1,
        "--shrink": options.shrink > 0,
        "--table": options.table is not None,
        "--score": options.score is not None,
        "--none": options.none,
    }
    for name in (name for name, given in others.items() if given):
        raise common.UsageError(f"{asked} does not go with {name}", ON)
    if options.profile == VARIED:
        what = f"{asked} leaves out faults that a seed draws; varied ones have a scenario's"
        raise common.UsageError(what, ON)


def _ablated(
    number: str, plan: mutation.Hunt, kinds: list[str], options: argparse.Namespace
) -> dict[str, Any]:
    with common.bar("hunts", len(kinds) + 1) as advance:

        def tell(found: list[AblationResult]) -> None:
            advance(1)
            if options.format == "text" and (line := _line(number, found[0], found[-1])):
                print(line, flush=True)

        whole, *parts = ablation.hunts(number, plan, kinds, tell)
    if options.format == "text" and whole.seed is not None:
        print(_summary(whole, parts))
    return {
        "number": number,
        "name": mutation.named(number).name,
        "killed": whole.seed is not None,
        "whole": whole.document(),
        "without": [each.document() for each in parts],
        "depends_on": _needed(parts),
    }


def _line(number: str, whole: AblationResult, each: AblationResult) -> str:
    """Returns the line for one hunt; "" when the left out kind made no difference."""
    if each is whole:
        return f"{number:4} {mutation.named(number).name:40} {_end(each)}"
    if each.seed == whole.seed:
        return ""
    return f"       without {each.without}: {_end(each)}"


def _end(found: AblationResult) -> str:
    if found.seed is not None:
        return f"seed {found.seed}, {found.by}"
    late = ", then time was up" if found.out_of_time else ""
    return f"nothing in {amount(found.tried, 'seed')}{late}"


def _needed(parts: list[AblationResult]) -> list[str]:
    """Returns the kinds without which a hunt played all its seeds and found nothing."""
    return [each.without for each in parts if each.seed is None and not each.out_of_time]


def _summary(whole: AblationResult, parts: list[AblationResult]) -> str:
    alike = [each for each in parts if each.seed == whole.seed]
    idle = sum(not each.changed for each in alike)
    needed = ", ".join(_needed(parts)) or "no single kind"
    return (
        f"       without each of {amount(len(alike), 'other')}: the same seed; {idle} of "
        f"them did nothing until then\n       depends on {needed}"
    )
