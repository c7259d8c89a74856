"""LeaveGroup: members leave, and the others get their partitions at once."""

from functools import partial

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import client_of, hand_over, reply
from raftlog.groups.coordinator import Coordinator


def handle(context: Context, request: KafkaRequest) -> None:
    """Hand the request to the group's coordinator."""
    call = partial(_leave, context, request)
    hand_over(context, request, call)


def _leave(context: Context, request: KafkaRequest, coordinator: Coordinator) -> None:
    answer, client = partial(reply, request), client_of(request)
    coordinator.leave(request.body, client, answer, context.now, context.wall)
