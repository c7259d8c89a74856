"""OffsetCommit: refuses every offset until groups are served."""

from raftlog.broker.context import Context
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode


def handle(context: Context, request: KafkaRequest) -> None:
    """Refuse each partition with GROUP_AUTHORIZATION_FAILED, which clients hand on at once."""
    where = f"connection {request.connection.id}"
    context.trace("group_refused", where, why="offsets are not committed yet")
    request.answer(error_body(request.body, ErrorCode.GROUP_AUTHORIZATION_FAILED))
