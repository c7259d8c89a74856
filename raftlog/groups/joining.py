"""Handles JoinGroup: admits a member, gives it an id, and begins a rebalance if one is needed."""

from functools import partial
from typing import Final, NamedTuple, final

from raftlog.base.limits import (
    GROUP_CLIENT_ID_CHARS_MAX,
    GROUP_MEMBERS_MAX,
    GROUP_PROTOCOLS_MAX,
    GROUPS_LIVE_BYTES_MAX,
)
from raftlog.groups.fences import group_fence, member_fence
from raftlog.groups.live import GroupState, JoinAnswer, LiveGroup, Member, Protocols, weight_of
from raftlog.groups.rebalance import (
    Rebalances,
    join_refusal,
    join_response,
    members_for_leader,
)
from raftlog.groups.records import group_record
from raftlog.groups.settings import GroupClient
from raftlog.groups.shared import Shared, as_told
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse

MEMBER_ID_VERSION: Final = 4
"""From this JoinGroup version on, a new member receives its id first and joins again with it."""
SKIP_ASSIGNMENT_VERSION: Final = 9
"""From this JoinGroup version on, the broker can tell a leader to keep the present assignment."""
_NEW_GROUP_BYTES: Final = 1024
"""The least number of bytes that the records of a group take, beside its name."""


@final
class _Join(NamedTuple):
    """A JoinGroup, its contents copied out of the frame."""

    request: JoinGroupRequest
    client: GroupClient
    answer: JoinAnswer
    protocols: Protocols
    rebalance_ms: int

    @property
    def weight(self) -> int:
        """The bytes that the member and its group count for at most while they are held."""
        request, client = self.request, self.client
        named = len(request.group_id) + len(request.protocol_type)
        named += len(request.member_id) + GROUP_CLIENT_ID_CHARS_MAX
        named += len(request.group_instance_id or "") + len(client.client_id) + len(client.host)
        return weight_of(self.protocols) + named

    def refuse(self, error: ErrorCode, member_id: str | None = None) -> None:
        """Answer with an error."""
        named = self.request.member_id if member_id is None else member_id
        self.answer(join_refusal(named, error))


@final
class _Former(NamedTuple):
    """The state of a static member before its replacement, to restore it if the record fails."""

    member_id: str
    leader: str | None
    protocols: Protocols
    rebalance_ms: int
    session_ms: int


