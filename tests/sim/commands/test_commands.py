"""The commands of `raftlog sim`: what they print, write and return; what they refuse."""

import json
import re

import attrs
import pytest
from raftlog_sim.__main__ import main
from raftlog_sim.base.outcome import signature
from raftlog_sim.base.probe_names import place_names, probe_names
from raftlog_sim.commands import common, sweep
from raftlog_sim.commands.mutants import merged, summary, table, with_all, write_table
from raftlog_sim.commands.telling import option_lines
from raftlog_sim.hunting import mutation
from raftlog_sim.hunting.mutation import Hunt
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import BrokerCase, case_from_text, load
from raftlog_sim.playing.divergence import first_divergence, turn_lines
from raftlog_sim.playing.run_trace import RunTrace
from raftlog_sim.playing.seeds import drawn
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import step

from raftlog.base.errors import OperatingError


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAFTLOG_MUTANT", raising=False)


def short(**more):
    options = SimOptions(seed=5, safety_ms=200, **more)
    schedule = draw_schedule(options)
    crash = step(60, "crash", 80, node="leader:0")
    return schedule.with_steps([*schedule.steps, crash])


@pytest.fixture
def schedule_file(tmp_path):
    path = tmp_path / "case.json"
    path.write_text(short().text())
    return path


def ran(*arguments, capsys):
    code = main([str(each) for each in arguments])
    return code, capsys.readouterr()


# --- run and replay ---


def test_a_run_folder_holds_everything_and_replays(schedule_file, tmp_path, capsys):
    code, said = ran("replay", schedule_file, "--out", tmp_path / "r", "--report", capsys=capsys)
    assert code == 0
    lines = said.out.splitlines()
    assert lines.index("ok") < 12
    folder = tmp_path / "r"
    assert said.out.splitlines()[-1] == f"report: {folder / 'report.html'}"
    names = {"schedule.json", "history.jsonl", "run.json", "trace.txt", "verdict.json"}
    assert names | {"report.html"} == {path.name for path in folder.iterdir()}
    manifest = json.loads((folder / "run.json").read_text())
    assert manifest["version"] == 1
    assert manifest["commands"]["replay"].startswith("raftlog sim replay ")
    assert manifest["commands"]["judge again"] == f"raftlog verify {folder}"
    assert set(manifest["replicas"]["t/0"]) == {"n1", "n2", "n3"}
    assert manifest["run"]["faults"] == {"crash": 1}
    assert json.loads((folder / "verdict.json").read_text())["verdict"] == "valid"
    again, said = ran("replay", folder, "--format", "json", "--no-folder", capsys=capsys)
    assert again == 0
    assert json.loads(said.out)["trace_hash"] == manifest["trace_hash"]
    assert "role" in (folder / "trace.txt").read_text()
    assert "leader" in (folder / "report.html").read_text()


def test_all_options_are_printed_those_that_are_not_the_default_first():
    """Regression: they were one line of 1,500 characters before the verdict."""
    for seed in range(1, 9):
        case = drawn(seed, "swarm")
        lines = option_lines(case)
        assert max(map(len, lines)) <= 100
        words = re.split(r"[:,]? +", " ".join(lines))
        options, plain = case.schedule.options.document(), SimOptions(seed=0).document()
        gaps = options.pop("fault_gaps_ms")
        told = [word.partition("=")[0] for word in words]
        assert set(options) | set(gaps) <= set(told)
        assert lines[0].startswith(f"options: seed={seed}, profile=swarm, ")
        default = told.index("default")
        late = {name for name in options if told.index(name) > default}
        assert late == {name for name in options if options[name] == plain[name]} - {"profile"}
        assert {name: int(gap) for name, _, gap in (word.partition("=") for word in words)
                if gap and name in gaps} == {k: v for k, v in gaps.items() if v}  # fmt: skip


def test_the_options_of_guests_are_printed_too():
    lines = option_lines(drawn(3, "kills", "pysyncobj"))
    assert lines[0].startswith("options: batch_bytes=")
    assert "journal=true" in lines[0]
    assert lines[1].startswith("  as by default: subject=pysyncobj, nodes=3, ")


def test_one_of_a_thing_is_singular(schedule_file, capsys):
    case = short()
    schedule_file.write_text(case.with_steps([step(60, "crash", 80, node="leader:0")]).text())
    _, said = ran("replay", schedule_file, "--no-folder", capsys=capsys)
    assert " events, 1 step, " in said.out


