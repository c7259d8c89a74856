"""Reads the checks that a run made of itself. They may fail where no history shows a fault.

A simulator judges invariants after every turn. A black-box run checks whether its brokers stayed
alive, came back and hold the same bytes, a demo its claims. They leave the results in the run's
folder: `invariants` of verdict.json (name -> `{status, checked, note}`, the status `held` or
`violated`, `checked` how often it was compared), and `failure` of run.json (`<class>: <what>`).
Judging the folder judges these as well. A check that ran 0 times is `not exercised`: it did not
hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from raftlog.verify.histories.interval import shortened
from raftlog.verify.judging.verdict import INVALID, Verdict

HELD: Final = "held"
VIOLATED: Final = "violated"
NOT_EXERCISED: Final = "not exercised"
_CHECKS_MAX: Final = 200
_TEXT_MAX: Final = 2_000


@final
@attrs.frozen
class RunCheck:
    """One check of the run's own.

    `status` is `held`, `violated`, `not exercised`, or another word that the run wrote. `checked`
    is how often something was compared; None where the run did not count.
    """

    name: str
    status: str
    note: str = ""
    checked: int | None = None

    def sentence(self) -> str:
        """The fault in one line. A note may be longer, with a broker's last output behind it."""
        first = self.note.partition("\n")[0].strip().removesuffix(":")
        return f"{self.name}, a check of the run's own, was violated. {first}".strip()


def checks_of(run: Mapping[str, Any], invariants: Mapping[str, Any]) -> list[RunCheck]:
    """All checks in the folder, those that did not hold first.

    Nothing in the folder is trusted: an entry of another form is no check.
    """
    found = []
    for name, entry in list(invariants.items())[:_CHECKS_MAX]:
        if isinstance(entry, Mapping):
            note = entry.get("note", "")
            text = note if isinstance(note, str) else str(shortened(note))
            status, checked = _status_of(entry), entry.get("checked")
            counted = checked if type(checked) is int else None
            found.append(RunCheck(str(name), status, text[:_TEXT_MAX], counted))
    failure = run.get("failure")
    if isinstance(failure, str) and failure:
        name, _, what = failure.partition(":")
        _take_failure(found, RunCheck(name, VIOLATED, what.strip()[:_TEXT_MAX]))
    return sorted(found, key=lambda check: check.status != VIOLATED)


def counted(checked: Mapping[str, int], broken: str = "") -> dict[str, Any]:
    """The invariants for verdict.json of a run that counts how often each was compared."""
    found = {name: {"status": HELD, "checked": count} for name, count in checked.items()}
    if broken in found:
        found[broken]["status"] = VIOLATED
    return exercised(found)


def exercised(invariants: Mapping[str, Any]) -> dict[str, Any]:
    """The invariants of verdict.json, where those that were never compared say so."""
    return {
        name: {**entry, "status": NOT_EXERCISED} if _is_idle(entry) else entry
        for name, entry in invariants.items()
    }


def _is_idle(entry: Any) -> bool:
    return isinstance(entry, Mapping) and _status_of(entry) == NOT_EXERCISED


def _status_of(entry: Mapping[str, Any]) -> str:
    status = str(entry.get("status", "recorded"))[:40]
    return NOT_EXERCISED if status == HELD and entry.get("checked") == 0 else status


def _take_failure(found: list[RunCheck], failure: RunCheck) -> None:
    """Add the failure that ended the run. It gives the note of a check that has none itself."""
    for place, check in enumerate(found):
        if check.name == failure.name and check.status == VIOLATED:
            if not check.note:
                found[place] = failure
            return
    found.append(failure)


def violated(checks: Sequence[RunCheck]) -> list[RunCheck]:
    """The checks that did not hold."""
    return [check for check in checks if check.status == VIOLATED]


def idle(checks: Sequence[RunCheck]) -> list[RunCheck]:
    """The checks that ran 0 times."""
    return [check for check in checks if check.status == NOT_EXERCISED]


def whole(verdict: Verdict, checks: Sequence[RunCheck]) -> str:
    """The verdict on the run: the history's, or `invalid` if a check did not hold."""
    return INVALID if violated(checks) else verdict.verdict
