"""JoinGroup: refuses every member until groups are served.

Clients take most refusals of this API as a passing state: they ask again for as long as their
application waits, and the application sees nothing. They hand an authorization error on at once.
"""

from raftlog.broker.context import Context
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.join_group import JoinGroupResponse


def handle(context: Context, request: KafkaRequest) -> None:
    """Refuse with GROUP_AUTHORIZATION_FAILED; the trace says why."""
    where = f"connection {request.connection.id}"
    context.trace("group_refused", where, why="consumer groups are not served yet")
    # Before version 7 the protocol's name must not be null, and is empty.
    request.answer(JoinGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
