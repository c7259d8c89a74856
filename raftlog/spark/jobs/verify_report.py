"""The result of the verification job: one verdict, as JSON and as the page of `raftlog verify`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.spark.jobs.log_job import LogCheck
from raftlog.verify.histories.history import Header
from raftlog.verify.judging.check import Judgement
from raftlog.verify.judging.facts import Facts
from raftlog.verify.judging.run_checks import HELD, NOT_EXERCISED, VIOLATED, whole
from raftlog.verify.judging.verdict import EXIT_CODES, Verdict
from raftlog.verify.report.page import RunFolder, render
from raftlog.verify.report.proof import proof_of

if TYPE_CHECKING:
    from raftlog.verify.histories.interval import Interval

_STATUS: Final = {"valid": HELD, "invalid": VIOLATED, "not exercised": NOT_EXERCISED}
_WITNESSES_ONLY: Final = (
    "Spark judged the whole history; this page draws only the operations of the witnesses"
)


@final
@attrs.frozen(kw_only=True)
class SparkReport:
    """The result of the job: the judgement of the history, and the checks of the log against it.
    `place` is the path of the history, `history_sha256` the digest of a history that one process
    judged."""

    judgement: Judgement
    log: tuple[LogCheck, ...] = ()
    topic: str | None = None
    place: str = ""
    history_sha256: str = ""

    @property
    def history(self) -> Verdict:
        """The verdict on the history alone."""
        return self.judgement.verdict

    @property
    def verdict(self) -> str:
        """`invalid` if any check failed, else the verdict on the history."""
        return whole(self.history, self._folder().checks())

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 unknown."""
        return EXIT_CODES[self.verdict]

    def document(self) -> dict[str, Any]:
        """The report as one JSON document: verdict.json of the history, with `log` beside its
        classes."""
        found = self.history.document(self._folder().invariants, whole=self.verdict)
        found["topic"] = self.topic
        found["log"] = {check.name: check.document() for check in self.log}
        if self.history_sha256:
            found["judged"] = proof_of(self.judgement, self.history_sha256)
        return found

    def page(self) -> str:
        """The HTML report of `raftlog verify`, with the log's checks among those of a run."""
        return render(self.judgement, self._folder())

    def _folder(self) -> RunFolder:
        return RunFolder(
            place=self.place,
            history_sha256=self.history_sha256,
            invariants={
                check.name: {
                    "status": _STATUS[check.status],
                    "checked": check.checked,
                    "note": check.says if check.holds else f"{check.says}: {check.evidence}",
                }
                for check in self.log
            },
        )


def judgement_of(verdict: Verdict, header: Header) -> Judgement:
    """A judgement for the page, from a history that is too long for one process. Its operations are
    those that the witnesses name."""
    operations: dict[int, Interval] = {}
    # The operations of the first failure come first, because the page looks for them in that form.
    for result in (*verdict.failures(), *verdict.classes.values()):
        for op in result.witness.operations if result.witness is not None else ():
            operations.setdefault(op.index, op)
    facts = Facts()
    facts.add_all([operations[index] for index in sorted(operations)])
    return Judgement(
        verdict=attrs.evolve(verdict, notes=[*verdict.notes, _WITNESSES_ONLY]),
        header=header,
        operations=[operations[index] for index in sorted(operations)],
        nemesis=(),
        facts=facts,
        settings={"model": verdict.model, "reads": verdict.mode},
    )


def write_report(report: SparkReport, path: Path) -> None:
    """Write the report: the JSON document if the name ends in .json, else HTML."""
    as_json = path.suffix == ".json"
    # The page must equal that of `raftlog verify` in every byte, because that command checks
    # reports.
    text = json.dumps(report.document(), indent=1) + "\n" if as_json else report.page()
    path.write_text(text, encoding="utf-8")
