"""`raftlog format`: found a cluster, once."""

from pathlib import Path

import click

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.ids import ClusterId, DirectoryId, NodeId, ReplicaEpoch, ReplicaId
from raftlog.cli.output.render import format_option, print_json
from raftlog.runtime.network.peer_trust import short_secrets
from raftlog.runtime.real_ports import OsEntropy, PosixDisk, make_data_directory
from raftlog.runtime.settings import config_file
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory, is_formatted
from raftlog.storage.directories.log_directories import refuse_further

_DIRECTORY_DIGITS = 16
_CLUSTER_DIGITS = 32


@click.command(
    "format",
    epilog="""\b
Example, on three hosts with one cluster id and three directory ids:
  raftlog format --random
  raftlog format --config broker1.properties --cluster-id C \\
      --controller 1:D1 --controller 2:D2 --controller 3:D3""",
    context_settings={"max_content_width": 100},
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The configuration of the broker whose data directory is formatted.",
)
@click.option("--cluster-id", metavar="HEX", help="32 hex digits, the same on every broker.")
@click.option(
    "--controller",
    "controllers",
    multiple=True,
    metavar="NODE:DIRECTORY",
    help="Each founding controller and its directory id (16 hex digits).",
)
@click.option(
    "--random",
    "only_ids",
    is_flag=True,
    help="Only print a fresh cluster id and three directory ids.",
)
@format_option()
def format_command(
    config_path: Path | None,
    cluster_id: str | None,
    controllers: tuple[str, ...],
    only_ids: bool,
    form: str,
) -> None:
    """Found a cluster: format the data directory of each controller, with the same ids everywhere.

    A broker that is no founder needs no format: `raftlog serve` on an empty directory asks the
    controllers and joins. A formatted directory is never formatted again.
    """
    if only_ids:
        _print_ids(form)
        return
    if not config_path or not cluster_id or not controllers:
        given = {"--config": config_path, "--cluster-id": cluster_id, "--controller": controllers}
        missing = [option for option, value in given.items() if not value]
        raise click.UsageError(
            f"missing: {', '.join(missing)} (raftlog format --random prints fresh ids)"
        )
    config = config_file.load(str(config_path))
    for key, problem in short_secrets(config.secrets):
        raise OperatingError(
            problem, on=key, do="head -c 32 /dev/urandom | base64 makes one, for every broker"
        )
    cluster = ClusterId(_hex(cluster_id, _CLUSTER_DIGITS, "--cluster-id"))
    founders = tuple(sorted(_founder(each) for each in controllers))
    named = {address.node for address in config.broker.controllers}
    if {founder.node for founder in founders} != named:
        raise OperatingError(
            "the founding controllers are not those of controller.quorum.voters",
            on=str(config_path),
            do="name each of " + ", ".join(str(node) for node in sorted(named)),
        )
    if len(founders) not in (1, 3, 5):
        raise OperatingError(
            f"{amount(len(founders), 'controller')} would found the cluster",
            on=str(config_path),
            do="found it with 1, 3 or 5 in controller.quorum.voters",
        )
    node = config.broker.node
    own = next((founder.directory for founder in founders if founder.node == node), None)
    if own is None:
        raise OperatingError(
            f"node {node} is no founding controller",
            on=str(config_path),
            do="start it by raftlog serve: it joins",
        )
    disk = PosixDisk(config.data_dir)
    if is_formatted(disk):
        raise OperatingError(
            "the data directory is formatted already",
            on=config.data_dir,
            do="a cluster begins once; use an empty directory",
        )
    refuse_further(disk, config.data_dir)
    make_data_directory(config.data_dir)
    identity = DirectoryIdentity(
        cluster=cluster, node=node, directory=own, controllers=founders, sealed=True
    )
    format_directory(disk, identity)
    if form == "json":
        print_json({"formatted": config.data_dir, "node": node, "directory": f"{own:016x}"})
    else:
        print(f"formatted {config.data_dir} for node {node}, directory {own:016x}")


def _print_ids(form: str) -> None:
    entropy = OsEntropy()
    cluster = entropy.bytes(16).hex()
    directories = [f"{1 + entropy.below(2**64 - 1):016x}" for _ in range(3)]
    if form == "json":
        print_json({"cluster_id": cluster, "directory_ids": directories})
    else:
        print(f"cluster id:    {cluster}\ndirectory ids: {' '.join(directories)}")


def _hex(text: str, digits: int, where: str) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) * 2 != digits or not any(value):
        raise click.BadParameter(f"{text!r} is not {digits} hex digits", param_hint=where)
    return value


def _founder(text: str) -> ReplicaId:
    node, colon, directory = text.partition(":")
    if not colon or not node.isascii() or not node.isdigit():
        raise click.BadParameter(f"{text!r} is not NODE:DIRECTORY", param_hint="--controller")
    number = int.from_bytes(_hex(directory, _DIRECTORY_DIGITS, "--controller"), "big")
    return ReplicaId(NodeId(int(node)), DirectoryId(number), ReplicaEpoch(0))
