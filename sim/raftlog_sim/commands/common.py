"""The parts that all commands share: options, exit codes, loading a case, reporting a failure."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from raftlog.base.amounts import amount
from raftlog.base.error_text import error_text
from raftlog.base.errors import OperatingError
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.base.probe_names import place_names, reachable_names
from raftlog_sim.commands.names import no_such
from raftlog_sim.hunting import mutation
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import (
    BROKERS,
    PROFILES_OF,
    SUBJECTS,
    Case,
    LibraryMissingError,
    load,
    read_text,
    within,
)
from raftlog_sim.playing.run_folder import RUNS, check_writable
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.schedules.bounds import BOUNDS

DONE: Final = 0
FAILED: Final = 1
DISAGREED: Final = 2
USAGE: Final = 64
INTERRUPTED: Final = 130
PROBES: Final = ("count", "list", "require")
STORY_LINES_MAX: Final = 60
CASE_HELP: Final = "a schedule, a plan, a scenario or a run folder"
LINE_EVERY_SECONDS: Final = 30.0
"""How often progress is printed where there is no terminal, in seconds."""
JOBS_MAX: Final = 256
"""The most processes at a time; each takes some hundred megabytes."""

Parsers = Any  # what argparse's add_subparsers gives has no public type
Command = Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """The command line makes no sense: exit code 64. `on` is the command."""

    def __init__(self, what: str, on: str = "raftlog sim") -> None:
        super().__init__(what)
        self.on = on


class RefusedError(OperatingError):
    """A named file or folder is unusable: it makes no run, or cannot be written.

    The exit code is 64, as for wrong usage.
    """


def add_command(
    parsers: Parsers, name: str, run: Command, what: str, example: str, *, of: str = "raftlog sim"
) -> argparse.ArgumentParser:
    """Add a command with its help and an example. `of` is the command that users call it by."""
    parser: argparse.ArgumentParser = parsers.add_parser(
        name, prog=f"{of} {name}", help=what, description=what, epilog=f"Example: {of} {example}"
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--format", choices=("text", "json"), default="text",
        help="how to print the result: for people (default), or as JSON",
    )  # fmt: skip
    parser.error = partial(usage_error, parser.prog)  # type: ignore[method-assign, assignment]
    return parser


def usage_error(prog: str, message: str) -> None:
    """Raise `UsageError` instead of leaving with exit code 2, as argparse would."""
    raise UsageError(message, prog)


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a seed becomes a case."""
    of_each = "; ".join(
        f"{subject}: {known[0]} (default), {', '.join(known[1:])}"
        for subject, known in PROFILES_OF.items()
    )
    parser.add_argument(
        "--profile", choices=[each for known in PROFILES_OF.values() for each in known],
        help=f"which faults a seed may draw; {of_each}",
    )  # fmt: skip
    parser.add_argument(
        "--subject", choices=SUBJECTS, default=BROKERS,
        help="what is simulated: our own brokers (default), or a library of others",
    )  # fmt: skip
    add_mutant(parser)


def settle(options: argparse.Namespace) -> None:
    """Fill in the default that depends on another option.

    Raises `UsageError` for options that exclude each other.
    """
    if "subject" not in options:
        return
    on, known = f"raftlog sim {options.command}", PROFILES_OF[options.subject]
    options.profile = options.profile or known[0]
    if options.profile not in known:
        what = f"--profile {options.profile} is none of {options.subject}: one of "
        raise UsageError(what + ", ".join(known), on)
    check_mutant(options.mutant, options.subject)


def add_mutant(parser: argparse.ArgumentParser) -> None:
    """Add the option that switches on a planted bug."""
    parser.add_argument(
        "--mutant", default="", metavar="NUMBER",
        help="with this planted bug (a checkout only); RAFTLOG_MUTANT=NUMBER does the same",
    )  # fmt: skip


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a case: a file, or a seed to draw it from."""
    parser.add_argument("file", nargs="?", type=Path, help=CASE_HELP)
    parser.add_argument("--seed", type=seed, metavar="N", help="draw it from a seed instead")
    add_drawing(parser)


def add_probes(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the option that reports unreached rare paths, and also `more` that the command knows."""
    parser.add_argument(
        "--probes", choices=PROBES, default="count",
        help=f"rare paths that nothing reached{more}: count them (default), list them, or fail "
        "when there are any",
    )  # fmt: skip


