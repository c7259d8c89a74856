"""`raftlog up` and `raftlog down`: a local cluster of real broker processes."""

import signal
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from raftlog.base.errors import OperatingError
from raftlog.cli.output.render import format_option, print_json, progress
from raftlog.cli.settings import parse_settings
from raftlog.runtime.local import cluster as local_cluster
from raftlog.runtime.local import growth as local_growth
from raftlog.runtime.local import state as local_state
from raftlog.runtime.local.cluster import LocalCluster
from raftlog.runtime.local.ports import HOST

if TYPE_CHECKING:
    from raftlog.embed.topic_files.fixture import Fixture

_WATCH_SECONDS = 0.2


def _dir_option() -> click.Option:
    return click.Option(
        ["--dir", "directory"],
        type=click.Path(path_type=Path),
        default=Path("raftlog-data"),
        show_default=True,
        help="Where data, configuration and output live.",
    )


@click.command(
    epilog="""\b
Examples:
  raftlog up --brokers 3 --port 9092 --set num.partitions=6 --detach
  raftlog up --from tests/orders-topics""",
    context_settings={"max_content_width": 100},
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    help="How many processes; from three on, three of them are controllers.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65000),
    default=9092,
    show_default=True,
    help="First client port; peers from +100, admin from +200; 0 takes those that the directory's "
    "cluster had before, as far as they are free, else any free ones.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A broker setting, for all brokers.",
)
@click.option(
    "--from",
    "fixture",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Begin with the topics of this folder, which `raftlog topics export` wrote.",
)
@click.option(
    "--add-broker",
    is_flag=True,
    help="Add one broker to the cluster that runs in --dir, and return.",
)
@click.option(
    "--remove-broker",
    "removed",
    type=click.IntRange(1),
    metavar="N",
    help="Stop and forget a broker that holds nothing, and return.",
)
@click.option("--detach", is_flag=True, help="Return when the cluster serves; stop it by `down`.")
@format_option()
def up(
    brokers: int,
    port: int,
    directory: Path,
    settings: tuple[str, ...],
    fixture: Path | None,
    add_broker: bool,
    removed: int | None,
    detach: bool,
    form: str,
) -> int:
    """Start a local cluster and print its bootstrap servers.

    The directory is founded once; coming up again finds the same data, at whatever ports. Without
    --detach the cluster runs until Ctrl-C. --from fills a cluster that is founded now. It refuses a
    directory with a cluster and a damaged folder before it makes anything. --add-broker and
    --remove-broker take no other option but --dir.
    """
    directory = directory.resolve()
    if add_broker:
        _refuse_settings("--add-broker", "removed")
        return _add_broker(directory, form)
    if removed is not None:
        _refuse_settings("--remove-broker", "add_broker")
        return _remove_broker(directory, removed, form)
    loaded = None if fixture is None else _checked(fixture, directory)
    cluster = local_cluster.found(
        directory,
        brokers=brokers,
        port=port,
        settings=parse_settings(settings),
        detached=True,
        ends_with_parent=not detach,
    )
    try:
        with progress("starting brokers", None):
            cluster.start_all()
        if loaded is not None:
            with progress("loading topics", loaded.export.manifest.bytes) as advance:
                loaded.load(cluster.bootstrap_servers, advance)
        asked = [] if detach else _watch_signals()
        _report(cluster, form)
    except BaseException:
        # On Ctrl-C too: the brokers are sessions of their own and would outlive this command.
        cluster.stop()
        raise
    if detach:
        return 0
    return _watch(cluster, asked)


up.params.append(_dir_option())


def _checked(fixture: Path, directory: Path) -> "Fixture":
    from raftlog.embed.topic_files.fixture import Fixture

    with progress("checking topics", None) as advance:
        return Fixture.open(fixture, directory, advance)


def _refuse_settings(flag: str, other: str) -> None:
    context = click.get_current_context()
    for name in ("brokers", "port", "settings", "fixture", "detach", other):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{flag} takes the settings of the cluster that runs")


def _remove_broker(directory: Path, node: int, form: str) -> int:
    """Stop a broker that holds nothing; then cluster and directory state forget it."""
    from raftlog.cli.admin.removal import forgotten, refuse_needed

    state = local_state.load_state(directory)
    places = {each["node"]: each for each in state["brokers"]}
    if node not in places:
        told = ", ".join(map(str, places))
        raise OperatingError(f"no broker {node} was started here", on=f"brokers {told}")
    others = [f"{HOST}:{each['client_port']}" for at, each in places.items() if at != node]
    if not others:
        raise OperatingError(f"broker {node} is the only one", do="raftlog down stops it")
    bootstrap = ",".join(others)
    refuse_needed(bootstrap, node)
    local_state.note_leaving(directory, node)
    local_state.stop_detached(directory, node)
    with progress("waiting until the cluster forgets it", None):
        forgotten(bootstrap, node)
    cluster = local_growth.without(directory, node)
    if form == "text":
        print(f"broker {node} is forgotten; its data lies in {cluster.data_path(node)}", flush=True)
    _report(cluster, form)
    return 0


def _add_broker(directory: Path, form: str) -> int:
    """Start one more broker, and wait until it serves."""
    cluster, place = local_growth.grown(directory)
    try:
        with progress("starting the broker", None):
            cluster.start(place.node)
            cluster.wait_ready(place.node)
    except BaseException:
        cluster.stop()
        raise
    if form == "text":
        print(f"broker {place.node} joined at {HOST}:{place.client_port}", flush=True)
    _report(cluster, form)
    return 0


@click.command(
    epilog="Example: raftlog down --dir raftlog-data", context_settings={"max_content_width": 100}
)
@format_option()
def down(directory: Path, form: str) -> None:
    """Stop the cluster that `raftlog up --detach` started here. Leadership is handed over first."""
    stopped = local_state.stop_detached(directory.resolve())
    if form == "json":
        print_json({"stopped": stopped})
    elif stopped:
        print("stopped brokers " + ", ".join(str(node) for node in stopped))
    else:
        print("no broker was running")


down.params.append(_dir_option())


def _report(cluster: LocalCluster, form: str) -> None:
    if form == "json":
        brokers = [
            {"node": each.node, "client_port": each.client_port, "admin_port": each.admin_port}
            for each in cluster.places
        ]
        print_json(
            {
                "bootstrap_servers": cluster.bootstrap_servers,
                "brokers": brokers,
                "directory": str(cluster.directory),
            }
        )
    else:
        print(f"bootstrap servers: {cluster.bootstrap_servers}", flush=True)
        print(f"data and output:   {cluster.directory}", flush=True)


def _watch_signals() -> list[int]:
    """From now on only note Ctrl-C and SIGTERM, in the returned list."""
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        asked.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    return asked


def _watch(cluster: LocalCluster, asked: list[int]) -> int:
    """Wait for a signal, or for a broker that dies; then stop all brokers of the directory.

    A broker that `--remove-broker` has stopped did not die.
    """
    died: list[int] = []
    left: set[int] = set()
    while not asked and not died:
        time.sleep(_WATCH_SECONDS)
        ended = {node for node, each in cluster.processes.items() if each.poll() is not None}
        left |= {node for node in ended - left if local_state.has_left(cluster.directory, node)}
        died = sorted(ended - left)
    lines = "\n".join(cluster.last_lines(node) for node in died)
    if cluster.processes:  # with them go the brokers that --add-broker has started here
        local_state.stop_detached(cluster.directory)
    cluster.stop()
    if died:
        raise OperatingError(f"broker {died[0]} ended", on=str(cluster.directory), do="\n" + lines)
    return 0
