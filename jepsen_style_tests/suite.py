"""The matrix: every workload under every nemesis, for as long as told, and a table of verdicts.

The controls come first: a broken disk must be judged invalid, and so must lies about a run that was
valid. Then pairs are taken in an order drawn from the seed, each before any comes again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, product
from pathlib import Path
from random import Random
from typing import Any, Final, final

import attrs

from jepsen_style_tests import control, runner
from jepsen_style_tests.nemeses.all import NEMESES
from jepsen_style_tests.runner import RunOutcome, RunPlan
from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.verify import check_history
from raftlog.verify.judging.verdict import INVALID, UNKNOWN, VALID

CONTROL_SECONDS: Final = 12.0
NO_RUN: Final = "did-not-run"
CONTROL_TRIES: Final = 3
"""The power may fail at a moment when nothing was pretended; three times in a row it does not."""


@final
@attrs.define(eq=False)
class SuiteRow:
    """One pair of the matrix, over all its runs."""

    workload: str
    nemesis: str
    runs: int = 0
    operations: int = 0
    faults: int = 0
    longest_gap_ms: int = 0
    verdicts: list[str] = attrs.field(factory=list)
    failing: list[str] = attrs.field(factory=list)
    folders: list[str] = attrs.field(factory=list)
    """The folders of runs that were not valid."""
    skipped: str = ""

    @property
    def verdict(self) -> str:
        """The worst of its runs."""
        for verdict in (INVALID, UNKNOWN):
            if verdict in self.verdicts:
                return verdict
        return VALID if self.verdicts else "skipped"

    def take(self, outcome: RunOutcome) -> None:
        """One more run."""
        self.runs += 1
        self.operations += outcome.operations
        self.faults += outcome.faults
        self.longest_gap_ms = max(self.longest_gap_ms, outcome.longest_gap_ms)
        self.verdicts.append(outcome.verdict)
        if outcome.verdict != VALID:
            self.failing += [name for name in outcome.failing if name not in self.failing]
            self.folders.append(str(outcome.folder))

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {**attrs.asdict(self), "verdict": self.verdict}


@final
@attrs.frozen(kw_only=True)
class Orders:
    """The settings of the suite."""

    minutes: float
    seconds: float
    seed: int
    workloads: Sequence[str]
    nemeses: Sequence[str]
    client: str
    programs: Path | None = None
    controls: bool
    folder: Path


@final
@attrs.frozen(kw_only=True)
class SuiteResult:
    """The findings of the suite. `controls` maps a control to whether it was caught."""

    rows: list[SuiteRow]
    controls: dict[str, bool]
    seconds: float

    @property
    def exit_code(self) -> int:
        """1 when anything was invalid or a control was not caught, 2 when something is unknown."""
        verdicts = [row.verdict for row in self.rows]
        if INVALID in verdicts or not all(self.controls.values()):
            return 1
        return 2 if UNKNOWN in verdicts else 0

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {
            "version": 1,
            "seconds": round(self.seconds),
            "controls": self.controls,
            "runs": sum(row.runs for row in self.rows),
            "operations": sum(row.operations for row in self.rows),
            "rows": [row.document() for row in self.rows],
        }


def run(orders: Orders, say: Callable[[str], None]) -> SuiteResult:
    """Run until the time is up; every pair at least starts in its turn."""
    began = time.monotonic()
    rows = {
        pair: SuiteRow(*pair, skipped=NEMESES[pair[1]].setup.missing())
        for pair in product(orders.workloads, orders.nemeses)
        if pair[1] != control.BROKEN_DISK.name
    }
    controls: dict[str, bool] = {}
    if orders.controls:
        controls["broken-disk"] = _broken_disk_is_caught(orders, say)
    deadline = time.monotonic() + orders.minutes * 60
    for workload, nemesis, seed in _order(orders, [p for p in rows if not rows[p].skipped]):
        if time.monotonic() >= deadline:
            break
        outcome = _one(orders, workload, nemesis, seed, say)
        rows[workload, nemesis].take(outcome)
        if orders.controls and outcome.verdict == VALID:
            for kind in control.LIES.get(workload, ()):
                if kind not in controls:
                    controls[kind] = _lie_is_caught(outcome, kind)
    return SuiteResult(
        rows=list(rows.values()), controls=controls, seconds=time.monotonic() - began
    )


def _order(orders: Orders, pairs: list[tuple[str, str]]) -> Iterator[tuple[str, str, int]]:
    """Rounds over all pairs, each shuffled, each with its own seed."""
    for lap in count() if pairs else ():
        seed = orders.seed + lap
        shuffled = list(pairs)
        Random(f"{seed} order").shuffle(shuffled)
        for workload, nemesis in shuffled:
            yield workload, nemesis, seed


def _one(
    orders: Orders, workload: str, nemesis: str, seed: int, say: Callable[[str], None]
) -> RunOutcome:
    plan = RunPlan(
        workload=workload,
        nemesis=nemesis,
        seconds=orders.seconds,
        seed=seed,
        client=orders.client,
        programs=orders.programs,
    )
    folder = orders.folder / f"{workload}-{nemesis}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        outcome = runner.run(plan, folder, _quiet)
    except OperatingError as error:  # a broker that cannot start must not end the whole suite
        outcome = _no_run(plan, folder, error)
    words = " ".join(outcome.failing)
    say(
        f"{outcome.verdict:8}{workload:11} {nemesis:16} seed {seed:<4} "
        f"{outcome.operations:7,} operations, gap {outcome.longest_gap_ms:6,} ms, "
        f"{outcome.seconds:4.0f} s {words}".rstrip()
    )
    return outcome


def _no_run(plan: RunPlan, folder: Path, error: OperatingError) -> RunOutcome:
    """A run that came to nothing: no result, hence unknown, and said so."""
    (folder / "error.txt").write_text(f"{error}\n", encoding="utf-8")
    return RunOutcome(
        plan=plan,
        folder=folder,
        verdict=UNKNOWN,
        failing=(NO_RUN,),
        checks={NO_RUN: {"status": "violated", "note": str(error)}},
        operations=0,
        counts={},
        faults=0,
        seconds=0.0,
        longest_gap_ms=0,
    )


def _quiet(step: str) -> None:
    """A suite says one line a run."""


def _broken_disk_is_caught(orders: Orders, say: Callable[[str], None]) -> bool:
    quick = attrs.evolve(orders, seconds=CONTROL_SECONDS)
    name = control.BROKEN_DISK.name
    return any(
        _one(quick, "append", name, orders.seed + attempt, say).verdict == INVALID
        for attempt in range(CONTROL_TRIES)
    )


def _lie_is_caught(outcome: RunOutcome, kind: str) -> bool:
    with (outcome.folder / runner.HISTORY).open(encoding="utf-8") as lines:
        lie = control.group_corrupted if kind in control.GROUP_KINDS else control.corrupted
        return check_history(lie(lines, kind)).verdict == INVALID


def table(result: SuiteResult) -> list[str]:
    """The table as lines of text."""
    lines = [
        f"{'workload':11} {'nemesis':16} {'runs':>4} {'operations':>10} {'gap ms':>7}  verdict"
    ]
    for row in result.rows:
        if not row.runs and not row.skipped:
            verdict = "not reached"
        else:
            verdict = f"skipped: {row.skipped}" if row.skipped else row.verdict
        failing = f" ({', '.join(row.failing)})" if row.failing else ""
        lines.append(
            f"{row.workload:11} {row.nemesis:16} {row.runs:4} {row.operations:10,} "
            f"{row.longest_gap_ms:7,}  {verdict}{failing}"
        )
    for name, caught in result.controls.items():
        lines.append(f"control {name}: {'caught' if caught else 'NOT CAUGHT'}")
    runs = sum(row.runs for row in result.rows)
    operations = sum(row.operations for row in result.rows)
    lines.append(
        f"{amount(runs, 'run')}, {amount(operations, 'operation', grouped=True)}, "
        f"{result.seconds / 60:.1f} minutes"
    )
    return lines
