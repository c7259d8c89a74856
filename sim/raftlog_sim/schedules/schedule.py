"""A run as explicit data: options, and a list of steps that say what happens when, to whom.

Any subset of the steps is a legal run: a step whose target is not there does nothing, and the end
of a step belongs to the step (`for_ms`). Targets have names, so a subset still means the same. A
name is a node's number, or a role that is looked up when the step strikes.

    n2            node 2
    leader:0      the leader of partition 0 of the topic
    follower:0    the lowest-numbered running node with a replica of partition 0 that does not lead
    controller    the leader of the metadata group
    coordinator:0 the coordinator of the consumer group g0
    most-led      the node that leads the most partitions
    n1+leader:2   several
    all           every node

The document form is plain JSON, `{"version": 1, "options": {...}, "steps": [{"at": 120, "kind":
"power", "node": "leader:0", "keep": "none", "for": 300}, ...]}`. It round-trips exactly. The reader
refuses everything that it does not know.
"""

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog_sim.schedules.bounds import TIME_MAX_MS
from raftlog_sim.schedules.options import SimOptions, options_from
from raftlog_sim.schedules.step_kinds import KINDS

VERSION: Final = 1
STEPS_MAX: Final = 100_000
REPEATING: Final = ("load", "reads")
"""Kinds that stand for `count` steps each."""
SMALL_MAX: Final = 999
_BELOW: Final = {"small": SMALL_MAX + 1, "int": 1 << 40}
_TARGET: Final = re.compile(
    r"(n[1-9][0-9]{0,2}|leader:[0-9]{1,3}|follower:[0-9]{1,3}|coordinator:[0-9]{1,3}|controller|most-led|all)"
)
_WRITTEN: Final = "give a file that run, sweep or shrink wrote"
_SEE_KINDS: Final = "see docs/reference/scenario_steps.md for what each kind takes"
_OTHER_WORDS: Final = {"kill": "crash", "isolate": "partition", "delay": "slow-link"}
"""Words of the fault verbs and of other tools -> the kind that does so."""
_FORMS: Final = {
    "small": f"an integer from 0 to {SMALL_MAX}",
    "int": "an integer from 0 up",
    "nodes": "a node or several: n1, leader:0, follower:0, controller, n1+n2, all",
}
"""The types of arguments, in words."""
Argument = int | str


@final
class Step(NamedTuple):
    """A step at an instant, in milliseconds from the start of the safety phase. With `for_ms` 0 a
    step that lasts goes on until everything is healed."""

    at_ms: int
    kind: str
    arguments: tuple[Argument, ...]
    for_ms: int = 0

    def argument(self, name: str) -> Argument:
        """Returns an argument by its name."""
        names = [each for each, _ in KINDS[self.kind].arguments]
        return self.arguments[names.index(name)]

    def document(self) -> dict[str, Argument]:
        """Returns the step as JSON."""
        found: dict[str, Argument] = {"at": self.at_ms, "kind": self.kind}
        for (name, _), value in zip(KINDS[self.kind].arguments, self.arguments, strict=True):
            found[name] = value
        if self.for_ms:
            found["for"] = self.for_ms
        return found

    def __str__(self) -> str:
        words = " ".join(
            f"{name}={value}"
            for (name, _), value in zip(KINDS[self.kind].arguments, self.arguments, strict=True)
        )
        lasting = f" for {self.for_ms}" if self.for_ms else ""
        return f"{self.at_ms} {self.kind} {words}{lasting}"


def step(at_ms: int, kind: str, for_ms: int = 0, **arguments: Argument) -> Step:
    """Make a checked step. Raises `OperatingError` for values that no step can have."""
    spec = KINDS.get(kind)
    if spec is None:
        raise OperatingError("no such kind of step", on=f"{kind!r:.80}", do=_nearest(kind))
    wanted = [name for name, _ in spec.arguments]
    if sorted(arguments) != sorted(wanted):
        given = _with_equals(sorted(arguments))[:200]
        raise OperatingError(
            f"it takes {_with_equals(wanted)}, not {given}", on=kind, do=_SEE_KINDS
        )
    _check_time(kind, "at", at_ms)
    _check_time(kind, "for", for_ms)
    if for_ms and not spec.lasts:
        raise OperatingError("it happens at once and does not last", on=kind, do="leave `for` out")
    for name, form in spec.arguments:
        _check_argument(kind, name, form, arguments[name])
    return Step(at_ms, kind, tuple(arguments[name] for name in wanted), for_ms)


def _nearest(kind: str) -> str:
    """Returns a suggestion in place of a kind that does not exist."""
    near = [_OTHER_WORDS[kind]] if kind in _OTHER_WORDS else get_close_matches(kind, KINDS, 3)
    if not near:
        return "see docs/reference/scenario_steps.md for all of them"
    return f"write {' or '.join(near)}, or see docs/reference/scenario_steps.md for all of them"


