"""`scripts/soak strangers`: the whole matrix, the black-box subjects, and the big suites.

Exit codes: 0 when all is as expected, 1 when anything is not, 3 when all that ran is as expected
and something could not run, 64 wrong usage.
"""

import argparse
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import _system

from jepsen_style_tests.clients.choice import PROGRAMS
from jepsen_style_tests.clients.face import ClientSettings, Unknown
from jepsen_style_tests.clients.lines import LineClient
from outsiders import clients, group_faults, preparing, suite_table, suites
from outsiders.main import cluster

SKIPPED = 3
USAGE = 64
PARTS = ("matrix", "groups", "subjects", "librdkafka", "kafka-python", "franz-go")
WORKLOADS = ("append", "idempotent")
SUBJECT_SECONDS = 60
SETTINGS = {"num.partitions": "4", "group.min.session.timeout.ms": "2500"}
"""Settings that the suites expect. A topic that its first record creates has four partitions.
Sessions of 3 s are allowed, as the brokers that kafka-python's tests start allow them."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"strangers: {message}\n")


def main(arguments):
    """Run the parts that are asked for, and print what differs and what could not run."""
    options = parsed(arguments)
    _system.prepare("strangers")
    failed, skipped = [], {}
    for part in options.parts or PARTS:
        began = time.monotonic()
        try:
            failed += [f"{part}: {line}" for line in run_part(part, options)]
        except (suites.Missing, preparing.PreparationError) as error:
            skipped[part] = str(error)
        else:
            say(f"{part}: {time.monotonic() - began:.0f} s")
    for part, why in skipped.items():
        print(f"skipped: {part}: {why}")
    for line in failed:
        print(f"FAILED {line}")
    ran = len(options.parts or PARTS) - len(skipped)
    print(f"strangers: {ran} parts, {len(failed)} not as expected, {len(skipped)} skipped")
    return 1 if failed else SKIPPED if skipped else 0


def parsed(arguments):
    """Returns the options; ends with 64 on wrong usage."""
    parser = _Parser(prog="scripts/soak strangers", allow_abbrev=False)
    parser.add_argument("--librdkafka", type=Path, metavar="DIR", help="a built librdkafka")
    parser.add_argument("--kafka-python", type=Path, metavar="DIR", help="its checkout")
    parser.add_argument("--jobs", type=int, default=2, help="tests of a suite at a time")
    parser.add_argument("--test", action="append", help="only this test of a suite; may repeat")
    parser.add_argument("--write", action="store_true", help="take what was seen as expected")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    options = parser.parse_args(arguments)
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"no part {unknown[0]!r}: there are {', '.join(PARTS)}")
    if options.jobs < 1:
        parser.error("--jobs is at least 1")
    return options


def run_part(part, options):
    """Returns a line for each thing that is not as expected."""
    if part == "matrix":
        command = [sys.executable, "scripts/_strangers.py"]
        return [] if subprocess.run(command, check=False).returncode == 0 else ["see above"]
    if part == "groups":
        return run_groups()
    if part == "subjects":
        return run_subjects()
    makers = {
        "librdkafka": lambda: suites.Librdkafka(options.librdkafka),
        "kafka-python": lambda: suites.KafkaPython(options.kafka_python),
        "franz-go": suites.FranzGo,
    }
    return run_suite(makers[part](), options)


def run_groups():
    """Run the groups of each client through faults of the brokers."""
    wrong, skipped = group_faults.run(group_faults.NAMES, say)
    if skipped and len(skipped) == len(group_faults.NAMES):
        raise suites.Missing("; ".join(f"{name}: {why}" for name, why in skipped.items()))
    return wrong + [f"{name} cannot be prepared: {why}" for name, why in skipped.items()]


def run_suite(suite, options):
    """Run one suite against a fresh cluster, and compare it with the table."""
    every = suite.tests()
    if unknown := [test for test in options.test or () if test not in every]:
        return [f"there is no test {', '.join(unknown)}"]
    if not every:
        return ["the suite has no tests"]
    with cluster(suite.brokers, SETTINGS) as brokers:
        endings = suites.run(
            suite, options.test or every, brokers.bootstrap_servers, options.jobs, say
        )
    table = suite_table.load()
    if options.write:
        table = suite_table.merged(table, suite.name, suite.version, endings)
        suite_table.save(table)
    lines = list(suite_table.differences(table, suite.name, suite.version, endings))
    if not options.test:
        lines += suite_table.gone(table, suite.name, endings)
    return lines


def run_subjects():
    """Run the black-box tests' programs: each calls a timeout unknown, and the judge finds
    nothing."""
    commands = clients.subjects()
    assert tuple(commands) == PROGRAMS
    lines = [f"{name}: {told}" for name in PROGRAMS if (told := timeout_told(commands[name]))]
    # The folder stays, with those of the runs: their commands name it.
    programs = preparing.cache_folder() / "subjects.json"
    programs.write_text(json.dumps(commands))
    for name in PROGRAMS:
        for workload in WORKLOADS:
            command = [sys.executable, "-m", "jepsen_style_tests", "run", "--workload", workload]
            command += ["--nemesis", "kill-one", "--time-limit", str(SUBJECT_SECONDS)]
            command += ["--client", name, "--programs", str(programs)]
            if code := subprocess.run(command, check=False).returncode:
                lines.append(f"{name}: {workload} under kill-one: exit code {code}")
    return lines


def timeout_told(command):
    """Returns what is wrong with a program's answer to a send that no broker ever takes.

    It is "" when the program says that it does not know.
    """
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nothing listens there
        bootstrap = f"127.0.0.1:{held.getsockname()[1]}"
        client = LineClient(command, ClientSettings(bootstrap=bootstrap, seconds=3.0))
        try:
            return f"a send without a broker is ok at {client.send('t', 0, 'a')}"
        except Unknown as error:
            return f"it does not answer: {error}" if "no answer" in str(error) else ""
        except Exception as error:
            return f"a send without a broker: {error!r}"
        finally:
            client.close()


def say(text):
    """Print a line of progress."""
    print(text, flush=True)
