"""Varied seeds: where they begin, how far they go, and what they leave out."""

import attrs
import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.base.streams import Stream
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.playing.variations import DISTANCES, varied_names, vary
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import schedule_from_text
from raftlog_sim.schedules.step_kinds import DEMANDS, OUTSIDE_ATLAS

from raftlog.base.errors import OperatingError

ROUND = len(varied_names())


def distance_of(seed):
    return DISTANCES[Stream(seed, "varied").below(len(DISTANCES))]


def written(name):
    return scenario_files.load(name).case.schedule


def test_as_many_seeds_as_scenarios_play_each_once():
    assert ROUND > 120
    for first in (1, 7, 1 + ROUND):
        found = [vary(seed).options.scenario for seed in range(first, first + ROUND)]
        assert sorted(found) == sorted(varied_names())
    assert vary(1).options.scenario == vary(1 + ROUND).options.scenario == varied_names()[0]
    assert vary(1 - ROUND).options.scenario == varied_names()[0]


def test_scenarios_of_guests_and_outside_the_atlas_are_not_varied():
    left_out = set(scenario_files.names()) - set(varied_names())
    assert "pysyncobj-s1-second-copy" in left_out
    for name in left_out:
        scenario = scenario_files.load(name)
        if scenario.subject == "brokers":
            assert {step.kind for step in written(name).steps} & set(OUTSIDE_ATLAS), name


def test_the_same_seed_is_the_same_schedule_and_can_be_read_back():
    for seed in range(-3, 3 * ROUND, 7):
        schedule = vary(seed)
        assert schedule.text() == drawn(seed, "varied").text() == vary(seed).text()
        assert schedule_from_text(schedule.text()) == schedule
        assert (schedule.options.seed, schedule.options.profile) == (seed, "varied")


def test_near_a_scenario_its_steps_are_as_written():
    near = [seed for seed in range(1, 2 * ROUND) if distance_of(seed).name == "near"]
    assert len(near) > ROUND // 2
    demanded = 0
    for seed in near:
        schedule = vary(seed)
        scenario = scenario_files.load(schedule.options.scenario)
        steps, options = scenario.case.schedule.steps, scenario.case.schedule.options
        ours = {"seed": seed, "profile": "varied", "scenario": scenario.name}
        as_written = attrs.evolve(options, **ours) == schedule.options
        demands = as_written and scenario.demands_always
        kept = [each for each in steps if demands or each.kind not in DEMANDS]
        assert list(schedule.steps) == kept
        demanded += any(each.kind in DEMANDS for each in kept)
    assert demanded > 3


def test_beside_one_the_steps_that_are_left_are_a_few_ms_away():
    for seed in (seed for seed in range(1, 2 * ROUND) if distance_of(seed).name == "beside"):
        schedule = vary(seed)
        left = list(written(schedule.options.scenario).steps)
        for each in schedule.steps:
            alike = [
                other
                for other in left
                if (other.kind, other.arguments) == (each.kind, each.arguments)
                and abs(other.at_ms - each.at_ms) <= 3
                and abs(other.for_ms - each.for_ms) <= 3
                and bool(other.for_ms) == bool(each.for_ms)
            ]
            if alike:
                left.remove(alike[0])
        assert len(left) <= 6 + len(written(schedule.options.scenario).steps) // 3, seed


def test_a_scenarios_own_options_are_kept_unless_it_is_far():
    usual, changed = SimOptions(seed=1).document(), 0
    ours = ("seed", "profile", "scenario")
    for seed in range(1, 3 * ROUND):
        options = vary(seed).options
        own = written(options.scenario).options.document()
        for name, value in own.items():
            if value != usual[name] and name not in ours:
                same = getattr(options, name) == value
                assert same or distance_of(seed).name == "far", (seed, name)
                changed += not same
    assert changed > 10


def test_most_that_are_not_near_have_more_records_and_some_more_faults():
    away = [vary(seed) for seed in range(1, 2 * ROUND) if distance_of(seed).name != "near"]
    more = [each for each in away if sum(step.kind == "read" for step in each.steps) > 20]
    assert len(away) // 4 < len(more) < 3 * len(away) // 4


def test_without_a_checkout_there_are_none(monkeypatch, tmp_path):
    varied_names.cache_clear()
    monkeypatch.setattr(scenario_files, "FOLDER", tmp_path / "gone")
    with pytest.raises(OperatingError, match="scenarios are in a checkout only"):
        vary(1)
    monkeypatch.undo()
    assert len(varied_names()) == ROUND


def test_they_are_run_by_their_number(capsys):
    assert main(["run", "--seed", "7", "--profile", "varied", "--no-folder"]) == 0
    assert varied_names()[6] in capsys.readouterr().out


def test_compiled_code_has_no_scenarios(capsys, tmp_path):
    arguments = ["sweep", "--seeds", "1..2", "--profile", "varied", "--compiled", str(tmp_path)]
    assert main(arguments) == 64
    assert "--compiled has no scenarios" in capsys.readouterr().err
