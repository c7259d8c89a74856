"""DescribeGroups: state, members and assignments of groups."""

from functools import partial
from typing import Any

from raftlog.broker.context import Context
from raftlog.broker.handlers.cluster_view import GROUP_OPERATIONS, NOT_ASKED
from raftlog.broker.handlers.group_asks import Gathered, reply
from raftlog.broker.requests import KafkaRequest
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Ask the coordinator of each group that the request names."""
    body: DescribeGroupsRequest = request.body
    gathered = Gathered(request, partial(_answer, request))
    for group_id in body.groups:
        fill = gathered.place()
        call = partial(_describe, request, group_id, fill)
        context.groups.ask(group_id, request, call, partial(_refuse, group_id, fill))
    gathered.all_asked()


def _describe(request: KafkaRequest, group_id: str, fill: Any, coordinator: Coordinator) -> None:
    fill(coordinator.describe(group_id, request.version))


def _refuse(group_id: str, fill: Any, code: ErrorCode) -> None:
    fill(DescribedGroup(code, None, group_id))


def _answer(request: KafkaRequest, parts: list[DescribedGroup]) -> None:
    body: DescribeGroupsRequest = request.body
    allowed = GROUP_OPERATIONS if body.include_authorized_operations else NOT_ASKED
    groups = [part._replace(authorized_operations=allowed) for part in parts]
    reply(request, DescribeGroupsResponse(groups=groups))
