"""Writes the page in a folder of the bug base: what failed, how to repeat it, what happened."""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog_sim.base.minimise import Effort
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.hunting.bug import Bug
from raftlog_sim.playing.cases import BrokerCase, Case
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Step
from raftlog_sim.schedules.step_kinds import KINDS

STEPS_MAX: Final = 60
TRACE_LINES: Final = 40
LOG_LINES: Final = 80
TEXT_CHARS: Final = 2_000
_PLAIN: Final = SimOptions(seed=0).document()
_NOT_TOLD: Final = ("seed", "profile", "fault_gaps_ms")
"""Options that the page has elsewhere, or that mean nothing once the steps are drawn."""


@final
@attrs.frozen(kw_only=True)
class Shrunk:
    """The result of shrinking, or the reason why there is none."""

    case: Case | None = None
    outcome: Outcome | None = None
    effort: Effort | None = None
    why_not: str = ""


def story(folder: Path, bug: Bug, shrunk: Shrunk) -> str:
    """Returns the page, as Markdown."""
    parts = [
        _head(bug),
        _again(folder, bug, shrunk),
        _shrinking(bug, shrunk),
        _options(bug.case, shrunk.case),
        _steps(shrunk.case or bug.case),
        _said_so(shrunk.outcome or bug.outcome),
        _trace(shrunk.outcome or bug.outcome),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def log_story(failure: str, command: list[str], said: str, commit: str) -> str:
    """Returns the page of something that is no case: a failed test."""
    lines = [line[:TEXT_CHARS] for line in said.splitlines()[-LOG_LINES:]]
    return "\n".join(
        [
            f"# {failure[:200]}",
            "",
            f"Commit {commit or 'not known'}. All that it said is in `output.log`.",
            "",
            "## Again",
            "",
            *_fenced([shlex.join(command)]),
            "",
            "## The last that it said",
            "",
            *_fenced(lines),
            "",
        ]
    )


def _head(bug: Bug) -> list[str]:
    circumstances = bug.circumstances
    rows = [
        ("class", bug.failure_class),
        ("signature", bug.signature),
        ("seed", str(bug.case.seed)),
        ("subject", bug.case.subject),
        ("planted bug", circumstances.mutant or "none"),
        ("commit", circumstances.commit or "not known: not run from a checkout"),
        ("found", f"{circumstances.began} by `{' '.join(circumstances.command)}`"),
    ]
    return [
        f"# {bug.failure_class} in seed {bug.case.seed}",
        "",
        *_fenced([bug.failure[:TEXT_CHARS]]),
        "",
        *_table(("what", "is"), rows),
    ]


def _again(folder: Path, bug: Bug, shrunk: Shrunk) -> list[str]:
    mutant = f" --mutant {bug.circumstances.mutant}" if bug.circumstances.mutant else ""
    files = [folder / bug.case.file_name]
    if shrunk.case is not None:
        files.insert(0, folder / f"shrunk{files[0].suffix}")
    commands = [f"raftlog sim replay {file}{mutant}" for file in files]
    commands.append(f"raftlog sim debug {files[0]}{mutant}")
    commands.append(f"raftlog verify {folder}")
    return ["## Again", "", *_fenced(commands)]


def _shrinking(bug: Bug, shrunk: Shrunk) -> list[str]:
    if shrunk.case is None or shrunk.effort is None or shrunk.outcome is None:
        return ["## Shrunk", "", f"Not shrunk: {shrunk.why_not}."]
    before = bug.outcome.events if bug.outcome is not None else 0
    text = (
        f"{amount(bug.case.size, 'step')} became {shrunk.case.size}, {amount(before, 'event')} "
        f"{shrunk.outcome.events}, in {amount(shrunk.effort.tried, 'run')}."
    )
    if shrunk.effort.stopped:
        text += f" **Not finished**: {shrunk.effort.stopped}, this is the best so far."
    if shrunk.outcome.signature != bug.signature:
        text += (
            f" **It fails otherwise now**: {shrunk.outcome.failure[:TEXT_CHARS] or 'not at all'}"
        )
    return ["## Shrunk", "", text]


def _options(case: Case, small: Case | None) -> list[str]:
    if not isinstance(case, BrokerCase):
        return ["## Options", "", f"`{case.describe()}`"]
    whole = case.schedule.options.document()
    shrunk = small.schedule.options.document() if isinstance(small, BrokerCase) else whole
    rows = [
        (name, *(_text(each[name]) for each in (_PLAIN, whole, shrunk)))
        for name in whole
        if name not in _NOT_TOLD and (whole[name] != _PLAIN[name] or shrunk[name] != _PLAIN[name])
    ]
    head = ["## Options that are not the default", "", f"Profile `{whole['profile']}`."]
    return [*head, "", *_table(("option", "default", "here", "shrunk"), rows)] if rows else head


def _steps(case: Case) -> list[str]:
    lines = list(_worded(case.schedule.steps)) if isinstance(case, BrokerCase) else _fenced(
        case.text().splitlines()[:STEPS_MAX]
    )  # fmt: skip
    more = case.size - STEPS_MAX
    return ["## Steps", "", *lines, *(["", f"... and {more} more."] if more > 0 else [])]


def _worded(steps: tuple[Step, ...]) -> Iterator[str]:
    """Yields the steps of a schedule in words."""
    if not steps:
        yield "None: the cluster fails by itself."
    for step in steps[:STEPS_MAX]:
        words = ", ".join(
            f"{name} {value}"
            for (name, _), value in zip(KINDS[step.kind].arguments, step.arguments, strict=True)
        )
        lasting = f", for {step.for_ms} ms" if step.for_ms else ""
        yield f"* {step.at_ms} ms: **{step.kind}** ({words}{lasting}): {KINDS[step.kind].what}"


def _said_so(outcome: Outcome | None) -> list[str]:
    if outcome is None:
        return []
    verdict = outcome.verdict
    lines = [
        f"* invariant **{name}**: violated, after {amount(row.get('checked', 0), 'check')}"
        for name, row in _mappings(verdict.get("invariants"))
        if row.get("status") == "violated"
    ]
    lines += [
        f"* the judge, **{name}**: {_text((row.get('witness') or {}).get('text', ''))}"
        for name, row in _mappings(verdict.get("classes"))
        if row.get("status") in ("violated", "failed", "invalid") and not row.get("allowed")
    ]
    phase = outcome.document.get("phase")
    ended = [f"The run ended in its phase `{phase}`.", ""] if phase else []
    told = lines or [f"* {outcome.failure[:TEXT_CHARS] or 'nobody'}"]
    return ["## Who said so", "", *ended, *told]


def _mappings(found: object) -> Iterable[tuple[str, dict[str, Any]]]:
    if not isinstance(found, Mapping):
        return []
    return [(str(name), row) for name, row in found.items() if isinstance(row, dict)]


def _trace(outcome: Outcome | None) -> list[str]:
    lines = [] if outcome is None else list(outcome.trace or outcome.story)
    if not lines:
        return []
    last = lines[-TRACE_LINES:]
    return ["## The last of its trace", "", *_fenced([line[:200] for line in last])]


def _fenced(lines: Iterable[str]) -> list[str]:
    return ["```text", *(line.replace("```", "'''") for line in lines), "```"]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    found = [head, tuple("---" for _ in head)]
    found += [tuple(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in rows]
    return [f"| {' | '.join(row)} |" for row in found]


def _text(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value))[:TEXT_CHARS]
