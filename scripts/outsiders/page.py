"""The page docs/reference/clients.md, from the expected table; `scripts/docs` writes it."""

from outsiders import matrix
from outsiders.clients import BY_NAME
from outsiders.features import FEATURES, OWN_FEATURES
from outsiders.outcomes import CLEAR_ERROR, FALLS_BACK, NOT_YET, WORKS

COLUMNS_MAX = 5
"""The most clients side by side in one table."""

HEAD = [
    "Other people's clients and tools, each against a fresh cluster of three brokers.",
    "`scripts/strangers` runs them and compares every cell with this table: a cell that differs",
    "fails, in either direction. A cell that says *works* was also seen from outside: another",
    "client found the topic, the setting, each of the records, or what the group had committed.",
    "",
    "* **works**: as with Kafka;",
    "* **clear error**: refused at once, with an error that the application sees;",
    "* **falls back**: the client does without the feature by itself, as with an Apache Kafka that",
    "  does not have it;",
    "* **not yet**: no broker of this release serves the request, and the client says so;",
    "* **wrong**: the client fails for another reason, or does not get what the broker holds;",
    "* **hang**: neither a result nor an error within its time;",
    "* **absent**: the client itself has no such feature.",
]


def lines(expected=None):
    """Returns the lines of the page below its title."""
    columns = matrix.load() if expected is None else expected
    found = [*HEAD, "", "## Features", "", "| feature | meaning |", "|---|---|"]
    found += [f"| {each.name} | {each.about} |" for each in FEATURES]
    for language, names in _groups(columns):
        found += ["", f"## {language}", "", *_clients(names, columns)]
        for begin in range(0, len(names), COLUMNS_MAX):
            found += ["", *_table(FEATURES, names[begin : begin + COLUMNS_MAX], columns)]
        for head, features in OWN_FEATURES.items():
            if own := [name for name in names if name.startswith(head)]:
                found += ["", f"Asked of {head} alone:"]
                found += ["", *_table(features, own, columns, about=True)]
        found += _reasons(names, columns)
    return found


def _groups(columns):
    """Returns the clients by language, in the order of the table."""
    groups = {}
    for name in columns:
        groups.setdefault(BY_NAME[name].language, []).append(name)
    return groups.items()


def _clients(names, columns):
    return [f"* **{name}** {columns[name].version}: {BY_NAME[name].about}" for name in names]


def _table(features, names, columns, *, about=False):
    more = " meaning |" if about else ""
    found = [f"| feature | {' | '.join(names)} |{more}"]
    found.append("|---" * (len(names) + (2 if about else 1)) + "|")
    for feature in features:
        cells = [columns[name].cells.get(feature.name) for name in names]
        told = " | ".join("" if cell is None else _worded(cell) for cell in cells)
        found.append(f"| {feature.name} | {told} |{f' {feature.about} |' if about else ''}")
    return found


def _worded(cell):
    plain = (WORKS, CLEAR_ERROR, FALLS_BACK, NOT_YET)
    return cell.outcome if cell.outcome in plain else f"*{cell.outcome}*"


def _reasons(names, columns):
    """Returns the client's own words for each cell that does not work."""
    found = []
    for name in names:
        cells = [(at, cell) for at, cell in columns[name].cells.items() if cell.outcome != WORKS]
        if cells:
            found += ["", f"{name}, where it does not work:", ""]
            found += ["| feature | outcome | its own words, or the reason |", "|---|---|---|"]
            found += [f"| {at} | {cell.outcome} | {_quoted(cell.said)} |" for at, cell in cells]
    return found


def _quoted(said):
    return "`" + said.replace("`", "'").replace("|", "\\|") + "`"
