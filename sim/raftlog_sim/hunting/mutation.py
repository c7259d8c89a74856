"""Planted bugs: patches of the product, kept outside it, each of which must be caught.

A seed must catch a bug of the brokers, and a history one of the judge
(`raftlog_sim.hunting.judge_hunt`). The patches lie in `sim/mutants/` of a checkout and are in no
installed package. A patch cannot be taken back, so a mutant is hunted in a process of its own.
"""

import importlib.util
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from types import FrameType
from typing import Any, Final, NamedTuple

import raftlog_sim
from raftlog.base.errors import OperatingError
from raftlog_sim.base.minimise import Effort
from raftlog_sim.base.outcome import Outcome, failure_class
from raftlog_sim.hunting.shrink import shrink_case
from raftlog_sim.hunting.trials import Helpers
from raftlog_sim.hunting.workers import begin_as_worker, importing_from
from raftlog_sim.playing.cases import case_from_text
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.playing.variations import vary
from raftlog_sim.schedules.options import VARIED, draw_options
from raftlog_sim.schedules.step_kinds import OF_MEMBERS

FOLDER: Final = Path(raftlog_sim.__file__).resolve().parent.parent / "mutants"
VARIABLE: Final = "RAFTLOG_MUTANT"
BROKERS: Final = "brokers"
JUDGE: Final = "judge"

_STEPS_OF: Final = {"members": OF_MEMBERS}
"""Option that mutants need -> the kinds of steps of which a run must have one."""
_switched_on: list[str] = []


class Mutant(NamedTuple):
    """One planted bug. `apply` patches the product in this process, for good. `expected` are the
    failure classes that should catch it, or the kinds of histories for a bug of the judge. A catch
    by another class is shown as such."""

    number: str
    name: str
    apply: Callable[[], None]
    expected: tuple[str, ...] = ()
    of: str = BROKERS
    needs: str = ""
    """An option of runs, from `NEEDS` of the file. In a seed without it nothing of the bug runs, so
    the seed counts as run and is not played."""


def load() -> dict[str, Mutant]:
    """Returns all mutants of this checkout, by number."""
    paths = sorted(FOLDER.glob("*_mutants.py"))
    if not paths:
        raise OperatingError(
            "mutants are in a checkout only", on=str(FOLDER), do="clone the repository"
        )
    modules = [module_of(path) for path in paths]
    found = [
        Mutant(*each)._replace(needs=getattr(module, "NEEDS", ""))
        for module in modules
        for each in module.MUTANTS
    ]
    numbered = {each.number: each for each in sorted(found, key=lambda each: _order(each.number))}
    assert len(numbered) == len(found), "two mutants of one number"
    return numbered


