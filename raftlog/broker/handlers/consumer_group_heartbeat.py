"""ConsumerGroupHeartbeat: refuses the newer group protocol (KIP-848), and names what to set.

The API is advertised only to be refused. Without it in the list of served APIs, librdkafka's
consumers with `group.protocol=consumer` say nothing at all and wait without end. Both librdkafka
and Java's client take UNSUPPORTED_VERSION here for final, and tell their application.
"""

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

WHY = "the consumer group protocol is not served; set group.protocol=classic"


def handle(context: Context, request: KafkaRequest) -> None:
    """Refuse, and say so in the trace."""
    where = f"connection {request.connection.id}"
    context.trace("group_refused", where, why=WHY)
    code = ErrorCode.UNSUPPORTED_VERSION
    request.answer(ConsumerGroupHeartbeatResponse(error_code=code, error_message=WHY))
