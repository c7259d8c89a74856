"""Unusual paths are taken in a simulated world that wants them, and nowhere else."""

import attrs
from raftlog_sim.base.probe_names import missed_places, place_names
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.buggify import Buggify
from raftlog_sim.schedules.options import SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step

from raftlog.base import buggify

WRITES = tuple(step(at, "produce", slot=0, partition=0, count=3) for at in range(0, 500, 20))


def test_outside_a_simulator_nothing_unusual_happens():
    assert not buggify.buggify("early-roll")
    buggify.arm(lambda name: name == "early-roll")
    try:
        assert buggify.buggify("early-roll")
        assert not buggify.buggify("window-shed")
    finally:
        buggify.arm(None)
    assert not buggify.buggify("early-roll")


def test_a_place_is_active_in_a_quarter_of_the_seeds_and_taken_one_time_in_four():
    active = [seed for seed in range(400) if any(Buggify(seed)("early-roll") for _ in range(1))]
    assert 5 < len(active) < 60
    decide = Buggify(active[0])
    taken = sum(decide("early-roll") for _ in range(1_000))
    assert 180 < taken < 320
    assert decide.fired == {"early-roll": taken}


def seeds_of(name):
    for seed in range(200):
        decide = Buggify(seed)
        if any(decide(name) for _ in range(300)):
            yield seed


SELDOM_MET = ("leader-gives-up", "install-begun-again", "small-install-piece", "slow-replay")
"""Places that a run of a few writes does not come to: they need installs, or a long replay."""


def test_every_place_is_survived():
    for name in place_names():
        seed = next(seeds_of(name))
        options = SimOptions(seed=seed, safety_ms=600, buggify=True, value_bytes=200)
        result = simulate(Schedule(options, WRITES))
        assert result.failure == "", (name, seed)
        if name not in SELDOM_MET:
            assert result.buggified.get(name, 0) > 0, (name, seed)


def test_the_places_are_read_from_the_source():
    assert {"early-roll", "leader-gives-up", "sent-again", "vote-refused"} <= set(place_names())
    assert not {"name", "smallest", "decision"} & set(place_names())
    assert missed_places(place_names()) == []
    assert missed_places(["early-roll", "no-place"]) == [
        name for name in place_names() if name != "early-roll"
    ]


def test_it_ends_with_the_run_and_is_off_unless_wanted():
    run = Run(Schedule(SimOptions(seed=next(seeds_of("early-roll")), safety_ms=300), WRITES))
    assert run.play() == ""
    assert run.buggified == {}
    options = attrs.evolve(run.options, buggify=True)
    assert simulate(Schedule(options, WRITES)).buggified
    assert not buggify.buggify("early-roll")


def test_half_of_the_seeds_want_it_and_calm_ones_never():
    wanted = sum(draw_options(seed).buggify for seed in range(60))
    assert 15 < wanted < 45
    assert not any(draw_options(seed, "calm").buggify for seed in range(60))
