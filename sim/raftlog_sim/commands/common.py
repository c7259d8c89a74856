"""What the commands share: options, exit codes, how a case is found and a failure is told."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, final

from raftlog.base.errors import OperatingError
from raftlog_sim import mutation, scenarios
from raftlog_sim.bounds import BOUNDS
from raftlog_sim.cases import (
    BROKERS,
    SUBJECTS,
    Case,
    LibraryMissingError,
    drawn,
    load,
    read_text,
    within,
)
from raftlog_sim.options import PROFILES
from raftlog_sim.outcome import Outcome
from raftlog_sim.probe_names import reachable_names
from raftlog_sim.run_folder import RUNS, check_writable
from raftlog_sim.subjects import GUEST_PROFILES

DONE: Final = 0
FAILED: Final = 1
DISAGREED: Final = 2
USAGE: Final = 64
INTERRUPTED: Final = 130
PROBES: Final = ("count", "list", "require")
STORY_LINES_MAX: Final = 60

Parsers = Any  # what argparse's add_subparsers gives has no public type
Command = Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """The command line makes no sense: exit code 64. `on` is the command."""

    def __init__(self, what: str, on: str = "raftlog sim") -> None:
        super().__init__(what)
        self.on = on


class RefusedError(OperatingError):
    """What was named is of no use, a file of which no run can be made or a folder that cannot be
    written: exit code 64, as for wrong usage."""


def add_command(
    parsers: Parsers, name: str, run: Command, what: str, example: str
) -> argparse.ArgumentParser:
    """A command with its help and an example."""
    parser: argparse.ArgumentParser = parsers.add_parser(
        name, help=what, description=what, epilog=f"Example: raftlog sim {example}"
    )
    parser.set_defaults(run=run)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.error = partial(usage_error, parser.prog)  # type: ignore[method-assign, assignment]
    return parser


def usage_error(prog: str, message: str) -> None:
    """For argparse, which would leave with 2."""
    raise UsageError(message, prog)


def add_drawing(parser: argparse.ArgumentParser) -> None:
    """Options that say how a seed becomes a case."""
    parser.add_argument(
        "--profile", choices=(*PROFILES, *GUEST_PROFILES), default="swarm",
        help="which faults a seed may draw",
    )  # fmt: skip
    parser.add_argument(
        "--subject", choices=SUBJECTS, default=BROKERS, help="what is simulated (our own brokers)"
    )
    add_mutant(parser)


def add_mutant(parser: argparse.ArgumentParser) -> None:
    """The planted bug to switch on."""
    parser.add_argument(
        "--mutant", default="", metavar="NUMBER",
        help="with this planted bug (a checkout only); RAFTLOG_MUTANT=NUMBER does the same",
    )  # fmt: skip


def add_source(parser: argparse.ArgumentParser) -> None:
    """A case: from a file, or drawn from a seed."""
    parser.add_argument("file", nargs="?", type=Path, help="a schedule, a plan or a run folder")
    parser.add_argument("--seed", type=seed, help="draw it instead")
    add_drawing(parser)


def add_probes(parser: argparse.ArgumentParser) -> None:
    """What is said of rare paths that nothing reached."""
    parser.add_argument(
        "--probes", choices=PROBES, default="count",
        help="rare paths that nothing reached: count them, list them, or fail when there are any",
    )  # fmt: skip


def tell_missed(options: argparse.Namespace, missed: list[str]) -> None:
    """Say which probes were not reached, as far as that was asked for."""
    if missed and options.probes == "count":
        total = len(reachable_names())
        print(f"{len(missed)} of {total} probes not reached (--probes list: which)")
    elif missed:
        print("\n  ".join(("probes not reached:", *missed)))


def case_of(options: argparse.Namespace) -> Case:
    """The case that these options name, with its mutant switched on."""
    if (options.file is None) == (options.seed is None):
        raise UsageError("give a FILE or --seed N, not both")
    if options.file is None:
        switch_on(options.mutant)
        return drawn(options.seed, options.profile, options.subject)
    try:
        case, mutant = _loaded(options.file)
    except LibraryMissingError:
        raise
    except OperatingError as error:
        raise refused(error) from None
    options.mutant = options.mutant or mutant
    switch_on(options.mutant)
    return case


def refused(error: OperatingError) -> RefusedError:
    """The error as one of usage."""
    return RefusedError(error.what, on=error.on, do=error.do)


def check_folder(folder: Path | None) -> None:
    """Raises `RefusedError` for a folder that cannot be written, before any work is done for it."""
    try:
        check_writable(folder or RUNS)
    except OperatingError as error:
        raise refused(error) from None


def _loaded(path: Path) -> tuple[Case, str]:
    """A file of any kind, scenarios among them."""
    if path.is_file():
        text = read_text(path)
        if scenarios.is_scenario(text):
            return _scenario(path, text), ""
    return load(path)


def _scenario(path: Path, text: str) -> Case:
    try:
        return scenarios.read(path.stem, text).case
    except OperatingError as error:
        raise within(path, error) from None


def switch_on(mutant: str) -> None:
    """Plant a bug in this process. Raises `UsageError` for one that there is not."""
    if not mutant:
        return
    found = mutation.load()
    if mutant not in found:
        raise UsageError(f"no mutant {mutant}; there are {', '.join(found)}")
    mutation.switch_on(mutant)


def counted(number: int, what: str) -> str:
    """`1 seed`, `2 seeds`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def seed(text: str) -> int:
    """A seed that a file can hold."""
    low, high = BOUNDS["seed"]
    number = int(text)
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"a seed is a number from {low} to {high}")
    return number


