"""The command line of `scripts/strangers`."""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from pathlib import Path

import _system
from confluent_kafka import KafkaException

from outsiders import clients, features, matrix, preparing
from outsiders.running import judge, run_program
from outsiders.topics import Topics
from raftlog.runtime import local_cluster
from raftlog.runtime.local_ports import HOST

USAGE = 64
EVERY_FEATURE = [*features.NAMES, *features.OWN_NAMES]


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"strangers: {message}", file=sys.stderr)
        print(f"clients: {' '.join(clients.NAMES)}", file=sys.stderr)
        sys.exit(USAGE)


def main(arguments):
    """Run what is asked for; 0 when every cell is as expected, 1 when not, 64 wrong usage."""
    options = _options(arguments)
    wanted = _wanted(options)
    if options.list:
        for client in wanted:
            needs = f"  needs {', '.join(client.needs)}" if client.needs else ""
            print(
                f"{client.name:22}{'quick  ' if client.quick else '       '}{client.about}{needs}"
            )
        return 0
    if options.subjects:
        return _write_subjects(options.subjects)
    began = time.monotonic()
    if any(client.lacks() for client in wanted):
        _system.prepare("strangers")
    commands, skipped = prepared(wanted)
    seen, untold = run_all(commands, options)
    expected = matrix.load()
    if options.write:
        matrix.save(matrix.merged(expected, seen))
        expected = matrix.load()
    failed = [*matrix.differences(expected, seen)]
    failed += [f"{name}: {why}" for name, why in untold.items()]
    failed += [f"{name}: {why}" for name, why in skipped.items() if options.quick]
    _show(options, seen)
    # The JSON stands alone in the output.
    told = sys.stderr if options.format == "json" else sys.stdout
    for name, why in skipped.items():
        _say(f"skipped: {name}: {why}")
    if options.quick:
        others = [client.name for client in clients.CLIENTS if not client.quick]
        _say(f"not in the quick part: {len(others)} clients: {' '.join(others)}")
    for line in failed:
        print(f"FAILED {line}", file=told)
    cells = sum(len(column.cells) for column in seen.values())
    minutes, seconds = divmod(int(time.monotonic() - began), 60)
    print(
        f"strangers: {len(seen)} clients, {cells} cells, {len(failed)} not as expected, "
        f"{len(skipped)} clients skipped, {minutes} min {seconds} s",
        file=told,
    )
    return 1 if failed or not seen else 0


def _options(arguments):
    parser = _Parser(
        prog="scripts/strangers",
        epilog="Example: scripts/strangers kcat franz-go --feature group",
        allow_abbrev=False,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="clients; all when none is named")
    parser.add_argument("--quick", action="store_true", help="the clients that must run")
    parser.add_argument("--feature", action="append", choices=EVERY_FEATURE, metavar="FEATURE")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the JSON goes")
    parser.add_argument("--write", action="store_true", help="take what was seen as expected")
    parser.add_argument("--list", action="store_true", help="list the clients")
    parser.add_argument(
        "--subjects", type=Path, metavar="FILE", help="prepare what the black-box tests drive"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in clients.BY_NAME]:
        parser.error(f"no client {', '.join(unknown)}")
    if options.quick and options.names:
        parser.error("--quick names the clients itself")
    return options


def _wanted(options):
    return [
        client
        for client in clients.CLIENTS
        if (client.quick if options.quick else not options.names or client.name in options.names)
    ]


def _write_subjects(path):
    """The commands of the black-box tests' programs, into this file; 1 when one is not there."""
    _system.prepare("strangers")
    try:
        commands = clients.subjects()
    except preparing.PreparationError as error:
        _say(f"strangers: the subjects cannot be prepared: {error}")
        return 1
    path.write_text(json.dumps(commands, indent=1) + "\n")
    return 0


def prepared(wanted):
    """The command of each client that can run here; and for the others, what they lack."""
    commands, skipped = {}, {}
    for client in wanted:
        if lacking := client.lacks():
            skipped[client.name] = (
                f"there is no {', '.join(lacking)}; scripts/system_packages says what brings it"
            )
            continue
        try:
            commands[client] = client.command()
        except preparing.PreparationError as error:
            skipped[client.name] = str(error)
    return commands, skipped


def _features(client, options):
    """What this client is asked: with --quick, only what every client is asked."""
    names = features.NAMES if options.quick else features.names_of(client.name)
    return [name for name in names if not options.feature or name in options.feature]


def run_all(commands, options):
    """Each client against one fresh cluster: client name -> Column, and client name -> what kept it
    from being judged."""
    seen, untold = {}, {}
    if not commands:
        return seen, untold
    with cluster(settings={"raftlog.testing.faults": "true"}) as (bootstrap, admins):
        _say("a cluster of three brokers is ready")
        for client, command in commands.items():
            began = time.monotonic()
            try:
                seen[client.name] = column = _run_one(bootstrap, admins, client, command, options)
            except (KafkaException, RuntimeError) as error:
                untold[client.name] = f"the witness cannot make or read its topics: {error}"
                continue
            _say(f"{client.name}: {len(column.cells)} cells, {time.monotonic() - began:.0f} s")
    return seen, untold


def _run_one(bootstrap, admins, client, command, options):
    names = _features(client, options)
    topics = Topics(bootstrap, client.name)
    topics.make(names)
    place, environment = [bootstrap, client.name], {"RAFTLOG_ADMIN": admins}
    run = run_program(command, place, names, client.silent_seconds, environment)
    judge(run, topics)
    topics.remove()
    return matrix.Column(run.version, run.cells)


@contextlib.contextmanager
def cluster(brokers=3, settings=None):
    """Brokers in processes of their own, with these settings; yields where they listen for clients
    and for operators."""
    with tempfile.TemporaryDirectory(prefix="raftlog-strangers-") as folder:
        made = local_cluster.found(Path(folder), brokers=brokers, settings=settings)
        try:
            made.start_all()
            yield made.bootstrap_servers, ",".join(f"{HOST}:{p.admin_port}" for p in made.places)
        finally:
            made.stop()


def _show(options, seen):
    if options.out is not None:
        options.out.write_text(matrix.to_json(seen) + "\n")
    print(matrix.to_json(seen) if options.format == "json" else matrix.to_text(seen))


def _say(text):
    print(text, file=sys.stderr, flush=True)
