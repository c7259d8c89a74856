"""ShareGroupHeartbeat: refuses share groups (KIP-932), and names what to use.

The API is advertised only to be refused, like ConsumerGroupHeartbeat. Without it in the list of
served APIs, a share consumer of librdkafka says nothing at all and waits without end. It and Java's
client take UNSUPPORTED_VERSION here for final, and tell their application.
"""

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

WHY = "share groups are not served; use a consumer group with group.protocol=classic"


def handle(context: Context, request: KafkaRequest) -> None:
    """Refuse, and say so in the trace."""
    context.trace("group_refused", f"connection {request.connection.id}", why=WHY)
    code = ErrorCode.UNSUPPORTED_VERSION
    request.answer(ShareGroupHeartbeatResponse(error_code=code, error_message=WHY))
