"""The checks of retention by age and by size fail on a broken product.

They say nothing where most clocks are wrong, or where something else deletes.
"""

import attrs
import pytest
from raftlog_sim.facts.targets import log_start_of
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import draw_options
from raftlog_sim.schedules.schedule import step

from raftlog.partition.maintenance import leader_duties

SIZE = "size-keeps-what-it-promises"
ONE_CLOCK, ALL_CLOCKS = "age-and-a-leaders-clock", "age-and-all-clocks"


def schedule_of(name, **options):
    """The schedule of a named scenario, with other options."""
    case = scenario_files.load(name).case
    return attrs.evolve(case.schedule, options=attrs.evolve(case.schedule.options, **options))


@pytest.fixture
def alone(monkeypatch):
    """A leader that believes its own clock."""
    monkeypatch.setattr(leader_duties, "most_share", lambda *clocks: True)


def test_a_record_that_one_clock_deletes_is_found(alone):
    assert simulate(schedule_of(ONE_CLOCK)).failure_class == "kept-by-age"


def test_where_most_clocks_are_wrong_nothing_is_said(alone):
    run = Run(schedule_of(ALL_CLOCKS))
    assert run.play() == ""
    assert log_start_of(run.world, "t", 0) > 0


def test_what_size_deletes_is_no_matter_of_age(alone):
    run = Run(schedule_of(ONE_CLOCK, retention_bytes=2_000))
    assert run.play() == ""
    assert run.onlooker.invariants.checked["kept-by-age"] == 0


def test_seeds_draw_an_age_and_most_do_not():
    drawn = [draw_options(seed).retention_ms for seed in range(60)]
    assert 5 < sum(map(bool, drawn)) < 40


def test_a_log_that_is_cut_below_its_size_is_found(monkeypatch):
    """The story: nothing in the simulator saw a leader that let one segment more go."""
    played = simulate(schedule_of(SIZE))
    assert played.failure == ""
    assert played.invariants["kept-by-size"]["checked"] > 2
    real = leader_duties.log_start_by_size

    def too_much(segments, bytes_max, high_watermark):
        return real(segments, bytes_max // 2, high_watermark)

    monkeypatch.setattr(leader_duties, "log_start_by_size", too_much)
    assert simulate(schedule_of(SIZE)).failure_class == "kept-by-size"


def test_where_clients_delete_records_size_promises_nothing(monkeypatch):
    monkeypatch.setattr(
        leader_duties, "log_start_by_size", lambda segments, bytes_max, watermark: None
    )
    schedule = schedule_of(SIZE)
    trims = [step(at, "trim", partition=0) for at in (1_000, 2_000)]
    played = simulate(schedule.with_steps([*schedule.steps, *trims]))
    assert played.failure == ""
    assert played.invariants["kept-by-size"]["checked"] == 0
