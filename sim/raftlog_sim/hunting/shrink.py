"""Shrinks a schedule to the fewest faults and operations that fail in the same way.

Passes, in turn:

1. Leave out everything after the failure.
2. Replace a producer's many steps by one load each, and many reads of a partition by one.
3. Leave out clients, coarsely, since they make the run long.
4. Leave out whole kinds of faults, whole producers, all reads.
5. Leave out faults one by one.
6. Try the loads once more, under other seeds too.
7. While that is still much, draw a part of it under other seeds.
8. Leave out clients to the last.
9. Make the cluster smaller, set options to their defaults, join a producer's steps into one, and
   make numbers (records, durations) smaller.
10. Begin again at 5 while it helps.

Each candidate is a whole run. It counts only when it fails in the same class with the same
signature. The draws of a seed are keyed by stream, so leaving a step out shifts no draw of any
other. The run after the missing step may differ all the same, so every candidate is run.

A run in trio mode takes ten times as long, so first of all the heap world is tried, under some
seeds. A cluster that does not come to rest takes long to say so. Candidates of such a failure get a
third of the time first, and those that are left get the whole of it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs

from raftlog.base.units import NANOS_PER_MILLI
from raftlog_sim.base.minimise import Effort, minimise, simplify
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.base.streams import Stream
from raftlog_sim.hunting.trials import ALONE, Helpers, Original, Trials, trials
from raftlog_sim.playing.cases import BrokerCase, Case, GuestCase, guest_tools
from raftlog_sim.playing.simulation import Run
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import SMALL_MAX, Argument, Schedule, Step
from raftlog_sim.schedules.step_kinds import is_fault

TIME_LIMIT_S: Final = 300.0
ROUND_MS: Final = 10
MARGIN_MS: Final = 20
EVENTS_MARGIN: Final = 4
"""A candidate that needs this many times the events of the original fails in another way."""
LATE_NS: Final = 1_500 * NANOS_PER_MILLI
"""How much later than the original a candidate may break an invariant, in nanoseconds."""
_COARSE: Final = 8
_CUTS: Final = 5
_MANY: Final = 4
_SEEDS_FIRST: Final = 2
_SEEDS: Final = 24
_SEEDS_WITHOUT_TRIO: Final = 8
_SEEDS_APART: Final = 1_000_003
_SEEDS_END: Final = 1 << 63
_FEW: Final = 10
"""A run with at most this many steps is not shrunk by luck, that is by drawn parts."""
_KEPT_OF_8: Final = (4,) * 24 + (6,) * 24 + (7,) * 24
"""How many of eight steps each drawn part keeps."""
_REPEATED: Final = ("produce", "read")
"""Kinds of steps of which many become one of `_LOADS`, in this order."""
_LOADS: Final = ("load", "reads")
"""Kinds of steps that end with a count and an interval, and so stand for many."""
_SLOTTED: Final = ("produce", "pipeline")
"""Kinds of steps that begin with a producer's slot, a partition and a count."""
_JUDGED_LATE: Final = ("liveness", "history-", "lost-acknowledged", "equal-files")
"""Classes of failures that show only at the end of a run, at any time."""
_BRIEF_LIVENESS_SECONDS: Final = 20
_PLAIN: Final = SimOptions(seed=0)


def shrink_case(case: Case, outcome: Outcome, effort: Effort, helpers: Helpers = ALONE) -> Case:
    """Returns the smallest case found that fails in the same class with the same signature."""
    if isinstance(case, BrokerCase):
        return BrokerCase(schedule=shrink(case.schedule, outcome, effort, helpers))
    assert isinstance(case, GuestCase), case
    return GuestCase(plan=guest_tools().shrink(case.plan, outcome.signature, effort))


def shrink(
    schedule: Schedule, outcome: Outcome, effort: Effort, helpers: Helpers = ALONE
) -> Schedule:
    """Returns the smallest schedule found; `schedule` itself when nothing smaller fails.

    `outcome` is the failed outcome of `schedule`.
    """
    assert outcome.failure, "a run that passes has nothing to shrink"
    late = outcome.failure_class.startswith(_JUDGED_LATE)
    whole = Original(
        outcome.signature,
        EVENTS_MARGIN * max(outcome.events, 500),
        None if late else outcome.simulated_ns + LATE_NS,
    )
    failed_ms = _failed_ms(schedule, outcome)
    with trials(helpers) as trials_of:
        judge = trials_of(whole, effort)
        schedule = _without_trio(schedule, judge)
        brief = attrs.evolve(whole, liveness_seconds=_BRIEF_LIVENESS_SECONDS)
        briefly = trials_of(brief, effort)
        if outcome.failure_class == "liveness" and briefly.fails(schedule):
            for found in _passes(schedule, failed_ms, briefly):
                if found != schedule and not judge.confirms(found):
                    break
                schedule = found
            else:
                return schedule
        for found in _passes(schedule, failed_ms, judge):
            schedule = found
        return schedule


