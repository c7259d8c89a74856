"""A verdict as JUnit XML, for build servers: one test case per class that was checked."""

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from raftlog.verify.run_checks import VIOLATED, RunCheck, violated
from raftlog.verify.verdict import INVALID, NOT_CHECKED, UNKNOWN, ClassResult, Verdict


def junit(verdict: Verdict, name: str, checks: Sequence[RunCheck] = ()) -> str:
    """One test suite called `name`, with the run's own checks behind the classes of anomaly; what
    XML cannot carry is replaced.
    """
    results = list(verdict.classes.values())
    counts = {status: sum(r.status == status for r in results) for status in (INVALID, NOT_CHECKED)}
    errors = sum(result.status == UNKNOWN for result in results)
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuite name={_attribute(name)} "
        f'tests="{len(results) + len(checks)}" '
        f'failures="{counts[INVALID] + len(violated(checks))}" errors="{errors}" '
        f'skipped="{counts[NOT_CHECKED]}">',
        *[_case(result, verdict.model) for result in results],
        *[_check(check) for check in checks],
        "</testsuite>",
    ]
    return "\n".join(lines) + "\n"


def _case(result: ClassResult, model: str) -> str:
    head = f"  <testcase classname={_attribute('raftlog.verify.' + model)} name="
    head += _attribute(result.name)
    text = result.witness.text if result.witness is not None else ""
    if result.status == INVALID:
        message = _attribute(f"{result.count} found")
        return f"{head}><failure message={message}>{escape(_xml(text))}</failure></testcase>"
    if result.status == UNKNOWN:
        return f"{head}><error message={_attribute('unknown: ' + result.note)}/></testcase>"
    if result.status == NOT_CHECKED:
        return f'{head}><skipped message="the history lacks the evidence"/></testcase>'
    if result.count:
        note = escape(_xml(f"{result.count} found, allowed: {text}"))
        return f"{head}><system-out>{note}</system-out></testcase>"
    return f"{head}/>"


def _check(check: RunCheck) -> str:
    head = f"  <testcase classname={_attribute('raftlog.run')} name={_attribute(check.name)}"
    if check.status == VIOLATED:
        note = escape(_xml(check.note))
        return f'{head}><failure message="the run found it">{note}</failure></testcase>'
    return f"{head}/>"


def _attribute(text: str) -> str:
    return quoteattr(_xml(text))


def _xml(text: str) -> str:
    """XML 1.0 has no control characters, surrogates or non-characters, not even escaped."""
    return "".join(
        c
        if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff"
        else "?"
        for c in text
    )
