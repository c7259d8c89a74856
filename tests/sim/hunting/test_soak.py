"""`scripts/soak`: for as long as told, files failures; an interrupt leaves no process behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from raftlog_sim.__main__ import parser
from raftlog_sim.hunting.mutation import module_of

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


def soak(*arguments, cwd):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "_soak.py"), *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'sim'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def in_session_of(leader):
    """Processes that a part started, itself among them."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if len(words) > 3 and int(words[3]) == leader and words[0] != "Z":
            found.append(int(folder.name))
    return found


def parts_of(process):
    """Session leaders that a soak started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--minutes", "x"], ["--minutes", "0"], ["--minutes", "nan"], ["--minutes", "1", "dreams"],
     ["--minutes", "1", "--from", "-1"], ["--minutes", "1", "--jobs", "0"],
     ["--minutes", "1", "--compiled", "build/compiled", "--mutant", "1"],
     ["--minutes", "1", "--compiled", "nothing-here"]],
    ids=" ".join,
)  # fmt: skip
def test_wrong_usage_is_64(arguments, tmp_path):
    process = soak(*arguments, cwd=tmp_path)
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (64, "")
    assert error.startswith("soak: ")


@pytest.mark.parametrize(
    ("compiled", "first"), [(None, (50, 50, 50, 50, 50)), ("here", (200, 200, 50, 50, 200))]
)
def test_batches_of_seeds_take_turns_in_what_they_draw(compiled, first, monkeypatch):
    """Regression: a soak played seeds of the swarm only, however long it went on."""
    script = module_of(ROOT / "scripts" / "_soak.py")
    monkeypatch.setattr(script.compiled_build, "check", lambda folder: None)
    more = ["--compiled", compiled] if compiled else []
    soaked = script.Soak(script.parsed(["--minutes", "1", "--from", "7", *more, "seeds"]))
    commands = [soaked.command_of("seeds") for _ in range(10)]
    drawn = [parser().parse_args(command[3:]) for command in commands]
    assert [each.profile for each in drawn] == ["swarm", "wide", "trio", "varied", "groups"] * 2
    can = (True, True, False, False, True)
    assert [each.compiled is not None for each in drawn[:5]] == [
        bool(compiled) and each for each in can
    ]
    assert tuple(len(each.seeds) for each in drawn[:5]) == first
    played = [seed for each in drawn for seed in each.seeds]
    assert played == list(range(7, soaked.seed))
    assert script.told("seeds", commands[1]) == "seeds, wide"
    assert script.told("power", soaked.command_of("power")) == "power"


def test_it_files_what_it_found_and_ends_in_time(tmp_path):
    began = time.perf_counter()
    process = soak("--minutes", 0.05, "--from", 1, "--mutant", 1, "seeds", cwd=tmp_path)
    out, error = process.communicate(timeout=200)
    assert process.returncode == 1, error
    assert time.perf_counter() - began < 150
    (folder, *_) = sorted((tmp_path / "bugs").glob("promise-durable-*"))
    assert (folder / "story.md").is_file()
    assert f"folder: bugs/{folder.name}" in out
    assert "seeds, swarm: " in out
    assert "  replay: raftlog sim run --seed 1 --profile swarm " in out
    assert "\nbatches of seeds: 1 swarm, 0 wide, 0 trio, 0 varied, 0 groups\n" in out
    assert "1 failed, 0 cut off" in out


def test_an_example_that_fails_is_filed_with_its_output_and_the_command(tmp_path):
    folder = tmp_path / "tests" / "raft"
    folder.mkdir(parents=True)
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('soak')\n"
    )
    (folder / "test_sums.py").write_text("def test_sum():\n    assert 1 + 1 == 3, 'the blob'\n")
    process = soak("--minutes", 0.15, "examples", cwd=tmp_path)
    out, error = process.communicate(timeout=200)
    assert process.returncode == 1, error
    filed = tmp_path / "bugs" / "examples-test-sums-py-test-sum"
    assert "filed: bugs/examples-test-sums-py-test-sum" in out
    assert "the blob" in (filed / "output.log").read_text()
    assert "-m pytest -q -x" in (filed / "story.md").read_text()


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_told_to_end_says_what_was_done_and_leaves_nobody(number, tmp_path):
    process = soak("--minutes", 5, "seeds", cwd=tmp_path)
    try:
        deadline = time.perf_counter() + 60
        while not (parts := parts_of(process)) or len(in_session_of(parts[0])) < 3:
            assert time.perf_counter() < deadline
            time.sleep(0.05)
        process.send_signal(number)
        out, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, error
    assert error == ""
    assert "interrupted after 1 rounds, 0 failed" in out
    assert in_session_of(parts[0]) == []
