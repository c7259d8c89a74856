"""Each scenario of docs/guides/scenarios_cookbook.md passes, strikes, and shows what it says."""

import re
from pathlib import Path

import pytest
from raftlog_sim.hunting import scenarios
from raftlog_sim.playing import scenario_files

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guides" / "scenarios_cookbook.md"
TEXTS = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
TITLES = [text.partition("\n")[0] for text in TEXTS]


def test_there_are_fifteen():
    assert len(set(TITLES)) == 15


@pytest.mark.parametrize("text", TEXTS, ids=TITLES)
def test_it_passes_and_each_of_its_steps_strikes(text):
    scenario = scenario_files.read("cookbook", text)
    played = scenarios.play(scenario)
    assert played.lines == list(scenario.expected)
    assert played.lines[0] == "=> ok"
    assert played.struck_nothing == []
    assert played.outcome.document["faults"] or " die " in text
    assert played.outcome.document["acknowledged"] >= 3
