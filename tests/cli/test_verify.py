"""`raftlog verify`: exit codes, what is printed, what is written."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from raftlog.cli.main import run
from raftlog.verify import Header
from tests.verify.writing import KEY, op, poll, send, written

GOOD = [send(0, (1, 2), "k#1", 0), poll(1, (3, 4), (0, "k#1"))]
LOST = [send(0, (1, 2), "k#1", 0), send(0, (3, 4), "k#2", 1), poll(1, (5, 6), (1, "k#2"))]


@pytest.fixture
def folder(tmp_path):
    def make(operations, name="history.jsonl", **options):
        path = tmp_path / name
        path.write_text(written(*operations, **options), encoding="utf-8")
        return path

    return make


def test_valid(folder, capsys):
    assert run(["verify", str(folder(GOOD))]) == 0
    out = capsys.readouterr().out
    assert out.startswith("VALID")
    assert "none found: lost-write" in out
    assert "not checked, no evidence: " in out


def test_invalid_with_the_witness_first(folder, capsys):
    assert run(["verify", str(folder(LOST))]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("INVALID")
    assert lines[2].startswith("lost-write (1): The send of 'k#1' at offset 0")


def test_allowed_is_counted_and_shown(folder, capsys):
    path = str(folder(LOST))
    assert run(["verify", path, "--allow", "lost-write", "--allow", "unseen"]) == 0
    assert "allowed, counted: lost-write 1, unseen 1" in capsys.readouterr().out


def test_unknown(tmp_path, capsys):
    calls = [op(p, "write", (0, 90), p, p, key="x") for p in range(12)]
    calls.append(op(99, "read", (91, 92), None, 77, key="x"))
    path = tmp_path / "history.jsonl"
    path.write_text(written(*calls, header=Header(source="import", model="register")))
    assert run(["verify", str(path), "--search-steps", "100"]) == 2
    out = capsys.readouterr().out
    assert out.startswith("UNKNOWN")
    assert "100 steps spent" in out


def test_json_is_the_verdict(folder, capsys):
    assert run(["verify", str(folder(LOST)), "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["version"] == 1
    assert document["verdict"] == "invalid"
    lost = document["classes"]["lost-write"]
    assert (lost["count"], lost["allowed"], lost["status"]) == (1, False, "invalid")
    assert [one["f"] for one in lost["witness"]["operations"]] == ["send", "poll"]
    assert document["classes"]["model"]["status"] == "not checked"


def test_a_run_folder_gets_its_verdict_and_keeps_the_invariants(folder, tmp_path, capsys):
    folder(GOOD)
    before = {"version": 1, "invariants": {"ElectionSafety": {"checked": 7}}}
    (tmp_path / "verdict.json").write_text(json.dumps(before))
    assert run(["verify", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "verdict.json").read_text())
    assert document["verdict"] == "valid"
    assert document["invariants"] == {"ElectionSafety": {"checked": 7}}
    assert capsys.readouterr().out.startswith("VALID")


def run_of(tmp_path, run=None, **checks):
    """Write the files that a run leaves beside its history."""
    (tmp_path / "run.json").write_text(json.dumps({"version": 1, **(run or {})}))
    invariants = {
        name.replace("_", "-"): {"status": status, "note": "because"}
        for name, status in checks.items()
    }
    (tmp_path / "verdict.json").write_text(json.dumps({"version": 1, "invariants": invariants}))


def test_a_run_whose_own_check_failed_is_invalid_whatever_its_history_says(
    folder, tmp_path, capsys
):
    """`raftlog verify RUNFOLDER` once judged the history alone: two replicas with different bytes,
    or a broker that ended by itself, passed as valid when the folder was judged again."""
    folder(GOOD)
    run_of(tmp_path, replicas_agree="violated", brokers_run="held")
    for _ in range(2):  # the verdict that this wrote says the same again
        assert run(["verify", str(tmp_path), "--junit", str(tmp_path / "junit.xml")]) == 1
        out = capsys.readouterr().out
        assert out.startswith("INVALID")
        assert "replicas-agree, a check of the run's own, was violated. because" in out
        assert "The history alone is valid." in out
        assert "the run's own checks that held: brokers-run" in out
    document = json.loads((tmp_path / "verdict.json").read_text())
    assert (document["verdict"], document["history"]) == ("invalid", "valid")
    suite = ET.fromstring((tmp_path / "junit.xml").read_text())
    assert suite.get("failures") == "1"
    assert int(suite.get("tests")) == len(suite)


def test_the_simulators_failure_is_judged(folder, tmp_path, capsys):
    folder(GOOD)
    run_of(tmp_path, {"failure": "Liveness: no leader in 20 s"}, LogMatching="held")
    assert run(["verify", str(tmp_path), "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdict"] == "invalid"
    assert run(["verify", str(tmp_path), "--report", str(tmp_path / "report.html")]) == 1
    assert "Liveness, a check of the run's own, was violated. no leader" in capsys.readouterr().out
    page = (tmp_path / "report.html").read_text()
    assert "Liveness, a check of the run's own, was violated. no leader in 20 s" in page


def test_a_failure_that_an_invariant_names_is_told_once(folder, tmp_path, capsys):
    folder(GOOD)
    run_of(tmp_path, {"failure": "Matching: two chains"}, Matching="violated")
    assert run(["verify", str(tmp_path)]) == 1
    assert capsys.readouterr().out.count("Matching") == 1


def test_a_note_of_many_lines_is_told_by_its_first(folder, tmp_path, capsys):
    folder(GOOD)
    run_of(tmp_path, {"failure": "Stopped: broker 1 is not ready:\nline one of its log\nline two"})
    assert run(["verify", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "was violated. broker 1 is not ready\n" in out
    assert "line one" not in out


def test_a_folder_whose_checks_held_says_so(folder, tmp_path, capsys):
    folder(GOOD)
    run_of(tmp_path, {"failure": ""}, recovered="held")
    assert run(["verify", str(tmp_path)]) == 0
    assert "the run's own checks that held: recovered" in capsys.readouterr().out


@pytest.mark.parametrize(
    "strange", [None, 5, "x", [], ["x"], {"x": 5}, {"x": {"status": 7, "note": [1]}}]
)
def test_strange_checks_are_no_reason_to_fail(strange, folder, tmp_path):
    folder(GOOD)
    (tmp_path / "verdict.json").write_text(json.dumps({"invariants": strange}))
    (tmp_path / "run.json").write_text(json.dumps({"failure": strange or ""}))
    report = str(tmp_path / "report.html")
    assert run(["verify", str(tmp_path), "--report", report]) == (1 if strange == "x" else 0)


def test_a_run_with_topics_is_judged_again(tmp_path):
    """The report of a run of topics said "judge again: raftlog verify FOLDER", which then knew no
    model of that name."""
    calls = [
        op(0, "create", (1, 2), 3, "done", key="t"),
        op(1, "create", (3, 4), 3, "exists", key="t"),
        op(0, "grow", (5, 6), 4, "done", key="t"),
        op(1, "look", (7, 8), None, 4, key="t"),
    ]
    header = Header(source="blackbox", model="topic")
    (tmp_path / "history.jsonl").write_text(written(*calls, header=header))
    assert run(["verify", str(tmp_path)]) == 0
    calls[3] = op(1, "look", (7, 8), None, 3, key="t")
    (tmp_path / "history.jsonl").write_text(written(*calls, header=header))
    assert run(["verify", str(tmp_path)]) == 1
    calls[2] = op(0, "grow", (5, 6), "many", "done", key="t")
    (tmp_path / "history.jsonl").write_text(written(*calls, header=header))
    assert run(["verify", str(tmp_path)]) == 64


def test_the_report_says_where_the_folder_is(folder, tmp_path):
    """The page of a folder elsewhere said "raftlog verify runs/NAME"."""
    history = folder(GOOD)
    for path in (tmp_path, history):
        run(["verify", str(path), "--report", str(tmp_path / "report.html")])
        assert f'"place":"{path}"' in (tmp_path / "report.html").read_text()


def test_junit(folder, tmp_path):
    out = tmp_path / "junit.xml"
    assert run(["verify", str(folder(LOST)), "--junit", str(out)]) == 1
    suite = ET.fromstring(out.read_text())
    assert suite.get("failures") == "2"
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["lost-write", "unseen"]
    assert int(suite.get("tests")) == len(suite)
    skipped = [case for case in suite if case.find("skipped") is not None]
    assert [case.get("name") for case in skipped] == ["not checked"], "one line for all"
    assert skipped[0].find("skipped").get("message").startswith("21: fork, ")
    assert suite.get("skipped") == "1"


def test_nothing_judged_is_unknown_everywhere(folder, tmp_path, capsys):
    out = tmp_path / "junit.xml"
    path = str(folder([op(0, "crash", (1, 2), None, key=None)]))
    assert run(["verify", path, "--junit", str(out)]) == 2
    assert capsys.readouterr().out.startswith("UNKNOWN")
    suite = ET.fromstring(out.read_text())
    assert (suite.get("errors"), int(suite.get("tests"))) == ("1", len(suite))
    assert run(["verify", path, "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["verdict"] == "unknown"


def test_a_check_that_ran_no_time_is_not_exercised(folder, tmp_path, capsys):
    """It had held, and a run that compared nothing looked like one that had compared all."""
    folder(GOOD)
    counts = {"ran": {"status": "held", "checked": 3}, "idle": {"status": "held", "checked": 0}}
    document = {"version": 1, "invariants": counts}
    (tmp_path / "verdict.json").write_text(json.dumps(document))
    out, page = tmp_path / "junit.xml", tmp_path / "report.html"
    assert run(["verify", str(tmp_path), "--junit", str(out), "--report", str(page)]) == 0
    said = capsys.readouterr().out
    assert "the run's own checks that held: ran\n" in said
    assert "not exercised, compared 0 times: idle\n" in said
    told = json.loads((tmp_path / "verdict.json").read_text())["invariants"]
    assert [entry["status"] for entry in told.values()] == ["held", "not exercised"]
    assert '"status":"not exercised"' in page.read_text()
    suite = ET.fromstring(out.read_text())
    skipped = {case.get("name") for case in suite if case.find("skipped") is not None}
    assert "not exercised" in skipped


def test_junit_escapes_what_a_history_says(folder, tmp_path):
    evil = "</failure>\x00\ud800<script>&"
    out = tmp_path / "junit.xml"
    path = folder([send(0, (1, 2), "#1", 0), poll(1, (3, 4), (0, evil))])
    assert run(["verify", str(path), "--junit", str(out)]) == 1
    ET.fromstring(out.read_text())


def test_jepsen_edn(tmp_path):
    path = tmp_path / "history.edn"
    path.write_text("""
        {:process 0 :type :invoke :f :write :value 1} {:process 0 :type :ok :f :write :value 1}
        {:process 1 :type :invoke :f :read} {:process 1 :type :ok :f :read :value 2}""")
    assert run(["verify", str(path)]) == 1


def test_held_to_another_consistency(folder):
    stale = [send(0, (1, 2), "k#1", 0), op(1, "end", (3, 4), None, 0)]
    path = str(folder(stale, final_read=False))
    assert run(["verify", path]) == 0
    assert run(["verify", path, "--reads", "linearizable"]) == 1


def test_your_own_model(tmp_path, monkeypatch):
    (tmp_path / "my_counter.py").write_text(
        "from raftlog.verify import Call, Model\n"
        "COUNTER = Model(name='counter', init=lambda: 0, functions=('add', 'get'),\n"
        "    step=lambda s, asked, a: (True, s + 1) if asked == 'add' else (a == s, s),\n"
        "    call_of=lambda op: Call(op.start_ns, op.end_ns, op.f, op.value, op))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "history.jsonl"
    path.write_text(
        written(
            op(0, "add", (1, 2), None), op(1, "get", (3, 4), None, 1), read_consistency="committed"
        )
    )
    assert run(["verify", str(path), "--model", "my_counter:COUNTER"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-file"],
        ["{good}", "--model", "nonsense"],
        ["{good}", "--model", "no_such_module:X"],
        ["{good}", "--model", "json:dumps"],
        ["{good}", "--allow", "everything"],
        ["{good}", "--reads", "dirty"],
        ["{good}", "--search-steps", "0"],
        ["{bad}"],
        ["{later}"],
        ["{binary}"],
        ["{folder}"],
        ["{utf16}"],
        [],
    ],
)
def test_usage_is_64_and_one_clear_line(arguments, folder, tmp_path, capsys):
    bad, later, binary = (tmp_path / name for name in ("bad.jsonl", "later.jsonl", "bin.jsonl"))
    bad.write_text('{"format":1,"source":"sim"}\nnonsense\nmore\n')
    later.write_text('{"format":2,"source":"sim"}\n')
    binary.write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    utf16 = tmp_path / "history.edn"
    utf16.write_bytes(b"\xff{:process")
    names = {
        "good": folder(GOOD, "good.jsonl"),
        "bad": bad,
        "later": later,
        "binary": binary,
        "folder": tmp_path / "empty",
        "utf16": utf16,
    }
    filled = [argument.format(**names) for argument in arguments]
    assert run(["verify", *filled]) == 64
    error = capsys.readouterr().err
    assert error.startswith("raftlog: ")
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["run.json", "verdict.json", "trace.txt"])
@pytest.mark.parametrize("what", ["a folder", "deep", "no JSON"])
def test_a_strange_file_in_a_run_folder(name, what, folder, tmp_path, capsys):
    folder(GOOD)
    path = tmp_path / name
    if what == "a folder":
        path.mkdir()
    else:
        path.write_text("[" * 100_000 if what == "deep" else "{")
    good = name == "trace.txt" and what != "a folder"
    report = tmp_path / "report.html"
    assert run(["verify", str(tmp_path), "--report", str(report)]) == (0 if good else 64)
    assert capsys.readouterr().err.startswith("" if good else f"raftlog: {path}")


def test_half_a_surrogate_pair_is_shown_escaped(tmp_path):
    """Python cannot print one: the command ended in a traceback, before the evidence."""
    key = "t\ud800/0"
    lost = [send(0, (1, 2), "k#1", 0, key=key), poll(1, (3, 4), (1, "k#1"), key=key)]
    path = tmp_path / "history.jsonl"
    path.write_text(written(*lost), encoding="ascii")
    arguments = [sys.executable, "-m", "raftlog", "verify", str(path)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "offsets 0, 1 of t\\ud800/0." in done.stdout


def test_help_has_an_example(capsys):
    assert run(["verify", "--help"]) == 0
    out = capsys.readouterr().out
    assert "Example: raftlog verify" in out
    assert KEY not in out
