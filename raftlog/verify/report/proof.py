"""Makes a report checkable by its receiver: it names its history, its judge and the options.

A page carries the SHA-256 of the history's bytes, the judge's version and its options. A receiver
with page and history judges again with those options (`options_of`, `settings_of`) and compares
(`differences`). A history does not tell the run's own checks and trace. These are compared where
the run's folder is at hand.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, Protocol

from raftlog.base.limits import HISTORY_LINE_CHARS_MAX
from raftlog.verify.histories.history import BadHistory
from raftlog.verify.judging.check import Judgement
from raftlog.verify.judging.classes import NAMES
from raftlog.verify.judging.verdict import JUDGE

BEGIN: Final = '<script type="application/json" id="data">'
END: Final = "</script>"
OF_HISTORY: Final = ("classes", "not_checked", "claims", "cost", "accused", "faults", "plots")
"""The parts of a page that its history alone decides."""
OF_WINDOW: Final = ("window", "span", "bars", "partitions")
"""The parts that the history decides too, unless the trace decided which part of the run is shown.
It does where the run failed a check of its own, and where no client did anything."""
_NOT_COMPARED: Final = ("proof", "summary", "commands")
"""The parts that are compared elsewhere or not at all: `proof` before, `summary` apart, and
`commands` tell where a folder lies, which is not judged."""
_PIECE: Final = 1 << 20


class Bytes(Protocol):
    """An open file that gives bytes."""

    def read(self, size: int, /) -> bytes:
        """The next bytes, at most `size` of them; empty at the end of the file."""


def digest_of(file: Bytes) -> str:
    """The SHA-256 of a history, as reports carry it."""
    digest = hashlib.sha256()
    while piece := file.read(_PIECE):
        digest.update(piece)
    return digest.hexdigest()


def proof_of(judgement: Judgement, history_sha256: str) -> dict[str, Any]:
    """The origin of a verdict, as a page and verdict.json carry it: history, judge, options."""
    try:
        release = version("raftlog")
    except PackageNotFoundError:  # run from a checkout that is not installed
        release = "unknown"
    return {
        "history_sha256": history_sha256,
        "judge": JUDGE,
        "raftlog": release,
        "options": dict(judgement.settings),
    }


def data_of(page: str) -> dict[str, Any]:
    """The data of a report.

    Raises `BadHistory` where the text is no report of ours, or an older one.
    """
    _, begin, rest = page.partition(BEGIN)
    text, end, _ = rest.partition(END)
    try:
        data = json.loads(text) if begin and end else None
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict) or not isinstance(data.get("summary"), dict):
        raise BadHistory("not a report of raftlog verify", do="give the page that --report wrote")
    proof = data.get("proof")
    if not isinstance(proof, dict) or not isinstance(proof.get("options"), dict):
        raise BadHistory(
            "the report does not say which history it is of, nor how it was judged",
            do="an earlier release wrote it; write it again from the history",
        )
    return data


def shell_of(page: str) -> tuple[str, str]:
    """A page without its data: the same for all reports of one release."""
    before, _, rest = page.partition(BEGIN)
    return before, rest.partition(END)[2]


def options_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The judge's options in a report, checked: `model`, `reads`, `allowed`, and the two budgets.

    Raises `BadHistory` where they make no sense. The budgets are `search_steps` and `hole_steps`.
    """
    options = data["proof"]["options"]
    allowed = [*_list(options.get("allowed")), *_list(options.get("always"))]
    steps = [options.get(name) for name in ("search_steps", "hole_steps")]
    if (
        not isinstance(options.get("model"), str)
        or not isinstance(options.get("reads"), str)
        or not all(isinstance(name, str) and name in NAMES for name in allowed)
        or not all(type(count) is int and 0 < count < HISTORY_LINE_CHARS_MAX**2 for count in steps)
    ):
        raise BadHistory("the report's options make no sense", do="it was changed by somebody")
    return dict(options)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None]


def differences(
    told: Mapping[str, Any], found: Mapping[str, Any], *, whole: bool, checks_broken: bool
) -> list[str]:
    """The parts in which a report differs from the same judge's verdict now.

    With `whole` the run's folder was at hand, so that all parts are compared. Otherwise
    `checks_broken` says whether the report itself names a check of the run's own that did not hold.
    """
    again = json.loads(json.dumps(found))
    by_trace = checks_broken or not again["bars"]
    of_history = OF_HISTORY if by_trace else (*OF_HISTORY, *OF_WINDOW)
    names: Iterable[str] = dict.fromkeys([*told, *again]) if whole else of_history
    wrong = [
        _difference(name, told.get(name), again.get(name))
        for name in names
        if name not in _NOT_COMPARED and told.get(name) != again.get(name)
    ]
    mine, theirs = _judged(again["summary"]), _judged(told["summary"])
    if whole:
        wrong += [
            f"summary, {name}: {_short(theirs.get(name))}, now {_short(mine.get(name))}"
            for name in dict.fromkeys([*theirs, *mine])
            if theirs.get(name) != mine.get(name)
        ]
        return wrong
    expected = "invalid" if checks_broken else again["summary"]["history"]
    for name, value in (("verdict", expected), ("headline", _HEADLINES.get(str(expected)))):
        if theirs.get(name) != value:
            wrong.append(f"summary, {name}: {_short(theirs.get(name))}, now {_short(value)}")
    return wrong


_HEADLINES: Final = {"valid": "PASS", "invalid": "FAIL", "unknown": "UNKNOWN"}


def _judged(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name != "name"}


def _difference(name: str, told: Any, found: Any) -> str:
    """The sentence about a part that differs. For the part of classes it names each of them."""
    if name == "classes" and isinstance(told, list) and isinstance(found, list):
        now = {entry["name"]: entry for entry in found}
        then = {str(e.get("name")): e for e in told if isinstance(e, dict)}
        wrong = [each for each in dict.fromkeys([*then, *now]) if then.get(each) != now.get(each)]
        said = [f"{each} {_status(then.get(each))}, now {_status(now.get(each))}" for each in wrong]
        return f"classes: {'; '.join(said[:6])}" + ("; ..." if len(said) > 6 else "")
    return f"{name} is not what the history gives"


def _status(entry: Mapping[str, Any] | None) -> str:
    if entry is None:
        return "absent"
    return f"{entry.get('status')} ({entry.get('count')})"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."


def is_broken(rows: Sequence[Any]) -> bool:
    """Whether a report's table of the run's own checks names one that did not hold."""
    return any(isinstance(row, dict) and row.get("status") == "violated" for row in rows)
