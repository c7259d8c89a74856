"""Shrinks a plan of guests to the fewest steps that fail with the same signature."""

from collections.abc import Sequence
from typing import Final

import attrs

from raftlog_sim.base.minimise import Effort, minimise, one_by_one, simplify
from raftlog_sim.base.outcome import signature
from raftlog_sim.subjects.guest_plan import GuestPlan, GuestStep
from raftlog_sim.subjects.guest_run import play
from raftlog_sim.subjects.pysyncobj import NO_COMPACTION

_ROUND_MS: Final = (100, 10)
_GAP_MS: Final = 1_000
_COMPACTIONS: Final = (4, 8)
_SETTLE_MS: Final = 4_000


def shrink(plan: GuestPlan, original: str, effort: Effort) -> GuestPlan:
    """Returns a plan with a part of these steps that fails with the signature `original`."""

    def fails(candidate: GuestPlan) -> bool:
        return signature(play(candidate).failure) == original

    def steps_fail(steps: list[GuestStep]) -> bool:
        return fails(attrs.evolve(plan, steps=tuple(steps)))

    plan = simplify(plan, _smaller, one_by_one(fails, effort))
    before = 0
    while len(plan.steps) != before and effort.may_go_on():
        before = len(plan.steps)
        steps = minimise(plan.steps, one_by_one(steps_fail, effort), effort)
        plan = attrs.evolve(plan, steps=tuple(steps))
        plan = simplify(plan, _simpler, one_by_one(fails, effort))
    return plan


def _smaller(plan: GuestPlan) -> Sequence[GuestPlan]:
    """Returns candidates with less to do: a shorter end, compaction after fewer entries, fewer
    steps."""
    found = []
    if plan.settle_ms > _SETTLE_MS:
        found.append(attrs.evolve(plan, settle_ms=_SETTLE_MS))
    found += [
        attrs.evolve(plan, settings=attrs.evolve(plan.settings, compaction_entries=entries))
        for entries in _COMPACTIONS
        if entries < plan.settings.compaction_entries < NO_COMPACTION
    ]
    return found


def _simpler(plan: GuestPlan) -> Sequence[GuestPlan]:
    """Returns candidates with shorter gaps and rounder times."""
    found = []
    for place in range(1, len(plan.steps)):
        gap = plan.steps[place].at_ms - plan.steps[place - 1].at_ms - _GAP_MS
        if gap > 0:
            later = (step._replace(at_ms=step.at_ms - gap) for step in plan.steps[place:])
            found.append(attrs.evolve(plan, steps=(*plan.steps[:place], *later)))
    for unit in _ROUND_MS:
        rounded = tuple(step._replace(at_ms=step.at_ms // unit * unit) for step in plan.steps)
        if rounded != plan.steps:
            found.append(attrs.evolve(plan, steps=rounded))
    return found
