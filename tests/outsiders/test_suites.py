"""Other people's test suites: what an output means, the table with its reasons, what is missing."""

import sys
import time
from pathlib import Path

import pytest
from outsiders import soaking, suite_table, suites
from outsiders.suites import FAILS, HANGS, PASSES, SKIPS, Ending
from raftlog_sim.hunting.mutation import module_of

from tests.tidy.tree import ROOT

TABLE = {
    "reasons": {"groups": "consumer groups are not served yet"},
    "suites": {
        "franz-go": {"version": "1", "tests": {"TestA": PASSES, "TestB": [FAILS, "groups"]}}
    },
}


def differences(version="1", **endings):
    return list(suite_table.differences(TABLE, "franz-go", version, endings))


def test_each_test_of_the_checked_in_table_has_an_ending_or_a_reason():
    table = suite_table.load()
    assert list(suite_table.holes(table)) == []
    assert suite_table.UNEXPLAINED not in table["reasons"]
    assert list(table["suites"]) == ["librdkafka", "kafka-python", "franz-go"]
    assert all(PASSES in suite["tests"].values() for suite in table["suites"].values())


def test_a_table_is_read_as_it_was_written(tmp_path):
    suite_table.save(suite_table.load(), tmp_path / "table.json")
    assert (tmp_path / "table.json").read_text() == suite_table.EXPECTED.read_text()


def test_as_expected_there_is_no_difference():
    assert differences(TestA=Ending(PASSES), TestB=Ending(FAILS, "in its own words")) == []


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"TestA": Ending(FAILS, "why")}, "TestA: expected passes, saw fails (why)"),
        (
            {"TestB": Ending(PASSES)},
            "TestB: expected fails (consumer groups are not served yet), saw passes",
        ),
        (
            {"TestB": Ending(HANGS, "not over")},
            "TestB: expected fails (consumer groups are not served yet), saw hangs (not over)",
        ),
        ({"TestC": Ending(PASSES)}, "TestC: passes, the table has no such test"),
        ({"version": "2"}, "version 2, the table is of 1"),
    ],
)
def test_a_difference_in_either_direction_has_a_line(changes, line):
    assert differences(**changes) == [f"franz-go: {line}"]


def test_a_test_that_is_gone_has_a_line():
    seen = {"TestA": Ending(PASSES)}
    assert list(suite_table.gone(TABLE, "franz-go", seen)) == [
        "franz-go: TestB: the suite has no such test"
    ]
    assert list(suite_table.differences(TABLE, "other", "1", seen)) == [
        "other: the table does not have this suite"
    ]


def test_writing_flips_what_passes_now_and_asks_for_the_reason_of_what_is_new():
    seen = {"TestA": Ending(FAILS, "x"), "TestB": Ending(PASSES), "TestC": Ending(SKIPS, "y")}
    table = suite_table.merged(TABLE, "franz-go", "2", seen)
    assert table["reasons"] == {}, "no test has this reason any more"
    assert table["suites"]["franz-go"] == {
        "version": "2",
        "tests": {
            "TestA": [FAILS, suite_table.UNEXPLAINED],
            "TestB": PASSES,
            "TestC": [SKIPS, suite_table.UNEXPLAINED],
        },
    }
    assert len(list(suite_table.holes(table))) == 2
    same = suite_table.merged(TABLE, "franz-go", "1", {"TestB": Ending(FAILS, "other words")})
    assert same == TABLE


@pytest.mark.parametrize("cell", [[FAILS], "fails", [FAILS, ""], ["breaks", "groups"], None])
def test_a_cell_without_a_reason_is_a_hole(cell):
    tests = {"TestA": cell, "TestB": [FAILS, "groups"]}
    table = {**TABLE, "suites": {"franz-go": {"version": "1", "tests": tests}}}
    assert len(list(suite_table.holes(table))) == 1


def test_a_reason_of_no_test_is_a_hole():
    table = {**TABLE, "reasons": {**TABLE["reasons"], "moon": "it is full"}}
    assert list(suite_table.holes(table)) == ["the reason 'moon' belongs to no test"]


# --- what an output means -------------------------------------------------------------------------


