"""The command line and the matrix: every pair in its turn, tables, exit codes."""

import json
from itertools import count, islice

import attrs
import pytest

from jepsen_style_tests import runner, suite
from jepsen_style_tests.__main__ import main
from jepsen_style_tests.clients.choice import MIXED, client_name
from jepsen_style_tests.clients.face import gathered
from jepsen_style_tests.nemeses.all import NEMESES
from jepsen_style_tests.processes import free_places
from jepsen_style_tests.runner import RunOutcome, RunPlan
from jepsen_style_tests.scenarios import SCENARIOS
from jepsen_style_tests.suite import Orders, SuiteResult, SuiteRow
from jepsen_style_tests.workloads.all import WORKLOADS
from raftlog.base.errors import OperatingError


@pytest.fixture(autouse=True)
def ticking(monkeypatch):
    """The suite's clock goes on by a second whenever it is asked: a busy machine takes no turn away
    from any sender."""
    seconds = count()

    class Clock:
        @staticmethod
        def monotonic():
            return float(next(seconds))

    monkeypatch.setattr(suite, "time", Clock)


def orders(tmp_path, **changes):
    made = Orders(
        minutes=0.1,
        seconds=1.0,
        seed=5,
        workloads=["append", "topics"],
        nemeses=["none", "kill-one", "broken-disk"],
        client=MIXED,
        controls=False,
        folder=tmp_path,
    )
    return attrs.evolve(made, **changes)


def outcome(plan, folder, verdict="valid", failing=()):
    return RunOutcome(
        plan=plan,
        folder=folder,
        verdict=verdict,
        failing=failing,
        checks={},
        operations=100,
        counts={},
        faults=3,
        seconds=1.0,
        longest_gap_ms=7,
    )


@pytest.fixture
def pretended(monkeypatch):
    """The runner gives what it is told and runs nothing; the plans that it was given."""
    plans = []

    def run(plan, folder, say, nemesis=None):
        plans.append(plan)
        return outcome(plan, folder, *run.answers.get(plan.nemesis, ()))

    run.answers = {}
    monkeypatch.setattr(runner, "run", run)
    plans.append(run)
    return plans


def test_every_pair_comes_once_before_any_comes_again(tmp_path):
    pairs = [("a", "x"), ("a", "y"), ("b", "x")]
    laps = list(islice(suite._order(orders(tmp_path), pairs), 9))
    for lap in range(3):
        drawn = laps[3 * lap : 3 * lap + 3]
        assert sorted(pair[:2] for pair in drawn) == pairs
        assert {seed for _, _, seed in drawn} == {5 + lap}
    assert list(islice(suite._order(orders(tmp_path), pairs), 9)) == laps, "the seed decides"
    assert list(suite._order(orders(tmp_path), [])) == []


def test_the_suite_stops_when_its_time_is_up_and_says_what_it_did(tmp_path, pretended):
    lines = []
    result = suite.run(orders(tmp_path, minutes=0.2), lines.append)
    plans = pretended[1:]
    assert len(plans) == 12 - 1, "the first look sets the end, each run looks once"
    assert result.exit_code == 0
    assert len(lines) == len(plans)
    assert "broken-disk" not in {row.nemesis for row in result.rows}
    text = "\n".join(suite.table(result))
    assert f"{len(plans)} runs" in text
    assert json.loads(json.dumps(result.document()))["runs"] == len(plans)


def test_one_invalid_run_is_enough(tmp_path, pretended):
    pretended[0].answers["kill-one"] = ("invalid", ("duplicate",))
    result = suite.run(orders(tmp_path, minutes=0.2), lambda line: None)
    assert result.exit_code == 1
    bad = [row for row in result.rows if row.verdict == "invalid"]
    assert {row.nemesis for row in bad} == {"kill-one"}
    assert all(row.failing == ["duplicate"] and row.folders for row in bad)
    assert "invalid (duplicate)" in "\n".join(suite.table(result))


def test_a_run_that_cannot_start_is_unknown_and_the_others_go_on(tmp_path, monkeypatch):
    """A broker once found its port taken: the suite ended with it, and its table was lost."""

    def run(plan, folder, say, nemesis=None):
        if plan.nemesis == "kill-one":
            raise OperatingError("broker 3 ended", on="broker3.log", do="choose a free port")
        return outcome(plan, folder)

    monkeypatch.setattr(runner, "run", run)
    lines = []
    result = suite.run(orders(tmp_path, minutes=0.2), lines.append)
    assert result.exit_code == 2
    assert {row.verdict for row in result.rows} == {"valid", "unknown"}
    failed = [row for row in result.rows if row.verdict == "unknown"]
    assert {row.nemesis for row in failed} == {"kill-one"}
    assert all(row.failing == ["did-not-run"] for row in failed)
    assert "broker 3 ended" in next(tmp_path.glob("*-kill-one-*/error.txt")).read_text()
    assert any(line.startswith("unknown") and "did-not-run" in line for line in lines)