def test_of_guests_no_probes_are_wanted(capsys):
    """Regression: a scenario of guests ended with "149 of 149 probes not reached"."""
    code, said = ran("scenarios", "pysyncobj-s1-second-copy", capsys=capsys)
    assert (code, said.out.splitlines()[1:]) == (0, ["1 scenario, 0 failed"])
    code, said = ran("sweep", "--subject", "pysyncobj", "--seeds", "3..3", "--jobs", "1",
                     "--check-every", "0", "--no-folders", capsys=capsys)  # fmt: skip
    assert "probes" not in said.out
    assert "unusual paths" not in said.out


def test_the_trace_has_lanes_and_arrows_that_end():
    watcher = RunTrace()
    simulate(short(), watch=watcher.watch)
    lines = [line.split() for line in watcher.lines]
    assert all(len(line) >= 3 and line[0].isdigit() for line in lines)
    sent = {line[4] for line in lines if line[2] == "send"}
    delivered = {line[3] for line in lines if line[2] == "deliver"}
    assert len(sent) > 20
    assert delivered <= sent
    assert len(delivered) > 0.8 * len(sent)
    assert {"boot", "role", "sync", "commit"} <= {line[2] for line in lines}


def test_runs_latest_points_to_the_newest(schedule_file, tmp_path, capsys):
    for _ in range(2):
        assert ran("replay", schedule_file, capsys=capsys)[0] == 0
    folders = sorted(path.name for path in (tmp_path / "runs").iterdir() if not path.is_symlink())
    assert len(folders) == 2
    assert (tmp_path / "runs" / "latest").resolve().name == folders[-1]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["run"], "--seed"),
        (["run", "--seed", "1", "--profile", "none"], "invalid choice"),
        (["sweep", "--seeds", "5"], "A..B"),
        (["sweep", "--seeds", "5..4"], "A..B"),
        (["sweep", "--seeds", "1..2", "--jobs", "0"], "--jobs"),
        (["shrink"], "FILE or --seed"),
        (["debug", "x.json", "--seed", "3"], "not both"),
        (["explode"], "invalid choice"),
        ([], "required"),
        (["mutants", "999"], "no mutant 999"),
    ],
)
def test_wrong_usage_is_64_and_says_why(arguments, why, capsys):
    code, said = ran(*arguments, capsys=capsys)
    assert code == 64
    assert why in said.err
    assert said.out == ""


@pytest.mark.parametrize(
    "content", ["", "{", '{"version": 9}', "no plan at all", '{"version": 1, "steps": 3}']
)
def test_a_file_that_is_no_case_is_refused(content, tmp_path, capsys):
    (tmp_path / "bad").write_text(content)
    code, said = ran("replay", tmp_path / "bad", "--format", "json", capsys=capsys)
    assert code == 64
    assert set(json.loads(said.err)["error"]) == {"what", "on", "do"}


def test_a_file_that_is_not_there_is_refused(capsys):
    code, said = ran("replay", "nowhere", capsys=capsys)
    assert code == 64
    assert "nowhere" in said.err


def test_every_command_has_help_with_an_example(capsys):
    for name in ("run", "replay", "sweep", "shrink", "debug", "mutants"):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0
        assert f"Example: raftlog sim {name}" in capsys.readouterr().out


# --- cases ---


def test_a_case_is_its_text():
    case = BrokerCase(schedule=short())
    assert case_from_text(case.text()) == case
    assert case.faults == 1
    assert case.size == len(case.schedule.steps)
    guest = drawn(3, "resets", "pysyncobj")
    assert case_from_text(guest.text()) == guest
    for profile, subject in (("swarm", "pysyncobj"), ("kills", "brokers")):
        with pytest.raises(OperatingError, match="no profile of"):
            drawn(3, profile, subject)


def test_a_run_folder_remembers_its_mutant(tmp_path):
    (tmp_path / "schedule.json").write_text(short().text())
    (tmp_path / "run.json").write_text('{"mutant": "9"}')
    assert load(tmp_path)[1] == "9"
    assert load(tmp_path / "schedule.json")[1] == "9"
    (tmp_path / "run.json").write_text('{"mutant": 9}')
    assert load(tmp_path)[1] == ""


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("order: group 3: commit 9", "order: group 12: commit 1", True),
        ("x: 2.cf02d054939c7b61.0 leads", "x: 1.a1b2c3d4e5f60718.7 leads", True),
        ("x: n1 leads", "x: n3 leads", True),
        ("order: group 3", "log-matching: group 3", False),
        ("assertion: a at raftlog/x.py:1", "assertion: a at raftlog/y.py:1", False),
        ("history-lost: one", "history-lost: another text", True),
        ("", "order: x", False),
    ],
)
def test_signatures_group_failures_of_one_cause(one, other, same):
    assert (signature(one) == signature(other)) is same


