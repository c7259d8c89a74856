"""`raftlog sim mutants --patch FILE`: a user's own planted bug.

The story: to try whether the simulator finds a bug of one's own took a copy of the checkout, a loop
over seeds, and an eye on which of them fail anyway.
"""

import difflib
import json
from pathlib import Path

import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.commands import mutants
from raftlog_sim.hunting import patched_hunt
from raftlog_sim.hunting.mutation import run_within
from raftlog_sim.hunting.patching import PRODUCT, applied, parsed

import raftlog
from raftlog.base.errors import OperatingError

QUORUM = "raft/quorum.py"
ONE_IS_ENOUGH = ("return count // 2 + 1", "return 1")
HARMLESS = ("return count // 2 + 1", "return 1 + count // 2")
STALLS = """# a-stalled-disk: one follower's disk stands still
set safety_ms 400
100 produce slot=0 partition=0 count=2
200 stall node=n2 for 50
=> ok
"""


def diff_of(name, *changes, prefix="a/"):
    """A diff of a file of the product, with these replacements."""
    before = (PRODUCT / name).read_text()
    after = before
    for old, new in changes:
        assert old in after
        after = after.replace(old, new, 1)
    path = f"raftlog/{name}"
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True),
        f"{prefix}{path}", f"{prefix.replace('a', 'b')}{path}",
    )  # fmt: skip
    return "".join(lines), after


@pytest.fixture
def planted(tmp_path):
    def plant(*changes, name=QUORUM):
        path = tmp_path / "mine.diff"
        path.write_text(diff_of(name, *changes)[0])
        return path

    return plant


def hunted(capsys, *words):
    code = main(["mutants", *map(str, words)])
    return code, capsys.readouterr()


def test_a_bug_is_killed_and_the_checkout_stays_as_it_is(planted, capsys):
    before = (PRODUCT / QUORUM).read_bytes()
    code, said = hunted(capsys, "--patch", planted(ONE_IS_ENOUGH), "--budget", 3)
    assert code == 0, said
    assert said.out.startswith("patch mine")
    assert "killed by " in said.out
    assert " at seed 1 (1 seed)" in said.out
    assert (PRODUCT / QUORUM).read_bytes() == before


@pytest.mark.slow
def test_one_that_changes_nothing_survives_seeds_and_scenarios(planted, tmp_path, capsys):
    scenario, page = tmp_path / "own.txt", tmp_path / "page.md"
    scenario.write_text(STALLS)
    code, said = hunted(capsys, "--patch", planted(HARMLESS), "--budget", 1, "--scenario", scenario,
                        "--format", "json", "--table", page)  # fmt: skip
    assert code == 1
    (row,) = json.loads(said.out)["mutants"]
    assert (row["killed"], row["tried"], row["played"]) == (False, 1, 1)
    assert row["without_patch"] == []
    assert "| patch mine | **nothing** |  | 1 |  |  |" in page.read_text()


def test_a_scenario_kills_before_any_seed(planted, tmp_path, capsys):
    scenario, page = tmp_path / "own.txt", tmp_path / "page.md"
    scenario.write_text(STALLS)
    code, said = hunted(capsys, "--patch", planted(ONE_IS_ENOUGH), "--scenario", scenario,
                        "--format", "json", "--table", page)  # fmt: skip
    assert code == 0
    (row,) = json.loads(said.out)["mutants"]
    assert (row["killed"], row["tried"], list(row["scenarios"])) == (True, 0, [str(scenario)])
    assert row["what"]
    assert f"| patch mine | not hunted |  | 0 | {scenario} |  |" in page.read_text()
    assert "0 caught by a seed, 1 by their scenarios only" in " ".join(page.read_text().split())


@pytest.mark.slow
def test_what_fails_without_the_patch_says_nothing_of_it(planted, tmp_path, capsys):
    scenario = tmp_path / "own.txt"
    scenario.write_text(
        STALLS + "390 must-be-led partition=0 nodes=n2\n100 elect node=n1 partition=0\n"
    )
    code, said = hunted(capsys, "--patch", planted(HARMLESS), "--scenario", scenario, "--budget", 1)
    assert code == 2
    assert "UNDECIDED (1 seed, 1 scenario)" in said.out
    assert f"fails without the patch, too: scenario {scenario}" in said.out


@pytest.mark.slow
def test_a_scenario_that_fails_as_its_file_says_leaves_nothing_undecided(planted, capsys):
    code, said = hunted(capsys, "--patch", planted(HARMLESS), "--scenario", "lying-sync",
                        "--budget", 1)  # fmt: skip
    assert code == 1, said
    assert "without the patch" not in said.out


