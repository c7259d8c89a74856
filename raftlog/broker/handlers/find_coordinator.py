"""FindCoordinator: refuses politely until groups and transactions are served.

For groups the refusal is retriable (15): a coordinator may appear. For transactions it is permanent
(42), because a client that hears a retriable error for what will never work asks for ever.
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

_GROUP: Final = 0
_BATCHED_FROM: Final = 4


def handle(context: Context, request: KafkaRequest) -> None:
    """One refusal, or one per key from version 4 on."""
    body: FindCoordinatorRequest = request.body
    if body.key_type == _GROUP:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "consumer groups are not served yet"
    else:
        code, message = ErrorCode.INVALID_REQUEST, "only group coordinators are known"
    if request.version >= _BATCHED_FROM:
        found = [Coordinator(key, -1, "", -1, code, message) for key in body.coordinator_keys]
        request.answer(FindCoordinatorResponse(coordinators=found))
        return
    request.answer(FindCoordinatorResponse(0, code, message, -1, "", -1))
