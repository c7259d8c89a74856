"""`raftlog verify --check-report`: checks that a report and the judge agree on its history."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from raftlog.base.amounts import amount
from raftlog.base.printable import visible
from raftlog.verify import BadHistory, Judgement
from raftlog.verify.judging.check import LOG
from raftlog.verify.judging.models import MODELS
from raftlog.verify.judging.verdict import JUDGE
from raftlog.verify.report.page import RunFolder, assembled, fitting, page_data
from raftlog.verify.report.proof import data_of, differences, is_broken, options_of, shell_of

Judge = Callable[[dict[str, Any], str | None], Judgement]
"""Judges the history by the options of a report, and by the user's own model if there is one."""


def check_report(
    report: Path,
    path: Path,
    folder: RunFolder,
    judge: Judge,
    own_model: str | None,
    form: str,
) -> int:
    """Judge again, compare, and print the result. 0: the same, 1: different, 64: no report."""
    try:
        page = report.read_text(encoding="utf-8")
        told = data_of(page)
        options = options_of(told)
    except OSError as error:
        raise click.UsageError(f"{report}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{report}: not a report of raftlog verify") from None
    except BadHistory as error:
        raise click.UsageError(f"{report}: {error}") from None
    if own_model is None and options["model"] not in (LOG, *MODELS):
        raise click.UsageError(
            f"{report} was judged by a model of its owner's, {visible(options['model'])}: give it "
            "with --model module:attribute"
        )
    proof = told["proof"]
    wrong = []
    if proof.get("history_sha256") != folder.history_sha256:
        wrong.append(
            f"it is of another history: sha256 {visible(str(proof.get('history_sha256')))}, "
            f"this one's is {folder.history_sha256}"
        )
    else:
        wrong = _compared(page, told, judge(options, own_model), folder, whole=path.is_dir())
    _print(report, path, proof, wrong, form)
    return 1 if wrong else 0


def _compared(
    page: str, told: dict[str, Any], judgement: Judgement, folder: RunFolder, *, whole: bool
) -> list[str]:
    found = fitting(page_data(judgement, folder))
    broken = is_broken(told.get("invariants") or [])
    wrong = differences(told, found, whole=whole, checks_broken=broken)
    if told["proof"].get("judge") == JUDGE and shell_of(page) != shell_of(assembled(found)):
        wrong.append("the page around its data is not the one that this release writes")
    return wrong


def _print(report: Path, path: Path, proof: dict[str, Any], wrong: list[str], form: str) -> None:
    same = not wrong
    if form == "json":
        document = {
            "version": 1,
            "same": same,
            "differences": wrong,
            "report": {**proof, "path": str(report)},
            "judge": JUDGE,
        }
        print(json.dumps(document, indent=1))
        return
    print(f"{'SAME' if same else 'DIFFERENT'}  {report} and {path}")
    for line in wrong:
        print(visible(f"  {line}"))
    options = proof["options"]
    allowed = ", ".join(map(str, options["allowed"])) or "nothing"
    print(
        visible(
            f"judged by model {options['model']}, reads {options['reads']}, allowed: {allowed}, "
            f"within {amount(options['search_steps'], 'step', grouped=True)} of search and "
            f"{options['hole_steps']:,} of "
            "filling holes"
        )
    )
    if proof.get("judge") != JUDGE:
        theirs = visible(str(proof.get("judge")))
        print(f"note: rules {theirs} made the report, these are rules {JUDGE}")
    if same:
        print(f"history sha256 {proof['history_sha256']}, judged by rules {JUDGE}")
    if not path.is_dir():
        print(
            "note: a history alone does not show the run's own checks and trace; give the run's "
            "folder to compare them, too"
        )
