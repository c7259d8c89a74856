"""The files of named scenarios: short texts in `sim/scenarios` with steps and expected results.

    # ack-before-own-sync
    # What a follower acknowledged must survive the power of both followers.
    set seed 3
    mutants 3
    reaches torn-tail-cut
    100 produce slot=0 partition=0 count=4
    120 power node=n2+n3 keep=none for 200
    => ok
    => struck: power 1
    => mutant 3: leader-completeness

Lines with `=>` are the results of the last rewriting; a run that gives other lines fails. The other
lines:

* `set` gives an option of the run (`SimOptions`), or of a guest's plan.
* `mutants` are planted bugs that must make it fail.
* `reaches` are probes without which it does not test what it says; `avoids` are probes that it must
  not pass.
* `demands as-drawn` says that its demands at an instant (`must-be-led`) hold with the draws of its
  own seed, and may not with another.
* Steps are those of `step_kinds.KINDS`, or of a guest's plan when the file says `subject
  pysyncobj`.

Result lines say what *kind* of thing happened, and no number that any change of timing would move.
Those of guests say everything, since a library does not change.
"""

from pathlib import Path
from typing import Any, Final, final

import attrs

import raftlog_sim
from raftlog.base.errors import OperatingError
from raftlog_sim.base.outcome import failure_class
from raftlog_sim.playing.cases import BROKERS, PYSYNCOBJ, BrokerCase, Case, GuestCase, guest_tools
from raftlog_sim.schedules.options import SimOptions, options_from
from raftlog_sim.schedules.schedule import Schedule, Step, schedule_from, step
from raftlog_sim.schedules.step_kinds import KINDS

FOLDER: Final = Path(raftlog_sim.__file__).resolve().parent.parent / "scenarios"
SUFFIX: Final = ".txt"
RESULT: Final = "=>"
GUEST_LINE: Final = f"subject {PYSYNCOBJ}"
NOT_OF_THE_RUN: Final = ("mutants", "reaches", "avoids", "demands")
AS_DRAWN: Final = "demands as-drawn"
_SEE_STEPS: Final = "see docs/reference/scenario_steps.md for how a line is written"
_NAME_ANOTHER: Final = (
    "name one that there is, or say how many: `set brokers 5`, `set partitions 3`"
)


@final
@attrs.frozen(kw_only=True)
class Scenario:
    """The text of one file. Reading it needs no library; playing that of guests does."""

    name: str
    lines: tuple[str, ...]
    """The file without its results."""
    numbers: tuple[int, ...]
    """The number in the file of each of these lines."""
    mutants: tuple[str, ...]
    reaches: tuple[str, ...]
    avoids: tuple[str, ...]
    expected: tuple[str, ...]

    @property
    def title(self) -> str:
        """The first line of its story."""
        return self.lines[0].lstrip("# ").strip() if self.lines else ""

    @property
    def demands_always(self) -> bool:
        """Whether its demands hold whatever its seed draws."""
        return AS_DRAWN not in self.lines

    @property
    def expected_plain(self) -> list[str]:
        """The results that it must have without planted bugs."""
        return [line for line in self.expected if not of_mutant(line)]

    @property
    def fails_as(self) -> str:
        """The class of the failure that its file expects; empty when it must pass."""
        first = self.expected[0].removeprefix(RESULT).strip() if self.expected else ""
        return "" if first == "ok" else failure_class(first)

    @property
    def subject(self) -> str:
        """The subject that the scenario simulates."""
        return PYSYNCOBJ if GUEST_LINE in self.lines else BROKERS

    @property
    def size(self) -> int:
        """Returns how many steps it has."""
        return sum(line[:1].isdigit() for line in self.lines)

    @property
    def case(self) -> Case:
        """Returns the case to play. Raises `OperatingError` naming the line that makes
        no sense."""
        placed = dict(zip(self.numbers, self.lines, strict=True))
        bare = [
            _of_the_run(placed.get(number, "")) for number in range(1, max(placed, default=0) + 1)
        ]
        if self.subject == PYSYNCOBJ:
            return GuestCase(plan=guest_tools().parse("\n".join(bare)))
        return BrokerCase(schedule=_schedule(self.name, bare)[0])

    def line_of(self, head: str) -> int:
        """Returns the number of the first line that begins with this word; 1 without one."""
        placed = zip(self.numbers, self.lines, strict=True)
        return next((number for number, line in placed if line.startswith(f"{head} ")), 1)


def names() -> list[str]:
    """Returns the names of this checkout's scenarios, sorted."""
    if not FOLDER.is_dir():
        raise OperatingError(
            "scenarios are in a checkout only", on=str(FOLDER), do="clone the repository"
        )
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def load(name: str) -> Scenario:
    """Returns the scenario of that name. Raises `OperatingError` when there is none."""
    path = FOLDER / f"{name}{SUFFIX}"
    if not path.is_file():
        raise OperatingError(f"no scenario {name}", on=str(path), do="name one that there is")
    return read(name, path.read_text(encoding="utf-8"))


def read(name: str, text: str) -> Scenario:
    """Read a scenario from a text; its `case` checks whether its steps make sense."""
    lines = [line.rstrip() for line in text.splitlines()]
    numbered = [each for each in enumerate(lines, 1) if not each[1].startswith(RESULT)]
    kept = tuple(line for _, line in numbered)
    return Scenario(
        name=name,
        lines=kept,
        numbers=tuple(number for number, _ in numbered),
        mutants=tuple(_words(kept, "mutants")),
        reaches=tuple(_words(kept, "reaches")),
        avoids=tuple(_words(kept, "avoids")),
        expected=tuple(line for line in lines if line.startswith(RESULT)),
    )