def test_a_run_that_turns_in_a_circle_fails_where_it_stands():
    def turn_in_a_circle():
        while True:
            pass

    said = r"more than 0 s of CPU time, now in .*turn_in_a_circle"
    with pytest.raises(RuntimeError, match=said), run_within(0.1):
        turn_in_a_circle()


# --- diffs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["a/", ""])
def test_a_diff_gives_the_file_it_was_made_of(prefix):
    name = "raft/node.py"
    before = (PRODUCT / name).read_text()
    words = [line for line in before.splitlines() if line.startswith("from ")]
    text, after = diff_of(name, (words[0], f"# one\n{words[0]}"), (words[-1], words[-1] + "\n#"),
                          prefix=prefix)  # fmt: skip
    (file,) = parsed(f"From: me\n\nSome words.\n{text}-- \n2.39\n", "x")
    assert file.path == f"raftlog/{name}"
    assert "".join(applied(file, before.splitlines(keepends=True), "x")) == after
    moved = ["# moved\n"] * 7 + before.splitlines(keepends=True)
    assert "".join(applied(file, moved, "x")) == "# moved\n" * 7 + after


def test_files_are_added_and_deleted_and_last_lines_may_have_no_end():
    added, deleted, last = parsed(
        "--- /dev/null\n+++ b/raftlog/new.py\n@@ -0,0 +1 @@\n+x = 1\n"
        "--- a/raftlog/old.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x = 1\n"
        "--- a/raftlog/last.py\n+++ b/raftlog/last.py\n@@ -1 +1 @@\n-x = 1\n"
        "\\ No newline at end of file\n+x = 2\n",
        "x",
    )
    assert (added.path, added.added, applied(added, [], "x")) == (
        "raftlog/new.py",
        True,
        ["x = 1\n"],
    )
    assert (deleted.deleted, applied(deleted, ["x = 1\n"], "x")) == (True, [])
    assert applied(last, ["x = 1"], "x") == ["x = 2\n"]


GONE = "--- a/raftlog/raft/quorum.py\n+++ b/raftlog/raft/quorum.py\n@@ -1,1 +1,1 @@\n-x\n+y\n"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("no diff\n", "", "no file is changed"),
        ("--- a/sim/x.py\n+++ b/sim/x.py\n@@ -1 +1 @@\n-x\n+y\n", ":2", "no file of raftlog/"),
        (GONE.replace("raft/quorum", "../../x"), ":2", "no file of raftlog/"),
        ("--- a/raftlog/x.py\n@@ -1 +1 @@\n", ":1", "no line +++"),
        ("--- a/raftlog/x.py\n+++ b/raftlog/x.py\n", ":2", "no hunk"),
        (GONE.replace("-1,1", "-1,3"), ":3", "shorter than it says"),
        ("rename from raftlog/x.py\n", ":1", "renames"),
        (GONE + GONE, ":10", "a second time"),
        (GONE, "", "hunk 1 of raftlog/raft/quorum.py does not fit"),
        (GONE.replace("quorum", "no_such"), "", "there is no raftlog/raft/no_such.py"),
        ("--- /dev/null\n+++ b/raftlog/raft/quorum.py\n@@ -0,0 +1 @@\n+x\n", "", "there already"),
        ("--- /dev/null\n+++ b/raftlog/n.py\n@@ -0,0 +1 @@\n+x =\n", "", "n.py:1 is no Python"),
    ],
)  # fmt: skip
def test_what_does_not_apply_is_refused_with_its_line(text, line, what, tmp_path, capsys):
    path = tmp_path / "mine.diff"
    path.write_text(text)
    code, said = hunted(capsys, "--patch", path, "--format", "json")
    assert code == 64
    error = json.loads(said.err)["error"]
    assert error["on"] == f"{path}{line}"
    assert what in error["what"]


def test_a_product_that_cannot_be_imported_is_refused(planted, capsys):
    path = planted(("import enum", "import no_such_module"))
    code, said = hunted(capsys, "--patch", path)
    assert code == 64
    assert "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'" in said.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--scenario", "review-11-own-vote"], "--scenario needs --patch"),
        (["--patch", "x.diff", "--score", "x"], "--score keeps rows"),
        (["--patch", "x.diff", "--none"], "does not go with --none"),
        (["--patch", "no-such.diff"], "cannot be read"),
        (["--patch", "/", "--scenario", "no-such"], "no scenario no-such"),
    ],
)
def test_wrong_usage(words, what, capsys):
    code, said = hunted(capsys, *words)
    assert code == 64
    assert what in said.err


def test_the_product_is_the_package_beside_this_simulator():
    assert Path(raftlog.__file__).parent == PRODUCT
    assert patched_hunt.NUMBER not in mutants.mutation.load()
    with pytest.raises(OperatingError):
        parsed("", "x")
