"""Faults that are aimed at a moment of a partition's life strike at it, once, or not at all."""

import json

import attrs
import pytest
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step

OPTIONS = SimOptions(seed=4, safety_ms=3_000, brokers=5, replication=3, segment_bytes=5_500)
WRITES = tuple(step(100 + 20 * n, "produce", slot=n % 2, partition=0, count=3) for n in range(60))
PLACED = step(60, "reassign", partition=0, nodes="n1+n2+n3")
MOVE = step(1_010, "reassign", partition=0, nodes="n3+n4+n5")
AWAY = step(120, "crash", 900, node="n3")
TRIM = step(1_010, "trim", partition=0)
HAND_OVER = step(1_010, "transfer", partition=0, node="follower:0")
READS = step(300, "reads", partition=0, count=80, every_ms=10)
UPGRADE = step(70, "upgrade", 50, node="all", to=1, how="kill")
RAISE = step(1_010, "raise-level", level=2)
CASES = {
    "membership": (MOVE,),
    "learner": (MOVE,),
    "caught-up": (MOVE,),
    "joint": (MOVE,),
    "final": (MOVE,),
    "transfer": (HAND_OVER,),
    "marker": (TRIM,),
    "install": (AWAY, step(900, "trim", partition=0)),
    "roll": (),
    "lease": (READS,),
    "level": (UPGRADE, RAISE),
    "controllers": (step(1_010, "add-controller", node="n4"),),
}
FAULTS = {
    "crash": "kill",
    "power": "power-loss",
    "pause": "pause",
    "stall": "start-stall",
    "cut": "start-partition",
    "deaf": "start-one-way",
    "mute": "start-one-way",
    "cut-old": "start-partition",
    "crash-new": "kill",
    "power-new": "power-loss",
    "cut-new": "start-partition",
    "cancel": "cancel-move",
}


def played(when, what, at_ms=950):
    options = attrs.evolve(OPTIONS, linearizable=when == "lease", lease=when == "lease")
    fault = step(at_ms, "at-moment", 300, partition=0, when=when, what=what)
    run = Run(Schedule(options, (PLACED, *WRITES, *CASES[when], fault)))
    assert run.play() == ""
    notes = [json.loads(line) for line in run.workload.text.getvalue().splitlines()]
    return run, [line.get("f") for line in notes]


@pytest.mark.parametrize("when", CASES)
def test_it_strikes_at_each_moment(when):
    run, _ = played(when, "power")
    assert run.nemesis.done["at-moment"] == 1
    assert run.nemesis.in_vain == []


@pytest.mark.parametrize("what", FAULTS)
def test_it_does_what_another_step_does(what):
    run, noted = played("joint", what)
    assert run.nemesis.done["at-moment"] == 1
    assert FAULTS[what] in noted


def test_a_moment_that_does_not_come_is_not_waited_for_without_end():
    fault = step(200, "at-moment", 300, partition=0, when="joint", what="crash")
    run = Run(Schedule(OPTIONS, (*WRITES, fault)))
    assert run.play() == ""
    assert "at-moment" not in run.nemesis.done
    assert len(run.nemesis.in_vain) == 1


def test_wide_seeds_draw_them():
    kinds = [
        {each.kind for each in draw_schedule(draw_options(seed, profile)).steps}
        for profile in ("wide", "swarm")
        for seed in range(12)
    ]
    assert sum("at-moment" in each for each in kinds[:12]) > 2
    assert not any("at-moment" in each for each in kinds[12:])


def test_a_moment_that_had_not_come_when_all_was_healed_is_said():
    """Regression: such a step was passed over without a word."""
    late = step(2_900, "at-moment", 300, partition=0, when="install", what="crash")
    run = Run(Schedule(OPTIONS, (PLACED, *WRITES, late)))
    assert run.play() == ""
    assert run.nemesis.in_vain == [str(late)]


@pytest.mark.parametrize("trio", [True, False])
def test_a_relay_strikes_at_a_moment_in_trio_mode_only(trio):
    """Regression: the relay was given a text for a number, and the run ended."""
    options = SimOptions(seed=3, trio=trio, safety_ms=2_500)
    writes = [step(50 + 40 * n, "produce", slot=0, partition=0, count=4) for n in range(40)]
    handed = [step(600 + 100 * n, "transfer", partition=0, node=f"n{n}") for n in (2, 3, 1)]
    fault = step(500, "at-moment", 400, partition=0, when="transfer", what="relay")
    result = simulate(Schedule(options, (*writes, *handed, fault)))
    assert result.failure == ""
    assert ("at-moment" in result.faults) == trio
    struck = [name for name in result.probes if name.startswith("relay-")]
    assert bool(struck) == trio
