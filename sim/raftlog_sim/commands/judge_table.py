"""Prints the results of `raftlog sim mutants` for the judge's mutants."""

from typing import Any, Final

from raftlog.base.amounts import amount
from raftlog_sim.hunting.mutation import JUDGE

BEGIN: Final = "<!-- table of the judge begins -->"
END: Final = "<!-- table of the judge ends -->"


def is_of_judge(row: dict[str, Any]) -> bool:
    """Whether the row is of a mutant of the judge. Rows of brokers may leave `of` out."""
    return bool(row.get("of") == JUDGE)


def control_holds(row: dict[str, Any]) -> bool:
    """Whether the unchanged judge was right about every history that the mutant was given."""
    return not row.get("control", {}).get("wrong")


def line(row: dict[str, Any]) -> str:
    """Returns a row for people."""
    caught = _caught(row) if row["killed"] else "SURVIVED"
    control = "" if control_holds(row) else f"; the judge itself: {row['control']['wrong']} wrong"
    told = f"{row['number']:4} {row['name']:40} {caught}{control}"
    return f"{told} ({amount(row['tried'], 'history', plural='histories')}, {row['seconds']} s)"


def _caught(row: dict[str, Any]) -> str:
    corpora = f"corpora {_corpora(row)}" if row.get("corpora", {}).get("wrong") else ""
    if not row["seeds"]:
        return f"killed by {corpora}"
    after = f"killed by {killers(row)} after {row['seeds'][0]}: {row['what']}"
    return f"{after}; {corpora}" if corpora else after


def killers(row: dict[str, Any]) -> str:
    """Returns what caught a mutant, and how often: kinds of histories, or classes of failures."""
    return ", ".join(
        f"{kind}{'' if count == 1 else f' x {count}'}" for kind, count in row["by"].items()
    )


def _corpora(row: dict[str, Any]) -> str:
    """Returns text like `39 of 228: etcd_002.log, ...`; "" when no public history was judged."""
    judged = row.get("corpora")
    if not judged:
        return ""
    first = f": {', '.join(judged['first'])}" if judged["first"] else ""
    more = ", ..." if judged["wrong"] > len(judged["first"]) else ""
    return f"{judged['wrong']} of {judged['tried']}{first}{more}"


def table(rows: list[dict[str, Any]]) -> str:
    """Returns the score table of the judge, as Markdown."""
    lines = [
        "| mutant | caught in histories of | after | the first: what became of it "
        "| public histories judged wrongly |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"{row['number']} {row['name'].replace('-', ' ')}"
        by, after = "**nothing**" if row["tried"] else "not hunted", ""
        if row.get("seeds"):
            by, after = killers(row), str(row["seeds"][0])
        what = row.get("what", "")
        what += "" if control_holds(row) else ", **the judge itself is wrong**"
        lines.append(f"| {name} | {by} | {after} | {what} | {_corpora(row)} |")
    return "\n".join(lines) + "\n"
