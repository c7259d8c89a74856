"""`raftlog serve`: one broker in the foreground."""

import gc
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import click
import trio

from raftlog.cli.output.render import format_option, print_json_line
from raftlog.cli.settings import parse_settings
from raftlog.runtime import server
from raftlog.runtime.fault_port import Faults
from raftlog.runtime.real_ports import SystemClock
from raftlog.runtime.recording_port import Recordings
from raftlog.runtime.server import Started
from raftlog.runtime.settings import config_file
from raftlog.runtime.settings.config_file import ServerConfig
from raftlog.runtime.settings.fault_settings import TEST_DISK, TestDisk
from raftlog.runtime.tracing import JsonTracer

_ROOT_WARNING: Final = (
    "raftlog: warning: this broker runs as root, so whoever breaks into it owns the machine. "
    "Run it as a user of its own that owns the data directory."
)


@click.command(
    epilog="Example: raftlog serve --config broker1.properties --set num.partitions=6",
    context_settings={"max_content_width": 100},
)
@click.option(
    "--config",
    "config_path",
    required=True,
    type=click.Path(path_type=Path),
    help="A file of key = value with Kafka's names.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Overrides the file.")
@click.option(
    "--end-with-input",
    is_flag=True,
    hidden=True,
    help="End at once when standard input does: a process that started this one holds it open.",
)
@format_option()
def serve(config_path: Path, settings: tuple[str, ...], end_with_input: bool, form: str) -> None:
    """Run one broker until SIGTERM or Ctrl-C.

    Events go to standard error as JSON lines. SIGTERM hands over leadership first; a second
    signal stops at once.
    """
    config = config_file.load(str(config_path), parse_settings(settings))
    if os.geteuid() == 0:
        print(_ROOT_WARNING, file=sys.stderr)
    if end_with_input:
        threading.Thread(target=_end_with_input, name="end with input", daemon=True).start()
    clock = SystemClock()
    tracer = JsonTracer(sys.stderr, clock, config.broker.node)
    if config.ignored:
        names = ", ".join(config.ignored)
        print(f"raftlog: settings without effect: {names}", file=sys.stderr)
    try:
        trio.run(_serve, config, tracer, partial(_report, form), clock)
    except BaseExceptionGroup as group:
        raise _only_error(group) from group
    # The process ends here, and the kernel takes its memory back at once. The interpreter would
    # search it for cycles first: a third of a second of CPU for 1,000 replicas.
    gc.freeze()


def _end_with_input() -> None:
    """End with the standard input, without handing over: all promises are on disk."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    print("raftlog: the process that started this broker has ended", file=sys.stderr, flush=True)
    os._exit(1)


async def _serve(
    config: ServerConfig,
    tracer: JsonTracer,
    report: Callable[[Started], None],
    clock: SystemClock,
) -> None:
    with ExitStack() as stack:
        stack.callback(tracer.flush)
        recordings = _recordings(config, stack)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tracer.flush_for_ever, name="repeats")
            await server.serve(
                config,
                tracer=tracer,
                started=report,
                clock=clock,
                faults=_faults(config),
                test_disk=_test_disk(config, tracer),
                recordings=recordings,
            )
            nursery.cancel_scope.cancel()


def _recordings(config: ServerConfig, stack: ExitStack) -> Recordings | None:
    """The recordings of the broker that the configuration asks for, if any; loaded only then."""
    if not config.recordings_dir:
        return None
    from raftlog.runtime.disks.recording_files import BootFolders

    found = BootFolders(Path(config.recordings_dir))
    stack.callback(found.close)
    return found


def _faults(config: ServerConfig) -> Faults | None:
    """The faults of a test that the configuration asks for, if any; loaded only then."""
    if not config.faults.on:
        return None
    from raftlog.testing.faults import faults_of

    return faults_of(config)


def _test_disk(config: ServerConfig, tracer: JsonTracer) -> TestDisk | None:
    """The disk of a test that the environment asks for, if any; loaded only then."""
    if not os.environ.get(TEST_DISK):
        return None
    from raftlog.testing.faulty_disk import disk_from_environment

    return disk_from_environment(tracer, loopback_only=config.loopback_only())


def _report(form: str, started: Started) -> None:
    if form == "json":
        print_json_line(
            {
                "started": {
                    "node": started.node,
                    "cluster": started.cluster.hex(),
                    "client_ports": list(started.client_ports),
                    "peer_port": started.peer_port,
                    "admin_port": started.admin_port,
                }
            }
        )
        return
    ports = ", ".join(str(port) for port in started.client_ports)
    print(
        f"raftlog broker {started.node} of cluster {started.cluster.hex()}: "
        f"clients on {ports}, peers on {started.peer_port}",
        flush=True,
    )


def _only_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error inside nested groups: a broker that cannot start reports one thing."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
