"""DescribeCluster: brokers and controller without topics."""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.cluster_view import (
    CLUSTER_OPERATIONS,
    NOT_ASKED,
    cluster_text,
    controller_id,
)
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with live brokers, and with fenced ones when asked.

    Controllers have no client endpoint of their own.
    """
    body: DescribeClusterRequest = request.body
    if body.endpoint_type != _BROKERS:
        known = body.endpoint_type == _CONTROLLERS
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        request.answer(DescribeClusterResponse(error_code=code, error_message=code.message))
        return
    asked = body.include_cluster_authorized_operations
    request.answer(
        DescribeClusterResponse(
            cluster_id=cluster_text(context.cluster),
            controller_id=controller_id(context),
            brokers=_brokers(context, request.connection.listener, body.include_fenced_brokers),
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
        )
    )


def _brokers(context: Context, listener: str, fenced_too: bool) -> list[DescribeClusterBroker]:
    found = []
    for node, broker in sorted(context.image.brokers.items()):
        place = broker.listener(listener)
        if place is not None and (fenced_too or not broker.fenced):
            found.append(
                DescribeClusterBroker(
                    node, place.host, place.port, broker.rack or None, broker.fenced
                )
            )
    return found