def tell_missed(options: argparse.Namespace, missed: list[str]) -> None:
    """Print which probes were not reached, as far as the options ask for it."""
    _tell_lacking(options, "probes not reached", missed, len(reachable_names()))


def tell_untaken(options: argparse.Namespace, missed: list[str]) -> None:
    """Print which unusual paths no run took on purpose, as far as the options ask for it."""
    _tell_lacking(options, "unusual paths never taken", missed, len(place_names()))


def _tell_lacking(options: argparse.Namespace, what: str, missed: list[str], total: int) -> None:
    if missed and options.probes == "count":
        print(f"{len(missed)} of {total} {what} (--probes list: which)")
    elif missed:
        print("\n  ".join((f"{what}:", *missed)))


def case_of(options: argparse.Namespace) -> Case:
    """Returns the case that the options name, and switches its mutant on."""
    if (options.file is None) == (options.seed is None):
        raise UsageError("give a FILE or --seed N, not both")
    if options.file is None:
        switch_on(options.mutant)
        return drawn(options.seed, options.profile, options.subject)
    try:
        case, mutant = _loaded(options)
    except LibraryMissingError:
        raise
    except OperatingError as error:
        raise refused(error) from None
    options.mutant = options.mutant or mutant
    check_mutant(options.mutant, case.subject)
    switch_on(options.mutant)
    return case


def refused(error: OperatingError) -> RefusedError:
    """Returns the error as one of wrong usage."""
    return RefusedError(error.what, on=error.on, do=error.do)


def check_folder(folder: Path | None) -> None:
    """Raise `RefusedError`, before any work, when a folder cannot be written."""
    try:
        check_writable(folder or RUNS)
    except OperatingError as error:
        raise refused(error) from None


def _loaded(options: argparse.Namespace) -> tuple[Case, str]:
    """Load a case from a file of any kind.

    A scenario is also kept as `options.scenario`, for the results that its file expects.
    """
    path: Path = options.file
    if path.is_file():
        text = read_text(path)
        if scenario_files.is_scenario(text):
            options.scenario = scenario_files.read(path.stem, text)
            return _scenario(path, options.scenario), ""
    return load(path)


def _scenario(path: Path, scenario: scenario_files.Scenario) -> Case:
    try:
        return scenario.case
    except OperatingError as error:
        raise within(path, error) from None


def check_mutant(number: str, subject: str) -> None:
    """Raise `UsageError` for an unknown planted bug, or one that no run of that subject has."""
    if not number:
        return
    if subject != BROKERS:
        raise UsageError(f"mutant {number} is a bug of {BROKERS}: runs of {subject} do not have it")
    if mutants_known([number])[0].of == mutation.JUDGE:
        raise UsageError(
            f"mutant {number} is a bug of the judge: no seed hunts it, `raftlog sim mutants "
            f"{number}` gives it histories"
        )


def mutants_known(numbers: list[str]) -> list[mutation.Mutant]:
    """Returns the mutants of these numbers. Raises `UsageError` for an unknown number."""
    found = mutation.load()
    unknown = [number for number in numbers if number not in found]
    if unknown:
        raise UsageError(no_such("mutant", unknown[0], found, "raftlog sim mutants --list"))
    return [found[number] for number in numbers]


def switch_on(mutant: str) -> None:
    """Plant a bug in this process; "" plants none."""
    mutation.switch_on_if(mutant)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def seed(text: str) -> int:
    """Parse a seed that a file can hold."""
    low, high = BOUNDS["seed"]
    number = int(text)
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"a seed is a number from {low} to {high}")
    return number


def seeds(text: str) -> range:
    """Parse `A..B`, both included."""
    low, dots, high = text.partition("..")
    if not dots or not (low.isdecimal() and high.isdecimal()) or seed(low) > seed(high):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not A..B")
    return range(int(low), int(high) + 1)


