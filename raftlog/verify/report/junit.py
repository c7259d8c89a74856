"""A verdict as JUnit XML, for build servers: one test case per class that was checked."""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from raftlog.verify.judging.run_checks import NOT_EXERCISED, VIOLATED, RunCheck, idle, violated
from raftlog.verify.judging.verdict import INVALID, NOT_CHECKED, UNKNOWN, ClassResult, Verdict


def junit(verdict: Verdict, name: str, checks: Sequence[RunCheck] = ()) -> str:
    """One test suite called `name`: a case per class, and then one per check of the run's own.

    The classes that were not judged are together one skipped case; so are the checks that never
    ran. Characters that XML cannot carry are replaced.
    """
    results = [result for result in verdict.classes.values() if result.status != NOT_CHECKED]
    skipped = [result.name for result in verdict.lacking]
    ran, idle_names = [c for c in checks if c not in idle(checks)], [c.name for c in idle(checks)]
    cases = [
        *[_case(result, verdict.model) for result in results],
        *_skipped(f"raftlog.verify.{verdict.model}", "not checked", skipped),
        *[_check(check) for check in ran],
        *_skipped("raftlog.run", NOT_EXERCISED, idle_names),
    ]
    failed = sum(result.status == INVALID for result in results) + len(violated(checks))
    errors = sum(result.status == UNKNOWN for result in results)
    if verdict.judged_nothing:  # else a suite of skipped cases would pass for a good one
        errors += 1
        cases.append(_NOTHING_JUDGED)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name={attribute(name)} tests="{len(cases)}" failures="{failed}" '
        f'errors="{errors}" skipped="{bool(skipped) + bool(idle_names)}">',
        *cases,
        "</testsuite>",
    ]
    return "\n".join(lines) + "\n"


_NOTHING_JUDGED: Final = (
    '  <testcase classname="raftlog.verify" name="judged">'
    '<error message="unknown: nothing was judged"/></testcase>'
)


def _skipped(suite: str, name: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    head = f"  <testcase classname={attribute(suite)} name={attribute(name)}"
    message = attribute(f"{len(names)}: {', '.join(names)}")
    return [f"{head}><skipped message={message}/></testcase>"]


def _case(result: ClassResult, model: str) -> str:
    head = f"  <testcase classname={attribute('raftlog.verify.' + model)} name="
    head += attribute(result.name)
    text = result.witness.text if result.witness is not None else ""
    if result.status == INVALID:
        message = attribute(f"{result.count} found")
        return f"{head}><failure message={message}>{escape(xml_text(text))}</failure></testcase>"
    if result.status == UNKNOWN:
        return f"{head}><error message={attribute('unknown: ' + result.note)}/></testcase>"
    if result.count:
        note = escape(xml_text(f"{result.count} found, allowed: {text}"))
        return f"{head}><system-out>{note}</system-out></testcase>"
    return f"{head}/>"


def _check(check: RunCheck) -> str:
    head = f"  <testcase classname={attribute('raftlog.run')} name={attribute(check.name)}"
    if check.status == VIOLATED:
        note = escape(xml_text(check.note))
        return f'{head}><failure message="the run found it">{note}</failure></testcase>'
    return f"{head}/>"


def attribute(text: str) -> str:
    """The text as a quoted attribute."""
    return quoteattr(xml_text(text))


def xml_text(text: str) -> str:
    """The text without control characters, surrogates and non-characters: XML 1.0 forbids them."""
    return "".join(
        c
        if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff"
        else "?"
        for c in text
    )
