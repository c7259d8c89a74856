"""Runs `scripts/wheels` inside .venv."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "wheels"
SECOND = ROOT / "scripts" / "pytest_raftlog"
SAMPLE = SECOND / "sample"
NAMES = [f"python3.{minor}" for minor in range(11, 20)]
LIBRARIES = ["confluent-kafka", "kafka-python", "aiokafka", "faststream[kafka]"]
PLUGINS = ["pytest-asyncio", "pytest-xdist"]
SECONDS_MAX = 600


def main(arguments):
    """Build the wheels, and try them where that is asked for."""
    wheels = build()
    for wheel in wheels:
        print(f"built: {wheel.relative_to(ROOT)}")
    if not arguments:
        return 0
    pythons = arguments[1:] or found_pythons()
    failed = [python for python in pythons if not tried(python, wheels)]
    for python in failed:
        print(f"failed: scripts/wheels --try {python}")
    return 1 if failed else 0


def version_of(folder):
    """Returns the version in a folder's pyproject.toml, and the raftlog that it asks for, if
    any."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    locked = [each for each in project["dependencies"] if each.startswith("raftlog")]
    return project["version"], locked


def build():
    """Build both wheels, of one version."""
    version, _ = version_of(ROOT)
    if version_of(SECOND) != (version, [f"raftlog=={version}"]):
        sys.exit(f"error: scripts/pytest_raftlog/pyproject.toml is not of raftlog {version}")
    shutil.rmtree(BUILT, ignore_errors=True)
    for folder in (ROOT, SECOND):
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(BUILT)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return sorted(BUILT.glob("*.whl"))


def found_pythons():
    """Returns one interpreter of each version from 3.11 on, from the PATH or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    places = [shutil.which(name) for name in NAMES]
    places += sorted(pyenv.glob("versions/*/bin/python3.[0-9]*"))
    found = {}
    for place in filter(None, places):
        name = re.fullmatch(r"python3\.\d+", Path(place).name)
        if name and name[0] in NAMES and works(place):
            found.setdefault(name[0], str(place))
    return [found[name] for name in NAMES if name in found]


def works(python):
    """Whether an interpreter starts and can make environments; a shim may stand for a missing
    one."""
    command = [str(python), "-c", "import venv, ensurepip"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def tried(python, wheels):
    """Whether the sample project passes with this interpreter, and fails as it should."""
    with tempfile.TemporaryDirectory(prefix="raftlog-wheels-") as home:
        folder = Path(home)
        if not ran(python, "-m", "venv", folder / "env"):
            return False
        inside = folder / "env" / "bin" / "python"
        pip = ["-m", "pip", "install", "-q", "--disable-pip-version-check", "--prefer-binary"]
        if not ran(inside, *pip, *wheels, *LIBRARIES, *PLUGINS):
            return False
        project = folder / "project"
        shutil.copytree(SAMPLE, project)
        (project / "pytest.ini").write_text(
            "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
        )
        pytest = [inside, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        good = ran(*pytest, cwd=project) and ran(*pytest, "-n", "2", cwd=project)
        good = good and not (project / "raftlog-failures").exists()
        good = good and fails_well([*pytest, "failing_orders.py"], project)
        told = subprocess.run([inside, "--version"], check=True, capture_output=True, text=True)
        print(f"{told.stdout.strip()}: {'passed' if good else 'FAILED'}", flush=True)
        return good


def fails_well(command, project):
    """Whether failing tests leave their traces where the output says, under xdist too.

    A seed must also play the same dice again.
    """
    done = subprocess.run(
        [*map(str, command), "-n", "2"],
        cwd=project,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    text = done.stdout
    kept = re.findall(r"^(?:history|report): (.+)$", text, re.M)
    seed = re.search(r"--raftlog-seed=(\d+)", text)
    dice = set(re.findall(r"^E +AssertionError: the seed is (\d+)$", text, re.M))
    again = subprocess.run(
        [*map(str, command), "-k", "dice", f"--raftlog-seed={seed[1] if seed else 0}"],
        cwd=project,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    expected = {
        "two tests fail": "2 failed" in text,
        "the judge says why": "phantom" in text,
        "history and report are kept": len(set(kept)) == 2 and all(map(file_exists, kept)),
        "the seed is told": seed is not None,
        "the dice are the same again": len(dice) == 1 and dice.pop() in again.stdout,
    }
    for what, holds in expected.items():
        if not holds:
            print(f"not so: {what}\n{text}\n{again.stdout}")
    return all(expected.values())


def file_exists(path):
    """Whether the file exists and is not empty."""
    return Path(path).is_file() and Path(path).stat().st_size > 0


def ran(*command, cwd=None):
    """Whether a command ended well; prints its output when it did not."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
    )
    if done.returncode:
        print(f"{' '.join(map(str, command))}\n{done.stdout}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
