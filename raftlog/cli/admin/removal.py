"""Removes a broker from a local cluster: checks that it may go, and waits until it is forgotten."""

from typing import TYPE_CHECKING, Final

import trio

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.cli.connect import with_client
from raftlog.client.core.admin_asks import Quorum, describe_quorum, unregister_broker
from raftlog.client.core.asks import metadata
from raftlog.client.core.errors import KafkaError
from raftlog.client.trio_driver import Client
from raftlog.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from raftlog.kafka.messages.metadata import MetadataResponse

_FORGOTTEN_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.2


def refuse_needed(bootstrap: str, node: int) -> None:
    """Raise `OperatingError`, with what to do, for a controller or a broker with partitions."""

    async def work(client: Client) -> None:
        quorum: Quorum = await client.ask(describe_quorum())
        if any(each.node == node and each.voter for each in quorum.replicas):
            raise OperatingError(
                f"broker {node} is a controller",
                do=f"raftlog quorum add another one, then raftlog quorum remove {node}",
            )
        told: MetadataResponse = await client.ask(metadata(None))
        held = sorted(
            f"{topic.name}-{each.partition_index}"
            for topic in told.topics
            for each in topic.partitions
            if node in each.replica_nodes
        )
        if held:
            raise OperatingError(
                f"broker {node} is not drained: it holds {amount(len(held), 'replica')}",
                on=", ".join(held[:5]) + (" and more" if len(held) > 5 else ""),
                do="move them by raftlog reassign generate and execute, with the brokers that stay",
            )

    with_client(bootstrap, work)


def forgotten(bootstrap: str, node: int) -> None:
    """Wait until the cluster sees that the stopped broker is gone, and let it forget the broker."""

    async def work(client: Client) -> None:
        with trio.move_on_after(_FORGOTTEN_SECONDS):
            while True:
                try:
                    await client.ask(unregister_broker(node))
                except KafkaError as error:
                    if error.code == ErrorCode.BROKER_ID_NOT_REGISTERED:
                        return
                    if error.code != ErrorCode.INVALID_REQUEST:
                        raise
                else:
                    return
                await trio.sleep(_LOOK_SECONDS)
        raise OperatingError(
            f"broker {node} is stopped, and the cluster does not forget it",
            do=f"raftlog brokers list shows why; then raftlog brokers unregister {node}",
        )

    with_client(bootstrap, work)