# --- two processes ---


def test_the_first_turn_that_differs_is_found():
    one = ["1 n1 a", "2 n2 b", "3 n3 c"]
    assert "turn 3" in first_divergence(one, [*one[:2], "3 n3 d"])
    assert "turn 4" in first_divergence(one, [*one, "4 n1 e"])
    told = first_divergence(one, ["1 n1 a", "2 n2 X"])
    assert "both: 1 n1 a" in told
    assert "column 6" in told
    assert "no line" in first_divergence(one, one)


def test_turn_lines_are_the_same_twice_and_name_no_address():
    case = BrokerCase(schedule=short())
    lines = turn_lines(case)
    assert lines == turn_lines(case)
    assert not any("0x7" in line for line in lines)
    assert len(lines) == case.play().document["turns"]


# --- sweep ---


def test_a_sweep_groups_failures_and_keeps_a_few(tmp_path, capsys):
    code, said = ran(
        "sweep", "--subject", "pysyncobj", "--seeds", "3..8", "--jobs", "1", "--check-every", "0",
        "--out", tmp_path / "found", "--format", "json", capsys=capsys,
    )  # fmt: skip
    assert code == 1
    document = json.loads(said.out)
    assert document["seeds"] == 6
    assert document["failed"] == sum(group["count"] for group in document["failures"]) >= 4
    assert {"lost-acknowledged"} <= {group["class"] for group in document["failures"]}
    assert all(1 <= len(group["folders"]) <= 3 for group in document["failures"])
    folder = document["failures"][0]["folders"][0]
    case, mutant = load(tmp_path / folder)
    assert mutant == ""
    assert case.play().failure == document["failures"][0]["example"]
    assert document["seeds_per_hour"] > 0
    assert document["simulated_seconds"] > 60


def test_a_sweep_says_in_how_many_seeds_a_core_did_alone(monkeypatch, capsys):
    rows = {1: ("ran", 3), 2: ("not drawn", 0), 3: ("ran", 1), 4: ("", 0)}

    def lost(seed, *_):
        core, records = rows[seed]
        return sweep._lost_row(seed, "")._replace(core=core, core_records=records)

    monkeypatch.setattr(sweep, "run_seed", lost)
    arguments = ("sweep", "--seeds", "1..4", "--jobs", "1")
    _, said = ran(*arguments, "--format", "json", capsys=capsys)
    document = json.loads(said.out)
    assert document["core"] == {"not drawn": 1, "ran": 2}
    assert document["core_records"] == 4
    _, said = ran(*arguments, capsys=capsys)
    assert "\nthe core phase ran in 2 seeds, with 4 records; in others: not drawn 1\n" in said.out
    _, said = ran("sweep", "--seeds", "4..4", "--jobs", "1", capsys=capsys)
    assert "core" not in said.out, "no other subject has one"


def test_a_sweep_without_time_runs_nothing_and_fails(capsys):
    code, said = ran("sweep", "--seeds", "1..9", "--jobs", "1", "--time-limit", "0", capsys=capsys)
    assert code == 1
    assert said.out.startswith("0 seeds")
    assert "\ntime is up: 0 of 9 seeds\n" in said.out


def test_a_sweep_that_time_cuts_says_how_much_was_left(monkeypatch, capsys):
    """Regression: a sweep of 4 seeds of 60 ended like one of four."""
    monkeypatch.setattr(sweep, "run_seed", lambda seed, *_: sweep._lost_row(seed, ""))
    passed = iter([False, False, True])
    monkeypatch.setattr(common.Deadline, "passed", lambda deadline: next(passed))
    arguments = ("sweep", "--seeds", "1..60", "--jobs", "1", "--time-limit", "9")
    code, said = ran(*arguments, "--format", "json", capsys=capsys)
    document = json.loads(said.out)
    assert code == 0
    assert (document["seeds"], document["seeds_asked"], document["time_is_up"]) == (2, 60, True)
    monkeypatch.setattr(common.Deadline, "passed", lambda deadline: False)
    _, said = ran(*arguments, "--format", "json", capsys=capsys)
    document = json.loads(said.out)
    assert (document["seeds"], document["seeds_asked"], document["time_is_up"]) == (60, 60, False)
    _, said = ran("sweep", "--seeds", "7..7", "--jobs", "1", capsys=capsys)
    assert said.out.startswith("1 seed, 0 failed")
    assert "time is up" not in said.out


