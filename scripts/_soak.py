"""Runs `scripts/soak` inside the environment that it prepares.

It runs one part after another, each as a process, until the time is over, and files the failures.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from raftlog_sim.hunting import compiled_build
from raftlog_sim.hunting.bug_base import commit, file_log

from raftlog.base.errors import OperatingError

SEEDS_A_ROUND = 50
COMPILED_SEEDS_A_ROUND = 200
PROFILES = ("swarm", "wide", "trio", "varied", "groups")
"""The profiles that batches of seeds draw, one after another: each finds what the others do not
play."""
COMPILED_PROFILES = ("swarm", "wide", "groups")
PARTS = ("seeds", "examples", "power", "crashes")
NAMED_PARTS = ("fresh", "strangers", "blackbox", "wheels", "mutation")
"""Parts that run only when they are named: one round takes an hour, or all of the time."""
ONCE = ("strangers", "blackbox", "wheels", "mutation")
"""Parts that find nothing by a second round."""
SKIPPED = 3
"""The exit code of a part that could not run whole, though nothing failed."""
EXAMPLES = ["tests/raft", "tests/storage", "tests/partition", "tests/metadata", "tests/kafka"]
SHRINK_SECONDS = 300
OVER_SECONDS = 60
"""How much later than the limit a sweep may end, since it shrinks its last failure."""
END_SECONDS = 30
RUN_SECONDS = 60
"""How many seconds of faults one black-box run has."""
LAST_RUN_SECONDS = 300
"""How many seconds the last run may take to heal, to be read back and to be judged."""
LAST_MUTANT_SECONDS = 300
"""How many seconds the last mutants may take to be judged by their tests."""
INTERRUPTED = 130
USAGE = 64


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"soak: {message}\n  see scripts/soak --help\n")


def main(arguments):
    options = parsed(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # heard even when started in the background
        signal.signal(number, interrupt)
    soak = Soak(options)
    try:
        soak.explore()
    except KeyboardInterrupt:
        soak.interrupted = True
    except OperatingError as error:
        soak.failed.append(str(error))
    soak.tell()
    if soak.interrupted:
        return INTERRUPTED
    if soak.failed:
        return 1
    return SKIPPED if soak.skipped else 0


def parsed(arguments):
    parser = Parser(prog="soak", description="Explore for as long as told.")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--from", dest="first", type=int, default=1_000, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes that play seeds")
    parser.add_argument(
        "--compiled", metavar="DIR", type=Path, help="play seeds by what scripts/compile made"
    )
    parser.add_argument("--bugs", type=Path, default=Path("bugs"), help="where failures are filed")
    parser.add_argument("--mutant", default="", help="with this planted bug, to see it found")
    parser.add_argument(
        "--librdkafka", type=Path, metavar="DIR", help="strangers: a built librdkafka"
    )
    parser.add_argument(
        "--kafka-python", type=Path, metavar="DIR", help="strangers: a checkout of kafka-python"
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join((*PARTS, *NAMED_PARTS)))
    options = parser.parse_args(arguments)
    unknown = [part for part in options.parts if part not in PARTS + NAMED_PARTS]
    if unknown:
        known = ", ".join(PARTS + NAMED_PARTS)
        parser.error(f"no part {unknown[0]!r}: there are {known}")
    if not 0 < options.minutes < float("inf"):
        parser.error("--minutes is a number above 0")
    if options.first < 0 or options.jobs < 1:
        parser.error("--from is a seed from 0 on, --jobs at least 1")
    if options.compiled and options.mutant:
        parser.error("a planted bug is played by the sources: leave out --compiled or --mutant")
    try:
        if options.compiled:
            compiled_build.check(options.compiled)
    except OperatingError as error:
        parser.error(str(error))
    return options


def interrupt(number, frame):
    raise KeyboardInterrupt


class Soak:
    """Explores the parts in turn, and keeps their results."""

    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + 60 * options.minutes
        self.rounds, self.seed = 0, options.first
        self.batches = dict.fromkeys(PROFILES, 0)
        self.failed, self.skipped, self.cut_off, self.filed = [], [], 0, []
        self.interrupted = False

    @property
    def left(self):
        return self.deadline - time.monotonic()

    def explore(self):
        wanted = list(self.options.parts or PARTS)
        while self.left > 0 and wanted:
            part = wanted.pop(0)
            if part not in ONCE:
                wanted.append(part)
            if part == "seeds" and self.options.compiled:
                compiled_build.check(self.options.compiled)  # sources may have been changed
            command = self.command_of(part)
            self.rounds += 1
            print(f"{told(part, command)}: {shlex.join(command)}", flush=True)
            with tempfile.TemporaryDirectory(prefix="raftlog-soak-") as home:
                log = Path(home) / "output.log"
                limit = self.left + (OVER_SECONDS if part == "seeds" else 0)
                code = run(command, log, limit)
                self.count(part, command, code, log)

    def count(self, part, command, code, log):
        if code is None:
            self.cut_off += 1
            print(f"{told(part, command)}: cut off at the time limit", flush=True)
        elif part == "strangers" and code == SKIPPED:
            self.skipped.append(shlex.join(command))
        elif code:
            self.failed.append(shlex.join(command))
            if part != "seeds" or "  folder: " not in log.read_text(errors="replace"):
                self.filed.append(file_log(self.options.bugs, part, command, code, log, commit()))

    def command_of(self, part):
        if part == "seeds":
            return self.sweep()
        if part == "fresh":
            return ["scripts/fresh"]
        if part == "wheels":
            return ["scripts/wheels", "--try"]
        if part == "strangers":
            return self.strangers()
        if part == "mutation":
            return self.mutation()
        if part == "blackbox":
            return self.blackbox()
        pytest = [sys.executable, "-m", "pytest", "-q", "-x", "--timeout", "1800"]
        if part == "crashes":
            return [*pytest, "--soak", "-m", "soak"]
        if part == "power":
            return [*pytest, "tests/processes/test_power_loss.py"]
        folder = EXAMPLES[self.rounds % len(EXAMPLES)]
        return [*pytest, "--hypothesis-profile=soak", folder]

    def strangers(self):
        options = self.options
        command = [sys.executable, "scripts/_strangers_soak.py", "--jobs", str(options.jobs)]
        given = {"--librdkafka": options.librdkafka, "--kafka-python": options.kafka_python}
        for name, folder in given.items():
            command += [name, str(folder)] if folder else []
        return command

    def mutation(self):
        """Hunt mutants made by a program, for all of the time that is left; a later run goes on."""
        minutes = max(1.0, (self.left - LAST_MUTANT_SECONDS) / 60)
        command = [sys.executable, "scripts/_mutation.py", "--jobs", str(self.options.jobs)]
        return [*command, "--minutes", f"{minutes:.1f}"]

    def blackbox(self):
        """Run the matrix of workloads and nemeses for all of the time that is left.

        It ends by itself after its last run.
        """
        command = [sys.executable, "-m", "jepsen_style_tests", "suite", "--seed", str(self.seed)]
        minutes = max(1.0, (self.left - LAST_RUN_SECONDS) / 60)
        return [*command, "--minutes", f"{minutes:.1f}", "--run-seconds", str(RUN_SECONDS)]

    def sweep(self):
        options, first = self.options, self.seed
        profile = PROFILES[sum(self.batches.values()) % len(PROFILES)]
        self.batches[profile] += 1
        compiled = options.compiled if profile in COMPILED_PROFILES else None
        self.seed += COMPILED_SEEDS_A_ROUND if compiled else SEEDS_A_ROUND
        command = [sys.executable, "-m", "raftlog_sim", "sweep", "--profile", profile]
        command += ["--seeds", f"{first}..{self.seed - 1}", "--jobs", str(options.jobs)]
        command += ["--time-limit", f"{max(1, self.left):.0f}", "--bugs", str(options.bugs)]
        command += ["--shrink-limit", f"{min(SHRINK_SECONDS, max(30, self.left)):.0f}"]
        if options.mutant:
            command += ["--mutant", options.mutant]
        if compiled:
            command += ["--compiled", str(compiled)]
        return command

    def tell(self):
        for each in self.failed:
            print(f"failed: {each}")
        for each in self.skipped:
            print(f"not whole, see its lines with 'skipped:': {each}")
        for folder in dict.fromkeys(self.filed):
            print(f"filed: {folder}")
        if any(self.batches.values()):
            each = ", ".join(f"{count} {profile}" for profile, count in self.batches.items())
            print(f"batches of seeds: {each}")
        how = "interrupted after " if self.interrupted else ""
        print(
            f"{how}{self.rounds} rounds, {len(self.failed)} failed, {self.cut_off} cut off, "
            f"seeds {self.options.first} to {self.seed - 1}, bugs in {self.options.bugs}/",
            flush=True,
        )


def told(part, command):
    """Returns the name of the part; for seeds also their profile."""
    return f"{part}, {command[command.index('--profile') + 1]}" if part == "seeds" else part


# --- one process ----------------------------------------------------------------------------------


def run(command, log, limit):
    """Run a command, and show and keep its output; returns its exit code, None when its time was
    over.

    It ends with this process, and all that it started ends too.
    """
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    reader = threading.Thread(target=copy, args=(process.stdout, log), daemon=True)
    reader.start()
    try:
        code = process.wait(timeout=max(1.0, limit))
    except subprocess.TimeoutExpired:
        code = None
    finally:
        end(process)
        reader.join(END_SECONDS)
    return code


def copy(stream, log):
    with log.open("wb") as kept:
        for line in stream:
            kept.write(line)
            kept.flush()
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()


def end(process):
    """Ask a process to end as Ctrl-C does, wait a little, then end all of its session."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(timeout=END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