def _without_trio(schedule: Schedule, judge: Trials) -> Schedule:
    """Leave trio mode, under the first of some seeds where the heap world still fails."""
    if not schedule.options.trio:
        return schedule
    options = attrs.evolve(schedule.options, trio=False)
    heap = attrs.evolve(schedule, options=options)
    candidates = [_under_seed(heap, number) for number in range(_SEEDS_WITHOUT_TRIO)]
    place = judge.first(candidates)
    return schedule if place is None else candidates[place]


def _passes(schedule: Schedule, failed_ms: int | None, judge: Trials) -> Iterator[Schedule]:
    """Yields the schedule after the first, coarse pass, and after each of the others."""
    effort = judge.effort
    found = _cut_off(schedule, failed_ms, judge)
    found = _load_for_many(found, judge, _SEEDS_FIRST)
    found = _fewer(found, judge, clients=True, coarse=True)
    found = _without_kinds(found, judge)
    yield found
    before = None
    while found != before and effort.may_go_on():
        before = found
        found = _fewer(found, judge, clients=False)
        found = _load_for_many(found, judge, _SEEDS)
        found = _drawn_parts(found, judge)
        found = simplify(found, lambda one: list(_shorter(one)), judge.first)
        found = _fewer(found, judge, clients=True)
        found = simplify(found, lambda one: list(_simpler(one)), judge.first)
        yield found


def _failed_ms(schedule: Schedule, outcome: Outcome) -> int | None:
    """Returns the instant of a failure in the safety phase, in milliseconds; None when it is
    unknown.

    The set-up is run once more to know when that phase began. In trio mode only a whole run would
    tell.
    """
    if outcome.document.get("phase") != "safety" or schedule.options.trio:
        return None
    run = Run(schedule)
    while run.phase == "set-up":
        run.advance()
    return (outcome.simulated_ns - run.world.now) // NANOS_PER_MILLI


# --- steps ----------------------------------------------------------------------------------------


def _cut_off(schedule: Schedule, failed_ms: int | None, judge: Trials) -> Schedule:
    """Leave out the steps after the failure.

    They begin at its instant when it is in the safety phase. Otherwise the border is found by
    halving, as if a failure came in all longer runs too.
    """
    if failed_ms is not None:
        candidate = _until(schedule, failed_ms + 1)
        if candidate != schedule and judge.fails(candidate):
            return candidate
    found, passes_ms = schedule, 0
    for _ in range(_CUTS):
        end_ms = (passes_ms + found.options.safety_ms) // 2
        candidate = _until(found, end_ms)
        if judge.fails(candidate):
            found = candidate
        else:
            passes_ms = end_ms
    return found


def _until(schedule: Schedule, end_ms: int) -> Schedule:
    if end_ms >= schedule.options.safety_ms or end_ms <= 0:
        return schedule
    steps = tuple(step for step in schedule.steps if step.at_ms < end_ms)
    options = attrs.evolve(schedule.options, safety_ms=end_ms, fault_gaps_ms=())
    return attrs.evolve(schedule, options=options, steps=steps)


def _without_kinds(schedule: Schedule, judge: Trials) -> Schedule:
    """Leave out all steps of a kind, or of a producer, the most numerous first.

    Each costs one run, where step by step would cost many. After a success all are tried once more,
    since kinds depend on each other.
    """
    sizes: dict[tuple[Argument, ...], int] = {}
    for step in schedule.steps:
        sizes[_family(step)] = sizes.get(_family(step), 0) + 1
    families = sorted(sizes, key=lambda one: (-sizes[one], str(one)))

    def fewer_kinds(found: Schedule) -> list[Schedule]:
        left = set(map(_family, found.steps))
        return [
            found.with_steps(step for step in found.steps if _family(step) != family)
            for family in families
            if family in left
        ]

    return simplify(schedule, fewer_kinds, judge.first)


def _family(step: Step) -> tuple[Argument, ...]:
    return (step.kind, *step.arguments[:1]) if step.kind in (*_SLOTTED, "load") else (step.kind,)


