"""FindCoordinator: this broker for groups; refusals for what is not served yet.

Any broker answers what can be answered of a group until groups are served: JoinGroup refuses it,
OffsetFetch knows of no offset. A refusal here would reach every consumer of librdkafka, for each
has a group, even one that only assigns partitions: it would hear an error, and wait for a
coordinator when it closes.
"""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.handlers.cluster_view import live_brokers
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_BATCHED_FROM: Final = 4
_GROUP: Final = 0
_REFUSALS: Final = {
    1: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served yet"),
    2: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "share groups are not served yet"),
}
"""By key type: transaction, share."""


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with one coordinator or refusal, or with one per key from version 4 on."""
    body: FindCoordinatorRequest = request.body
    found = _this_broker(context, request) if body.key_type == _GROUP else _refusal(body.key_type)
    if found.error_code:
        where = f"connection {request.connection.id}"
        context.trace("coordinator_refused", where, why=found.error_message or "")
    if request.version >= _BATCHED_FROM:
        coordinators = [found._replace(key=key) for key in body.coordinator_keys]
        request.answer(FindCoordinatorResponse(coordinators=coordinators))
        return
    request.answer(
        FindCoordinatorResponse(
            0, found.error_code, found.error_message, found.node_id, found.host, found.port
        )
    )


def _this_broker(context: Context, request: KafkaRequest) -> Coordinator:
    for broker in live_brokers(context, request.connection.listener):
        if broker.node == context.node:
            endpoint = broker.endpoint
            return Coordinator("", broker.node, endpoint.host, endpoint.port)
    # A broker that is fenced serves nobody for the moment: the client asks again, elsewhere.
    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return Coordinator("", -1, "", -1, code, code.message)


def _refusal(key_type: int) -> Coordinator:
    unknown = ErrorCode.INVALID_REQUEST, f"key type {key_type} is not known"
    code, message = _REFUSALS.get(key_type, unknown)
    return Coordinator("", -1, "", -1, code, message)
