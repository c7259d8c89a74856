"""Debian's packages that the tests and the demo use from outside, and how they come here.

Only the standard library is needed, and any Python 3.7 or newer will do.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

JAVA_MIN = 17
TRIES = 3
INSTALL = ["apt-get", "install", "-y", "--no-install-recommends"]
OUTPUT_LINES = 5
"""How many of the last lines of a failed installation are shown."""


class Need:
    """One thing from outside: `name` as tests ask for it, Debian's `packages` that bring it, `why`
    it is needed, and the `profiles` that need it."""

    def __init__(self, name, packages, why, profiles, found=None):
        self.name = name
        self.packages = packages
        self.why = why
        self.profiles = profiles
        self._found = found or (lambda: shutil.which(name) is not None)

    def is_here(self):
        """Whether this machine has it."""
        return self._found()


def _java_is_here():
    """Whether the Java on the PATH is new enough; Java 8 and older call themselves 1.8."""
    found = re.search(r' version "(\d+)', _said_by(["java", "-version"]))
    return found is not None and int(found.group(1)) >= JAVA_MIN


def _said_by(command):
    """Returns the output of a command; "" when it does not start."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError:
        return ""
    return done.stdout.decode(errors="replace")


def _headers_are_here():
    return Path(sysconfig.get_path("include"), "Python.h").exists()


def _faketime_is_here():
    return any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


BOTH = ["test", "strangers"]
MONO = ["mono-mcs", "mono-runtime", "libmono-system-net-http4.0-cil", "librdkafka1"]
NEEDS = [
    Need("java", ["default-jre-headless"], "Spark needs Java 17", [*BOTH, "demo"], _java_is_here),
    Need("kcat", ["kcat"], "tests drive this Kafka client in C", BOTH),
    Need("chromium", ["chromium"], "tests read reports in this browser", ["test"]),
    Need("cc", ["gcc", "libc6-dev"], "scripts/compile needs a C compiler", ["test"]),
    Need("Python.h", ["python3-dev"], "scripts/compile needs it", ["test"], _headers_are_here),
    Need("libfaketime", ["libfaketime"], "tests turn clocks with it", ["test"], _faketime_is_here),
    Need("curl", ["curl"], "a guide's commands use it", ["test"]),
    Need("ip", ["iproute2"], "tests cut networks with it", ["test"]),
    Need("mvn", ["maven"], "it brings Kafka's own clients and tools", ["strangers"]),
    Need("javac", ["default-jdk-headless"], "Kafka's own client needs it", ["strangers"]),
    Need("mcs", MONO, "it compiles the example in C#", ["strangers"]),
    Need("mono", MONO, "it runs the example in C#", ["strangers"]),
    Need("node", ["nodejs"], "it runs kafkajs and kafka-console", ["strangers"]),
    Need("npm", ["npm"], "it brings kafkajs and kafka-console", ["strangers"]),
]


def missing(profile):
    """Returns the needs of `profile` that this machine lacks; of all profiles when it is None."""
    wanted = [need for need in NEEDS if profile is None or profile in need.profiles]
    return [need for need in wanted if not need.is_here()]


def command_for(needs):
    """Returns the command that brings all of `needs`, as a list."""
    return [*INSTALL, *(package for need in needs for package in need.packages)]


def prepare(profile):
    """Install what `profile` lacks, where that is possible, and say so; returns the needs still
    lacking."""
    lacking = missing(profile)
    if not lacking:
        return []
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return _told(lacking, "only root on Debian can install it here")
    for need in lacking:
        _say(f"system packages: installing {' '.join(need.packages)}: {need.why}")
    lines = install([package for need in lacking for package in need.packages])
    return _told(missing(profile), "its installation failed", lines)


def install(packages):
    """Install Debian packages in silence; returns the last lines of the output of a failure."""
    output = b""
    for attempt in range(TRIES):
        time.sleep(5 * attempt)
        output = _output_of_failure(["apt-get", "update", "-q"])
        output = output or _output_of_failure([*INSTALL, "-q", *packages])
        if not output:
            break
    return output.decode(errors="replace").splitlines()[-OUTPUT_LINES:]


def _told(lacking, why, lines=()):
    for line in lines:
        _say(f"system packages: {line}")
    for need in lacking:
        _say(f"system packages: there is no {need.name} ({need.why}), and {why}")
    return lacking


def _output_of_failure(command):
    """Run `command` in silence; returns its output when it failed, else nothing."""
    done = subprocess.run(
        command,
        check=False,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return done.stdout + b"\nfailed" if done.returncode else b""


def _say(text):
    print(text, file=sys.stderr, flush=True)
