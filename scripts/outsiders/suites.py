"""Other people's own test suites: their tests, how each one is run, how it ended.

Each test is a process of its own against one cluster, with a time limit. A built librdkafka and a
checkout of kafka-python come from folders that the caller names; franz-go's suite comes by its Go
module. Nothing is written into any of them.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from outsiders import preparing
from outsiders.clients import FRANZ_GO, kafka_home
from outsiders.outcomes import lasting

PASSES, FAILS, HANGS, SKIPS = "passes", "fails", "hangs", "skips"
KNOWN_BROKER = "4.1.0"
"""The release that librdkafka's runner is told: it leaves out share groups, which need a newer
broker."""
LIKE_BROKER = "4.3.0"
"""The release of Kafka whose API versions ours are like, as kafka-python infers it. When ours get
more of them, its test of that fails, and this number is to be raised."""
RECORDS = 2000
"""How many records each of franz-go's tests moves, if it moves any."""
SAID_CHARACTERS = 200
OUTPUT_BYTES = 64 << 10
"""How many bytes of the end of a test's output are looked at."""


class Missing(Exception):
    """The suite is not on this machine; the text says what to give."""


class Ending(NamedTuple):
    """The ending of one test, and its own last words."""

    outcome: str
    said: str = ""


class Librdkafka:
    """librdkafka's test runner, by test number, without the tests that need no broker."""

    name = "librdkafka"
    seconds = 900
    brokers = 3

    def __init__(self, folder):
        if folder is None:
            raise Missing("give --librdkafka DIR, the folder of a built librdkafka")
        self.folder = folder.resolve() / "tests"
        if not (self.folder / "test-runner").exists():
            raise Missing(f"{folder}: there is no tests/test-runner; build it there first")
        header = (self.folder.parent / "src" / "rdkafka.h").read_text()
        [number] = re.findall(r"#define RD_KAFKA_VERSION\s+0x(\w{6})", header)
        self.version = ".".join(str(int(number[at : at + 2], 16)) for at in (0, 2, 4))
        self._names = self._by_number()

    def _by_number(self):
        """Returns the runner's own table: number -> the names of its tests that run against a
        broker."""
        table = (self.folder / "test.c").read_text()
        found = {}
        for name, flags in re.findall(r"^ +_TEST\((\w+),\s*([^,)]+)", table, re.MULTILINE):
            if not re.search("TEST_F_(LOCAL|MANUAL)", flags):
                found.setdefault(name[:4], []).append(name)
        return found

    def tests(self):
        """Returns the numbers: the runner cannot be asked for less than all tests of a number."""
        return list(self._names)

    def command(self, test, bootstrap, home):
        """Returns the command, its folder and its environment."""
        config = home / "test.conf"
        config.write_text(f"metadata.broker.list={bootstrap}\ntest.topic.prefix=rdkafka{test}\n")
        more = {
            "TESTS": test,
            "RDKAFKA_TEST_CONF": str(config),
            "LD_LIBRARY_PATH": f"{self.folder.parent / 'src'}:{self.folder.parent / 'src-cpp'}",
            "KAFKA_PATH": str(kafka_home()),
            "BROKERS": bootstrap,
        }
        # Its quick mode lets tests pass whose every part was left out, so it is not used. The
        # runner leaves statistics in the folder where it runs.
        runner = str(self.folder / "test-runner")
        return [runner, "-L", "-p1", "-V", KNOWN_BROKER], home, more

    def ending(self, test, code, output):
        """Returns the ending by the tests' own lines.

        The runner's exit code does not tell: it may end in a fault of its own after every test has
        passed.
        """
        endings = [self._ending(name, output) for name in self._names[test]]
        for outcome in (FAILS, PASSES, SKIPS):
            for each in endings:
                if each.outcome == outcome:
                    return each
        raise AssertionError(test)

    def _ending(self, name, output):
        if re.search(rf"Test {name}\b.* PASSED", output):
            return Ending(PASSES)
        failed = rf'Test "{name}\b[^"]*" failed at .*?###\s*(.*)|(Test {name}\b.* timed out)'
        if re.search(failed, output):
            return Ending(FAILS, last(failed, output))
        skipped = rf"\[{name[:28]}.*SKIPPING TEST: (.*)"
        if re.search(skipped, output):
            return Ending(SKIPS, last(skipped, output))
        # About a test that belongs to another scenario the runner says nothing.
        if "ALL TESTS PASSED" in output:
            return Ending(SKIPS, "the runner leaves it out")
        return Ending(FAILS, last(r"$^", output))


