"""The expected endings of other people's tests, with a reason for each test that does not pass.

`suites.json` names each reason once. A test is "passes", or an ending and the name of its reason.
"""

import json
from pathlib import Path

from outsiders.suites import FAILS, HANGS, PASSES, SKIPS

EXPECTED = Path(__file__).with_name("suites.json")
UNEXPLAINED = "unexplained"
"""The reason that `--write` gives, until a person replaces it."""


def load(path=EXPECTED):
    """Returns the table, as JSON has it."""
    return json.loads(path.read_text())


def save(table, path=EXPECTED):
    """Write the table, one line a test."""
    lines = ["{", ' "reasons": {']
    lines += _joined(f"  {_json(name)}: {_json(about)}" for name, about in table["reasons"].items())
    lines += [" },", ' "suites": {']
    suites = []
    for name, suite in table["suites"].items():
        tests = _joined(f"    {_json(test)}: {_json(end)}" for test, end in suite["tests"].items())
        head = [
            f"  {_json(name)}: {{",
            f'   "version": {_json(suite["version"])},',
            '   "tests": {',
        ]
        suites.append("\n".join([*head, *tests, "   }", "  }"]))
    lines += [",\n".join(suites), " }", "}"]
    path.write_text("\n".join(lines) + "\n")


def _json(value):
    return json.dumps(value, ensure_ascii=False)


def _joined(lines):
    whole = list(lines)
    return [f"{line}," for line in whole[:-1]] + whole[-1:]


def differences(table, name, version, endings):
    """Returns a line for each way in which what was seen is not what the table says."""
    suite = table["suites"].get(name)
    if suite is None:
        yield f"{name}: the table does not have this suite"
        return
    if version != suite["version"]:
        yield f"{name}: version {version}, the table is of {suite['version']}"
    for test, ending in endings.items():
        before = suite["tests"].get(test)
        if before is None:
            yield f"{name}: {test}: {_told(ending)}, the table has no such test"
        elif outcome_of(before) != ending.outcome:
            yield f"{name}: {test}: expected {expected(table, before)}, saw {_told(ending)}"


def gone(table, name, endings):
    """Returns a line for each test that the table has and the whole suite does not."""
    for test in table["suites"].get(name, {"tests": {}})["tests"]:
        if test not in endings:
            yield f"{name}: {test}: the suite has no such test"


def outcome_of(cell):
    """Returns the ending that a cell of the table expects."""
    return cell if isinstance(cell, str) else cell[0]


def expected(table, cell):
    """Returns a cell in words: its ending, and its reason."""
    return (
        cell if isinstance(cell, str) else f"{cell[0]} ({table['reasons'].get(cell[1], cell[1])})"
    )


def _told(ending):
    return f"{ending.outcome} ({ending.said})" if ending.said else ending.outcome


def holes(table):
    """Returns a line for each cell that is no ending, or lacks a reason that the table names."""
    used = set()
    for name, suite in table["suites"].items():
        for test, cell in suite["tests"].items():
            if cell == PASSES:
                continue
            if not isinstance(cell, list) or len(cell) != 2 or cell[0] not in (FAILS, HANGS, SKIPS):
                yield f"{name}: {test}: {cell!r} is no ending with a reason"
                continue
            used.add(cell[1])
            if not table["reasons"].get(cell[1]):
                yield f"{name}: {test}: there is no reason {cell[1]!r}"
    for reason in table["reasons"]:
        if reason not in used:
            yield f"the reason {reason!r} belongs to no test"


def merged(table, name, version, endings):
    """Returns the table with what was seen.

    A reason stays while the ending does; a person gives the reason of a new one. A reason that no
    test has any more goes.
    """
    before = table["suites"].get(name, {"tests": {}})["tests"]
    tests = dict(before)
    for test, ending in endings.items():
        if test not in tests or outcome_of(tests[test]) != ending.outcome:
            passes = ending.outcome == PASSES
            tests[test] = PASSES if passes else [ending.outcome, UNEXPLAINED]
    suites = {**table["suites"], name: {"version": version, "tests": tests}}
    used = {
        cell[1]
        for suite in suites.values()
        for cell in suite["tests"].values()
        if isinstance(cell, list)
    }
    reasons = {key: about for key, about in table["reasons"].items() if key in used}
    return {"reasons": reasons, "suites": suites}
