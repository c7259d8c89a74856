"""ListGroups: no groups, until groups are served."""

from raftlog.broker.context import Context
from raftlog.broker.requests import KafkaRequest
from raftlog.kafka.messages.list_groups import ListGroupsResponse


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer with an empty list, so that tools that list groups go on."""
    request.answer(ListGroupsResponse())
