"""Broken judges: each of these mistakes is caught by comparing with an independent judge.

An oracle that never failed proves nothing. A mutant is a patch of `sim/mutants/judge_mutants.py`,
never a switch in the product; `raftlog sim mutants` measures them in processes of their own. Here
each is planted in this process and taken back, and hunted only where it is expected to be caught.
The unpatched judge is right about the same histories.
"""

import inspect

import pytest
from raftlog_sim.hunting import mutation
from raftlog_sim.hunting.judge_hunt import KINDS, JudgeHunt, judged_wrongly
from raftlog_sim.hunting.small_logs import SHAPES

from raftlog.verify.judging import anomalies, check, facts, holes, linearizability, search

MUTANTS = [each for each in mutation.load().values() if each.of == mutation.JUDGE]
SEEDS = 4000
PATCHED = [anomalies, check, facts, holes, linearizability, search]
PATCHED += [facts.Facts, facts.KeyFacts, holes._Tiling]


@pytest.fixture
def judge_restored(monkeypatch):
    """Whatever a mutant puts in the place of a function is taken back."""
    for place in PATCHED:
        for name, routine in inspect.getmembers(place, inspect.isroutine):
            if not name.startswith("__"):
                monkeypatch.setattr(place, name, routine)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
@pytest.mark.usefixtures("judge_restored")
def test_the_mutant_is_caught(mutant):
    mutant.apply()
    _, wrong = judged_wrongly(
        JudgeHunt(histories=SEEDS * len(mutant.expected), kinds=mutant.expected)
    )
    assert wrong


def test_the_real_judge_is_not():
    """After the mutants, so that one that stays is seen."""
    shapes = tuple(SHAPES)
    assert judged_wrongly(JudgeHunt(histories=150 * len(shapes), kinds=shapes)) == (1500, [])
    for kind in ("two-logs", "registers"):
        assert judged_wrongly(JudgeHunt(histories=300, kinds=(kind,))) == (300, [])


def test_every_mistake_of_the_list_has_a_mutant():
    """The five mistakes that a judge of a log can make: each is a mutant of its own."""
    numbers = [each.number for each in MUTANTS]
    assert numbers[:5] == ["24", "24b", "24c", "24d", "24e"]
    assert all(set(each.expected) <= KINDS.keys() for each in MUTANTS)