def seeds(text: str) -> range:
    """`A..B`, both included."""
    low, dots, high = text.partition("..")
    if not dots or not (low.isdecimal() and high.isdecimal()) or seed(low) > seed(high):
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not A..B")
    return range(int(low), int(high) + 1)


def jobs(text: str) -> int:
    """How many processes."""
    found = int(text)
    if found < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not at least 1")
    return found


def seconds(text: str) -> float:
    """A time limit."""
    found = float(text)
    if not found >= 0:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is no number of seconds")
    return found


def tell(outcome: Outcome, case: Case) -> None:
    """What became of a run, for people: verdict first."""
    print(f"{outcome.failure or 'ok'}")
    document = outcome.document
    print(
        f"seed {outcome.seed}: {outcome.events} events, {case.size} steps, "
        f"{outcome.simulated_ns / 1e9:.1f} simulated s, {document['acknowledged']} of "
        f"{document['sent']} records acknowledged, trace {outcome.trace_hash}"
    )
    if document.get("faults"):
        print(f"faults: {_counts(document['faults'])}")
    if document.get("buggified"):
        print(f"taken on purpose: {_counts(document['buggified'])}")
    for line in outcome.story[:STORY_LINES_MAX]:
        print(f"  {line}")
    if len(outcome.story) > STORY_LINES_MAX:
        print(f"  ... {len(outcome.story) - STORY_LINES_MAX} more lines in trace.txt")


def print_json(document: dict[str, Any]) -> None:
    """One document on standard output."""
    print(json.dumps({"version": 1, **document}))


def error_line(error: OperatingError) -> str:
    """As every command of ours says it."""
    return json.dumps({"error": {"what": error.what, "on": error.on, "do": error.do}})


@final
class Deadline:
    """Real time that a command may take; no limit when there is none."""

    def __init__(self, seconds: float) -> None:
        self.began = time.perf_counter()
        self.seconds = seconds

    def passed(self) -> bool:
        return self.spent > self.seconds

    @property
    def spent(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self.began


Advance = Callable[[int], None]


def bar(what: str, total: int | None) -> AbstractContextManager[Advance]:
    """A progress bar on a terminal; nothing elsewhere."""
    return _bar(what, total) if sys.stderr.isatty() else nullcontext(lambda amount: None)


@contextmanager
def _bar(what: str, total: int | None) -> Any:
    from rich.console import Console  # noqa: PLC0415  (costs a fifth of a second)
    from rich.progress import Progress  # noqa: PLC0415

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda amount: progress.advance(task, amount)
