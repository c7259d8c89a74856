"""`raftlog brokers`: list the registered brokers, forget one that is gone."""

from typing import Any, NamedTuple, final

import click
import trio

from raftlog.base.errors import RaftlogError
from raftlog.base.units import millis
from raftlog.cli.connect import with_client
from raftlog.cli.output.render import bootstrap_option, format_option, print_json, print_table
from raftlog.cli.output.topic_view import describe_topics
from raftlog.client.core.admin_asks import describe_features, unregister_broker
from raftlog.client.core.asks import describe_cluster
from raftlog.client.trio_driver import Client
from raftlog.metadata.features import FEATURE_NAME

_LEVELS_WAIT = millis(2_000)
_CONTEXT: dict[str, Any] = {"max_content_width": 100}


@final
class BrokerRow(NamedTuple):
    """One registered broker; a fenced one is silent, or has just begun.

    The levels are those that its release knows, None where it did not tell them.
    """

    node: int
    host: str
    port: int
    rack: str | None
    fenced: bool
    controller: bool
    leads: int
    preferred: int
    replicas: int
    level_min: int | None = None
    level_max: int | None = None


@click.group(epilog="Example: raftlog brokers list", context_settings=_CONTEXT)
def brokers() -> None:
    """List brokers, and forget those that are gone for good."""


@brokers.command("list", epilog="Example: raftlog brokers list", context_settings=_CONTEXT)
@bootstrap_option()
@format_option()
def list_command(bootstrap: str, form: str) -> None:
    """List the registered brokers, with what each leads and holds.

    LEADS counts the partitions that a broker leads, PREFERRED those that it shall lead. LEVELS are
    the feature levels that its release knows: the cluster can use the levels that all brokers know.
    """
    found = with_client(bootstrap, list_brokers)
    if form == "json":
        print_json({"brokers": [each._asdict() for each in found]})
        return
    print_table(
        ["NODE", "HOST", "PORT", "RACK", "STATE", "LEADS", "PREFERRED", "REPLICAS", "LEVELS"],
        [
            [
                each.node,
                each.host,
                each.port,
                each.rack or "-",
                _state(each),
                each.leads,
                each.preferred,
                each.replicas,
                "-" if each.level_max is None else f"{each.level_min}-{each.level_max}",
            ]
            for each in found
        ],
    )


def _state(each: BrokerRow) -> str:
    state = "fenced" if each.fenced else "alive"
    return f"{state}, controller" if each.controller else state


async def list_brokers(client: Client) -> list[BrokerRow]:
    """All registered brokers, by number."""
    told = await client.ask(describe_cluster())
    views = [
        each
        for topic in await describe_topics(client, None, configs=False)
        for each in topic.partitions
    ]
    rows = [
        BrokerRow(
            broker.broker_id,
            broker.host,
            broker.port,
            broker.rack,
            broker.is_fenced,
            broker.broker_id == told.controller_id,
            sum(each.leader == broker.broker_id for each in views),
            sum(each.replicas[0] == broker.broker_id for each in views),
            sum(broker.broker_id in each.replicas for each in views),
        )
        for broker in sorted(told.brokers)
    ]
    await client.know_brokers()
    async with trio.open_nursery() as nursery:
        for at, row in enumerate(rows):
            if not row.fenced:
                nursery.start_soon(_ask_levels, client, rows, at)
    return rows


async def _ask_levels(client: Client, rows: list[BrokerRow], at: int) -> None:
    try:
        told = await client.ask(describe_features(rows[at].node, _LEVELS_WAIT))
    except RaftlogError:
        return  # the broker fell silent since, so its levels are not known now
    levels = told.get(FEATURE_NAME)
    if levels is not None:
        rows[at] = rows[at]._replace(level_min=levels.level_min, level_max=levels.level_max)


@brokers.command(
    "unregister", epilog="Example: raftlog brokers unregister 4", context_settings=_CONTEXT
)
@click.argument("node", type=click.IntRange(0, 2**31 - 1))
@bootstrap_option()
@format_option()
def unregister_command(node: int, bootstrap: str, form: str) -> None:
    """Forget a broker that is gone for good.

    A broker that runs, is a controller or holds a replica is refused: stop it, and move its
    partitions to others first (`raftlog reassign`).
    """
    with_client(bootstrap, lambda client: client.ask(unregister_broker(node)))
    if form == "json":
        print_json({"unregistered": node})
    else:
        print(f"broker {node} is forgotten")
