"""`raftlog quorum`: the controllers, and how far each broker follows the metadata."""

from typing import Any

import click

from raftlog.cli.connect import with_client
from raftlog.cli.render import bootstrap_option, format_option, print_json, print_table
from raftlog.client import system
from raftlog.client.core.admin_asks import Quorum, QuorumReplica, describe_quorum
from raftlog.client.trio_driver import Client


@click.command(
    "quorum",
    epilog="Example: raftlog quorum --format json",
    context_settings={"max_content_width": 100},
)
@bootstrap_option()
@format_option()
def quorum_command(bootstrap: str, form: str) -> None:
    """Show the quorum of the metadata: leader, epoch, and how far each replica is.

    The leader counts entries of its log. A lag is the number of entries that a replica misses.
    """

    async def work(client: Client) -> Quorum:
        told: Quorum = await client.ask(describe_quorum())
        return told

    found = with_client(bootstrap, work)
    if form == "json":
        print_json(_as_json(found))
        return
    print(f"leader {found.leader}, epoch {found.epoch}, committed {found.committed}")
    now = system.wall_ms()
    print_table(
        ["NODE", "ROLE", "LOG-END", "LAG", "HEARD-MS-AGO", "CAUGHT-UP-MS-AGO"],
        [
            [
                each.node,
                _role(found, each),
                _shown(each.log_end),
                _shown(_lag(found, each)),
                _shown(None if each.heard_ms is None else max(0, now - each.heard_ms)),
                _shown(None if each.caught_up_ms is None else max(0, now - each.caught_up_ms)),
            ]
            for each in found.replicas
        ],
    )


def _role(found: Quorum, each: QuorumReplica) -> str:
    if each.node == found.leader:
        return "leader"
    return "voter" if each.voter else "observer"


def _lag(found: Quorum, each: QuorumReplica) -> int | None:
    """Entries that the leader has and this replica does not."""
    ends = [one.log_end for one in found.replicas if one.node == found.leader]
    if not ends or ends[0] is None or each.log_end is None:
        return None
    return max(0, ends[0] - each.log_end)


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


def _as_json(found: Quorum) -> dict[str, Any]:
    return {
        "leader": found.leader,
        "epoch": found.epoch,
        "committed": found.committed,
        "replicas": [
            {
                "node": each.node,
                "role": _role(found, each),
                "log_end": each.log_end,
                "lag": _lag(found, each),
                "heard_ms": each.heard_ms,
                "caught_up_ms": each.caught_up_ms,
            }
            for each in found.replicas
        ],
    }
