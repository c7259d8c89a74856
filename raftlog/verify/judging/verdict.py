"""Verdicts: what the judge concludes, with the evidence, as a value and as JSON.

`invalid` carries a witness. `unknown` names the budget that ran out, and is never turned into
valid. Any invalid class makes the whole invalid, else any unknown one makes it unknown. A class for
which the history lacks evidence is `not checked`, which is not the same as zero found. Where no
class was checked nothing was judged, and the whole is unknown: a pass of nothing is no pass.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.verify.histories.interval import Interval

VERSION: Final = 1
JUDGE: Final = 4
"""The version of the rules: raised with every change after which a verdict may differ."""
VALID: Final = "valid"
INVALID: Final = "invalid"
UNKNOWN: Final = "unknown"
NOT_CHECKED: Final = "not checked"
EXIT_CODES: Final = {VALID: 0, INVALID: 1, UNKNOWN: 2}


@final
@attrs.frozen(kw_only=True)
class Witness:
    """The smallest evidence: a sentence, the operations in contradiction, and their place."""

    text: str
    key: str | None = None
    offset: int | None = None
    operations: tuple[Interval, ...] = ()
    detail: Mapping[str, Any] = attrs.field(factory=dict)

    def document(self) -> dict[str, Any]:
        """The witness as JSON."""
        return {
            "text": self.text,
            "key": self.key,
            "offset": self.offset,
            "operations": [op.summary() for op in self.operations],
            **self.detail,
        }


@final
@attrs.frozen(kw_only=True)
class ClassResult:
    """One class of anomaly: how often, whether that is allowed here, and the first witness."""

    name: str
    count: int
    allowed: bool
    status: str
    witness: Witness | None = None
    note: str = ""

    def document(self) -> dict[str, Any]:
        """The class as verdict.json has it."""
        found: dict[str, Any] = {
            "count": self.count,
            "allowed": self.allowed,
            "status": self.status,
            "witness": None if self.witness is None else self.witness.document(),
        }
        if self.note:
            found["note"] = self.note
        return found


@final
@attrs.define(eq=False)
class Findings:
    """Collects what the checks find: a count per class, the first witness, budgets that ran out."""

    counts: dict[str, int] = attrs.field(factory=dict)
    witnesses: dict[str, Witness] = attrs.field(factory=dict)
    exhausted: dict[str, str] = attrs.field(factory=dict)
    checked: dict[str, None] = attrs.field(factory=dict)
    forbidden: dict[str, int] = attrs.field(factory=dict)
    """Class -> findings that count as invalid even where the class is allowed by default."""
    always: frozenset[str] = frozenset()
    """Classes that the caller allows by name, in every form."""

    def check(self, *names: str) -> None:
        """Note that these classes have the evidence they need."""
        self.checked.update(dict.fromkeys(names))

    def add(self, name: str, witness: Callable[[], Witness], count: int = 1) -> None:
        """Count `count` more of class `name`; `witness` is called for the first only."""
        self.check(name)
        self.counts[name] = self.counts.get(name, 0) + count
        if name not in self.witnesses:
            self.witnesses[name] = witness()

    def forbid(self, name: str, witness: Callable[[], Witness]) -> None:
        """Count one of class `name` that the default allowance does not cover."""
        self.check(name)
        if name not in self.forbidden:
            self.witnesses[name] = witness()
        self.forbidden[name] = self.forbidden.get(name, 0) + 1

    def forget(self, name: str) -> None:
        """Take it that class `name` cannot be judged on this history after all."""
        self.counts.pop(name, None)
        self.witnesses.pop(name, None)
        self.checked.pop(name, None)

    def give_up(self, name: str, budget: str) -> None:
        """Note that the named budget ran out before class `name` was decided."""
        self.check(name)
        self.exhausted.setdefault(name, budget)

    def result(self, name: str, *, allowed: bool) -> ClassResult:
        """The verdict on one class."""
        count = max(self.counts.get(name, 0), self.forbidden.get(name, 0))
        allowed = allowed and (name not in self.forbidden or name in self.always)
        note = ""
        if count:
            status = VALID if allowed else INVALID
        elif name in self.exhausted:
            status, note = UNKNOWN, self.exhausted[name]
        else:
            status = VALID if name in self.checked else NOT_CHECKED
        return ClassResult(
            name=name,
            count=count,
            allowed=allowed,
            status=status,
            witness=self.witnesses.get(name),
            note=note,
        )


@final
@attrs.frozen(kw_only=True)
class Verdict:
    """The judgement of one history."""

    classes: Mapping[str, ClassResult]
    operations: int
    mode: str
    model: str
    metrics: Mapping[str, Any] = attrs.field(factory=dict)
    budget: Mapping[str, Any] = attrs.field(factory=dict)
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        found = ", ".join(f"{each.name} {each.count}" for each in self.failures())
        judged = amount(self.operations, "operation", grouped=True)
        return f"{self.verdict}: {judged}{found and f'; {found}'}"

    @property
    def verdict(self) -> str:
        """`valid`, `invalid` or `unknown`."""
        statuses = [result.status for result in self.classes.values()]
        if INVALID in statuses:
            return INVALID
        return UNKNOWN if UNKNOWN in statuses or self.judged_nothing else VALID

    @property
    def judged_nothing(self) -> bool:
        """Whether the history has no evidence for any class."""
        return all(result.status == NOT_CHECKED for result in self.classes.values())

    @property
    def exit_code(self) -> int:
        """0 valid, 1 invalid, 2 unknown."""
        return EXIT_CODES[self.verdict]

    @property
    def lacking(self) -> list[ClassResult]:
        """The classes of this model for which the history has no evidence."""
        of_log = self.model == "log"
        return [
            result
            for name, result in self.classes.items()
            if result.status == NOT_CHECKED and of_log == (name != "model")
        ]

    def failures(self) -> list[ClassResult]:
        """The classes that make the history invalid, most telling first."""
        return [result for result in self.classes.values() if result.status == INVALID]

    def document(
        self, invariants: Mapping[str, Any] | None = None, *, whole: str | None = None
    ) -> dict[str, Any]:
        """The content of verdict.json.

        `invariants` are the run's own checks. `whole` is the verdict on the run where those say
        more than the history, else None.
        """
        return {
            "version": VERSION,
            "verdict": self.verdict if whole is None else whole,
            "history": self.verdict,
            "model": self.model,
            "mode": self.mode,
            "operations": self.operations,
            "classes": {name: result.document() for name, result in self.classes.items()},
            "invariants": dict(invariants) if invariants is not None else {},
            "budget": dict(self.budget),
            "metrics": dict(self.metrics),
            "notes": list(self.notes),
        }


def with_note_on_nothing(verdict: Verdict) -> Verdict:
    """The verdict; where nothing was judged, with a note why it is unknown."""
    if not verdict.judged_nothing:
        return verdict
    why = "nothing was judged: no operation could show an anomaly of any class"
    return attrs.evolve(verdict, notes=[*verdict.notes, why])
