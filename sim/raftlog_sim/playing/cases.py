"""A case: a run of any subject as explicit data, which can be played, kept in a file and cut.

A file holds a schedule of our own brokers (JSON), a plan of guests (text), or is a run folder with
"""

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.playing.result import Result
from raftlog_sim.playing.run_trace import RunTrace, replicas_document
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.options import PROFILES
from raftlog_sim.schedules.schedule import Schedule, schedule_from_text
from raftlog_sim.schedules.step_kinds import is_fault
from raftlog_sim.subjects import GUEST_PROFILES, GUEST_SUBJECT, is_guest_plan
from raftlog_sim.workloads.callers import TOPIC

if TYPE_CHECKING:
    from raftlog_sim.subjects.guest_plan import GuestPlan

BROKERS: Final = "brokers"
PYSYNCOBJ: Final = GUEST_SUBJECT
SUBJECTS: Final = (BROKERS, PYSYNCOBJ)
PROFILES_OF: Final = {BROKERS: PROFILES, PYSYNCOBJ: GUEST_PROFILES}
"""Subject -> the profiles whose faults its seeds may draw; the first is the default."""
SCHEDULE_FILE: Final = "schedule.json"
PLAN_FILE: Final = "plan.txt"
FILE_CHARS_MAX: Final = 64 << 20
_WRITTEN: Final = "give a file that run, sweep or shrink wrote"