def _fewer(schedule: Schedule, judge: Trials, *, clients: bool, coarse: bool = False) -> Schedule:
    """Leave out steps of clients, or of the nemesis; the others stay."""
    kept = [step for step in schedule.steps if is_fault(step.kind) == clients]
    loose = [step for step in schedule.steps if is_fault(step.kind) != clients]

    def with_parts(parts: Sequence[Sequence[Step]]) -> Schedule:
        return schedule.with_steps([*kept, *(step for part in parts for step in part)])

    if loose and judge.fails(with_parts([])):
        return with_parts([])
    size = max(1, len(loose) // _COARSE) if coarse else 1
    parts = [tuple(loose[at : at + size]) for at in range(0, len(loose), size)]
    return with_parts(
        minimise(parts, lambda some: judge.first(list(map(with_parts, some))), judge.effort)
    )


# --- numbers and options --------------------------------------------------------------------------


def _shorter(schedule: Schedule) -> Iterator[Schedule]:
    """Yields schedules with an earlier end of the safety phase; the last step tells how early."""
    last = max((step.at_ms + 1 for step in schedule.steps), default=1)
    for end_ms in (last, last + MARGIN_MS, last + 10 * MARGIN_MS):
        if end_ms < schedule.options.safety_ms:
            yield _until(schedule, end_ms)


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    yield from _simpler_options(schedule)
    for places in _many(schedule):
        yield _as_load(schedule, [schedule.steps[place] for place in places])
    yield from _joined(schedule)
    for place, step in enumerate(schedule.steps):
        for simpler in _simpler_step(step):
            steps = [*schedule.steps]
            steps[place] = simpler
            yield schedule.with_steps(steps)


def _load_for_many(schedule: Schedule, judge: Trials, seeds: int) -> Schedule:
    """Returns the first of `_steady` that still fails."""
    candidates = list(_steady(schedule, seeds))
    place = judge.first(candidates)
    return schedule if place is None else candidates[place]


def _steady(schedule: Schedule, seeds: int) -> Iterator[Schedule]:
    """Yields the schedule with loads for a producer's many steps and one step for a partition's
    many reads.

    Then it yields it with loads only. Each comes under a few seeds. A failure that depends on an
    instant survives no other change either. Where only a load and a few faults are left, another
    seed often has such an instant.
    """
    before = schedule
    for kinds in (_REPEATED, _REPEATED[:1]):
        found = _as_loads(schedule, kinds)
        if found not in (schedule, before):
            yield from (_under_seed(found, number) for number in range(seeds))
        before = found


def _drawn_parts(schedule: Schedule, judge: Trials) -> Schedule:
    """Draw parts of the steps under other seeds, as long as one fails and the rest is not small.

    A failure that depends on an instant misses it without any one of the steps. But the remaining
    steps often meet such an instant again, in some seed.
    """
    found = schedule
    while len(found.steps) > _FEW:
        candidates = list(_parts(found))
        place = judge.first(candidates)
        if place is None:
            break
        found = candidates[place]
    return found


def _under_seed(schedule: Schedule, number: int) -> Schedule:
    """Returns the schedule under another seed, one of many; 0 is its own."""
    if number == 0:
        return schedule
    seed = (schedule.options.seed + number * _SEEDS_APART) % _SEEDS_END
    return attrs.evolve(schedule, options=attrs.evolve(schedule.options, seed=seed))


def _parts(schedule: Schedule) -> Iterator[Schedule]:
    """Yields parts of a half first, then larger ones; in every other one producers send loads."""
    bases = (schedule, _as_loads(schedule))
    stream = Stream(schedule.options.seed, f"shrink/{len(schedule.steps)}")
    for number, kept_of_8 in enumerate(_KEPT_OF_8):
        base = bases[number % len(bases)]
        steps = [step for step in base.steps if stream.below(8) < kept_of_8]
        if len(steps) < len(schedule.steps):
            yield _under_seed(attrs.evolve(schedule, steps=tuple(steps)), number)


def _many(schedule: Schedule, kinds: Sequence[str] = _REPEATED) -> list[list[int]]:
    """Returns the places of the many steps of one producer to one partition, and of one partition's
    reads."""
    families: dict[tuple[Argument, ...], list[int]] = {}
    for place, step in enumerate(schedule.steps):
        if step.kind in kinds:
            families.setdefault((step.kind, *step.arguments[:2]), []).append(place)
    return [places for places in families.values() if len(places) >= _MANY]


def _as_loads(schedule: Schedule, kinds: Sequence[str] = _REPEATED) -> Schedule:
    """Returns the schedule with one load for each family of `_many`."""
    found = schedule
    for places in _many(schedule, kinds):
        found = _as_load(found, [schedule.steps[place] for place in places])
    return found


def _as_load(schedule: Schedule, steps: Sequence[Step]) -> Schedule:
    """Returns the schedule with one load in place of these steps of one producer, or reads."""
    first = steps[0]
    reading = first.kind == "read"
    all_of_them = len(steps) if reading else sum(int(step.arguments[2]) for step in steps)
    count = min(SMALL_MAX, all_of_them)
    every_ms = min(SMALL_MAX, max(1, (steps[-1].at_ms - first.at_ms) // max(1, count)))
    whose = first.arguments[:1] if reading else first.arguments[:2]
    kind = "reads" if reading else "load"
    load = Step(first.at_ms, kind, (*whose, count, every_ms))
    rest = [step for step in schedule.steps if step not in steps]
    place = bisect_left(rest, load.at_ms, key=lambda step: step.at_ms)
    return schedule.with_steps([*rest[:place], load, *rest[place:]])


def _joined(schedule: Schedule) -> Iterator[Schedule]:
    """Yields schedules that join a producer's steps: all into one, then each with the next."""
    bursts: dict[tuple[Argument, ...], list[int]] = {}
    for place, step in enumerate(schedule.steps):
        if step.kind in _SLOTTED:
            slot, partition, _, *more = step.arguments
            bursts.setdefault((step.kind, slot, partition, *more), []).append(place)
    for places in bursts.values():
        if len(places) > 2:
            yield _in_one(schedule, places)
    for places in bursts.values():
        for pair in pairwise(places):
            yield _in_one(schedule, pair)


def _in_one(schedule: Schedule, places: Sequence[int]) -> Schedule:
    steps = [*schedule.steps]
    first = steps[places[0]]
    slot, partition, _, *more = first.arguments
    count = min(SMALL_MAX, sum(int(steps[place].arguments[2]) for place in places))
    steps[places[0]] = first._replace(arguments=(slot, partition, count, *more))
    gone = frozenset(places[1:])
    return schedule.with_steps(step for place, step in enumerate(steps) if place not in gone)


def _simpler_options(schedule: Schedule) -> Iterator[Schedule]:
    options = schedule.options
    for name, value in (("brokers", 3), ("brokers", 1), ("partitions", 1), ("controllers", 1)):
        if getattr(options, name) > value:
            yield from _with_options(schedule, name, value)
    for field in attrs.fields(SimOptions):
        plain = getattr(_PLAIN, field.name)
        if field.name in ("seed", "brokers", "controllers", "replication", "partitions"):
            continue
        if field.name in ("safety_ms", "events_max", "profile", "min_in_sync"):
            continue
        if getattr(options, field.name) != plain:
            yield from _with_options(schedule, field.name, plain)


def _with_options(schedule: Schedule, name: str, value: object) -> Iterator[Schedule]:
    """Yields the schedule with that option and all that depends on it; nothing if no run may have
    it."""
    more: dict[str, Any] = {name: value}
    if name == "brokers":
        replication = min(schedule.options.replication, schedule.options.brokers, int(str(value)))
        more["controllers"] = min(schedule.options.controllers, int(str(value)))
        more["replication"] = replication
        more["min_in_sync"] = min(schedule.options.min_in_sync, replication)
        more["core"] = tuple(node for node in schedule.options.core if node <= int(str(value)))
    options = attrs.evolve(schedule.options, **more)
    if options.controllers in (1, 3, 5):
        yield attrs.evolve(schedule, options=options)


def _simpler_step(step: Step) -> Iterator[Step]:
    """Yields variants of a step: fewer records, a shorter fault, a rounder instant."""
    if step.kind in _SLOTTED:
        slot, partition, count, *more = step.arguments
        for fewer in (1, int(count) // 2):
            if 0 < fewer < int(count):
                yield step._replace(arguments=(slot, partition, fewer, *more))
    if step.kind in _LOADS:
        *whose, count, every_ms = step.arguments
        for times in (1, 2):
            if int(count) > 1 and times * int(every_ms) <= SMALL_MAX:
                fewer, wider = int(count) // 2, times * int(every_ms)
                yield step._replace(arguments=(*whose, fewer, wider))
    if step.for_ms > 2 * ROUND_MS:
        yield step._replace(for_ms=step.for_ms // 2 // ROUND_MS * ROUND_MS)
    for unit in (100, ROUND_MS):
        if step.at_ms % unit and step.at_ms > unit:
            yield step._replace(at_ms=step.at_ms // unit * unit)
            return
