"""`raftlog recover`: bring groups back that can never win an election again."""

from contextlib import ExitStack
from pathlib import Path

import attrs
import click

from raftlog.base.amounts import amount
from raftlog.base.ids import NodeId
from raftlog.cli.data_directory import data_disk
from raftlog.cli.output.render import FAILED_CODE, format_option, print_json, print_table
from raftlog.runtime.disks.locks import hold_lock
from raftlog.runtime.offline.recluster import Reclustering, recluster
from raftlog.runtime.offline.recover import (
    FORCED,
    KEPT,
    LOST,
    STUCK,
    GroupFound,
    Recovery,
    recover_directory,
)
from raftlog.runtime.offline.renewal import Renewal, renew_spent
from raftlog.runtime.real_ports import PosixDisk, SystemClock, make_data_directory
from raftlog.storage.directories.data_dir import read_identity


@click.command(
    epilog="""\b
Examples, where the disks of brokers 1 and 2 are gone and broker 3 is left:
  raftlog recover raftlog-data/broker3 --lost 1 --lost 2
  raftlog recover raftlog-data/broker3 --lost 1 --lost 2 --accept-data-loss
Where a topic has no terms left:
  raftlog recover --spent raftlog-data/broker1 raftlog-data/broker2 raftlog-data/broker3""",
    context_settings={"max_content_width": 100},
)
@click.argument("directories", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--lost",
    "lost",
    multiple=True,
    type=click.IntRange(0, 2**31 - 1),
    metavar="NODE",
    help="A broker whose data directory is lost for ever; once for each.",
)
@click.option(
    "--log-dir",
    "further",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A further directory of the broker's log.dirs; once for each.",
)
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Carry it out. Without this nothing is given up: it is only said what would be.",
)
@click.option(
    "--spent",
    is_flag=True,
    help="Look for topics that have no terms left, in the directories of all their brokers.",
)
@click.option(
    "--accept-new-ids",
    is_flag=True,
    help="Carry that out. Without this it is only said which topics would be copied.",
)
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Copy the whole cluster under a new cluster id: each data directory into "
    "DIRECTORY/brokerN. For a metadata group that has no terms left.",
)
@format_option()
def recover(
    directories: tuple[Path, ...],
    lost: tuple[int, ...],
    further: tuple[Path, ...],
    accept_data_loss: bool,
    spent: bool,
    accept_new_ids: bool,
    into: Path | None,
    form: str,
) -> int:
    """Bring back the groups of a data directory whose majority is lost for good.

    Stop the broker first. Every group whose majority was on the lost brokers goes on with this
    replica alone, with the records that are whole here. So does a group of one whose files are
    damaged. Records that only the lost replicas had are lost. A broker named as lost must never
    come back with its old data directory: let it join with an empty one.

    With --spent: copy topics whose terms are spent, with all their records, under new topic ids.
    Stop all brokers first, and name the data directories of all of them.

    Exit code 1 when something cannot be recovered. A recovery that was cut short is run again.
    """
    if spent:
        if lost or further or accept_data_loss:
            raise click.UsageError("--spent goes with --into, --accept-new-ids and --format alone")
        if into is not None:
            return _recluster(directories, into, accept_new_ids, form)
        return _renew(directories, accept_new_ids, form)
    if accept_new_ids or into is not None or len(directories) > 1:
        raise click.UsageError("several directories, --into and --accept-new-ids belong to --spent")
    with ExitStack() as stack:
        (disk,) = _held(directories, stack)
        for each in further:
            hold_lock(str(each), stack, _STOP_FIRST)
        found = recover_directory(
            disk,
            frozenset(NodeId(node) for node in lost),
            SystemClock().wall(),
            carry_out=accept_data_loss,
            further=[PosixDisk(str(each)) for each in further],
        )
    if form == "json":
        print_json(attrs.asdict(found))
    else:
        _print_text(found)
    failed = any(each.action in (LOST, STUCK) for each in found.groups)
    return FAILED_CODE if failed or (found.absent and accept_data_loss) else 0


def _held(directories: tuple[Path, ...], stack: ExitStack) -> list[PosixDisk]:
    """The data directories, which no broker has open until `stack` is closed."""
    disks = []
    for directory in directories:
        disk = data_disk(directory)
        hold_lock(str(directory), stack, _STOP_FIRST)
        disks.append(disk)
    return disks


