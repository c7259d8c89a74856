"""Fences: may this member, of this generation, do that now? An error, or None when it may."""

from typing import Final

from raftlog.groups.live import GroupState, LiveGroup
from raftlog.groups.shared import Shared
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_commit import OffsetCommitRequest
from raftlog.kafka.messages.sync_group import SyncGroupRequest

GROUP_UNKNOWN_VERSION: Final = 9
"""The first OffsetCommit version that has a word for an unknown group."""


def member_fence(group: LiveGroup, member_id: str, instance_id: str | None) -> ErrorCode | None:
    """The error of a member that is not in the group, or lacks the instance id that it names."""
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return None if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def group_fence(shared: Shared, group_id: str) -> ErrorCode | None:
    """The error when the group can serve no member at all."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group_id in shared.removing:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return None


def heartbeat_fence(
    group: LiveGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode | None:
    """The error of a heartbeat that no member of the present generation sent."""
    error = member_fence(group, member_id, instance_id)
    if error is None and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def sync_fence(group: LiveGroup, request: SyncGroupRequest) -> ErrorCode | None:
    """The error of a SyncGroup whose sender is no member of the present generation and protocol."""
    error = member_fence(group, request.member_id, request.group_instance_id)
    if error is not None:
        return error
    if group.state is GroupState.PREPARING:
        # Never ILLEGAL_GENERATION: some clients take that for the loss of their membership. They
        # join as new members and meet the same error again when the join phase still runs.
        return ErrorCode.REBALANCE_IN_PROGRESS
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return None


def commit_fence(shared: Shared, request: OffsetCommitRequest, version: int) -> ErrorCode | None:
    """The error of an OffsetCommit that may not be done.

    A member of the present generation may commit. A program that is no member (generation below 0)
    may commit while the group has no members.
    """
    group_id, generation = request.group_id, request.generation_id_or_member_epoch
    if group_id in shared.removing:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not shared.exists(group_id):
        if generation < 0:
            return None
        if version >= GROUP_UNKNOWN_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    group = shared.find(group_id)
    is_empty = group is None or group.state is GroupState.EMPTY
    if generation < 0 and is_empty:
        return None
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    named = bool(request.member_id) or request.group_instance_id is not None
    if generation < 0 and not named:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = heartbeat_fence(group, request.member_id, request.group_instance_id, generation)
    if error is None and group.state is GroupState.COMPLETING:
        # The member has the new generation from its join, but no assignment yet.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return error


def _differ(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known