class KafkaPython:
    """kafka-python's integration tests, with the package beside them.

    They take for granted that one broker leads every partition.
    """

    name = "kafka-python"
    seconds = 120
    brokers = 1

    def __init__(self, folder):
        if folder is None:
            raise Missing("give --kafka-python DIR, a checkout of kafka-python")
        self.folder = folder.resolve()
        if not (self.folder / "test" / "integration").is_dir():
            raise Missing(f"{folder}: there is no test/integration")
        [self.version] = re.findall(
            r"^# (\S+)", (self.folder / "CHANGES.md").read_text(), re.MULTILINE
        )[:1]

    def tests(self):
        """Returns the tests that pytest collects."""
        command, folder, more = self.command("test/integration", "127.0.0.1:9092", None)
        output = said_by([*command, "--collect-only"], folder, more)
        return re.findall(r"^test/integration/(\S+::.+)$", output, re.MULTILINE)

    def command(self, test, bootstrap, home):
        """Returns the command, its folder and its environment."""
        first = bootstrap.split(",")[0]
        more = {
            "KAFKA_VERSION": LIKE_BROKER,
            "KAFKA_URI": f"kafka://{first}",
            "KAFKA_ROOT": str(kafka_home()),
            "PYTHONDONTWRITEBYTECODE": "1",
            "COLUMNS": "400",
        }
        place = test if home is None else f"test/integration/{test}"
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", place]
        return command, self.folder, more

    def ending(self, test, code, output):
        """Returns the ending by pytest's own line of the test."""
        if code == 0:
            skipped = re.search(r"^SKIPPED \[1\] \S+ (.*)", output, re.MULTILINE)
            return Ending(SKIPS, skipped[1]) if skipped else Ending(PASSES)
        return Ending(FAILS, last(r"^(?:FAILED|ERROR) .*? - (.*)", output))


class FranzGo:
    """franz-go's client package, by its Go module."""

    name = "franz-go"
    seconds = 120
    brokers = 3

    def __init__(self):
        module = FRANZ_GO[0]
        self.version = module.partition("@v")[2]
        try:
            go = preparing.go_command()
        except preparing.PreparationError as error:
            raise Missing(str(error)) from error
        asked = [go, "mod", "download", "-json", module]
        told = said_by(asked, Path(tempfile.gettempdir()), {})
        try:
            self.folder = Path(json.loads(told)["Dir"]) / "pkg" / "kgo"
        except (ValueError, KeyError) as error:
            raise Missing(f"Go cannot bring {module}: {' '.join(told.split())[-300:]}") from error
        try:
            self.program = preparing.go_tests(module, self.folder)
        except preparing.PreparationError as error:
            raise Missing(str(error)) from error

    def tests(self):
        """Returns the tests that the test binary lists."""
        output = said_by([str(self.program), "-test.list", "."], self.folder, {})
        return re.findall(r"^Test\w+$", output, re.MULTILINE)

    def command(self, test, bootstrap, home):
        """Returns the command, its folder and its environment."""
        more = {"KGO_SEEDS": bootstrap, "KGO_TEST_RECORDS": str(RECORDS)}
        more |= {"KGO_TEST_MAX_TOPIC_PARTS": "7"}
        return [str(self.program), "-test.v", "-test.run", f"^{test}$"], self.folder, more

    def ending(self, test, code, output):
        """Returns the ending by Go's own line of the test."""
        if re.search(rf"^--- SKIP: {test} ", output, re.MULTILINE):
            return Ending(SKIPS, last(r"^ +\w+\.go:\d+: (.*)", output))
        if code == 0 and re.search(rf"^--- PASS: {test} ", output, re.MULTILINE):
            return Ending(PASSES)
        # After any failure the suite prints what it deletes; those lines are not the reason.
        plain = re.sub(r"(?mi)^.*(?:NOT )?deleting (?:topic|group).*$", "", output)
        return Ending(FAILS, last(r"^ +\w+\.go:\d+: (.*)|^panic: (.*)", plain))


def run(suite, tests, bootstrap, jobs, say):
    """Run these tests, `jobs` at a time; returns name -> Ending, in the order of the tests."""

    def one(test):
        ending = run_one(suite, test, bootstrap)
        say(f"{suite.name}: {test}: {ending.outcome} {ending.said}".rstrip())
        return ending

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(tests, pool.map(one, tests), strict=True))


def run_one(suite, test, bootstrap):
    """Run one test in a process of its own; all that it started ends with it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        command, place, more = suite.command(test, bootstrap, home)
        output = home / "output"
        with output.open("wb") as told:
            process = subprocess.Popen(
                command,
                cwd=place,
                env={**os.environ, **more},
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(suite.seconds)
            except subprocess.TimeoutExpired:
                return Ending(HANGS, f"not over after {suite.seconds} s")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        with output.open("rb") as told:
            told.seek(max(0, output.stat().st_size - OUTPUT_BYTES))
            return suite.ending(test, code, told.read().decode(errors="replace"))


def said_by(command, folder, more):
    """Returns the output of a command that ends soon, even one that fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **more},
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=preparing.PREPARE_SECONDS,
    )
    return done.stdout.decode(errors="replace")


def last(pattern, output):
    """Returns the last of these words, without colours and without what differs from run to run."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", output)
    found = [match.group(match.lastindex or 0) for match in re.finditer(pattern, plain, re.M)]
    words = found[-1] if found else plain.strip()[-SAID_CHARACTERS:]
    return lasting(" ".join(words.split()))[:SAID_CHARACTERS]
