"""DescribeAcls: there is no authorizer, hence no access control list.

Served only to say so, like CreateAcls and DeleteAcls. Kafka without an authorizer answers
SECURITY_DISABLED, and tools know that: Kafdrop shows an empty page, and MirrorMaker copies no
lists. When the API is not among those that are served, both take it for a failure.
"""

from typing import Final

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_acls import DescribeAclsResponse

WHY: Final = "No Authorizer is configured: access control lists are not served"


def handle(context: Context, request: KafkaRequest) -> None:
    """Refuse with SECURITY_DISABLED."""
    request.answer(DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=WHY))