def is_scenario(text: str) -> bool:
    """Whether a file is a scenario: steps of brokers, or a story with its results."""
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
    if text.startswith("#") and any(line.startswith(RESULT) for line in lines):
        return True
    if GUEST_LINE in lines:
        return False  # a plan of guests, which has the same form and another reader
    return any(line[0].isdigit() for line in lines) and text.lstrip()[:1] not in ("{", "[")


def _words(lines: tuple[str, ...], head: str) -> list[str]:
    return [word for line in lines if line.startswith(f"{head} ") for word in line.split()[1:]]


def _of_the_run(line: str) -> str:
    """Returns the line, or "" in its place, so that errors can name line numbers."""
    other = line.partition(" ")[0] in NOT_OF_THE_RUN or line.startswith(RESULT)
    return "" if other else line


@final
@attrs.frozen(kw_only=True)
class Told:
    """The content of a file by its lines. `settings` are (line, option, value). `steps` are (line,
    step), in the order of their instants."""

    settings: tuple[tuple[int, str, Any], ...]
    steps: tuple[tuple[int, Step], ...]


def told(name: str, text: str) -> Told:
    """Read a scenario of brokers. Raises `OperatingError` naming the line that makes no sense."""
    lines = [_of_the_run(line.rstrip()) for line in text.splitlines()]
    if GUEST_LINE in lines:
        raise OperatingError(f"a scenario of {PYSYNCOBJ}", on=name, do="give one of brokers")
    return _schedule(name, lines)[1]


def _schedule(name: str, lines: list[str]) -> tuple[Schedule, Told]:
    options: dict[str, Any] = {"seed": 1}
    settings: list[tuple[int, str, Any]] = []
    steps: list[tuple[int, Step]] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        try:
            if len(words) < 2 + (words[0] == "set"):
                raise ValueError("a word is missing")
            if words[0] == "set":
                options[words[1]] = _value(words[2])
                settings.append((number, words[1], options[words[1]]))
            else:
                steps.append((number, parse_step(words)))
        except (ValueError, OperatingError) as error:
            why, do = str(error), _SEE_STEPS
            if isinstance(error, OperatingError):
                why, do = f"{error.on}: {error.what}", error.do or do
            raise OperatingError(
                f"a scenario's line makes no sense: {line[:80]!r} ({why})",
                on=f"{name}, line {number}",
                do=do,
            ) from error
    run = _options(name, options, {setting: number for number, setting, _ in settings})
    for number, each in steps:
        missing = _missing(each, run)
        if missing:
            raise OperatingError(missing, on=f"{name}, line {number}", do=_NAME_ANOTHER)
    steps.sort(key=lambda each: each[1].at_ms)
    said = Told(settings=tuple(settings), steps=tuple(steps))
    found = Schedule(run, tuple(each for _, each in steps))
    try:
        return schedule_from(found.document()), said  # it bounds the number of steps too
    except OperatingError as error:
        raise OperatingError(error.what, on=name, do="divide the file, or lower counts") from None


def _options(name: str, options: dict[str, Any], lines: dict[str, int]) -> SimOptions:
    """Returns the options of a file. Raises `OperatingError` on the line that sets a wrong one.

    When two do not go together, the named one may have its default. Then the error is on the first
    line that sets any option.
    """
    try:
        return options_from(options)
    except OperatingError as error:
        number = lines.get(error.on, min(lines.values(), default=1))
        what = f"{error.on}: {error.what}"
        raise OperatingError(what, on=f"{name}, line {number}", do=error.do) from None


def _missing(step: Step, options: SimOptions) -> str:
    """Returns a node or partition of a step that its run does not have; "" when all exist.

    A step of a file would silently do nothing. In a schedule that was made smaller it may.
    """
    for name, form in KINDS[step.kind].arguments:
        value = step.argument(name)
        words = str(value).split("+") if form == "nodes" else []
        for word in words:
            if word.startswith("n") and int(word[1:]) > options.brokers:
                return f"there is no node {word}: this run has n1 to n{options.brokers}"
        parts = [word.partition(":") for word in words]
        roles = [number for role, _, number in parts if number and role != "coordinator"]
        partitions = [int(role) for role in roles] + ([int(value)] if name == "partition" else [])
        for partition in partitions:
            if partition >= options.partitions:
                last = options.partitions - 1
                return f"there is no partition {partition}: this run has 0 to {last}"
    return ""


def _value(text: str) -> Any:
    if text in ("yes", "no", "true", "false"):
        return text in ("yes", "true")
    return int(text) if text.lstrip("-").isdigit() else text


def parse_step(words: list[str]) -> Step:
    """Parse `120 power node=leader:0 keep=none for 300`, as `str(step)` writes it."""
    lasting = 0
    if len(words) >= 4 and words[-2] == "for":
        lasting, words = _whole(words[-1], "for"), words[:-2]
    forms = dict(KINDS[words[1]].arguments) if words[1] in KINDS else {}
    arguments: dict[str, Any] = {}
    for word in words[2:]:
        key, _, value = word.partition("=")
        arguments[key] = _whole(value, key) if forms.get(key) in ("small", "int") else value
    at = _whole(words[0], "the instant, in milliseconds,")
    return step(at, words[1], lasting, **arguments)


def _whole(word: str, what: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise ValueError(f"{what} is {word[:80]!r}, not a whole number") from None


def of_mutant(line: str) -> bool:
    """Whether a line of results is about a planted bug."""
    return line.startswith(f"{RESULT} mutant ")


def rewritten(scenario: Scenario, found: list[str]) -> str:
    """Returns the file with these results."""
    return "\n".join([*scenario.lines, *found]) + "\n"
