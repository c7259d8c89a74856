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
from outsiders.running import ProgramError, judge, run_program
from outsiders.topics import Topics
from raftlog.base.errors import OperatingError
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local.ports import HOST

USAGE = 64
EVERY_FEATURE = [*features.NAMES, *features.OWN_NAMES]


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"strangers: {message}", file=sys.stderr)
        print(f"clients: {' '.join(clients.NAMES)}", file=sys.stderr)
        sys.exit(USAGE)


def main(arguments):
    """Run what the arguments ask for; 0 when every cell is as expected, 1 when not, 64 wrong
    usage."""
    options = _options(arguments)
    wanted = _wanted(options)
    if options.list:
        for client in wanted:
            needs = f"  needs {', '.join(client.asks_for)}" if client.asks_for else ""
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
    for line in matrix.other_words(expected, seen):
        _say(f"in other words: {line}")
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
    if unasked := [name for name in options.names if not _features(name, options)]:
        parser.error(f"{', '.join(unasked)}: not asked for {', '.join(options.feature)}")
    if not _wanted(options):
        parser.error(f"no client of these is asked for {', '.join(options.feature)}")
    return options


def _wanted(options):
    """Returns the clients that are named, or all of the run, without those that have no feature."""
    return [
        client
        for client in clients.CLIENTS
        if (client.quick if options.quick else not options.names or client.name in options.names)
        and _features(client.name, options)
    ]


def _write_subjects(path):
    """Write the commands of the black-box tests' programs to this file; 1 when one is not there."""
    _system.prepare("strangers")
    try:
        commands = clients.subjects()
    except preparing.PreparationError as error:
        _say(f"strangers: the subjects cannot be prepared: {error}")
        return 1
    path.write_text(json.dumps(commands, indent=1) + "\n")
    return 0


def prepared(wanted):
    """Returns the command of each client that can run here; for the others, what they lack."""
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
    """Returns the features for the client of this name; with --quick, only those of every
    client."""
    names = features.NAMES if options.quick else features.names_of(client)
    return [name for name in names if not options.feature or name in options.feature]


def run_all(commands, options):
    """Run each client against one fresh cluster; returns its Column by client name.

    It also returns, by client name, the reason why a client could not be judged.
    """
    seen, untold = {}, {}
    if not commands:
        return seen, untold
    try:
        with cluster(settings={"raftlog.testing.faults": "true"}) as brokers:
            _say("a cluster of three brokers is ready")
            for client, command in commands.items():
                began = time.monotonic()
                try:
                    column = _run_one(brokers, client, command, options)
                except (KafkaException, RuntimeError, TimeoutError) as error:
                    _refuse_ended(brokers)
                    untold[client.name] = f"the witness cannot make or read its topics: {error}"
                    continue
                except ProgramError as error:
                    untold[client.name] = f"its program: {error}"
                    continue
                seen[client.name] = column
                _say(f"{client.name}: {len(column.cells)} cells, {time.monotonic() - began:.0f} s")
    except OperatingError as error:
        # Without a broker no later cell would say anything about its client.
        left = [client.name for client in commands if client.name not in {*seen, *untold}]
        untold |= dict.fromkeys(left, f"the cluster: {error}")
    return seen, untold


def _run_one(brokers, client, command, options):
    names = _features(client.name, options)
    topics = Topics(brokers.bootstrap_servers, client.name, commits=client.commits)
    topics.make(names)
    admins = ",".join(f"{HOST}:{place.admin_port}" for place in brokers.places)
    run = run_program(
        command,
        [brokers.bootstrap_servers, client.name],
        names,
        client.silent_seconds,
        {"RAFTLOG_ADMIN": admins},
        lambda: _refuse_ended(brokers),
    )
    judge(run, topics)
    topics.remove()
    return matrix.Column(run.version, run.cells)


def _refuse_ended(brokers):
    """Raise `OperatingError` with a broker's last lines when its process has ended."""
    for place in brokers.places:
        brokers.waits_for(place.node)


@contextlib.contextmanager
def cluster(brokers=3, settings=None):
    """Start a `LocalCluster`: brokers in processes of their own, with these settings."""
    with tempfile.TemporaryDirectory(prefix="raftlog-strangers-") as folder:
        made = local_cluster.found(Path(folder), brokers=brokers, settings=settings)
        _have_two_directories(made, 1)
        try:
            made.start_all()
            yield made
        finally:
            made.stop()


def _have_two_directories(made, node):
    """Give a broker of a founded cluster a further log directory."""
    path = made.directory / f"broker{node}.properties"
    first = f"log.dirs = {made.data_path(node)}"
    text = path.read_text()
    assert f"{first}\n" in text, text
    path.write_text(text.replace(first, f"{first},{made.directory / 'further'}"))


def _show(options, seen):
    if options.out is not None:
        options.out.write_text(matrix.to_json(seen) + "\n")
    print(matrix.to_json(seen) if options.format == "json" else matrix.to_text(seen))


def _say(text):
    print(text, file=sys.stderr, flush=True)
