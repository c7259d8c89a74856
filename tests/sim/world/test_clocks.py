"""Wall clocks that swing, timers that ring late."""

import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.clock import WALL_START_MS, MachineClock, NodeClock

from raftlog.base.ids import NodeId
from raftlog.base.units import NEVER, millis

WRITES = tuple(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 1_500, 60))


def clock(**machine):
    return NodeClock.drawn(Stream(1, "clock"), MachineClock(**machine))


def test_a_wave_goes_ahead_and_back_and_ends_where_it_began():
    wavy = clock(wave_ms=100, period_ms=40)
    off = [wavy.wall(millis(at)) - WALL_START_MS - at for at in range(0, 81, 10)]
    assert off == [0, 100, 0, -100, 0, 100, 0, -100, 0]
    assert clock(skew_ms=7, wave_ms=3, period_ms=4).machine.off_ms(1) == 10


def test_a_late_timer_rings_late_and_never_early():
    late, punctual = clock(late_ns=1_000), clock()
    asked = [punctual.now(at) for at in range(0, 100_000, 1_000)]
    rings = [late.world(instant) - punctual.world(instant) for instant in asked]
    assert min(rings) >= 0
    assert max(rings) <= 1_000
    assert len(set(rings)) > 10
    assert late.world(NEVER) is None


@pytest.mark.parametrize(
    "fault",
    [
        step(200, "clock-wave", 900, node="all", ms=3_600_000, period_ms=64),
        step(200, "late-timers", 900, node="all", ms=64),
    ],
    ids=lambda fault: fault.kind,
)
def test_it_is_survived_and_ends(fault):
    crash = step(400, "crash", 200, node="leader:0")
    run = Run(Schedule(SimOptions(seed=4, safety_ms=1_500), (*WRITES, fault, crash)))
    assert run.play() == ""
    assert run.nemesis.done == {fault.kind: 1, "crash": 1}
    machine = run.world.nodes[NodeId(1)].machine
    assert (machine.wave_ms, machine.late_ns) == (0, 0)


def test_what_was_put_right_by_healing_is_not_put_wrong_when_the_step_ends():
    """Regression (wide seed 1): each clock was then off the other way, and its broker refused what
    clients sent."""
    ahead = step(1_400, "clock-jump", 300, node="all", way="ahead", ms=33_554_432)
    run = Run(Schedule(SimOptions(seed=4, safety_ms=1_500), (*WRITES, ahead)))
    assert run.play() == ""
    assert run.nemesis.done == {"clock-jump": 1}
    assert {node.machine.skew_ms for node in run.world.nodes.values()} == {0}


def test_leases_do_not_go_by_swinging_clocks():
    fault = step(200, "clock-wave", 900, node="all", ms=86_400_000, period_ms=16)
    options = SimOptions(seed=4, safety_ms=1_500, linearizable=True, lease=True)
    result = simulate(Schedule(options, (*WRITES, fault, step(400, "pause", 400, node="n1"))))
    assert result.failure == ""
