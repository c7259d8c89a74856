"""Programs that tell, stay silent, end early and lie."""

import sys

import pytest
from outsiders.running import judge, run_program

# Says its features as the argument in front of them tells: works, silent or dies.
PROGRAM = """
import json, sys, time
acts = dict(each.split("=") for each in sys.argv[1].split(","))
print("a library says hello", flush=True)
print(json.dumps({"version": "7"}), flush=True)
for name in sys.argv[4:]:
    if acts[name] == "dies":
        sys.exit("its last words")
    while acts[name] == "silent":
        time.sleep(60)
    print(json.dumps({"feature": name}), flush=True)
"""
PLACE = ["broker", "prefix"]


def run(acts, seconds=60):
    names = [each.partition("=")[0] for each in acts.split(",")]
    return run_program([sys.executable, "-c", PROGRAM, acts], PLACE, names, seconds)


def test_every_feature_has_its_cell():
    done = run("create=works,grow=works")
    assert done.version == "7"
    assert done.cells == {"create": ("works", ""), "grow": ("works", "")}


@pytest.mark.slow
def test_a_silent_program_hangs_and_the_rest_is_run():
    done = run("create=works,grow=silent,delete=works", seconds=6)
    assert done.cells["grow"] == ("hang", "silent for 6 s")
    assert [cell.outcome for cell in done.cells.values()] == ["works", "hang", "works"]


def test_a_program_that_ends_early_is_wrong_there_and_the_rest_is_run():
    done = run("create=dies,grow=works")
    assert done.cells["create"].outcome == "wrong"
    assert "it ended with 1: its last words" in done.cells["create"].said
    assert done.cells["grow"].outcome == "works"


def test_a_program_may_not_tell_of_another_feature():
    code = 'print(\'{"feature": "grow"}\')'
    with pytest.raises(ValueError, match="told of 'grow', not of \\['create'\\]"):
        run_program([sys.executable, "-c", code], PLACE, ["create"], 60)


class Witness:
    """Sees the effect of no feature but `create`."""

    def denial_of(self, feature):
        return None if feature == "create" else "there is no such topic"


def test_works_counts_when_the_cluster_shows_it():
    done = run("create=works,grow=works,delete=dies")
    judge(done, Witness())
    assert done.cells["create"].outcome == "works"
    assert done.cells["grow"] == ("wrong", "it said that it works, but there is no such topic")
    assert "its last words" in done.cells["delete"].said
