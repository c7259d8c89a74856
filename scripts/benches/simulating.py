"""Measures how many seeds the simulator plays on a core.

They are seeds of the swarm, with faults, real clients and all invariants: as they are drawn, and
with twenty client operations a simulated second. Seeds of trio mode, which play the real runtime
too, are measured by themselves.
"""

import time
from collections.abc import Iterable

from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import draw_options
from raftlog_sim.schedules.schedule import Schedule
from raftlog_sim.schedules.step_kinds import KINDS

from benches import measuring

SEEDS = range(1, 31)
TRIO_SEEDS = range(1, 61)
OPERATIONS_A_SECOND = 20
LOOP = 2_000_000


def yardstick() -> float:
    """Returns the CPU seconds of a fixed loop, to tell a slow machine from a slow simulator."""
    began, total = time.process_time(), 0
    for number in range(LOOP):
        total += number & 7
    assert total == LOOP // 8 * 28
    return time.process_time() - began


def thinned(schedule: Schedule) -> Schedule:
    """Returns the schedule with a few operations of clients, evenly taken from the drawn ones."""
    clients = [step for step in schedule.steps if KINDS[step.kind].by == "clients"]
    room = max(1, schedule.options.safety_ms * OPERATIONS_A_SECOND // 1_000)
    if len(clients) <= room:
        return schedule
    kept = {id(clients[place * len(clients) // room]) for place in range(room)}
    return schedule.with_steps(
        step for step in schedule.steps if KINDS[step.kind].by != "clients" or id(step) in kept
    )


def played(schedules: Iterable[Schedule]) -> dict[str, float]:
    """Play all schedules and measure the CPU time. A failing seed ends the measurement."""
    began = time.process_time()
    seeds = events = simulated_ns = 0
    for schedule in schedules:
        result = simulate(schedule)
        if result.failure:
            raise SystemExit(f"seed {schedule.options.seed} fails: {result.failure}")
        seeds, events = seeds + 1, events + result.events
        simulated_ns += result.simulated_ns
    seconds = time.process_time() - began
    return {
        "events_a_second": events / seconds,
        "simulated_seconds_a_second": simulated_ns / 1e9 / seconds,
        "seeds_an_hour": 3_600 * seeds / seconds,
    }


def measure(rounds: int, *, trio: bool) -> dict:
    """Play the same seeds `rounds` times, all ways in turn; compiled code does not play trio
    mode."""
    every = [draw_schedule(draw_options(seed, "swarm")) for seed in TRIO_SEEDS]
    drawn = [each for each in every if not each.options.trio and each.options.seed in SEEDS]
    few = [thinned(schedule) for schedule in drawn]
    ways = {
        "as drawn": drawn,
        "20 operations a second": few,
    }
    if trio:
        ways["trio mode"] = [each for each in every if each.options.trio]
    found: dict[str, list[float]] = {}
    played(drawn[:3])  # imports, and the interpreter's own warming up
    for _ in range(rounds):
        found.setdefault("yardstick_ms", []).append(1e3 * yardstick())
        for name, schedules in ways.items():
            for what, value in played(schedules).items():
                found.setdefault(f"{name}: {what}", []).append(value)
    for name, values in found.items():
        print(f"simulator, {name.replace('_', ' ')}: {measuring.shown(values)}")
    return {name: measuring.summary(values) for name, values in found.items()}
