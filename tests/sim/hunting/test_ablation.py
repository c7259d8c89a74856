"""`raftlog sim mutants --without` and `--ablate`: which faults a planted bug is found by."""

import json

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.hunting import ablation
from raftlog_sim.hunting.ablation import AblationResult, without
from raftlog_sim.hunting.mutation import Hunt
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import FAULTS, draw_options


@pytest.fixture(autouse=True)
def _no_mutant(monkeypatch):
    monkeypatch.delenv("RAFTLOG_MUTANT", raising=False)


def test_without_a_kind_a_seed_has_all_the_other_faults():
    whole = draw_options(2)
    on = [name for name, gap in whole.fault_gaps_ms if gap]
    assert {"crash", "disk-full"} <= set(on)
    steps = draw_schedule(whole).steps
    part = draw_schedule(without(whole, "crash"))
    assert part.steps == tuple(each for each in steps if each in part.steps)
    gone = [each for each in steps if each not in part.steps]
    assert gone
    assert {each.kind for each in gone} == {"crash"}
    assert dict(part.options.fault_gaps_ms)["crash"] == 0
    off = next(name for name in FAULTS if name not in on)
    assert without(whole, off) == whole


def test_seeds_that_a_kind_does_not_change_are_played_once(monkeypatch):
    """A hunt without a kind that is off in a seed takes what is known of it."""
    played = []

    def counted(schedule):
        played.append(schedule)
        return simulate(schedule)

    monkeypatch.setattr(ablation, "simulate", counted)
    monkeypatch.setattr(ablation, "switch_on", lambda number: None)
    gaps = dict(draw_options(2).fault_gaps_ms)
    off = next(name for name in FAULTS if not gaps[name])
    plan, known = Hunt(budget=1, first=2), {}
    nothing = AblationResult("", None, "", 1, 0, out_of_time=False)
    for kind, changed, runs in (("", 0, 1), (off, 0, 1), ("crash", 1, 2), ("", 0, 2)):
        found, known = ablation._hunt_here("4", plan, kind, known)
        assert found == nothing._replace(without=kind, changed=changed)
        assert (len(played), known) == (runs, {2: ""})
    found, _ = ablation._hunt_here("4", plan._replace(seconds=-1), "", known)
    assert (found.tried, found.out_of_time) == (0, True)


@pytest.mark.slow
def test_a_mutant_of_full_disks_is_not_found_without_them(capsys):
    """Half a batch is left by a disk that has room for half of it, and by nothing else."""
    arguments = ["mutants", "21d", "--without", "rot", "--without", "disk-full", "--from", "94"]
    assert main([*arguments, "--budget", "6", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["mutants"]
    assert (row["number"], row["killed"]) == ("21d", True)
    assert row["whole"]["by"] in ("durable-on-disk", "promise-durable"), "it misses what was cut"
    rot, full = row["without"]
    assert rot["seed"] is not None
    assert (full["without"], full["seed"], full["tried"]) == ("disk-full", None, 6)
    assert row["depends_on"] == ["disk-full"]


def hunted(monkeypatch, *found):
    """The command with these hunts; what it was asked to leave out."""
    asked = []

    def hunts(number, plan, kinds, tell):
        asked.extend(kinds)
        for count in range(1, len(found) + 1):
            tell(list(found[:count]))
        return list(found)

    monkeypatch.setattr(ablation, "hunts", hunts)
    return asked


def test_only_what_changed_something_is_told_one_by_one(monkeypatch, capsys):
    asked = hunted(
        monkeypatch,
        AblationResult("", 7, "liveness", 7, 0, out_of_time=False),
        AblationResult("crash", 7, "liveness", 7, 3, out_of_time=False),
        AblationResult("power", 9, "order", 9, 4, out_of_time=False),
        AblationResult("all", 7, "liveness", 7, 0, out_of_time=False),
        AblationResult("partition", None, "", 40, 20, out_of_time=False),
        AblationResult("reset", None, "", 1, 1, out_of_time=True),
    )
    assert main(["mutants", "4", "--ablate", "--budget", "40"]) == 0
    assert asked == list(FAULTS)
    assert capsys.readouterr().out.splitlines() == [
        "4    old-term-committed-by-count              seed 7, liveness",
        "       without power: seed 9, order",
        "       without partition: nothing in 40 seeds",
        "       without reset: nothing in 1 seed, then time was up",
        "       without each of 2 others: the same seed; 1 of them did nothing until then",
        "       depends on partition",
    ]


def test_a_mutant_that_no_seed_catches_fails_the_command(monkeypatch, capsys):
    hunted(monkeypatch, AblationResult("", None, "", 40, 0, out_of_time=False))
    assert main(["mutants", "4", "--without", "crash"]) == 1
    assert capsys.readouterr().out == (
        "4    old-term-committed-by-count              nothing in 40 seeds\n"
    )


def test_when_nothing_fails_with_all_kinds_none_is_left_out(monkeypatch):
    asked = []

    def here(number, plan, kind, known):
        asked.append(kind)
        return AblationResult(kind, None, "", plan.budget, 0, out_of_time=False), known

    monkeypatch.setattr(ablation, "_hunt_here", here)
    monkeypatch.setattr(ablation, "own_process", _Here)
    told = []
    (found,) = ablation.hunts("4", Hunt(budget=3), ["crash", "power"], told.extend)
    assert (found.seed, found.tried, asked) == (None, 3, [""])
    assert told == [found]


class _Here:
    """This process as if it were another one."""

    def __init__(self, number):
        self.number = number

    def __enter__(self):
        return lambda call, *args: call(self.number, *args)

    def __exit__(self, *error):
        return None


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--ablate"], "--ablate needs the numbers of mutants"),
        (["--without", "crash"], "--without needs the numbers of mutants"),
        (["4", "--without", "rain"], "invalid choice: 'rain'"),
        (["24b", "--ablate"], "mutant 24b is a bug of the judge"),
        (["4", "999", "--ablate"], "no mutant 999"),
        (["4", "--ablate", "--without", "crash"], "--ablate does not go with --without"),
        (["4", "--ablate", "--kills", "2"], "--ablate does not go with --kills"),
        (["4", "--ablate", "--shrink", "9"], "--ablate does not go with --shrink"),
        (["4", "--without", "crash", "--score", "s.json"], "--without does not go with --score"),
        (["4", "--without", "crash", "--table", "t.md"], "--without does not go with --table"),
        (["4", "--ablate", "--none"], "--ablate does not go with --none"),
        (["4", "--ablate", "--profile", "varied"], "varied ones have a scenario's"),
    ],
)
def test_what_does_not_go_together_is_64(arguments, why, capsys):
    assert main(["mutants", *arguments]) == 64
    said = capsys.readouterr()
    assert why in said.err
    assert said.out == ""
