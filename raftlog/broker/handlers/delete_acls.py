"""DeleteAcls: refused, since there is no list to delete. `describe_acls` says more."""

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.describe_acls import WHY
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Refuse each filter with SECURITY_DISABLED."""
    body: DeleteAclsRequest = request.body
    refused = DeleteAclsFilterResult(ErrorCode.SECURITY_DISABLED, WHY)
    request.answer(DeleteAclsResponse(filter_results=[refused] * len(body.filters)))
