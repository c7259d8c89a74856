"""The page of scenario lines names every kind, setting and head, and its examples are read."""

import attrs
import pytest
from raftlog_sim.playing import scenario_files
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.step_kinds import KINDS
from raftlog_sim.schedules.step_reference import EXAMPLES, HEADERS, SETTINGS, example

NOT_IN_FILES = ("profile", "scenario", "fault_gaps_ms", "core", "rest")
"""Options of drawn seeds; a line cannot give lists."""


def test_each_kind_has_its_text_and_an_example():
    assert [name for name in EXAMPLES if name not in KINDS] == []
    assert len(EXAMPLES) >= len(KINDS) - 5, "most have a line worth copying"
    assert [name for name, kind in KINDS.items() if len(kind.what) < 10] == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_is_a_step_of_its_kind_as_it_is_written(kind):
    step = scenario_files.parse_step(example(kind).split())
    assert step.kind == kind
    assert str(step) == example(kind)
    assert scenario_files.read("x", example(kind)).case.size == 1


def test_each_setting_has_its_text_and_an_example_that_is_read():
    names = [each.name for each in attrs.fields(SimOptions) if each.name not in NOT_IN_FILES]
    assert list(SETTINGS) == names
    for name, (_, value) in SETTINGS.items():
        text = f"set {name} {value}\n100 produce slot=0 partition=0 count=1\n"
        options = scenario_files.read("x", text).case.schedule.options
        found = getattr(options, name)
        assert {True: "yes", False: "no"}.get(found, str(found)) == value or str(found) == value


def test_each_other_line_is_read_and_no_other_word_is():
    known = {head for head in HEADERS if head.isalpha()}
    assert {"set", *scenario_files.NOT_OF_THE_RUN} == known
    text = "\n".join(line for _, line in HEADERS.values())
    found = scenario_files.read("x", text)
    assert found.case.schedule.options.brokers == 5
    assert found.title == "the leader dies"
    assert found.mutants == ("3", "9b")
    assert found.reaches
    assert found.avoids
    assert not found.demands_always
    assert found.expected == ("=> struck: crash 1",)