def _renew(directories: tuple[Path, ...], carry_out: bool, form: str) -> int:
    with ExitStack() as stack:
        disks = _held(directories, stack)
        found = renew_spent(disks, SystemClock().wall(), carry_out=carry_out)
    if form == "json":
        print_json(attrs.asdict(found))
    else:
        _print_renewal(found)
    return FAILED_CODE if found.stuck else 0


def _recluster(directories: tuple[Path, ...], into: Path, carry_out: bool, form: str) -> int:
    with ExitStack() as stack:
        disks = _held(directories, stack)
        targets = []
        for disk in disks:
            path = str(into / f"broker{read_identity(disk).node}")
            if carry_out:
                make_data_directory(path)
                hold_lock(path, stack, _STOP_FIRST)
            targets.append(PosixDisk(path))
        found = recluster(disks, targets, SystemClock().wall(), carry_out=carry_out)
    if form == "json":
        ids = {"cluster": found.cluster.hex(), "new_cluster": found.new_cluster.hex()}
        print_json(attrs.asdict(found) | ids)
    else:
        _print_reclustering(found, into)
    return 0


def _print_reclustering(found: Reclustering, into: Path) -> None:
    verb = "copied" if found.carried_out else "would be copied"
    print(f"cluster {found.cluster.hex()} {verb} as cluster {found.new_cluster.hex()}")
    print(f"its metadata group has come to term {found.term}")
    print_table(
        ["BROKER", "REPLICAS", "INTO"],
        [[node, count, into / f"broker{node}"] for node, count in found.replicas],
    )
    if found.unfinished and not found.carried_out:
        print("an earlier run was cut short; --accept-new-ids ends it")
    elif not found.carried_out:
        print("nothing was changed; --accept-new-ids does it")


def _print_renewal(found: Renewal) -> None:
    verb = "copied" if found.carried_out else "would be copied"
    print(f"{amount(len(found.copies), 'partition')} of topics without terms {verb}")
    if found.copies:
        print_table(
            ["PARTITION", "TERM", "RECORDS", "FROM BROKER", "TO BROKERS", "GROUP", "NEW GROUP"],
            [
                [
                    each.name,
                    each.term,
                    f"{each.records_from} to {each.records_until}",
                    each.source,
                    ",".join(str(node) for node in each.nodes),
                    each.group,
                    each.new_group,
                ]
                for each in found.copies
            ],
        )
    if found.offsets:
        print(f"{amount(found.offsets, 'committed offset')} of consumer groups kept")
    for name, why in found.stuck:
        print(f"{name}: cannot be copied: {why}")
    if found.unfinished and found.carried_out:
        print("an earlier run was cut short; all of it is done now")
    elif found.unfinished:
        print("an earlier run was cut short, and no broker starts; --accept-new-ids ends it")
    elif found.copies and not found.carried_out:
        print("nothing was changed; --accept-new-ids does it")


_STOP_FIRST = "stop that broker first; recover works offline"


def _print_text(found: Recovery) -> None:
    forced = [each for each in found.groups if each.action == FORCED]
    kept = sum(each.action == KEPT for each in found.groups)
    verb = "go on alone now" if found.carried_out else "would go on alone"
    all_of_them = amount(len(found.groups), "group")
    print(f"broker {found.node} has {all_of_them}: {len(forced)} {verb}, {kept} as before")
    if forced:
        print_table(
            ["GROUP", "VOTERS BEFORE", "RECORDS UP TO", "KNOWN COMMITTED", "WHAT GOES"],
            [
                [
                    each.name,
                    ",".join(voter.partition(".")[0] for voter in each.voters),
                    each.next_offset,
                    each.committed,
                    _what_goes(each),
                ]
                for each in forced
            ],
        )
    for each in found.groups:
        if each.action in (LOST, STUCK):
            print(f"{each.name}: cannot be recovered: {each.why}")
    for name in found.absent:
        print(f"{name}: has no replica here and no majority elsewhere; delete and create it again")
    if forced and not found.carried_out:
        print("nothing was given up; --accept-data-loss does it")


def _what_goes(group: GroupFound) -> str:
    if group.holes:
        ranges = [f"{first} to {until - 1}" for first, until in group.holes if until > first]
        return f"offsets {', '.join(ranges) or 'none'}: {group.why}"
    if group.given_up_from is not None:
        return f"all from offset {group.given_up_from} on: {group.why}"
    return f"others' records from {group.next_offset} on"