def jobs(text: str) -> int:
    """Parse a number of processes."""
    found = positive(text)
    if found > JOBS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is more than {JOBS_MAX}")
    return found


def positive(text: str) -> int:
    """Parse a number of at least 1."""
    return _at_least(1, text)


def count(text: str) -> int:
    """Parse a number of at least 0."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    found = int(text)
    if found < least:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not at least {least}")
    return found


def seconds(text: str) -> float:
    """Parse a time limit in seconds."""
    found = float(text)
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no number of seconds")
    return found


def tell(outcome: Outcome, case: Case) -> None:
    """Print the outcome of a run for people: verdict first."""
    print(f"{outcome.failure or 'ok'}")
    document = outcome.document
    print(
        f"seed {outcome.seed}: {amount(outcome.events, 'event')}, {amount(case.size, 'step')}, "
        f"{outcome.simulated_ns / 1e9:.1f} simulated s, {document['acknowledged']} of "
        f"{amount(document['sent'], 'record')} acknowledged, trace {outcome.trace_hash}"
    )
    if document.get("faults"):
        print(f"faults: {_counts(document['faults'])}")
    if document.get("struck_nothing"):
        print(told_in_vain(document["struck_nothing"], case.size))
    if document.get("buggified"):
        print(f"taken on purpose: {_counts(document['buggified'])}")
    if document.get("core"):
        print(f"core phase: {document['core']}")
    for phase, counts in document.get("demanded", {}).items():
        print(f"demanded, {phase}: {_counts(counts)}")
    for line in outcome.story[:STORY_LINES_MAX]:
        print(f"  {line}")
    if len(outcome.story) > STORY_LINES_MAX:
        print(f"  ... {amount(len(outcome.story) - STORY_LINES_MAX, 'more line')} in trace.txt")


def told_in_vain(in_vain: list[str], size: int) -> str:
    """Returns the line about steps that did nothing, in a run of `size` steps.

    It names all such steps of a short run, as people write them, and the first one of a long run.
    """
    few = in_vain if size <= STORY_LINES_MAX else in_vain[:1]
    more = "" if len(few) == len(in_vain) else ", ..."
    return f"struck nothing: {amount(len(in_vain), 'step')} ({'; '.join(few)}{more})"


def print_json(document: dict[str, Any]) -> None:
    """Print one document on standard output."""
    print(json.dumps({"version": 1, **document}))


def print_error(error: OperatingError, *, as_json: bool) -> None:
    """Print an error on standard error, in the form of every command."""
    print(error_text(error.what, error.on, error.do, as_json=as_json), file=sys.stderr)


@final
class Deadline:
    """The real time that a command may take; infinite without a limit."""

    def __init__(self, seconds: float) -> None:
        self.began = time.perf_counter()
        self.seconds = seconds

    def passed(self) -> bool:
        return self.spent > self.seconds

    @property
    def spent(self) -> float:
        """Returns the seconds so far."""
        return time.perf_counter() - self.began


Advance = Callable[[int], None]


def bar(what: str, total: int | None) -> AbstractContextManager[Advance]:
    """Show a progress bar on a terminal; elsewhere a line on standard error every half a minute."""
    return _bar(what, total) if sys.stderr.isatty() else nullcontext(_Lines(what, total).advance)


@final
class _Lines:
    """Prints progress as lines, for a pipe or a file."""

    def __init__(self, what: str, total: int | None) -> None:
        self.what, self.done = what, 0
        self.of = "" if total is None else f" of {total}"
        self.began = self.told = time.perf_counter()

    def advance(self, more: int) -> None:
        self.done += more
        now = time.perf_counter()
        if now - self.told >= LINE_EVERY_SECONDS:
            self.told = now
            line = f"{self.what}: {self.done}{self.of}, {now - self.began:.0f} s"
            print(line, file=sys.stderr, flush=True)


@contextmanager
def _bar(what: str, total: int | None) -> Any:
    from rich.console import Console  # noqa: PLC0415  (costs a fifth of a second)
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(task, amount)
