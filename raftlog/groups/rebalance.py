"""Rebalances a group: begins and ends join phases, and removes members that are missing.

1. `prepare` begins the join phase. The first one of an empty group lasts for the initial delay,
   which newcomers extend. A later one ends when all members have joined, or after the rebalance
   timeout.
2. `complete` ends it. Dynamic members that have not joined are dropped, static ones stay. The
   generation rises, and the coordinator proposes its record (the floor). It answers the joins when
   that record is committed, so that no later coordinator gives the number out again.
3. The leader's SyncGroup makes the group stable (`syncing`). Members that do not sync in time are
   removed, and a new join phase begins.

Every removal of a member tries to complete the phase, for the group may have waited for that one.
"""

from functools import partial
from typing import NamedTuple, final

from raftlog.base.limits import GROUP_WRITE_PAUSE_MS, INT32_MAX
from raftlog.groups.alarms import Alarm
from raftlog.groups.live import GroupState, JoinAnswer, LiveGroup, Member
from raftlog.groups.records import floor_record, group_record
from raftlog.groups.shared import Shared, as_told
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from raftlog.kafka.messages.sync_group import SyncGroupResponse


@final
class _Joined(NamedTuple):
    """A join whose answer waits for the record of its generation."""

    answer: JoinAnswer
    response: JoinGroupResponse