@final
class Joins:
    """Handles the JoinGroup requests of a coordinator."""

    __slots__ = ("_rebalances", "_shared")

    def __init__(self, shared: Shared, rebalances: Rebalances) -> None:
        self._shared = shared
        self._rebalances = rebalances

    def join(self, request: JoinGroupRequest, client: GroupClient, answer: JoinAnswer) -> None:
        """Answer at once, or let the member wait for its group."""
        protocols = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
        rebalance_ms = request.rebalance_timeout_ms
        if rebalance_ms < 0:
            # Version 0 has no such field: the session timeout serves for both.
            rebalance_ms = request.session_timeout_ms
        join = _Join(request, client, answer, protocols, rebalance_ms)
        error = self._fault(join)
        if error is not None:
            join.refuse(error)
            return
        group = self._shared.revive(request.group_id)
        if not self._accepts(group, join):
            self._send_away(group, request.member_id)
            join.refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        elif not group.supports(request.protocol_type, (name for name, _ in protocols)):
            join.refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id:
            self._join_again(group, join)
        else:
            self._join_new(group, join)
        self._shared.settle(group)

    def _fault(self, join: _Join) -> ErrorCode | None:
        """The error of a request that is wrong by itself; None for a good one."""
        request, settings = join.request, self._shared.settings
        error = group_fence(self._shared, request.group_id)
        if error is not None:
            return error
        session_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= session_ms <= settings.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not 0 < len(join.protocols) <= GROUP_PROTOCOLS_MAX:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._shared.proposals.is_full:
            # The join may end a join phase or replace a static member, and both propose records.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._shared.exists(request.group_id):
            return None
        if request.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not self._shared.has_room(_NEW_GROUP_BYTES + 2 * len(request.group_id)):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def _accepts(self, group: LiveGroup, join: _Join) -> bool:
        """Whether the group has room for this member.

        In a join phase only the members that have joined count. So after the limit was lowered, the
        last members to join are refused.
        """
        shared, member_id = self._shared, join.request.member_id
        member = group.members.get(member_id)
        weight = join.weight - (0 if member is None else member.weight)
        if shared.live_bytes.total + weight > GROUPS_LIVE_BYTES_MAX:
            return False
        most = shared.group_size_max
        if not member_id and len(group.pending) >= GROUP_MEMBERS_MAX:
            return False
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING:
            waits = member is not None and member.join_answer is not None
            return waits or group.joined < most
        return member is not None or len(group.members) < most

    def _send_away(self, group: LiveGroup, member_id: str) -> None:
        """Drop a member that the group has no room for; it may be in the group already."""
        was_member = member_id in group.members
        self._rebalances.drop(group, member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        if was_member:
            self._rebalances.member_left(group)
        else:
            self._rebalances.complete_if_all_joined(group)

    # --- a new member -----------------------------------------------------------------------------

    def _join_new(self, group: LiveGroup, join: _Join) -> None:
        """Handle a join without a member id."""
        instance_id = join.request.group_instance_id
        prefix = join.client.client_id if instance_id is None else instance_id
        member_id = self._shared.new_member_id(prefix)
        if instance_id is not None:
            holder = group.static.get(instance_id)
            if holder is None:
                self._add(group, join, member_id)
            else:
                self._replace(group, join, group.members[holder], member_id)
        elif join.client.version >= MEMBER_ID_VERSION:
            group.add_pending(member_id)
            self._shared.set_session(group.group_id, member_id, join.request.session_timeout_ms)
            join.refuse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        else:
            self._add(group, join, member_id)

    def _add(self, group: LiveGroup, join: _Join, member_id: str) -> None:
        """Add a member to the group; its first join waits for a bounded time."""
        request, shared = join.request, self._shared
        member = Member(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=join.client.client_id,
            client_host=join.client.host,
            rebalance_timeout_ms=join.rebalance_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocols=join.protocols,
            is_new=True,
        )
        if group.state is GroupState.PREPARING and group.is_first_rebalance:
            group.has_newcomer = True
        group.add(member, request.protocol_type, join.answer)
        shared.set_session(group.group_id, member_id, shared.settings.new_member_join_ms)
        self._rebalances.prepare_or_complete(group)

    # --- a member that comes again ----------------------------------------------------------------

    def _join_again(self, group: LiveGroup, join: _Join) -> None:
        """Handle a join with a member id."""
        request = join.request
        if request.member_id in group.pending and request.group_instance_id is None:
            self._add(group, join, request.member_id)
            return
        error = member_fence(group, request.member_id, request.group_instance_id)
        if error is not None:
            join.refuse(error)
            return
        member = group.members[request.member_id]
        same = member.protocols == join.protocols
        if group.state is GroupState.COMPLETING and same:
            # The answer to the member's join was lost on the way: send the same one again.
            self._answer_with_generation(group, join)
        elif self._is_newest(group) and same and group.leader != member.member_id:
            # A follower that repeats its subscription changes nothing. A leader that does wants a
            # new assignment: it has seen new partitions or topics.
            self._answer_with_generation(group, join)
        else:
            self._update(group, join, member)
            self._rebalances.prepare_or_complete(group)

    def _is_newest(self, group: LiveGroup) -> bool:
        """Whether the group is stable, and no member has heard of a later generation."""
        # A coordinator that died after it gave a generation out, and before the assignment was
        # committed, leaves a floor above the stored generation.
        floor = self._shared.machine.generation_floor(group.group_id)
        return group.state is GroupState.STABLE and group.generation >= floor

    def _answer_with_generation(self, group: LiveGroup, join: _Join) -> None:
        """Answer with the present generation, once the record of its number is committed."""
        response = join_response(group, join.request.member_id)
        ticket = group.generation_ticket
        if ticket is None or ticket.is_decided:
            join.answer(response)
        else:
            self._shared.proposals.after(ticket, partial(_answer_after, join, response))

    def _update(self, group: LiveGroup, join: _Join, member: Member) -> None:
        """Let the member wait for the end of the join phase, and answer an older join of it."""
        # A client that joined twice reads the last answer only. The older join is refused, so that
        # no connection waits without end.
        older = member.join_answer
        group.update(member, join.protocols, join.rebalance_ms, join.request.session_timeout_ms)
        group.wait_for_join(member, join.answer)
        if older is not None:
            older(join_refusal(member.member_id, ErrorCode.REBALANCE_IN_PROGRESS))

    # --- a static member that comes back ----------------------------------------------------------

    def _replace(self, group: LiveGroup, join: _Join, member: Member, member_id: str) -> None:
        """Give the place of a static member to a join with its instance id and no member id.

        The program was restarted, or its client gave up an earlier join. The last join has the
        instance id from now on.
        """
        former = _Former(
            member.member_id,
            group.leader,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
        )
        self._fence_waiting(group, member)
        group.rename(member, member_id)
        self._shared.end_session(group.group_id, former.member_id)
        self._update(group, join, member)
        group.came_from(member, join.client.client_id, join.client.host)
        self._shared.keep_alive(group, member)
        if self._is_newest(group) and group.protocol == group.choose_protocol():
            self._record_replacement(group, join, member, former)
        elif group.state is GroupState.PREPARING:
            self._rebalances.complete_if_all_joined(group)
        else:
            # The leader may have seen the old id already. Its assignment would not name the new
            # id, and the new member would get no partitions. So the group joins again.
            self._rebalances.prepare(group)

    def _fence_waiting(self, group: LiveGroup, member: Member) -> None:
        """Answer the requests for which the replaced member waits with FENCED_INSTANCE_ID."""
        join = member.join_answer
        group.wait_for_join(member, None)
        if join is not None:
            join(join_refusal(member.member_id, ErrorCode.FENCED_INSTANCE_ID))
        self._rebalances.fence_sync(member)

    def _record_replacement(
        self, group: LiveGroup, join: _Join, member: Member, former: _Former
    ) -> None:
        """Write the new id of a replaced member, and answer its join after that; no rebalance."""
        records = [group_record(group.group_id, group.stored())]
        if not self._shared.proposals.fits(records):
            group.wait_for_join(member, None)
            join.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, "")
            self._revert(group, member, former)
            return
        new_id = member.member_id
        then = partial(self._replacement_decided, group, group.generation, new_id, former, join)
        self._shared.write_of(group, records, then)

    def _replacement_decided(
        self,
        group: LiveGroup,
        generation: int,
        member_id: str,
        former: _Former,
        join: _Join,
        error: ErrorCode | None,
    ) -> None:
        member = group.members.get(member_id)
        if self._shared.is_closed or member is None or member.join_answer is not join.answer:
            # The member was replaced or removed meanwhile, or the coordinator was closed. That step
            # has answered the join.
            return
        if group.state is not GroupState.STABLE or group.generation != generation:
            # A join phase began meanwhile, and its end answers the join.
            return
        group.wait_for_join(member, None)
        if error is not None:
            join.refuse(as_told(error), "")
            self._revert(group, member, former)
            return
        self._shared.keep_alive(group, member)
        join.answer(_replacement_response(group, member, join.client.version, former.leader))

    def _revert(self, group: LiveGroup, member: Member, former: _Former) -> None:
        """Restore a member to its state before the replacement."""
        self._shared.end_session(group.group_id, member.member_id)
        group.rename(member, former.member_id)
        group.update(member, former.protocols, former.rebalance_ms, former.session_ms)
        self._shared.keep_alive(group, member)


def _answer_after(join: _Join, response: JoinGroupResponse, error: ErrorCode | None) -> None:
    """Answer a join once the record of the generation is decided."""
    if error is None:
        join.answer(response)
    else:
        join.refuse(as_told(error))


def _replacement_response(
    group: LiveGroup, member: Member, version: int, former_leader: str | None
) -> JoinGroupResponse:
    """The answer to a replaced static member of a stable group.

    Its old assignment stays. A leader of version 9 gets the members and the flag to skip the
    assignment. An older leader would assign again. So the answer names the former id as the leader,
    and the member behaves as a follower.
    """
    response = join_response(group, member.member_id)
    if version < SKIP_ASSIGNMENT_VERSION:
        return response._replace(members=[], leader=former_leader or "")
    if group.leader != member.member_id:
        return response
    return response._replace(members=members_for_leader(group), skip_assignment=True)
