"""`raftlog sim mutants` measures the broken judges too: what it says, and what it makes of it."""

import json

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands import judge_table
from raftlog_sim.commands.mutants import merged, table, with_all, write_table
from raftlog_sim.hunting import mutation

from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "campaigns" / "planted_bugs.md"
SCORE = ROOT / "sim" / "mutants" / "score.json"
FAILED_COMPARE_THAT_MATCHES = """INFO  jepsen.util - 0\t:invoke\t:write\t3
INFO  jepsen.util - 0\t:ok\t:write\t3
INFO  jepsen.util - 1\t:invoke\t:cas\t[3 4]
INFO  jepsen.util - 1\t:fail\t:cas\t[3 4]
"""


@pytest.fixture(autouse=True)
def _no_mutant(monkeypatch):
    monkeypatch.delenv("RAFTLOG_MUTANT", raising=False)


def measured(capsys, *arguments):
    code = main(["mutants", *map(str, arguments), "--format", "json"])
    return code, json.loads(capsys.readouterr().out)["mutants"]


def test_a_false_alarm_is_measured(capsys):
    """24b: a send without an answer is taken not to have happened, but it may be read."""
    code, (row,) = measured(capsys, "24b")
    assert code == 0
    assert row["killed"]
    assert row["seeds"] == [row["tried"]]
    assert sum(row["by"].values()) == 1
    assert (row["healthy"], row["found"]) == ([], ["linearizability"])
    assert row["what"] == f"{row['history']}: false alarm of linearizability"
    assert row["control"] == {"tried": row["tried"], "wrong": 0}


def test_an_anomaly_that_is_missed_is_measured(capsys):
    """24: the hole check is gone. The healthy judge finds what the broken one misses."""
    code, (row,) = measured(capsys, "24", "--kills", 3)
    assert code == 0
    assert len(row["seeds"]) == sum(row["by"].values()) == 3
    assert (row["healthy"], row["found"]) == (["linearizability"], [])


def test_one_that_survives_fails_the_command(capsys):
    code, (row,) = measured(capsys, "24r", "--histories", 2)
    assert code == 1
    assert (row["killed"], row["tried"], row["seeds"]) == (False, 2, [])
    assert judge_table.line(row).startswith("24r ")
    assert "SURVIVED" in judge_table.line(row)


def test_public_histories_may_catch_it(tmp_path, capsys):
    """24z: a compare that is known to have failed is forgotten."""
    (tmp_path / "etcd_000.log").write_text(FAILED_COMPARE_THAT_MATCHES)
    code, (row,) = measured(capsys, "24z", "--histories", 1, "--corpora", tmp_path)
    assert code == 0
    assert (row["killed"], row["seeds"]) == (True, [])
    assert row["corpora"] == {"tried": 1, "wrong": 1, "first": ["etcd_000.log"]}
    assert "killed by corpora 1 of 1: etcd_000.log" in judge_table.line(row)
    (line,) = judge_table.table([row]).splitlines()[2:]
    assert line == (
        "| 24z failed compares say nothing | **nothing** |  |  | 1 of 1: etcd_000.log |"
    )


def test_folders_without_public_histories_are_wrong_usage(tmp_path, capsys):
    assert main(["mutants", "24", "--corpora", str(tmp_path)]) == 64
    assert "no public history" in capsys.readouterr().err


def test_none_hunts_nothing(capsys):
    assert measured(capsys, "--none") == (0, [])


ROW = {
    "number": "24", "name": "a-b", "of": "judge", "killed": True, "tried": 9,
    "by": {"dense": 1}, "seeds": [9], "what": "dense 0: duplicate missed", "seconds": 0.1,
}  # fmt: skip


def test_a_row_whose_control_fails_says_so():
    """A judge that is wrong by itself catches every mutant."""
    row = {**ROW, "control": {"tried": 9, "wrong": 2}}
    assert not judge_table.control_holds(row)
    assert judge_table.control_holds(ROW)
    assert "the judge itself: 2 wrong" in judge_table.line(row)
    assert "**the judge itself is wrong**" in judge_table.table([row])


def test_the_judge_has_a_table_of_its_own(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- table begins --><!-- table ends -->\n"
        f"between\n{judge_table.BEGIN}old{judge_table.END}\nafter\n"
    )
    write_table(page, [ROW])
    first, second = page.read_text().split("between")
    assert first.count("\n|") == 2
    assert "| 24 a b | dense | 9 | dense 0: duplicate missed |  |" in second
    assert "old" not in second
    assert second.endswith(f"{judge_table.END}\nafter\n")


def test_the_page_shows_the_score_file(tmp_path):
    """`raftlog sim mutants --none --score FILE --table PAGE` would change nothing."""
    score, page = tmp_path / "score.json", tmp_path / "page.md"
    score.write_text(SCORE.read_text())
    page.write_text(PAGE.read_text())
    write_table(page, with_all(merged(score, []), mutation.load()))
    assert score.read_text() == SCORE.read_text()
    assert page.read_text() == PAGE.read_text()


def test_every_mutant_of_the_judge_was_caught_and_its_control_held():
    rows = {row["number"]: row for row in json.loads(SCORE.read_text())}
    wanted = [each.number for each in mutation.load().values() if each.of == mutation.JUDGE]
    assert len(wanted) >= 26
    for number in [*wanted, "canary"]:
        assert rows[number]["killed"], number
        assert judge_table.control_holds(rows[number]), number
    assert "24 " not in table([rows["canary"]], {})
