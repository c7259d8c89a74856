"""The external gate: a broken release is convicted and a good one acquitted, or it says why not."""

import json

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands import gate
from raftlog_sim.subjects.guest_plan import draw_plan
from raftlog_sim.subjects.guest_run import play


def test_the_present_release_passes_whole_cluster_restarts():
    for seed in range(1, 5):
        result = play(draw_plan(seed, gate.PROFILE))
        assert result.failure == ""
        assert result.acknowledged > 20


def test_without_a_network_it_is_skipped_with_a_reason(monkeypatch, capsys):
    monkeypatch.setattr(gate, "install", lambda version, folder: "no route to anywhere")
    assert main(["gate", "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["skipped"] == "no route to anywhere"


@pytest.mark.parametrize(("guilty", "innocent", "code"), [(3, 0, 0), (0, 0, 1), (3, 1, 1)])
def test_the_gate_wants_one_to_fail_and_one_to_pass(guilty, innocent, code, monkeypatch, capsys):
    failed = {gate.GUILTY: guilty, gate.INNOCENT: innocent}
    monkeypatch.setattr(gate, "install", lambda version, folder: "")
    monkeypatch.setattr(
        gate, "sweep",
        lambda folder, version, seeds: {"failed": failed[version], "seeds": 5, "failures": []},
    )  # fmt: skip
    assert main(["gate"]) == code
    assert ("holds" in capsys.readouterr().out) is (code == 0)


@pytest.mark.slow
def test_the_gate_holds(capsys):
    """0.3.14 never stored its term and vote: whole-cluster restarts lose what it promised."""
    code = main(["gate", "--seeds", "1..4", "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    if document["skipped"]:
        pytest.skip(f"pip cannot install the releases: {document['skipped']}")
    assert code == 0
    assert document["releases"][gate.GUILTY]["failed"] == 4