def join_refusal(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """A JoinGroup answer with an error. Its protocol name is empty, because no client before
    version 7 can read a null one."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


def sync_refusal(error: ErrorCode) -> SyncGroupResponse:
    """A SyncGroup answer with an error."""
    return SyncGroupResponse(error_code=error)


def join_response(group: LiveGroup, member_id: str) -> JoinGroupResponse:
    """The answer to a member of the present generation; only the leader gets the members."""
    members: list[JoinGroupResponseMember] = []
    if group.leader == member_id:
        members = members_for_leader(group)
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol or "",
        leader=group.leader or "",
        member_id=member_id,
        members=members,
    )


def members_for_leader(group: LiveGroup) -> list[JoinGroupResponseMember]:
    """All members with their subscriptions under the chosen protocol."""
    return [
        JoinGroupResponseMember(
            member.member_id, member.instance_id, member.subscription(group.protocol)
        )
        for member in group.members.values()
    ]


@final
class Rebalances:
    """Runs the join phases of all groups of a coordinator."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def shrink_loaded(self) -> None:
        """Begin a join phase in each loaded group that is over the size limit; the last members to
        join are refused."""
        for group in list(self._shared.groups.values()):
            if len(group.members) > self._shared.group_size_max:
                self.prepare(group)

    # --- begin --------------------------------------------------------------------------------

    def prepare_or_complete(self, group: LiveGroup) -> None:
        """After a member came or left, begin a join phase, or end the present one if all joined."""
        if group.state is GroupState.PREPARING:
            self.complete_if_all_joined(group)
        else:
            self.prepare(group)

    def prepare(self, group: LiveGroup) -> None:
        """Begin a join phase. Waiting syncs are answered, for their members have to join again."""
        shared = self._shared
        if group.state is GroupState.COMPLETING:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        shared.alarms.clear((Alarm.SYNC, group.group_id, ""))
        group.is_first_rebalance = group.state is GroupState.EMPTY
        group.has_newcomer = False
        shared.move(group, GroupState.PREPARING)
        if group.is_first_rebalance:
            delay = shared.settings.initial_rebalance_delay_ms
            group.delay_ms = delay
            group.delay_left_ms = max(group.rebalance_timeout_ms - delay, 0)
            self._end_join_after(group, delay)
        elif group.all_joined:
            self.complete(group)
        else:
            self._end_join_after(group, group.rebalance_timeout_ms)

    def fail_syncs(self, group: LiveGroup, error: ErrorCode) -> None:
        """Answer waiting syncs with an error; no assignment of this generation counts any more."""
        group.assignment_ticket = None
        for member in list(group.members.values()):
            member.assignment = b""
            self.answer_sync(group, member, sync_refusal(error))

    def answer_sync(self, group: LiveGroup, member: Member, response: SyncGroupResponse) -> None:
        """Answer the member's waiting sync, if there is one, and begin its session again."""
        answer, member.sync_answer = member.sync_answer, None
        if answer is not None:
            self._shared.keep_alive(group, member)
            answer(response)

    def fence_sync(self, member: Member) -> None:
        """Answer a waiting sync of a static member that another one replaces."""
        answer, member.sync_answer = member.sync_answer, None
        if answer is not None:
            answer(sync_refusal(ErrorCode.FENCED_INSTANCE_ID))

    def _end_join_after(self, group: LiveGroup, timeout_ms: int) -> None:
        shared = self._shared
        shared.alarms.set((Alarm.JOIN, group.group_id, ""), shared.after(timeout_ms))

    # --- end ------------------------------------------------------------------------------------

    def join_time_is_up(self, group: LiveGroup) -> None:
        """Handle the alarm of the join phase: extend the initial delay for newcomers, or end it."""
        if group.state is not GroupState.PREPARING:
            return
        if group.is_first_rebalance and group.has_newcomer and group.delay_left_ms:
            group.has_newcomer = False
            delay = min(self._shared.settings.initial_rebalance_delay_ms, group.delay_left_ms)
            group.delay_left_ms = max(group.delay_left_ms - group.delay_ms, 0)
            group.delay_ms = delay
            self._end_join_after(group, delay)
        else:
            self.complete(group)

    def complete_if_all_joined(self, group: LiveGroup) -> None:
        """End the join phase when no member is missing; an initial delay goes on all the same."""
        preparing = group.state is GroupState.PREPARING
        if preparing and not group.is_first_rebalance and group.all_joined:
            self.complete(group)

    def complete(self, group: LiveGroup) -> None:
        """End the join phase with the members that joined."""
        shared = self._shared
        shared.alarms.clear((Alarm.JOIN, group.group_id, ""))
        for member in list(group.members.values()):
            if member.join_answer is None and member.instance_id is None:
                group.remove(member.member_id)
                shared.end_session(group.group_id, member.member_id)
        if group.members and not group.elect():
            # Only static members are left, and none has joined. They get more time until their
            # sessions end. A client may name a rebalance timeout of 0, so there is a least time.
            self._end_join_after(group, max(group.rebalance_timeout_ms, GROUP_WRITE_PAUSE_MS))
            return
        floor = shared.machine.generation_floor(group.group_id)
        # After the largest number the generation begins again at 1; no real group gets there.
        group.generation = max(group.generation, floor, 0) % INT32_MAX + 1
        group.unsynced.clear()
        group.generation_ticket = group.assignment_ticket = None
        if group.members:
            self._begin_generation(group)
        else:
            group.protocol = group.leader = None
            shared.move(group, GroupState.EMPTY)
            self.write_empty(group)

    def _begin_generation(self, group: LiveGroup) -> None:
        shared = self._shared
        group.protocol = group.choose_protocol()
        shared.move(group, GroupState.COMPLETING)
        joined: list[_Joined] = []
        for member in group.members.values():
            answer = member.join_answer
            if answer is not None:
                group.wait_for_join(member, None)
                joined.append(_Joined(answer, join_response(group, member.member_id)))
            member.is_new = False
            group.unsynced[member.member_id] = None
            shared.keep_alive(group, member)
        shared.alarms.set(
            (Alarm.SYNC, group.group_id, ""), shared.after(group.rebalance_timeout_ms)
        )
        group.generation_ticket = shared.write_of(
            group,
            [floor_record(group.group_id, group.generation)],
            partial(self._generation_decided, group, group.generation, joined),
        )

    def _generation_decided(
        self, group: LiveGroup, generation: int, joined: list[_Joined], error: ErrorCode | None
    ) -> None:
        """Answer the joins of a generation once its record is decided.

        The group may have moved on meanwhile; SyncGroup will tell the members.
        """
        for answer, response in joined:
            if error is None:
                answer(response)
            else:
                answer(join_refusal(response.member_id, as_told(error)))
        if self._shared.is_closed or group.generation != generation:
            return
        group.generation_ticket = None
        if group.state is not GroupState.COMPLETING:
            return
        if error is None:
            for member in group.members.values():
                self._shared.keep_alive(group, member)
        else:
            self.prepare(group)

    # --- the end of a group -----------------------------------------------------------------------

    def write_empty(self, group: LiveGroup) -> None:
        """Write the record that a group is empty; until it is committed the group stays live."""
        shared = self._shared
        group.is_unwritten = True
        group.empty_ticket = shared.write_of(
            group,
            [group_record(group.group_id, group.stored())],
            partial(self._empty_decided, group, group.generation),
        )

    def _empty_decided(self, group: LiveGroup, generation: int, error: ErrorCode | None) -> None:
        shared = self._shared
        if shared.is_closed or group.generation != generation:
            return
        if error is None:
            group.is_unwritten = False
        elif group.state is GroupState.EMPTY:
            shared.alarms.set((Alarm.WRITE, group.group_id, ""), shared.after(GROUP_WRITE_PAUSE_MS))

    def write_again(self, group: LiveGroup) -> None:
        """Handle the alarm after a failed record of an empty group: write it again."""
        if group.is_unwritten and group.state is GroupState.EMPTY:
            self.write_empty(group)

    # --- members that are missing -----------------------------------------------------------------

    def drop(self, group: LiveGroup, member_id: str, error: ErrorCode) -> None:
        """Remove a member from its group and answer its waiting requests with an error.

        The caller goes on with `member_left`.
        """
        self._shared.end_session(group.group_id, member_id)
        member = group.remove(member_id)
        if member is None:
            return
        join, member.join_answer = member.join_answer, None
        sync, member.sync_answer = member.sync_answer, None
        if join is not None:
            join(join_refusal("", error))
        if sync is not None:
            sync(sync_refusal(error))

    def member_left(self, group: LiveGroup) -> None:
        """After members were removed, begin a join phase, or end the present one if all joined."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING):
            self.prepare(group)
        else:
            self.complete_if_all_joined(group)

    def session_is_over(self, group: LiveGroup, member_id: str) -> None:
        """Handle the alarm of a session: remove the member or pending member if it is not alive."""
        if member_id in group.pending:
            group.remove(member_id)
            self.complete_if_all_joined(group)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        waits = member.join_answer is not None or member.sync_answer is not None
        if waits and not member.is_new:
            # A member that waits for an answer is alive; its session begins again with the answer.
            # A member whose first join waits may be gone: a client that gave up has no id yet with
            # which it could leave.
            return
        self.drop(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.member_left(group)

    def sync_time_is_up(self, group: LiveGroup) -> None:
        """Handle the alarm of the sync phase: remove the members that have not synced."""
        if group.state not in (GroupState.COMPLETING, GroupState.STABLE) or not group.unsynced:
            return
        for member_id in list(group.unsynced):
            self.drop(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        self.prepare(group)
