"""CreateAcls: refused, since no authorizer would look at the lists. `describe_acls` says more."""

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.describe_acls import WHY
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Refuse each creation with SECURITY_DISABLED."""
    body: CreateAclsRequest = request.body
    refused = AclCreationResult(ErrorCode.SECURITY_DISABLED, WHY)
    request.answer(CreateAclsResponse(results=[refused] * len(body.creations)))
