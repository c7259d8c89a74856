"""JoinGroup: a member joins, or comes back for the next generation.

The answer waits until the rebalance ends.
"""

from functools import partial

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.group_asks import client_of, hand_over, reply
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse


def handle(context: Context, request: KafkaRequest) -> None:
    """Hand the request to the group's coordinator."""
    body: JoinGroupRequest = request.body
    # The join may wait for minutes: views would keep the whole receive slab.
    protocols = [each._replace(metadata=bytes(each.metadata)) for each in body.protocols]
    request.body = body._replace(protocols=protocols)
    call = partial(_join, context, request)
    hand_over(context, request, call, partial(_refuse, request))


def _join(context: Context, request: KafkaRequest, coordinator: Coordinator) -> None:
    answer = partial(reply, request)
    coordinator.join(request.body, client_of(request), answer, context.now, context.wall)


def _refuse(request: KafkaRequest, code: ErrorCode) -> None:
    # Clients keep their member id over an error, so the answer repeats it.
    reply(request, JoinGroupResponse(error_code=code, member_id=request.body.member_id))