def module_of(path: Path) -> Any:
    """Import a file of the checkout that is in no package."""
    spec = importlib.util.spec_from_file_location(f"raftlog_{path.stem}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _order(number: str) -> tuple[int, str]:
    """Returns the sort key of a number: the canary before 9 before 9b before 10."""
    digits = number.rstrip(ascii_lowercase)
    return int(digits or 0), number.removeprefix(digits)


def switch_on(number: str) -> None:
    """Plant that bug in this process; the same one again changes nothing."""
    if number in _switched_on:
        return
    mutant = named(number)
    if _switched_on:
        raise OperatingError(f"mutant {_switched_on[0]} is on already", on=number)
    mutant.apply()
    _switched_on.append(number)


def named(number: str) -> Mutant:
    """Returns the mutant of that number. Raises `OperatingError` when there is none."""
    found = load()
    if number not in found:
        raise OperatingError(f"no mutant {number}", on=number, do=f"one of {', '.join(found)}")
    return found[number]


def switch_on_if(number: str) -> None:
    """Plant a bug in a worker; "" plants none."""
    if number:
        switch_on(number)


class Hunt(NamedTuple):
    """How a mutant is hunted. `seconds` are of this process's CPU, since machines have other work.
    `kills` is how many failing seeds are wanted, for a median. `shrink_seconds` are those of a
    clock, with `shrink_jobs` candidates at a time; 0 does not shrink. A run fails after
    `run_seconds` of CPU time; with 0 it may run as long as it likes."""

    budget: int = 60
    first: int = 1
    kills: int = 1
    shrink_seconds: float = 0.0
    shrink_jobs: int = 1
    seconds: float = 600.0
    profile: str = "swarm"
    run_seconds: float = 0.0


def hunt(number: str, plan: Hunt) -> dict[str, Any]:
    """Run seeds until enough of them fail; returns the row of the mutant.

    It says which seeds failed, what caught it, and how small the first failing one shrinks.
    """
    row: dict[str, Any] = _elsewhere(_hunt_here, number, plan)
    if "shrunk" in row:
        replayed = _elsewhere(_replay_here, number, row["shrunk"]["text"])
        row["shrunk"]["replays"] = replayed == row["by_signature"]
    row.pop("by_signature", None)
    return row


def _elsewhere(call: Callable[..., Any], number: str, *args: Any) -> Any:
    """Returns the result of `call` for that mutant in a process of its own."""
    with own_process(number) as ask:
        return ask(call, *args)


@contextmanager
def own_process(number: str, home: str = "") -> Iterator[Callable[..., Any]]:
    """Start a process of its own for a mutant, for the block.

    `ask(call, *args)` returns what `call` returns there for the number and these arguments. The
    process may have helpers. It ends with the block or with this process. It imports from the
    folder `home` before any other.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, initializer=begin_as_worker) as executor:

        def ask(call: Callable[..., Any], *args: Any) -> Any:
            try:
                with importing_from(home):  # the first call starts the process
                    asked = executor.submit(call, number, *args)
                return asked.result()
            except BrokenProcessPool as error:
                raise OperatingError(
                    "the process that played it died", on=f"mutant {number}",
                    do="see whether memory ran out, and hunt it again",
                ) from error  # fmt: skip
            except BaseException:
                for process in multiprocessing.active_children():
                    process.terminate()
                raise

        yield ask


def _replay_here(number: str, text: str) -> str:
    """Returns the signature of that plan's failure, in a process that has run nothing before."""
    switch_on(number)
    return case_from_text(text).play().signature


def _hunt_here(number: str, plan: Hunt) -> dict[str, Any]:
    switch_on(number)
    return hunted_here(load()[number], plan)


def hunted_here(mutant: Mutant, plan: Hunt) -> dict[str, Any]:
    """Returns the row of a mutant that is planted in this process."""
    number = mutant.number
    began = time.process_time()
    row: dict[str, Any] = {"number": number, "name": mutant.name, "killed": False, "tried": 0}
    row |= {"profile": plan.profile, "expected": list(mutant.expected), "by": {}, "seeds": []}
    row["what"] = ""
    first: tuple[int, Outcome] | None = None
    for seed in range(plan.first, plan.first + plan.budget):
        if time.process_time() - began > plan.seconds or len(row["seeds"]) >= plan.kills:
            break
        row["tried"] += 1
        if not _can_matter(mutant, seed, plan.profile):
            continue
        with run_within(plan.run_seconds):
            outcome = drawn(seed, plan.profile).play()
        if outcome.failure:
            name = failure_class(outcome.failure)
            row["by"][name] = row["by"].get(name, 0) + 1
            row["seeds"].append(seed)
            first = first or (seed, outcome)
    row["killed"] = first is not None
    row["seconds"] = round(time.process_time() - began, 1)
    if first is not None:
        row["what"] = first[1].failure[:300]
        row["by_signature"] = first[1].signature
        if plan.shrink_seconds:
            row["shrunk"] = _shrunk(number, *first, plan)
    return row


@contextmanager
def run_within(seconds: float) -> Iterator[None]:
    """Fail a run in this block that takes more CPU time, by an exception at its present line.

    A planted bug may loop without end. 0 sets no limit.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number
        where = "" if frame is None else f", now in {frame.f_code.co_qualname}"
        raise RuntimeError(f"the run took more than {seconds:.0f} s of CPU time{where}")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def _can_matter(mutant: Mutant, seed: int, profile: str) -> bool:
    if not mutant.needs:
        return True
    if profile == VARIED:  # the steps are the scenario's, with any options
        return any(each.kind in _STEPS_OF[mutant.needs] for each in vary(seed).steps)
    return bool(getattr(draw_options(seed, profile), mutant.needs))


def _shrunk(number: str, seed: int, outcome: Outcome, plan: Hunt) -> dict[str, Any]:
    began = time.perf_counter()
    effort = Effort(out_of_time=lambda: time.perf_counter() - began > plan.shrink_seconds)
    case = drawn(seed, plan.profile)
    helpers = Helpers(plan.shrink_jobs, partial(switch_on_if, number))
    small = shrink_case(case, outcome, effort, helpers)
    seconds = round(time.perf_counter() - began, 1)
    again = small.play()
    return {
        "seed": seed,
        "steps": [case.size, small.size],
        "events": [outcome.events, again.events],
        "tried": effort.tried,
        "finished": not effort.stopped,
        "stopped": effort.stopped,
        "seconds": seconds,
        "jobs": plan.shrink_jobs,
        "text": small.text(),
    }