class Case(Protocol):
    """A run as explicit data."""

    @property
    def subject(self) -> str: ...

    @property
    def file_name(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def size(self) -> int:
        """Returns how many steps the case has: faults and operations of clients."""
        ...

    def text(self) -> str:
        """Returns the content of the file."""
        ...

    def play(self, *, trace: bool = False) -> Outcome:
        """Run the case; the same case gives the same outcome."""
        ...

    def describe(self) -> str:
        """Returns the options, on one line."""
        ...


@final
@attrs.frozen(kw_only=True)
class BrokerCase:
    """A schedule of our own brokers."""

    schedule: Schedule
    subject: str = BROKERS
    file_name: str = SCHEDULE_FILE

    @property
    def seed(self) -> int:
        return self.schedule.options.seed

    @property
    def size(self) -> int:
        return len(self.schedule.steps)

    @property
    def faults(self) -> int:
        return sum(is_fault(step.kind) for step in self.schedule.steps)

    def text(self) -> str:
        return self.schedule.text()

    def play(self, *, trace: bool = False) -> Outcome:
        watcher = RunTrace()
        return outcome_of(simulate(self.schedule, watch=watcher.watch if trace else None), watcher)

    def describe(self) -> str:
        return json.dumps(self.schedule.options.document())


def outcome_of(result: Result, watcher: RunTrace) -> Outcome:
    """Returns an `Outcome` for a run of brokers."""
    verdict: dict[str, Any] = {
        "version": 1,
        "verdict": "invalid" if result.failure else "unknown",
        "invariants": result.invariants,
    }
    if result.verdict is not None:
        verdict = result.verdict.document(result.invariants)
    return Outcome(
        seed=result.options.seed,
        failure=result.failure,
        trace_hash=result.trace_hash,
        events=result.events,
        simulated_ns=result.simulated_ns,
        document=result.document(),
        verdict=verdict,
        history=result.history,
        trace=tuple(watcher.lines),
        replicas={} if watcher.world is None else replicas_document(watcher.world, TOPIC),
        probes=result.probes,
        near_faults=result.near_faults,
    )


@final
@attrs.frozen(kw_only=True)
class GuestCase:
    """A plan of guests."""

    plan: "GuestPlan"
    subject: str = PYSYNCOBJ
    file_name: str = PLAN_FILE

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def size(self) -> int:
        return len(self.plan.steps)

    def text(self) -> str:
        return self.plan.text()

    def play(self, *, trace: bool = False) -> Outcome:
        guests = guest_tools()
        result = guests.play(self.plan)
        return Outcome(
            seed=self.seed,
            failure=result.failure,
            trace_hash=result.trace_hash,
            events=result.events,
            simulated_ns=result.simulated_ns,
            document={**result.document(), "options": self.plan.document()},
            verdict=result.verdict().document() if trace else {},
            history=result.history,
            trace=result.trace,
            story=tuple(result.story()),
        )

    def describe(self) -> str:
        return json.dumps(self.plan.document())


class LibraryMissingError(OperatingError):
    """The library that is to be simulated is not installed, which is no fault of the case."""


def guest_tools() -> Any:
    """Import the modules that need the library, an extra. Raises `LibraryMissingError`."""
    try:
        from raftlog_sim.subjects import guests  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise LibraryMissingError(
            "the library to simulate is not installed",
            on=str(error.name),
            do="pip install 'raftlog[pysyncobj]'",
        ) from error
    return guests


def why_no_guests() -> str:
    """Returns why guests cannot be played here, and what to do; "" when they can."""
    try:
        guest_tools()
    except LibraryMissingError as error:
        return f"{error.on} is not installed: {error.do}"
    return ""


def case_from_text(text: str) -> Case:
    """Read a file of either kind. Raises `OperatingError` when it is neither."""
    if text.lstrip().startswith("{"):
        return BrokerCase(schedule=schedule_from_text(text))
    if not is_guest_plan(text):
        raise OperatingError(
            f"neither a schedule (JSON) nor a plan (`subject {PYSYNCOBJ}`)", do=_WRITTEN
        )
    return GuestCase(plan=guest_tools().parse(text))


def load(path: Path) -> tuple[Case, str]:
    """Load the case in a file or run folder, and the number of the mutant that it needs, or "".

    An `OperatingError` is `on` the path, and on the place in the file where there is one.
    """
    manifest = (path if path.is_dir() else path.parent) / "run.json"
    mutant = _mutant_of(manifest) if manifest.exists() else ""
    file = file_of(path)
    text = read_text(file)
    try:
        return case_from_text(text), mutant
    except OperatingError as error:
        raise within(file, error) from None


def file_of(path: Path) -> Path:
    """Returns the file of a case: the path itself, or the file in a run folder."""
    if not path.is_dir():
        return path
    for name in (SCHEDULE_FILE, PLAN_FILE):
        if (path / name).exists():
            return path / name
    raise OperatingError(
        f"no run folder: it holds no {SCHEDULE_FILE} and no {PLAN_FILE}", on=str(path), do=_WRITTEN
    )


def within(path: Path, error: OperatingError) -> OperatingError:
    """Returns the error of a part of a file, on the file and that part.

    A missing library is no error of the file.
    """
    if isinstance(error, LibraryMissingError):
        return error
    place = f"{path}, {error.on}" if error.on not in ("", "schedule") else str(path)
    return OperatingError(error.what, on=place, do=error.do or _WRITTEN)


def read_text(path: Path) -> str:
    """Read a regular file. Raises `OperatingError` when there is none, or it is too large."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a FIFO waits for a writer, a device never ends
            raise OperatingError("is no regular file", on=str(path), do=_WRITTEN)
        with path.open(encoding="utf-8") as stream:
            text = stream.read(FILE_CHARS_MAX + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise OperatingError(what, on=str(path), do=_WRITTEN) from None
    except UnicodeDecodeError as error:
        what = f"is no text: {error.reason} at byte {error.start}"
        raise OperatingError(what, on=str(path), do=_WRITTEN) from None
    if len(text) > FILE_CHARS_MAX:
        raise OperatingError(
            f"longer than {FILE_CHARS_MAX >> 20} million characters", on=str(path), do=_WRITTEN
        )
    return text


def _mutant_of(manifest: Path) -> str:
    try:
        found = json.loads(read_text(manifest)).get("mutant", "")
    except (OperatingError, ValueError, AttributeError, RecursionError):
        return ""
    return found if isinstance(found, str) else ""