@pytest.mark.parametrize(
    ("asked", "code", "said_so"),
    [("count", 0, "probes not reached (--probes list"), ("list", 0, "\n  step-down-by-own-disk"),
     ("require", 1, "\n  step-down-by-own-disk")],
)  # fmt: skip
def test_probes_that_no_seed_reached(asked, code, said_so, capsys):
    found, said = ran("sweep", "--seeds", "11..11", "--jobs", "1", "--check-every", "0",
                      "--profile", "calm", "--probes", asked, capsys=capsys)  # fmt: skip
    assert found == code
    assert said_so in said.out


@pytest.mark.parametrize(
    ("asked", "code", "said_so"),
    [("count", 0, "1 of 11 unusual paths never taken (--probes list: which)\n"),
     ("list", 0, "unusual paths never taken:\n  sent-again\n"),
     ("require", 1, "unusual paths never taken:\n  sent-again\n")],
)  # fmt: skip
def test_unusual_paths_that_no_seed_took(asked, code, said_so, monkeypatch, capsys):
    """Regression: a sweep told of the paths that were taken, and never of the others."""
    taken = dict.fromkeys(set(place_names()) - {"sent-again"}, 3)
    row = sweep._lost_row(1, "")._replace(buggified=taken)
    monkeypatch.setattr(sweep, "run_seed", lambda seed, *_: row)
    monkeypatch.setattr("raftlog_sim.base.probe_names.reachable_names", lambda: ())
    arguments = ("sweep", "--seeds", "1..2", "--jobs", "1", "--probes", asked)
    found, said = ran(*arguments, capsys=capsys)
    assert found == code
    assert said.out.endswith(said_so)
    document = json.loads(ran(*arguments, "--format", "json", capsys=capsys)[1].out)
    assert document["buggified_missed"] == ["sent-again"]
    assert document["buggified"]["early-roll"] == 6


@pytest.mark.parametrize(("asked", "code"), [("count", 0), ("require", 1)])
def test_scenarios_say_which_probes_they_reached(asked, code, capsys):
    found, said = ran("scenarios", "power-loss-after-a-roll", "--no-mutants", "--probes", asked,
                      "--format", "json", capsys=capsys)  # fmt: skip
    document = json.loads(said.out)
    assert found == code
    assert document["failed"] == 0
    assert document["probes"]["cluster-founded"] == 1
    assert "step-down-by-own-disk" in document["probes_missed"]
    assert not set(document["probes"]) & set(document["probes_missed"])


def test_what_a_sweep_plays_with_it_counts_too(monkeypatch, capsys):
    monkeypatch.setattr(scenario_files, "names", lambda: ["stalled-disk-leader"])
    arguments = ("sweep", "--seeds", "11..11", "--jobs", "1", "--check-every", "0", "--profile",
                 "calm", "--format", "json")  # fmt: skip
    alone = json.loads(ran(*arguments, capsys=capsys)[1].out)
    found, said = ran(*arguments, "--scenarios", capsys=capsys)
    both = json.loads(said.out)
    assert found == 0
    assert both["scenarios_failed"] == []
    assert "step-down-by-own-disk" in alone["probes_missed"]
    assert "step-down-by-own-disk" not in both["probes_missed"]


def test_a_scenario_that_gives_something_else_fails_the_sweep_that_plays_it(monkeypatch, capsys):
    real = scenario_files.load("stalled-disk-leader")
    monkeypatch.setattr(scenario_files, "names", lambda: ["stalled-disk-leader"])
    monkeypatch.setattr(
        scenario_files, "load", lambda name: attrs.evolve(real, expected=("=> something else",))
    )
    found, said = ran("sweep", "--seeds", "11..11", "--jobs", "1", "--check-every", "0",
                      "--profile", "calm", "--scenarios", capsys=capsys)  # fmt: skip
    assert found == 1
    assert "scenario stalled-disk-leader gave something else" in said.out


def test_every_probe_has_a_name():
    names = probe_names()
    assert len(names) > 50
    assert names == tuple(sorted(names))
    assert "installed" in names


# --- shrink ---


def test_a_plan_of_guests_shrinks_to_a_file_that_replays(capsys):
    code, said = ran("shrink", "--subject", "pysyncobj", "--seed", 3, "--format", "json",
                     capsys=capsys)  # fmt: skip
    assert code == 0
    document = json.loads(said.out)
    assert document["steps"][1] <= 6
    again, said = ran("replay", document["file"], "--no-folder", capsys=capsys)
    assert again == 1
    assert "lost-acknowledged" in said.out


def test_what_passes_cannot_be_shrunk(schedule_file, capsys):
    code, said = ran("shrink", schedule_file, capsys=capsys)
    assert code == 64
    assert "nothing to shrink" in said.err