@pytest.fixture
def librdkafka(tmp_path):
    """A folder like a built librdkafka, of which only the table of tests is looked at."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "rdkafka.h").write_text("#define RD_KAFKA_VERSION 0x020f00ff\n")
    (tmp_path / "tests" / "test-runner").touch()
    (tmp_path / "tests" / "test.c").write_text(
        """
    _TEST(0000_unittests,
          TEST_F_LOCAL,
    _TEST(0001_one, 0),
    _TEST(0045_a, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0045_b, TEST_F_KNOWN_ISSUE),
    _TEST(0045_b_local, TEST_F_LOCAL),
    _TEST(8000_idle, TEST_F_MANUAL),
"""
    )
    return suites.Librdkafka(tmp_path)


def test_tests_of_librdkafka_are_numbers_without_the_local_ones(librdkafka):
    assert (librdkafka.version, librdkafka.tests()) == ("2.15.0", ["0001", "0045"])


PASSED = "\x1b[32m================= Test {} PASSED =================\x1b[0m\n"
FAILED = '\x1b[31m### Test "{}" failed at 0001.c:57:dr_cb() at Thu Nov 26: ###\nno leader\n'
LEFT_OUT = "\x1b[33m[{}        /  0.000s] WARN: SKIPPING TEST: no RapidJSON\n"
ALL = "============== ALL TESTS PASSED ==============\n"


@pytest.mark.parametrize(
    ("test", "output", "ending"),
    [
        ("0001", PASSED.format("0001_one") + ALL + "free(): invalid pointer", Ending(PASSES)),
        ("0001", FAILED.format("0001_one"), Ending(FAILS, "no leader")),
        ("0001", FAILED.format("0001_one (its part)"), Ending(FAILS, "no leader")),
        ("0001", LEFT_OUT.format("0001_one") + ALL, Ending(SKIPS, "no RapidJSON")),
        ("0001", ALL, Ending(SKIPS, "the runner leaves it out")),
        ("0001", "cannot open shared object", Ending(FAILS, "cannot open shared object")),
        # When a number has several tests, all must pass or be left out.
        ("0045", PASSED.format("0045_a") + FAILED.format("0045_b"), Ending(FAILS, "no leader")),
        ("0045", PASSED.format("0045_a") + LEFT_OUT.format("0045_b") + ALL, Ending(PASSES)),
        ("0045", PASSED.format("0045_a") + "killed", Ending(FAILS)),
        # A name that another one begins with.
        ("0045", PASSED.format("0045_b_local") + PASSED.format("0045_a"), Ending(FAILS)),
    ],
)
def test_an_output_of_librdkafkas_runner(librdkafka, test, output, ending):
    found = librdkafka.ending(test, -6, output)
    assert found.outcome == ending.outcome
    assert ending.said in found.said


@pytest.mark.parametrize(
    ("code", "output", "ending"),
    [
        (0, "PASSED test/x.py::test_a\n1 passed", Ending(PASSES)),
        (0, "SKIPPED [1] test/x.py:3: no broker\n1 skipped", Ending(SKIPS, "no broker")),
        (1, "FAILED test/x.py::test_a[b - c] - Error: why\n", Ending(FAILS, "c] - Error: why")),
        (1, "ERROR test/x.py::test_a - Error: why\n", Ending(FAILS, "Error: why")),
        (-9, "half a li", Ending(FAILS, "half a li")),
    ],
)
def test_an_output_of_kafka_pythons_tests(code, output, ending):
    assert suites.KafkaPython.ending(None, "x.py::test_a", code, output) == ending


@pytest.mark.parametrize(
    ("code", "output", "ending"),
    [
        (0, "--- PASS: TestA (0.00s)\nPASS\n", Ending(PASSES)),
        (
            0,
            "    a_test.go:3: no SCRAM\n--- SKIP: TestA (0.00s)\nPASS\n",
            Ending(SKIPS, "no SCRAM"),
        ),
        (1, "    a_test.go:3: why\n--- FAIL: TestA (0.00s)\nFAIL\n", Ending(FAILS, "why")),
        (2, "panic: why\n\ngoroutine 1:\n", Ending(FAILS, "why")),
        (0, "testing: warning: no tests to run\nPASS\n", Ending(FAILS)),
        (0, "--- PASS: TestAB (0.00s)\nPASS\n", Ending(FAILS)),
        (
            1,
            "    a_test.go:3: why\n    b.go:1: FAILED TESTING -- NOT DELETING TOPIC 1\nFAIL\n",
            Ending(FAILS, "why"),
        ),
    ],
)
def test_an_output_of_a_go_test(code, output, ending):
    found = suites.FranzGo.ending(None, "TestA", code, output)
    assert found.outcome == ending.outcome
    assert ending.said in found.said


class Echo:
    """A suite whose tests are Python programs."""

    name, seconds, brokers, version = "echo", 60, 3, "1"

    def command(self, test, bootstrap, home):
        return [sys.executable, "-c", test], home, {"PLACE": bootstrap}

    def ending(self, test, code, output):
        return Ending(PASSES if code == 0 else FAILS, output.strip())


def test_each_test_is_a_process_of_its_own_in_a_folder_that_goes():
    tests = [
        "import os; print(os.environ['PLACE']); open('left', 'w')",
        "import os; print(os.listdir()); raise SystemExit(3)",
    ]
    told = []
    found = suites.run(Echo(), tests, "somewhere", 1, told.append)
    assert list(found) == tests
    assert found[tests[0]] == (PASSES, "somewhere")
    assert found[tests[1]] == (FAILS, "['output']")
    assert len(told) == 2


@pytest.mark.slow
def test_a_test_that_does_not_end_hangs_and_leaves_nobody(tmp_path):
    child = tmp_path / "child"
    suite = Echo()
    suite.seconds = 5
    code = "import subprocess, time; p = subprocess.Popen(['sleep', '600']); "
    code += f"open({str(child)!r}, 'w').write(str(p.pid)); time.sleep(600)"
    assert suites.run_one(suite, code, "somewhere") == (HANGS, "not over after 5 s")
    # The signal is sent before the test's end; a busy machine delivers it a little later.
    deadline = time.monotonic() + 60
    while lives(child.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: suites.Librdkafka(None), "give --librdkafka DIR"),
        (suites.Librdkafka, "there is no tests/test-runner"),
        (lambda _: suites.KafkaPython(None), "give --kafka-python DIR"),
        (suites.KafkaPython, "there is no test/integration"),
    ],
)
def test_a_suite_that_is_not_here_says_what_to_give(tmp_path, make, words):
    with pytest.raises(suites.Missing, match=words):
        make(tmp_path)


@pytest.fixture
def parts(monkeypatch):
    """The command line, where each part does as the test says."""
    outcomes = {}

    def run_part(part, options):
        if isinstance(outcomes.get(part), Exception):
            raise outcomes[part]
        return outcomes.get(part, [])

    monkeypatch.setattr(soaking._system, "prepare", lambda _: [])
    monkeypatch.setattr(soaking, "run_part", run_part)
    return outcomes


def test_all_parts_as_expected_end_well(parts, capsys):
    assert soaking.main([]) == 0
    assert "strangers: 6 parts, 0 not as expected, 0 skipped" in capsys.readouterr().out


def test_a_skipped_part_is_counted_and_has_its_exit_code(parts, capsys):
    parts["librdkafka"] = suites.Missing("give --librdkafka DIR")
    assert soaking.main([]) == 3
    told = capsys.readouterr().out
    assert "skipped: librdkafka: give --librdkafka DIR\n" in told
    assert "strangers: 5 parts, 0 not as expected, 1 skipped" in told


def test_a_difference_fails_also_beside_a_skip(parts, capsys):
    parts["librdkafka"] = suites.Missing("give --librdkafka DIR")
    parts["franz-go"] = ["franz-go: TestA: expected passes, saw fails"]
    assert soaking.main([]) == 1
    assert "FAILED franz-go: franz-go: TestA: expected" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["sarama"], ["--jobs", "0"], ["--no-such"]])
def test_wrong_usage_has_its_code(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        soaking.main(arguments)
    assert ended.value.code == 64


# --- a program that drives nothing ----------------------------------------------------------------

ANSWERS = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    said = '{"type": "ok"}' if request["f"] == "open" else sys.argv[1]
    print(json.dumps({"id": request["id"], **json.loads(said)}), flush=True)
"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('{"type": "info", "error": "timeout"}', ""),
        ('{"type": "ok", "value": 0}', "a send without a broker is ok at 0"),
        ('{"type": "fail", "error": "timeout"}', "a send without a broker: CallRefused('timeout')"),
    ],
)
def test_a_timeout_that_is_told_as_anything_but_unknown_is_found(said, told):
    assert soaking.timeout_told([sys.executable, "-c", ANSWERS, said]) == told


# --- scripts/soak ---------------------------------------------------------------------------------


@pytest.fixture
def soak():
    return module_of(ROOT / "scripts" / "_soak.py")


@pytest.mark.parametrize(("code", "exit_code"), [(0, 0), (1, 1), (3, 3)])
def test_a_soak_runs_strangers_once_and_hands_on_what_it_says(
    soak, monkeypatch, tmp_path, capsys, code, exit_code
):
    commands = []

    def run(command, log, limit):
        commands.append(command)
        log.write_text("its output")
        return code

    monkeypatch.setattr(soak, "run", run)
    monkeypatch.setattr(soak.signal, "signal", lambda *_: None)
    folders = ["--librdkafka", "/a", "--kafka-python", "/b"]
    arguments = ["--minutes", "60", "--bugs", str(tmp_path / "bugs"), *folders, "strangers"]
    assert soak.main(arguments) == exit_code
    [command] = commands
    assert command[1:] == ["scripts/_strangers_soak.py", "--jobs", "2", *folders]
    assert (ROOT / command[1]).exists()
    told = capsys.readouterr().out
    assert ("not whole" in told) == (code == 3)
    assert ("failed: " in told) == (code == 1)
