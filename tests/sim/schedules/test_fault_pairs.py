"""Which faults came together: counted over the seeds of a sweep."""

import json

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands import sweep
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.fault_pairs import (
    NEAR_NS,
    OF_SCENARIOS,
    NearFaults,
    PairCounts,
    drawable,
    pair,
)
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.schedules.step_kinds import KINDS, is_fault

PUT_ASIDE = {"image", "remember", "must-be-led"}


def kinds_drawn(profile, seeds):
    return {
        each.kind
        for seed in seeds
        for each in drawn(seed, profile).schedule.steps
        if is_fault(each.kind)
    }


@pytest.mark.parametrize(
    ("profile", "seeds"),
    [("wide", 150), ("swarm", 40), ("trio", 40), ("calm", 10), ("varied", 280), ("groups", 60)],
)
def test_what_a_profile_may_draw_is_what_its_seeds_draw(profile, seeds):
    found = kinds_drawn(profile, range(1, seeds + 1)) - PUT_ASIDE
    assert found <= set(drawable(profile))
    if profile == "wide":
        assert found == set(drawable(profile))
        assert set(OF_SCENARIOS) == {k for k in KINDS if is_fault(k)} - found - PUT_ASIDE
    if profile == "calm":
        assert drawable(profile) == []


def test_strikes_are_near_up_to_two_seconds_and_not_beyond():
    near = NearFaults()
    for kind, now in (("power", 0), ("crash", NEAR_NS), ("stall", NEAR_NS + 1), ("stall", NEAR_NS)):
        near.struck(kind, now)
    assert list(near.pairs) == [("crash", "power"), ("crash", "stall"), ("power", "stall")]
    near = NearFaults()
    for kind, now in (("power", 0), ("crash", NEAR_NS + 1), ("crash", NEAR_NS + 2)):
        near.struck(kind, now)
    assert list(near.pairs) == []


def test_a_run_tells_which_faults_struck_near_each_other():
    steps = (
        step(50, "crash", 100, node="n1"),
        step(90, "crash", 100, node="n1"),
        step(60, "clog", 40, sender="n2", receiver="n3"),
        step(70, "old-disk", node="n2"),
        step(2_500, "stall", 20, node="n3"),
    )
    result = simulate(Schedule(SimOptions(seed=3, safety_ms=2_600), steps))
    assert result.failure == ""
    assert result.faults == {"crash": 1, "clog": 1, "stall": 1}  # no copy was put aside
    assert result.near_faults == (pair("crash", "clog"),)


def test_what_never_struck_comes_first_then_who_came_with_whom():
    counts = PairCounts("swarm")
    for _ in range(12):
        counts.add({"power": 2, "crash": 1}, [pair("power", "crash")])
    counts.add({"stall": 1, "crash": 4, "remember": 1}, [pair("crash", "remember")])
    never, others, total, legend, numbers, *table = counts.lines()
    known = len(drawable("swarm"))
    assert never.startswith("never struck: bridge, clock-drift, ")
    assert never.endswith(f"wipe ({known - 3} of {known} kinds)")
    assert others == (
        "not of swarm seeds: add-controller, at-moment, break-directory, cancel-move, "
        "failed-name-sync, late-turn, misdirect, move-replicas, remove-controller, replay-any, "
        "throttle, unregister"
    )
    assert total == (
        "pairs of what struck: of 3, 2 in the same run, 1 of them within 2 s of each other"
    )
    assert legend.startswith("below \\: in how many runs both struck; above: within 2 s")
    assert numbers == ""
    assert table == [
        "                     runs  123",
        " 1 crash               13  \\+.",
        " 2 power               12  +\\.",
        " 3 stall                1  1.\\",
    ]


def test_the_table_of_a_sweep_of_everything_has_100_columns():
    counts = PairCounts("wide")
    counts.add(drawable("wide"), [])
    assert counts.never_struck == counts.not_drawn == counts.never_both == []
    assert len(counts.never_near) == len(counts.both) == 59 * 58 // 2
    _, _, legend, tens, units, *table = counts.lines()
    assert max(map(len, (legend, tens, units, *table))) < 100
    assert tens.endswith("444445555555555")
    assert units.endswith("567890123456789")
    assert len({len(line) for line in table}) == 1


def test_without_a_fault_there_is_no_table():
    assert PairCounts("calm").lines() == [
        "never struck: none (0 of 0 kinds)",
        f"not of calm seeds: {', '.join(drawable('wide'))}",
        "pairs of what struck: of 0, 0 in the same run, 0 of them within 2 s of each other",
    ]


def test_a_sweep_counts_pairs_when_it_is_asked_to(monkeypatch, capsys):
    monkeypatch.chdir("/")
    rows = [
        sweep._lost_row(1, "")._replace(
            faults={"power": 1, "crash": 3}, near_faults=(("crash", "power"),)
        ),
        sweep._lost_row(2, "")._replace(faults={"crash": 1, "stall": 1, "power": 1}),
    ]
    monkeypatch.setattr(sweep, "run_seed", lambda seed, *_: rows[seed - 1])
    arguments = ["sweep", "--seeds", "1..2", "--jobs", "1", "--no-folders", "--format", "json"]
    assert main(arguments) == 0
    assert "pairs" not in json.loads(capsys.readouterr().out)
    assert main([*arguments, "--pairs"]) == 0
    pairs = json.loads(capsys.readouterr().out)["pairs"]
    assert pairs["runs"] == {"crash": 2, "power": 2, "stall": 1}
    assert pairs["both"] == {"crash+power": 2, "crash+stall": 1, "power+stall": 1}
    assert pairs["near"] == {"crash+power": 1}
    assert pairs["never_near"] == ["crash+stall", "power+stall"]
    assert pairs["never_both"] == []
    assert "wipe" in pairs["never_struck"]
    assert "misdirect" in pairs["not_drawn"]


def test_pairs_are_counted_of_brokers_only(capsys):
    assert main(["sweep", "--seeds", "1..2", "--subject", "pysyncobj", "--pairs"]) == 64
    assert "--pairs counts faults of brokers only" in capsys.readouterr().err