def test_ports_are_none_that_the_system_hands_out_by_itself():
    """The proxies of a run once got a broker's port, which was free until that broker started."""
    for _ in range(20):
        places = free_places(5)
        ports = [port for p in places for port in (p.client_port, p.peer_port, p.admin_port)]
        assert len(set(ports)) == 15
        assert all(10_240 <= port < 32_768 for port in ports)


@pytest.mark.parametrize(
    ("verdicts", "controls", "code"),
    [
        (["valid"], {}, 0),
        (["valid", "unknown"], {}, 2),
        (["unknown", "invalid"], {}, 1),
        (["valid"], {"broken-disk": True}, 0),
        (["valid"], {"broken-disk": True, "lost": False}, 1),
    ],
)
def test_exit_codes(verdicts, controls, code):
    row = SuiteRow("append", "none", verdicts=verdicts)
    assert SuiteResult(rows=[row], controls=controls, seconds=1.0).exit_code == code


def test_a_broken_disk_that_goes_unnoticed_fails_the_suite(tmp_path, pretended):
    result = suite.run(orders(tmp_path, controls=True, workloads=["topics"]), lambda line: None)
    assert result.controls == {"broken-disk": False}
    assert result.exit_code == 1
    assert "NOT CAUGHT" in "\n".join(suite.table(result))


def test_what_cannot_run_here_is_skipped_with_its_reason(tmp_path, pretended, monkeypatch):
    setup = attrs.evolve(NEMESES["kill-one"].setup, missing=lambda: "no such thing here")
    nemesis = attrs.evolve(NEMESES["kill-one"], setup=setup)
    monkeypatch.setitem(NEMESES, "kill-one", nemesis)
    result = suite.run(orders(tmp_path), lambda line: None)
    assert all(plan.nemesis != "kill-one" for plan in pretended[1:])
    assert "skipped: no such thing here" in "\n".join(suite.table(result))


def test_a_run_says_what_is_missing(tmp_path, monkeypatch):
    setup = attrs.evolve(NEMESES["kill-one"].setup, missing=lambda: "no such thing here")
    monkeypatch.setitem(NEMESES, "kill-one", attrs.evolve(NEMESES["kill-one"], setup=setup))
    plan = RunPlan(workload="append", nemesis="kill-one", seconds=1.0, seed=1)
    with pytest.raises(OperatingError, match="no such thing here"):
        runner.run(plan, tmp_path, print)


def test_list_names_everything(capsys):
    assert main(["list", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["workloads"]) == set(WORKLOADS)
    assert set(found["nemeses"]) == set(NEMESES)
    assert set(found["scenarios"]) == set(SCENARIOS)
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in [*WORKLOADS, *NEMESES, *SCENARIOS])


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--workload", "nonsense"],
        ["run", "--nemesis", "nonsense"],
        ["run", "--time-limit", "0"],
        ["run", "--set", "nonsense"],
        ["scenario"],
        ["suite", "--minutes", "none"],
        ["nonsense"],
    ],
)
def test_wrong_usage(arguments, capsys):
    assert main(arguments) == 64
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize(("verdict", "code"), [("valid", 0), ("invalid", 1), ("unknown", 2)])
def test_run_prints_the_verdict_and_exits_with_it(tmp_path, capsys, pretended, verdict, code):
    pretended[0].answers["none"] = (verdict, ("lost-write",))
    arguments = ["run", "--nemesis", "none", "--out", str(tmp_path)]
    assert main(arguments) == code
    assert verdict.upper() in capsys.readouterr().out
    assert main([*arguments, "--format", "json"]) == code
    document = json.loads(capsys.readouterr().out)
    assert (document["version"], document["verdict"]) == (1, verdict)


def test_settings_reach_the_brokers_plan(tmp_path, pretended):
    arguments = ["run", "--nemesis", "none", "--out", str(tmp_path)]
    assert main([*arguments, "--set", "a.b = 1", "--set", "c=d=e"]) == 0
    assert pretended[1].settings == {"a.b": "1", "c": "d=e"}


def test_a_scenario_brings_its_own_load(tmp_path, pretended):
    assert main(["scenario", "nats-7567", "--out", str(tmp_path)]) == 0
    plan = pretended[1]
    assert (plan.workload, plan.brokers) == ("append", 5)
    assert "scenario nats-7567" in plan.command


def test_mixed_takes_each_client_in_turn():
    assert len({client_name(MIXED, number, {}) for number in range(3)}) == 3
    assert {client_name("aiokafka", number, {}) for number in range(3)} == {"aiokafka"}


def test_records_are_gathered_by_partition_in_their_order():
    records = [("t", 1, 5, b"a"), ("t", 0, 2, b"b"), ("t", 1, 6, None)]
    assert gathered(records) == {"t/1": [[5, "a"], [6, ""]], "t/0": [[2, "b"]]}
