"""SyncGroup: the group's leader hands in the assignment, and every member gets its part of it."""

from functools import partial

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import hand_over, reply
from raftlog.groups.coordinator import Coordinator


def handle(context: Context, request: KafkaRequest) -> None:
    """Hand the request to the group's coordinator."""
    body = request.body
    # The sync may wait for minutes: views would keep the whole receive slab.
    assignments = [each._replace(assignment=bytes(each.assignment)) for each in body.assignments]
    request.body = body._replace(assignments=assignments)
    call = partial(_sync, context, request)
    hand_over(context, request, call)


def _sync(context: Context, request: KafkaRequest, coordinator: Coordinator) -> None:
    coordinator.sync(request.body, partial(reply, request), context.now, context.wall)
