"""Without the library that guests are made of: an install of the product does not bring it."""

import json
import sys

import pytest
from raftlog_sim import subjects
from raftlog_sim.__main__ import main
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import BrokerCase
from raftlog_sim.playing.seeds import drawn

GUEST = "pysyncobj-s1-second-copy"
HOW = "pip install 'raftlog[pysyncobj]'"


@pytest.fixture
def _without(tmp_path, monkeypatch):
    """As where it is not installed: the import fails, and nothing of it is loaded."""
    monkeypatch.chdir(tmp_path)
    for name in [each for each in sys.modules if each.startswith("raftlog_sim.subjects.")]:
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.delattr(subjects, name.rpartition(".")[2], raising=False)
    monkeypatch.setitem(sys.modules, "pysyncobj", None)


def ran(*arguments, capsys):
    return main([*map(str, arguments)]), capsys.readouterr()


def error_of(said):
    return json.loads(said.err)["error"]


@pytest.mark.parametrize("only", ["--list", "--show"])
@pytest.mark.usefixtures("_without")
def test_scenarios_are_listed_and_shown(only, capsys):
    """Regression: that failed, for files were read by the library."""
    code, said = ran("scenarios", only, capsys=capsys)
    assert (code, said.err) == (0, "")
    assert GUEST in said.out
    assert "power-loss-all" in said.out
    assert ("join 3 2" in said.out) is (only == "--show")


def test_a_list_counts_the_steps_of_all(capsys):
    _, said = ran("scenarios", "--list", "--format", "json", capsys=capsys)
    rows = {row["name"]: row["steps"] for row in json.loads(said.out)["scenarios"]}
    for name in (GUEST, "power-loss-all", "review-11-own-vote"):
        assert rows[name] == scenario_files.load(name).case.size > 0


@pytest.mark.usefixtures("_without")
def test_guests_are_skipped_and_it_says_how_to_install_them(capsys):
    names = ("power-loss-all", GUEST)
    code, said = ran("scenarios", "--no-mutants", *names, capsys=capsys)
    assert code == 0
    assert said.out.splitlines()[:3] == [
        "ok     power-loss-all",
        f"skipped {GUEST}",
        f"2 scenarios, 0 failed, 1 skipped (pysyncobj is not installed: {HOW})",
    ]
    code, said = ran("scenarios", "--no-mutants", *names, "--format", "json", capsys=capsys)
    document = json.loads(said.out)
    assert (code, document["failed"], document["skipped"]) == (0, 0, 1)
    played, skipped = document["scenarios"]
    assert (played["ok"], played["skipped"]) == (True, "")
    assert skipped["ok"] is None
    assert HOW in skipped["skipped"]


@pytest.mark.usefixtures("_without")
def test_what_is_skipped_is_not_rewritten_and_alone_decides_nothing(capsys):
    before = (scenario_files.FOLDER / f"{GUEST}.txt").read_text()
    code, said = ran("scenarios", GUEST, "--rewrite", capsys=capsys)
    assert code == 2
    assert said.out.splitlines()[-1].startswith("1 scenario, 0 failed, 1 skipped")
    assert (scenario_files.FOLDER / f"{GUEST}.txt").read_text() == before


@pytest.mark.parametrize("name", ["replay", "shrink", "debug", "turns"])
@pytest.mark.parametrize("text", ["", "hello world", "[]"])
@pytest.mark.usefixtures("_without")
def test_a_file_that_is_no_case_does_not_blame_it(name, text, capsys, tmp_path):
    (tmp_path / "bad").write_text(text)
    code, said = ran(name, "bad", "--format", "json", capsys=capsys)
    assert code == 64
    assert error_of(said)["on"] == "bad"
    assert "neither a schedule" in error_of(said)["what"]


@pytest.mark.usefixtures("_without")
def test_a_plan_of_guests_says_what_is_missing(capsys, tmp_path):
    (tmp_path / "plan.txt").write_text("subject pysyncobj\n100 isolate 3\n")
    for arguments in (["replay", "plan.txt"], ["run", "--seed", "1", "--subject", "pysyncobj"]):
        code, said = ran(*arguments, "--format", "json", capsys=capsys)
        assert code == 1
        assert error_of(said) == {
            "what": "the library to simulate is not installed", "on": "pysyncobj", "do": HOW
        }  # fmt: skip


@pytest.mark.usefixtures("_without")
def test_brokers_need_none_of_it(monkeypatch, capsys):
    monkeypatch.setattr(scenario_files, "names", lambda: ["stalled-disk-leader", GUEST])
    case = drawn(11, "calm")
    assert isinstance(case, BrokerCase)
    code, said = ran("sweep", "--seeds", "11..11", "--jobs", "1", "--check-every", "0",
                     "--profile", "calm", "--scenarios", capsys=capsys)  # fmt: skip
    assert code == 0, said
