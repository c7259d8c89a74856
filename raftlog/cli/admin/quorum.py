"""`raftlog quorum`: the controllers, how far each broker follows them, and their changes."""

from typing import Any, Final

import click
import trio

from raftlog.base.errors import OperatingError
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import bootstrap_option, format_option, print_json, print_table
from raftlog.client import system
from raftlog.client.core.admin_asks import (
    Quorum,
    QuorumReplica,
    describe_quorum,
)
from raftlog.client.core.quorum_changes import add_controller, remove_controller
from raftlog.client.trio_driver import Client

_CONTEXT: dict[str, Any] = {"max_content_width": 100}
_LOOK_SECONDS: Final = 0.1
_TIMEOUT = click.option(
    "--timeout", type=click.FloatRange(0.1), default=30.0, help="Seconds until it is given up."
)


@click.group(
    "quorum",
    invoke_without_command=True,
    epilog="Example: raftlog quorum --format json",
    context_settings=_CONTEXT,
)
@bootstrap_option()
@format_option()
@click.pass_context
def quorum_command(context: click.Context, bootstrap: str, form: str) -> None:
    """Show the quorum of the metadata: leader, epoch, and how far each replica is.

    The leader counts entries of its log. A lag is the number of entries that a replica misses.
    """
    if context.invoked_subcommand is None:
        _show(bootstrap, form)


@quorum_command.command(epilog="Example: raftlog quorum add 4", context_settings=_CONTEXT)
@click.argument("node", type=click.IntRange(0))
@_TIMEOUT
@bootstrap_option()
@format_option()
def add(node: int, timeout: float, bootstrap: str, form: str) -> None:
    """Make a running broker a controller: it learns first, then votes.

    Add one at a time. An odd number of controllers tolerates the most failures.
    """
    _change(node, timeout, bootstrap, form, votes=True)


@quorum_command.command(epilog="Example: raftlog quorum remove 1", context_settings=_CONTEXT)
@click.argument("node", type=click.IntRange(0))
@_TIMEOUT
@bootstrap_option()
@format_option()
def remove(node: int, timeout: float, bootstrap: str, form: str) -> None:
    """Let a controller be a broker only, whether it runs or not.

    Refused where fewer than a majority of the others are alive.
    """
    _change(node, timeout, bootstrap, form, votes=False)


def _change(node: int, timeout: float, bootstrap: str, form: str, *, votes: bool) -> None:
    """Ask for the change, and wait until the quorum shows it."""

    async def work(client: Client) -> Quorum:
        before: Quorum = await client.ask(describe_quorum())
        found = [each for each in before.replicas if each.node == node]
        if not found:
            raise OperatingError(
                f"broker {node} is not in the quorum's view",
                on="nodes " + ", ".join(str(each.node) for each in before.replicas),
                do="raftlog quorum shows them all"
                + ("; a broker must run to be added" if votes else ""),
            )
        ask = add_controller if votes else remove_controller
        await client.ask(ask(node, found[0].directory_id))
        with trio.move_on_after(timeout):
            while True:
                now: Quorum = await client.ask(describe_quorum())
                if any(each.node == node and each.voter for each in now.replicas) == votes:
                    return now
                await trio.sleep(_LOOK_SECONDS)
        raise OperatingError(
            f"the change of controller {node} is decided, and not done within {timeout:g} s",
            do="raftlog quorum shows when it is",
        )

    found = with_client(bootstrap, work)
    voters = [each.node for each in found.replicas if each.voter]
    if form == "json":
        print_json(_as_json(found))
        return
    print(f"controllers: {', '.join(map(str, sorted(voters)))}")


def _show(bootstrap: str, form: str) -> None:
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
    """The number of entries that the leader has and this replica does not."""
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
