"""FindCoordinator: refuses every coordinator until groups and transactions are served.

Clients take most refusals of this API as a passing state: they ask again for as long as their
application waits, and the application sees nothing. They hand an authorization error on at once,
so the refusal is GROUP_AUTHORIZATION_FAILED or TRANSACTIONAL_ID_AUTHORIZATION_FAILED, with a
message that names the true reason.
"""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_BATCHED_FROM: Final = 4
_REFUSALS: Final = {
    0: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "consumer groups are not served yet"),
    1: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served yet"),
    2: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "share groups are not served yet"),
}
"""By key type: group, transaction, share."""


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with one refusal, or with one per key from version 4 on."""
    body: FindCoordinatorRequest = request.body
    unknown = ErrorCode.INVALID_REQUEST, f"key type {body.key_type} is not known"
    code, message = _REFUSALS.get(body.key_type, unknown)
    context.trace("coordinator_refused", f"connection {request.connection.id}", why=message)
    if request.version >= _BATCHED_FROM:
        found = [Coordinator(key, -1, "", -1, code, message) for key in body.coordinator_keys]
        request.answer(FindCoordinatorResponse(coordinators=found))
        return
    request.answer(FindCoordinatorResponse(0, code, message, -1, "", -1))
