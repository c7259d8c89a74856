"""Handles SyncGroup: writes the leader's assignment, then gives every member its part of it."""

from functools import partial
from typing import final

from raftlog.groups.alarms import Alarm
from raftlog.groups.fences import group_fence, sync_fence
from raftlog.groups.live import GroupState, LiveGroup, Member, SyncAnswer
from raftlog.groups.rebalance import Rebalances, sync_refusal
from raftlog.groups.records import group_record
from raftlog.groups.shared import Shared, as_told
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse


@final
class Syncs:
    """Handles the SyncGroup requests of a coordinator."""

    __slots__ = ("_rebalances", "_shared")

    def __init__(self, shared: Shared, rebalances: Rebalances) -> None:
        self._shared = shared
        self._rebalances = rebalances

    def sync(self, request: SyncGroupRequest, answer: SyncAnswer) -> None:
        """Answer at once, or let the member wait for the assignment."""
        error = group_fence(self._shared, request.group_id)
        group = self._shared.find(request.group_id)
        if error is None and group is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error is None:
            assert group is not None, request.group_id
            error = sync_fence(group, request)
        if error is not None:
            answer(sync_refusal(error))
            return
        assert group is not None, request.group_id
        member = group.members[request.member_id]
        leads = group.leader == member.member_id
        if leads and group.state is GroupState.COMPLETING and self._shared.proposals.is_full:
            answer(sync_refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        self._has_synced(group, member)
        if group.state is GroupState.STABLE:
            answer(_assigned(group, member))
            return
        assert group.state is GroupState.COMPLETING, group.state
        older, member.sync_answer = member.sync_answer, answer
        if older is not None:
            # A client that sent a second sync reads only the last answer. Answer the older one, so
            # that its connection does not hang.
            older(sync_refusal(ErrorCode.REBALANCE_IN_PROGRESS))
        if leads and group.assignment_ticket is None:
            self._propose(group, request)

    def _has_synced(self, group: LiveGroup, member: Member) -> None:
        group.unsynced.pop(member.member_id, None)
        if not group.unsynced:
            self._shared.alarms.clear((Alarm.SYNC, group.group_id, ""))

    def _propose(self, group: LiveGroup, request: SyncGroupRequest) -> None:
        """Write the leader's assignment as a record.

        A member that the assignment leaves out gets an empty one. Parts for unknown members do not
        count.
        """
        shared = self._shared
        named = {each.member_id: each.assignment for each in request.assignments}
        assignments = {member_id: bytes(named.get(member_id, b"")) for member_id in group.members}
        records = [group_record(group.group_id, group.stored(assignments))]
        size = len(records[0].value or b"")
        if not shared.proposals.fits(records) or not shared.has_room(size):
            self._fail(group, ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            then = partial(self._assignment_decided, group, group.generation, assignments)
            group.assignment_ticket = shared.write_of(group, records, then)

    def _assignment_decided(
        self,
        group: LiveGroup,
        generation: int,
        assignments: dict[str, bytes],
        error: ErrorCode | None,
    ) -> None:
        """Give the members their assignments once the record is decided, or fail their syncs."""
        # When the group has moved on since, its members were already told to join again.
        if self._shared.is_closed or group.generation != generation:
            return
        if group.state is not GroupState.COMPLETING:
            return
        if error is not None:
            self._fail(group, as_told(error))
            return
        group.is_unwritten = False
        self._shared.move(group, GroupState.STABLE)
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
            self._rebalances.answer_sync(group, member, _assigned(group, member))

    def _fail(self, group: LiveGroup, error: ErrorCode) -> None:
        """Answer all waiting syncs with an error and begin a new join phase."""
        self._rebalances.fail_syncs(group, error)
        self._rebalances.prepare(group)


def _assigned(group: LiveGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=member.assignment,
    )
