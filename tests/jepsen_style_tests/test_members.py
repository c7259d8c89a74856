"""Members of groups as programs: what they say becomes the history, however they end; and lies
about a group are found."""

import json
import time
from pathlib import Path

import pytest

from jepsen_style_tests import control, runner
from jepsen_style_tests.clients.choice import MIXED, OWN, PROGRAMS
from jepsen_style_tests.clients.members import COOPERATIVE, EAGER, MemberProgram
from jepsen_style_tests.recorder import Actor, HistoryRecorder
from jepsen_style_tests.runner import RunPlan
from jepsen_style_tests.workloads.face import RunStage
from jepsen_style_tests.workloads.groups import _behind, strategy_of
from raftlog.base.errors import OperatingError
from raftlog.verify import Header, check_history

PROGRAM = Path(__file__).with_name("scripted_member.py")
KEY = "shared/0"


def line(ns, who, kind, f, value=None, generation=1, **more):
    told = {"ns": ns, "who": who, "type": kind, "f": f, "value": value}
    return {**told, "generation": generation, **more}


ASSIGNED = [
    line(10, "told", "invoke", "rebalance", ["assigned", [KEY]]),
    line(11, "told", "ok", "rebalance"),
]
READ = [
    line(20, "poll", "invoke", "poll"),
    line(21, "poll", "ok", "poll", {KEY: [[0, "#0"], [1, "#1"]]}),
]
COMMITTED = [
    line(30, "commit", "invoke", "offset_commit", ["g", {KEY: 2}]),
    line(31, "commit", "ok", "offset_commit"),
]


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "history.jsonl"
    options = {"consumer": "subscribe", "final_read": False}
    recorder = HistoryRecorder(path, Header(source="blackbox", options=options))
    writer = Actor(recorder)
    for number in range(2):
        writer.invoke("send", KEY, f"#{number}", at_ns=number)
        writer.ok([number, f"#{number}"], at_ns=number)

    def started(*lines, **settings):
        settings = {"group": "g", "lines": lines, **settings}
        return MemberProgram("scripted", "one", settings, recorder, PROGRAM)

    def told():
        recorder.close()
        return [json.loads(text) for text in path.read_text().splitlines()[1:]]

    yield started, recorder, told, path
    recorder.close()


def until(done):
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_a_member_says_is_the_history_with_its_own_instants(run):
    started, _, told, path = run
    member = started(*ASSIGNED, *READ, *COMMITTED)
    assert member.leave() == ""
    lines = told()
    assert [each["time_ns"] for each in lines if each["f"] == "offset_commit"] == [30, 31]
    assert all(each["member"] == ["g", "one", 1] for each in lines if each["f"] == "poll")
    assert [each["type"] for each in lines if each["f"] == "crash"] == ["invoke", "ok"]
    with path.open() as history:
        verdict = check_history(history)
    assert verdict.verdict == "valid"
    assert verdict.classes["group-skip"].status == "valid"


def test_a_commit_that_was_not_accepted_is_unknown_and_the_next_goes_on(run):
    started, _, told, _ = run
    failed = line(31, "commit", "info", "offset_commit", error="fenced")
    again = [dict(each, ns=each["ns"] + 10) for each in COMMITTED]
    assert started(*ASSIGNED, *READ, COMMITTED[0], failed, *again).leave() == ""
    kinds = [each["type"] for each in told() if each["f"] == "offset_commit"]
    assert kinds == ["invoke", "info", "invoke", "ok"]


def test_a_killed_member_leaves_what_it_had_begun_open(run):
    started, recorder, told, _ = run
    member = started(*ASSIGNED, *READ, COMMITTED[0])
    until(lambda: recorder.counts["poll ok"] == 1)
    member.kill()
    assert not member.running
    kinds = [each["type"] for each in told() if each["f"] == "offset_commit"]
    assert kinds in ([], ["invoke"])


def test_a_paused_member_says_nothing_until_it_goes_on(run):
    started, recorder, _, _ = run
    member = started(*ASSIGNED, last=READ)
    until(lambda: recorder.counts["rebalance ok"] == 1)
    member.pause()
    member.resume()
    assert member.leave() == ""
    assert recorder.counts["poll ok"] == 1


def test_half_a_line_is_what_a_killed_program_leaves(run):
    started, recorder, _, _ = run
    assert started(*ASSIGNED, last=()).leave() == ""
    assert recorder.counts["rebalance ok"] == 1


@pytest.mark.parametrize("bad", ["no JSON", '{"ns": 1}', '{"ns":1,"who":"x","generation":1}'])
def test_a_line_that_makes_no_sense_is_a_fault_of_the_test(run, bad):
    started, _, _, _ = run
    assert "Traceback" in started(bad).leave()


def test_a_program_that_fails_is_a_fault_of_the_test(run):
    started, _, _, _ = run
    assert started(ends="its last words").leave() == "scripted ended with 1: its last words"


# --- which clients --------------------------------------------------------------------------------


def stage(client, seed):
    return RunStage(
        bootstrap=lambda: "nowhere",
        recorder=None,
        seed=seed,
        client=client,
        linearizable=False,
        folder=Path(),
    )


def test_all_members_of_a_group_share_partitions_in_one_way():
    assert strategy_of(stage(MIXED, 2)) == ("range", EAGER)
    assert strategy_of(stage(MIXED, 3)) == ("cooperative-sticky", COOPERATIVE)
    assert strategy_of(stage("aiokafka", 3)) == ("range", ("aiokafka",))
    assert strategy_of(stage(OWN, 3)) == ("cooperative-sticky", (OWN,))


@pytest.mark.parametrize(
    ("workload", "client"), [("append", OWN), ("groups", PROGRAMS[0]), ("groups", PROGRAMS[1])]
)
def test_a_workload_refuses_a_client_that_it_cannot_use(tmp_path, workload, client):
    plan = RunPlan(workload=workload, nemesis="none", seconds=1.0, seed=1, client=client)
    with pytest.raises(OperatingError, match=f"no client of workload {workload}"):
        runner.run(plan, tmp_path, print)


def test_who_is_behind():
    assert _behind({"a": 3, "b": 2}, {"a": 3}) == {"b": [0, 2]}
    assert _behind({"a": 3}, {"a": 4}) == {}


# --- lies -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", control.GROUP_KINDS)
def test_a_lie_about_a_group_is_found(run, kind):
    started, _, told, path = run
    assert started(*ASSIGNED, *READ, *COMMITTED).leave() == ""
    told()
    with path.open() as history:
        lines = control.group_corrupted(history, kind)
    found = [result.name for result in check_history(lines).failures()]
    expected = {"left-out": "group-skip", "went-back": "commit-regression"}
    assert expected.get(kind, "double-owner") in found