# --- mutants ---


def test_mutants_are_listed_by_number(capsys):
    code, said = ran("mutants", "--list", "--format", "json", capsys=capsys)
    assert code == 0
    numbers = [row["number"] for row in json.loads(said.out)["mutants"]]
    assert len(numbers) == len(set(numbers)) >= 11
    with pytest.raises(OperatingError, match="no mutant"):
        mutation.switch_on("no such")


KILLED = {
    "number": "1", "name": "a-b", "killed": True, "tried": 9, "by": {"order": 2, "x": 1},
    "expected": ["order"], "seeds": [2, 3, 9],
    "shrunk": {"steps": [9, 2], "events": [100, 20], "seconds": 3.2, "replays": True},
}  # fmt: skip
ALIVE = {"number": "2", "name": "c", "killed": False, "tried": 60}


def test_the_table_shows_survivors_and_scenarios():
    rows = table([KILLED, ALIVE], {"2": "some-scenario"}).splitlines()[2:]
    assert rows[0] == "| 1 a b | order x 2, x | 2 | 9 |  | 9 to 2, 3 s |"
    assert rows[1] == "| 2 c | **nothing** |  | 60 | some-scenario |  |"


def test_the_table_says_of_which_profile_a_seed_is():
    rows = table([{**KILLED, "profile": "varied"}, {**KILLED, "profile": "swarm"}], {})
    assert [line.split(" | ")[2] for line in rows.splitlines()[2:]] == ["varied 2", "2"]


def test_the_table_tells_of_other_killers_and_of_plans_that_do_not_replay():
    """35e counted over all runs of a process: its shrunk plan passed in a new one."""
    shrunk = {**KILLED["shrunk"], "replays": False}
    rows = table([{**KILLED, "expected": ["y"], "shrunk": shrunk}], {}).splitlines()[2:]
    assert rows == [
        "| 1 a b | order x 2, x (expected: y) | 2 | 9 |  | 9 to 2, 3 s, **does not replay** |"
    ]


def test_a_table_has_a_row_for_every_mutant():
    found = mutation.load()
    rows = with_all([{**ALIVE, "number": "9"}], found)
    assert [row["number"] for row in rows] == list(found)
    lines = table(rows, {}).splitlines()[2:]
    assert sum("not hunted" in line for line in lines) == len(found) - 1


def test_the_score_is_summed_up():
    slow = {"steps": [50, 7], "seconds": 90.0, "finished": False}
    rows = [KILLED, {**KILLED, "number": "3", "seeds": [40], "shrunk": slow}, ALIVE,
            {**ALIVE, "number": "4"}, {**ALIVE, "number": "5", "tried": 0}]  # fmt: skip
    said = " ".join(summary(rows, {"2": "some-scenario", "1": "another"}).split())
    assert said == (
        "5 planted bugs of the brokers: 2 caught by a seed, 1 by their scenarios only, 2 by "
        "nothing; 1 of them were not hunted on seeds. The median of those hunted: no seed. 2 first "
        "failing seeds shrank to at most 7 steps, a load counted as one, in 90 s (median) and 90 s "
        "(worst); 1 could have gone on when their time was over."
    )
    assert "The median of those hunted: seed 40." in summary(rows[:3], {}).replace("\n", " ")


def test_a_score_keeps_earlier_rows_and_a_page_its_text(tmp_path):
    score, page = tmp_path / "score.json", tmp_path / "page.md"
    assert merged(score, [KILLED, ALIVE]) == [KILLED, ALIVE]
    newer = {**ALIVE, "tried": 90}
    assert merged(score, [newer]) == [KILLED, newer] == json.loads(score.read_text())
    page.write_text("# Title\n\n<!-- table begins -->old<!-- table ends -->\n\nafter\n")
    write_table(page, [newer])
    text = page.read_text()
    assert text.startswith("# Title\n\n<!-- table begins -->\n\n1 planted bug of the brokers: 0 ")
    assert "\n\n| mutant |" in text
    assert text.endswith("<!-- table ends -->\n\nafter\n")
    assert "old" not in text
    row = next(line for line in text.splitlines() if line.startswith("| 2 "))
    assert "| 90 | " in row
    assert "half-saved-vote" in row


@pytest.mark.slow
def test_a_planted_bug_is_caught_and_shrunk():
    row = mutation.hunt("9", Hunt(budget=40, shrink_seconds=40))
    assert row["killed"], row
    assert row["shrunk"]["replays"]
    small = case_from_text(row["shrunk"]["text"])
    assert attrs.evolve(small).size < row["shrunk"]["steps"][0]