def _with_equals(names: list[str]) -> str:
    return " ".join(f"{name}=" for name in names) or "nothing"


def _check_time(kind: str, name: str, value: object) -> None:
    if type(value) is not int or not 0 <= value <= TIME_MAX_MS:
        raise OperatingError(
            f"{name} is {value!r:.80}, not ms up to {TIME_MAX_MS}", on=kind, do=_SEE_KINDS
        )


def _check_argument(kind: str, name: str, form: str, value: object) -> None:
    if form in _BELOW:
        good = type(value) is int and 0 <= value < _BELOW[form]
    elif form == "nodes":
        good = isinstance(value, str) and is_target(value)
    else:
        good = value in form.split("|")
    if not good:
        wanted = _FORMS.get(form, form.replace("|", " or "))
        raise OperatingError(f"{name} is {value!r:.80}, not {wanted}", on=kind, do=_SEE_KINDS)


def is_target(text: str) -> bool:
    """Whether the text names nodes, as in the module's docstring."""
    return len(text) <= 200 and all(_TARGET.fullmatch(part) for part in text.split("+"))


def _in_order(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda each: each.at_ms))


@final
@attrs.frozen
class Schedule:
    """A whole run. Steps are kept in the order of their instants; equal instants in the order
    given."""

    options: SimOptions
    steps: tuple[Step, ...] = attrs.field(converter=_in_order)

    def with_steps(self, steps: Iterable[Step]) -> "Schedule":
        """Returns the same run with other steps."""
        return Schedule(self.options, tuple(steps))

    def document(self) -> dict[str, Any]:
        """Returns the run as JSON; `schedule_from` reads it back."""
        return {
            "version": VERSION,
            "options": self.options.document(),
            "steps": [each.document() for each in self.steps],
        }

    def text(self) -> str:
        """Returns the document as text, a line for each step; equal schedules give equal text."""
        rows = ",\n".join(json.dumps(each.document()) for each in self.steps)
        options = json.dumps(self.options.document())
        return f'{{"version": {VERSION}, "options": {options}, "steps": [\n{rows}\n]}}\n'


def schedule_from(document: object) -> Schedule:
    """Returns the schedule of a document.

    Raises `OperatingError` for another version, an unknown kind or option, and every impossible
    value.
    """
    if not isinstance(document, dict):
        raise OperatingError("a schedule is an object", on="schedule", do=_WRITTEN)
    if document.get("version") != VERSION:
        raise OperatingError(
            f"version {document.get('version')!r:.80} is not {VERSION}", on="schedule",
            do="replay it with the release that wrote it",
        )  # fmt: skip
    unknown = sorted(set(document) - {"version", "options", "steps"})
    if unknown:
        raise OperatingError(f"unknown member {unknown[0]!r:.80}", on="schedule", do=_WRITTEN)
    rows = document.get("steps")
    if not isinstance(rows, list) or len(rows) > STEPS_MAX:
        raise OperatingError(f"steps are a list of at most {STEPS_MAX}", on="schedule", do=_WRITTEN)
    options = options_from(document.get("options"))
    steps = tuple(_step_from(row, number) for number, row in enumerate(rows))
    repeated = sum(int(each.argument("count")) for each in steps if each.kind in REPEATING)
    if repeated > STEPS_MAX:
        raise OperatingError(
            f"{' and '.join(REPEATING)} stand for {amount(repeated, 'step')}, at most {STEPS_MAX}",
            on="schedule", do=_WRITTEN,
        )  # fmt: skip
    return Schedule(options, steps)


def _step_from(row: object, number: int) -> Step:
    if not isinstance(row, dict) or not all(isinstance(name, str) for name in row):
        raise OperatingError("a step is an object", on=f"step {number}", do=_WRITTEN)
    arguments = {name: row[name] for name in row if name not in ("at", "kind", "for")}
    kind = row.get("kind")
    if not isinstance(kind, str):
        raise OperatingError("a step has a kind", on=f"step {number}", do=_WRITTEN)
    if {"at_ms", "for_ms"} & set(arguments):
        raise OperatingError("instants are `at` and `for`", on=f"step {number}", do=_WRITTEN)
    try:
        return step(row.get("at", -1), kind, row.get("for", 0), **arguments)
    except OperatingError as error:
        raise OperatingError(error.what, on=f"step {number}: {error.on}", do=error.do) from None


def schedule_from_text(text: str) -> Schedule:
    """Returns the schedule of a JSON text, as `schedule_from` does."""
    try:
        return schedule_from(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise OperatingError(f"not JSON: {error}", on="schedule", do=_WRITTEN) from None
