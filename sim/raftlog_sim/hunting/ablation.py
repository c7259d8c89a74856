"""Ablation: finds the kinds of faults on which the discovery of a planted bug depends.

Its seeds are hunted with all kinds, then once more without each kind. A kind is a source of faults,
as in `fault_gaps_ms` of a seed's options. Each kind draws from a stream of its own, so a seed
without it keeps all its other faults. A seed in which the kind is off, or draws nothing, was played
before. When two kinds do the same, the hunt depends on neither.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog_sim.base.outcome import failure_class
from raftlog_sim.hunting.mutation import Hunt, own_process, switch_on
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions, draw_options

NOTHING: Final = ""
"""Stands for a kind when all of them strike."""

_Known = dict[int, str]
"""Seed -> the class of its failure with all kinds; empty when it passes."""


@final
class AblationResult(NamedTuple):
    """The outcome of a hunt without one kind: the first failing seed (None for none), its failure
    class, and how many seeds were tried. `out_of_time` says that they were fewer than allowed."""

    without: str
    seed: int | None
    by: str
    tried: int
    changed: int
    """How many of the tried seeds had faults of that kind."""
    out_of_time: bool

    def document(self) -> dict[str, Any]:
        """Returns the outcome as JSON."""
        return self._asdict()


def hunts(
    number: str, plan: Hunt, kinds: Sequence[str], tell: Callable[[list[AblationResult]], None]
) -> list[AblationResult]:
    """Hunt a mutant with all kinds of faults and, if a seed fails, without each of `kinds`.

    `plan` says which seeds, and how much CPU time each hunt may take. `tell` is called after each
    hunt with all hunts so far.
    """
    known: _Known = {}
    found: list[AblationResult] = []
    with own_process(number) as ask:
        for kind in (NOTHING, *kinds):
            each, known = ask(_hunt_here, plan, kind, known)
            found.append(each)
            tell(found)
            if found[0].seed is None:
                break
    return found


def without(options: SimOptions, kind: str) -> SimOptions:
    """Returns the options with that kind of faults switched off, and nothing else drawn again."""
    gaps = tuple((name, 0 if name == kind else gap) for name, gap in options.fault_gaps_ms)
    return attrs.evolve(options, fault_gaps_ms=gaps)


def _hunt_here(number: str, plan: Hunt, kind: str, known: _Known) -> tuple[AblationResult, _Known]:
    """Hunt in a process with the mutant; returns the hunt, and all that is known after it."""
    switch_on(number)
    began, tried, changed = time.process_time(), 0, 0
    for seed in range(plan.first, plan.first + plan.budget):
        if time.process_time() - began > plan.seconds:
            break
        whole = draw_schedule(draw_options(seed, plan.profile))
        part = draw_schedule(without(whole.options, kind))
        tried += 1
        if part.steps != whole.steps:
            changed += 1
            failure = failure_class(simulate(part).failure)
        else:
            if seed not in known:
                known[seed] = failure_class(simulate(whole).failure)
            failure = known[seed]
        if failure:
            return AblationResult(kind, seed, failure, tried, changed, out_of_time=False), known
    return AblationResult(kind, None, "", tried, changed, out_of_time=tried < plan.budget), known
