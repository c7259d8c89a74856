"""Handles Heartbeat and LeaveGroup: a member says that it is alive, or that it leaves."""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from raftlog.groups.fences import group_fence, heartbeat_fence, member_fence
from raftlog.groups.live import GroupState, LiveGroup
from raftlog.groups.rebalance import Rebalances
from raftlog.groups.shared import Shared, as_told
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.heartbeat import HeartbeatRequest
from raftlog.kafka.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

MEMBERS_VERSION: Final = 3
"""The first LeaveGroup version that names several members, and answers for each."""


@final
class Leaves:
    """Handles the Heartbeat and LeaveGroup requests of a coordinator."""

    __slots__ = ("_rebalances", "_shared")

    def __init__(self, shared: Shared, rebalances: Rebalances) -> None:
        self._shared = shared
        self._rebalances = rebalances

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Keep the member's session alive, and tell it when it has to join again."""
        error = group_fence(self._shared, request.group_id)
        if error is not None:
            return error
        group = self._shared.find(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = heartbeat_fence(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        if error is not None:
            return error
        self._shared.keep_alive(group, group.members[request.member_id])
        if group.state is GroupState.PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(
        self,
        request: LeaveGroupRequest,
        version: int,
        answer: Callable[[LeaveGroupResponse], None],
    ) -> None:
        """Take members out. When that leaves the group empty, the answer waits for its record."""
        leaving = list(request.members)
        if version < MEMBERS_VERSION:
            leaving = [MemberIdentity(member_id=request.member_id)]
        error = group_fence(self._shared, request.group_id)
        if error is not None:
            answer(LeaveGroupResponse(error_code=error))
            return
        group = self._shared.find(request.group_id)
        if group is None:
            unknown = [_result(who, ErrorCode.UNKNOWN_MEMBER_ID) for who in leaving]
            answer(_response(version, unknown))
            return
        results: list[MemberResponse] = []
        left = members_left = False
        for who in leaving:
            is_member = who.member_id not in group.pending
            result = self._leave_one(group, who)
            results.append(result)
            left = left or not result.error_code
            members_left = members_left or (is_member and not result.error_code)
        if members_left:
            self._rebalances.member_left(group)
        elif left:
            self._rebalances.complete_if_all_joined(group)
        response = _response(version, results)
        ticket = group.empty_ticket
        if ticket is None or ticket.is_decided:
            answer(response)
        else:
            self._shared.proposals.after(ticket, partial(_left, answer, response))
        self._shared.settle(group)

    def _leave_one(self, group: LiveGroup, who: MemberIdentity) -> MemberResponse:
        """Take out one member: by its id, or an administrator by its instance id alone."""
        member_id = who.member_id
        if not member_id:
            holder = group.static.get(who.group_instance_id or "")
            if who.group_instance_id is None or holder is None:
                return _result(who, ErrorCode.UNKNOWN_MEMBER_ID)
            member_id = holder
        elif member_id not in group.pending:
            error = member_fence(group, member_id, who.group_instance_id)
            if error is not None:
                return _result(who, error)
        self._rebalances.drop(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        return _result(who, ErrorCode.NONE)


def _left(
    answer: Callable[[LeaveGroupResponse], None],
    response: LeaveGroupResponse,
    error: ErrorCode | None,
) -> None:
    """Answer a LeaveGroup once the record of the empty group is decided."""
    if error is not None:
        response = LeaveGroupResponse(error_code=as_told(error))
    answer(response)


def _result(who: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(who.member_id, who.group_instance_id, error)


def _response(version: int, results: list[MemberResponse]) -> LeaveGroupResponse:
    """The answer of a version. Before version 3 the error of the one member is the request's."""
    if version < MEMBERS_VERSION:
        return LeaveGroupResponse(error_code=results[0].error_code)
    return LeaveGroupResponse(members=results)
