"""DescribeGroups: state, members and assignments of groups.

A request of a few bytes may name a large group thousands of times, so each group is shown once, and
the members of one answer are bounded.
"""

from functools import partial
from typing import Any

from raftlog.base.limits import GROUPS_DESCRIBED_BYTES_MAX, REQUEST_ITEM_BYTES
from raftlog.base.probes import probe
from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.cluster_view import GROUP_OPERATIONS, NOT_ASKED
from raftlog.broker.handlers.group_asks import Gathered, Room, reply
from raftlog.groups.coordinator import Coordinator
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(context: Context, request: KafkaRequest) -> None:
    """Ask the coordinator of each group that the request names."""
    body: DescribeGroupsRequest = request.body
    gathered = Gathered(request, partial(_answer, request))
    room = Room(GROUPS_DESCRIBED_BYTES_MAX)
    for group_id in dict.fromkeys(body.groups):
        fill = gathered.place()
        call = partial(_describe, request, group_id, room, fill)
        context.groups.ask(group_id, request, call, partial(_refuse, group_id, fill))
    gathered.all_asked()


def _describe(
    request: KafkaRequest, group_id: str, room: Room, fill: Any, coordinator: Coordinator
) -> None:
    if room.is_full:
        probe("described-groups-over-limit")
        _refuse(group_id, fill, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return
    shown = coordinator.describe(group_id, request.version)
    room.take(sum(map(_bytes_of, shown.members)))
    fill(shown)


def _bytes_of(member: DescribedGroupMember) -> int:
    named = len(member.member_id) + len(member.client_id) + len(member.client_host)
    said = len(member.member_metadata) + len(member.member_assignment)
    return REQUEST_ITEM_BYTES + named + len(member.group_instance_id or "") + said


def _refuse(group_id: str, fill: Any, code: ErrorCode) -> None:
    fill(DescribedGroup(code, None, group_id))


def _answer(request: KafkaRequest, parts: list[DescribedGroup]) -> None:
    body: DescribeGroupsRequest = request.body
    allowed = GROUP_OPERATIONS if body.include_authorized_operations else NOT_ASKED
    groups = [part._replace(authorized_operations=allowed) for part in parts]
    reply(request, DescribeGroupsResponse(groups=groups))
