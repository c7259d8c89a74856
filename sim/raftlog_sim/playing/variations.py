"""Varied seeds: a named scenario with small changes, as other users could have met it.

People chose each scenario for a reason. Most seeds never come near one, since three faults must
fall in one order within some milliseconds. A varied seed begins there and goes a few steps away. It
has other latencies and sizes, shifted instants, steps left out, records and reads all the while,
and a few more faults. Only what every seed must do is expected of it: `draw_schedule` makes the
others, and the same invariants judge both.

As many seeds in a row as there are scenarios play each of them once, 1 the first. How far a seed
goes away is drawn:

    near    as it is written, but for what networks and disks draw; an option changes seldom
    beside  instants are shifted by up to 3 ms, one step in twenty is left out, other records are
            written and read meanwhile as often as not, and a few faults strike in a third
    far     instants are shifted by up to 40 ms, the whole is stretched or pressed to between a half
            and the double, one step in eight is left out, options change as often as not; records
            and faults as beside

Faults outside the atlas are not drawn. Steps that demand a leader at an instant (`must-be-led`)
are left out. They stay only near a scenario, when no option has changed and the scenario does not
say that its demands hold with its own draws only.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog_sim.base.streams import Stream
from raftlog_sim.playing.cases import BROKERS, BrokerCase
from raftlog_sim.playing.scenario_files import load, names
from raftlog_sim.schedules.drawing import draw_client_steps, draw_fault_steps
from raftlog_sim.schedules.options import FAULTS, NOT_ON_STREAMS, VARIED, SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, Step
from raftlog_sim.schedules.step_kinds import DEMANDS, KINDS, OUTSIDE_ATLAS

_FAULTS_MAX: Final = 3
_SURROUNDINGS: Final = (
    ("encode",), ("sync_us",), ("latency_us", "jitter_us"), ("stale",), ("queue_max",),
    ("split_turns",), ("patient",), ("turn_us",), ("value_bytes", "segment_bytes"),
    ("store_bytes",), ("tear_bytes",), ("snapshot_every",), ("tight",), ("narrow_appends",),
    ("strict_mark",), ("buggify",), ("reboot",),
)  # fmt: skip
"""Options that a variation may take from a drawn seed. Options in one group only fit together. A
scenario keeps its own options unless the variation is far."""


@final
class Distance(NamedTuple):
    """How far a seed is from its scenario: the shift of instants, one step in how many is left out
    (0: none), and one option in how many is drawn. Near seeds add nothing."""

    name: str
    shift_ms: int
    leaves_one_in: int
    draws_one_in: int


DISTANCES: Final = (
    Distance("near", 0, 0, 40),
    Distance("beside", 3, 20, 12),
    Distance("far", 40, 8, 2),
)


@cache
def varied_names() -> tuple[str, ...]:
    """Returns the scenarios that are varied, in the order of seeds 1 and up."""
    return tuple(name for name in names() if _is_varied(name))


def _is_varied(name: str) -> bool:
    scenario = load(name)
    if scenario.subject != BROKERS:
        return False
    return not any(step.kind in OUTSIDE_ATLAS for step in _schedule(name).steps)


def _schedule(name: str) -> Schedule:
    case = load(name).case
    assert isinstance(case, BrokerCase), name
    return case.schedule


def vary(seed: int) -> Schedule:
    """Returns the whole run of a varied seed; the same seed and scenarios give the same schedule.

    Raises `OperatingError` outside a checkout, where there are no scenarios.
    """
    known = varied_names()
    name = known[(seed - 1) % len(known)]
    stream = Stream(seed, "varied")
    distance = DISTANCES[stream.below(len(DISTANCES))]
    written, base = _schedule(name), draw_options(seed, VARIED)
    stretch = stream.between(50, 200) if distance.name == "far" and stream.chance(1, 2) else 100
    drawn_options = dict(_drawn_options(stream.fork("options"), written.options, base, distance))
    options = attrs.evolve(
        written.options,
        seed=seed,
        profile=VARIED,
        scenario=name,
        safety_ms=written.options.safety_ms * max(100, stretch) // 100,
        **drawn_options,
    )
    own = attrs.evolve(written.options, **drawn_options) == written.options
    as_written = distance.name == "near" and own
    left_out = () if as_written and load(name).demands_always else DEMANDS
    wanted = tuple(step for step in written.steps if step.kind not in left_out)
    steps = list(_moved(stream.fork("steps"), wanted, distance, stretch))
    more_records, more_faults = stream.chance(1, 2), stream.chance(1, 3)
    # A throttle that stays for good decides how much a move carries before liveness is judged.
    throttled = any(step.kind == "throttle" and not step.for_ms for step in written.steps)
    if distance.shift_ms and more_records and not throttled:
        steps += draw_client_steps(attrs.evolve(options, producers=1, pipelines=0))
    if distance.shift_ms and more_faults:
        steps += _faults(stream.fork("faults"), options, base)
    return Schedule(options, tuple(each for each in steps if each.at_ms < options.safety_ms))


def _drawn_options(
    stream: Stream, written: SimOptions, base: SimOptions, distance: Distance
) -> Iterator[tuple[str, Any]]:
    """Yields some options of a drawn seed; the scenario's own are kept unless the variation is
    far."""
    usual = SimOptions(seed=1)
    for together in _SURROUNDINGS:
        drawn = stream.chance(1, distance.draws_one_in)
        own = any(getattr(written, name) != getattr(usual, name) for name in together)
        if drawn and (distance.name == "far" or not own):
            yield from ((name, getattr(base, name)) for name in together)


def _moved(
    stream: Stream, steps: tuple[Step, ...], distance: Distance, stretch: int
) -> Iterator[Step]:
    """Yields the steps of the scenario, some left out, the others at other instants."""
    for step in steps:
        shift_ms = stream.between(-distance.shift_ms, distance.shift_ms)
        longer_ms = stream.between(-distance.shift_ms, distance.shift_ms)
        left_out = bool(distance.leaves_one_in) and stream.chance(1, distance.leaves_one_in)
        if left_out:
            continue
        for_ms = step.for_ms * stretch // 100 + longer_ms
        yield step._replace(
            at_ms=max(0, step.at_ms * stretch // 100 + shift_ms),
            for_ms=max(1, for_ms) if step.for_ms and KINDS[step.kind].lasts else step.for_ms,
        )


def _faults(stream: Stream, options: SimOptions, base: SimOptions) -> list[Step]:
    """Draw a few of the faults that a seed draws, wherever they fall."""
    able = [kind for kind in FAULTS if not (options.trio and kind in NOT_ON_STREAMS)]
    gaps = tuple((kind, 8 * gap * (kind in able)) for kind, gap in base.fault_gaps_ms)
    left = list(draw_fault_steps(attrs.evolve(options, fault_gaps_ms=gaps)))
    count = min(len(left), stream.between(1, _FAULTS_MAX))
    return [left.pop(stream.below(len(left))) for _ in range(count)]
