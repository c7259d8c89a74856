"""Faults of a group are noticed: unprocessed records, offsets that went back, members that ended by
themselves."""

import sys
import time
from types import SimpleNamespace

import pytest
from outsiders import group_faults
from outsiders.group_faults import Watched

from raftlog.client.core.values import TopicPartition

# Says what its second argument has, and ends as the third tells.
PROGRAM = """
import sys, time
print("a library says hello v1", sys.argv[1], flush=True)
if sys.argv[2] == "ends":
    sys.exit("its last words")
time.sleep(600)
"""


@pytest.fixture
def watched():
    made = []

    def make(says="", does="stays"):
        command = [sys.executable, "-c", PROGRAM, says, does]
        made.append(Watched("client", lambda *place: command, "nowhere"))
        return made[-1]

    yield make
    for each in made:
        each.end_all()


def until(done):
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Admin:
    """Answers with these offsets."""

    def __init__(self, **offsets):
        self.offsets = offsets

    def ask(self, request):
        return {
            TopicPartition("t", int(name[1:])): SimpleNamespace(offset=offset)
            for name, offset in self.offsets.items()
        }


def test_values_are_found_in_whatever_a_member_says(watched):
    group = watched('{"value": "v0-4"} Partition:1\tv1-5 v1-5')
    group.start()
    until(lambda: group.processed["v1-5"] == 2)
    assert group.processed == {"v0-4": 1, "v1-5": 2}


def test_all_is_well_when_every_record_is_processed_and_committed(watched):
    group = watched()
    group.acknowledged = {"v0-0": (0, 0), "v1-1": (1, 0), "v0-4": (0, 1)}
    group.processed.update(["v0-0", "v1-1", "v0-4"])
    assert "committed" in group.lacks()
    group.look_at_offsets(Admin(p0=2, p1=1))
    assert group.lacks() == ""
    assert group.wrong == []


def test_a_record_that_nobody_processed_is_named(watched):
    group = watched()
    group.acknowledged = {"v0-0": (0, 0), "v0-4": (0, 1)}
    group.processed.update(["v0-4"])
    group.look_at_offsets(Admin(p0=2))
    assert group.lacks() == "1 records never processed, the first is v0-0"


def test_an_offset_that_goes_back_is_told(watched):
    group = watched()
    for offset in (5, 5, 7, 6):
        group.look_at_offsets(Admin(p0=offset))
    group.look_at_offsets(Admin())
    told = ["partition 0: 7 was committed, then 6", "partition 0: 6 was committed, then -1"]
    assert group.wrong == told


def test_a_member_that_ends_by_itself_is_told_and_replaced(watched):
    group = watched(does="ends")
    group.start()
    until(lambda: group.running[0][0].poll() is not None)
    group.look_at_members()
    assert group.wrong == ["a member ended with 1: its last words"]
    assert len(group.running) == 1


def test_a_member_that_is_killed_is_replaced_and_nothing_is_wrong(watched):
    group = watched()
    group.start()
    first = group.running[0][0]
    group.kill_one()
    group.look_at_members()
    assert first.poll() == -9
    assert len(group.running) == 1
    assert group.wrong == []


def test_each_client_has_one_place():
    assert len(dict.fromkeys(group_faults.NAMES)) == len(group_faults.NAMES) == 8
