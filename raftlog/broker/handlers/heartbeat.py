"""Heartbeat: a member shows that it lives, and is told whether its group rebalances."""

from functools import partial

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import hand_over, reply
from raftlog.groups.coordinator import Coordinator


def handle(context: Context, request: KafkaRequest) -> None:
    """Hand the request to the group's coordinator."""
    call = partial(_heartbeat, context, request)
    hand_over(context, request, call)


def _heartbeat(context: Context, request: KafkaRequest, coordinator: Coordinator) -> None:
    reply(request, coordinator.heartbeat(request.body, context.now, context.wall))
