"""`raftlog cluster status`: brokers, controller, partitions, and whether all is well."""

import sys
from typing import Any, Final, NamedTuple

import click
import trio

from raftlog.base.amounts import amount
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import NodeId
from raftlog.base.units import NANOS_PER_SECOND, Nanos, millis
from raftlog.cli.connect import PATIENCE, reach, run
from raftlog.cli.output.render import (
    FAILED_CODE,
    bootstrap_option,
    format_option,
    print_json,
    print_json_line,
    print_table,
)
from raftlog.cli.output.topic_view import PartitionView, TopicDescription, describe_topics
from raftlog.client.core.asks import describe_cluster
from raftlog.client.trio_driver import Client

_CONTEXT: dict[str, Any] = {"max_content_width": 100}
_ANSWER_NS: Final = millis(2_000)
_TROUBLES_SHOWN: Final = 20


class BrokerStatus(NamedTuple):
    """One broker: `state` is ok, fenced, or silent."""

    node: int
    address: str
    rack: str | None
    state: str


class ClusterStatus(NamedTuple):
    """The state of a cluster, as its brokers tell it.

    Healthy: all brokers answer, every partition has a leader, there is a controller.
    Under-replicated partitions are shown, but do not count.
    """

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerStatus, ...]
    topics: tuple[TopicDescription, ...]

    @property
    def partitions(self) -> list[PartitionView]:
        return [each for topic in self.topics for each in topic.partitions]

    @property
    def leaderless(self) -> list[PartitionView]:
        return [each for each in self.partitions if each.unavailable]

    @property
    def under_replicated(self) -> list[PartitionView]:
        return [each for each in self.partitions if each.under_replicated]

    @property
    def healthy(self) -> bool:
        return (
            self.controller is not None
            and all(broker.state == "ok" for broker in self.brokers)
            and not self.leaderless
        )

    def as_json(self) -> dict[str, Any]:
        """The status for `--format json`."""
        return {
            "healthy": self.healthy,
            "cluster_id": self.cluster_id,
            "controller": self.controller,
            "brokers": [broker._asdict() for broker in self.brokers],
            "topic_count": len(self.topics),
            "partition_count": len(self.partitions),
            "leaderless_count": len(self.leaderless),
            "under_replicated_count": len(self.under_replicated),
            "partitions": [
                {"topic": each.topic, **each.as_json(), "under_replicated": each.under_replicated}
                for each in self.partitions
            ],
        }


@click.group(
    epilog="Example: raftlog cluster status --watch --exit-when-healthy", context_settings=_CONTEXT
)
def cluster() -> None:
    """Show the state of a running cluster."""


@cluster.command(
    epilog="""\b
Examples:
  raftlog cluster status
  raftlog cluster status --watch --exit-when-healthy --timeout 60""",
    context_settings=_CONTEXT,
)
@click.option("--watch", is_flag=True, help="Show it again and again.")
@click.option("--exit-when-healthy", is_flag=True, help="Stop watching when all is well.")
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--timeout", type=click.FloatRange(0.1), help="Give up watching after so many seconds."
)
@bootstrap_option()
@format_option()
def status(
    watch: bool,
    exit_when_healthy: bool,
    interval: float,
    timeout: float | None,
    bootstrap: str,
    form: str,
) -> int:
    """Show brokers, controller and partitions. Exit code 0 when the cluster is healthy, else 1.

    Healthy means: all brokers answer, every partition has a leader, there is a controller.
    """
    if exit_when_healthy and not watch:
        raise click.UsageError("--exit-when-healthy goes with --watch")

    async def main() -> int:
        if not watch:
            await reach(bootstrap)
            found = await _look(bootstrap, PATIENCE)
            _show(found, form)
            return 0 if found.healthy else FAILED_CODE
        with trio.move_on_after(timeout if timeout is not None else float("inf")):
            return await _watch(bootstrap, interval, form, exit_when_healthy=exit_when_healthy)
        return FAILED_CODE

    return run(main)


async def _watch(bootstrap: str, interval: float, form: str, *, exit_when_healthy: bool) -> int:
    while True:
        try:
            found = await _look(bootstrap, Nanos(int(max(2.0, interval) * NANOS_PER_SECOND)))
        except RaftlogError as error:
            _show_trouble(error, form)
        else:
            _show(found, form, again=True)
            if found.healthy and exit_when_healthy:
                return 0
        await trio.sleep(interval)


async def _look(bootstrap: str, patience_ns: Nanos) -> ClusterStatus:
    async with Client(bootstrap, request_timeout_ns=patience_ns) as client:
        told = await client.ask(describe_cluster(patience_ns))
        topics = await describe_topics(client, None, configs=False)
        await client.know_brokers()
        brokers = [
            BrokerStatus(
                each.broker_id,
                f"{each.host}:{each.port}",
                each.rack,
                "fenced" if each.is_fenced else "silent",
            )
            for each in told.brokers
        ]
        async with trio.open_nursery() as nursery:
            for at, broker in enumerate(brokers):
                if broker.state != "fenced":
                    nursery.start_soon(_ask_broker, client, brokers, at)
    controller = told.controller_id if told.controller_id >= 0 else None
    return ClusterStatus(told.cluster_id, controller, tuple(brokers), tuple(topics))


async def _ask_broker(client: Client, brokers: list[BrokerStatus], at: int) -> None:
    """Ask this very broker, and note whether it answers."""
    node = NodeId(brokers[at].node)
    question = describe_cluster(_ANSWER_NS)._replace(node=node)
    try:
        await client.ask(question)
    except RaftlogError:
        return
    brokers[at] = brokers[at]._replace(state="ok")


def _show_trouble(error: RaftlogError, form: str) -> None:
    if form == "json":
        print_json_line({"healthy": False, "error": error.as_json()})
    else:
        print(f"no answer: {error.what}", flush=True)


def _show(found: ClusterStatus, form: str, *, again: bool = False) -> None:
    if form == "json":
        if again:
            print_json_line(found.as_json())
        else:
            print_json(found.as_json())
        return
    verdict = "healthy" if found.healthy else "NOT healthy"
    controller = "none" if found.controller is None else str(found.controller)
    print(f"cluster {found.cluster_id} is {verdict}; controller {controller}")
    print_table(
        ["NODE", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS"],
        [
            [
                broker.node,
                broker.address,
                broker.rack or "-",
                broker.state,
                sum(each.leader == broker.node for each in found.partitions),
                sum(broker.node in each.replicas for each in found.partitions),
            ]
            for broker in found.brokers
        ],
    )
    print(
        f"{amount(len(found.topics), 'topic')}, {amount(len(found.partitions), 'partition')}, "
        f"{len(found.leaderless)} without a leader, "
        f"{len(found.under_replicated)} under-replicated"
    )
    _show_partitions("without a leader", found.leaderless)
    _show_partitions("under-replicated", found.under_replicated)
    sys.stdout.flush()


def _show_partitions(what: str, partitions: list[PartitionView]) -> None:
    for each in partitions[:_TROUBLES_SHOWN]:
        isr = ",".join(str(node) for node in each.isr)
        print(f"  {what}: {each.topic}-{each.partition}, in sync: {isr or 'none'}")
    if len(partitions) > _TROUBLES_SHOWN:
        print(f"  ... and {len(partitions) - _TROUBLES_SHOWN} more")
