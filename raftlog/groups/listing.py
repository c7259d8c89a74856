"""Answers ListGroups and DescribeGroups, by which tools look at the groups of a partition."""

from typing import Final, final

from raftlog.groups.live import GroupState, LiveGroup
from raftlog.groups.shared import Shared
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_groups import DescribedGroup, DescribedGroupMember
from raftlog.kafka.messages.list_groups import ListedGroup, ListGroupsRequest

CLASSIC: Final = "classic"
"""The type of every group that is served here, as Kafka names it."""
UNKNOWN_GROUP_VERSION: Final = 6
"""From this DescribeGroups version on, an unknown group is an error."""


@final
class Listing:
    """Answers questions about the groups of a coordinator."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups whose state and type pass the filters; an empty filter passes all.

        The names in the filters may be in upper or lower case.
        """
        shared = self._shared
        states = [state.lower() for state in request.states_filter]
        types = [kind.lower() for kind in request.types_filter]
        if types and CLASSIC not in types:
            return []
        listed: list[ListedGroup] = []
        for group_id in sorted({*shared.machine.group_ids(), *shared.groups}):
            state = shared.state_of(group_id)
            if state is GroupState.DEAD:
                continue
            if states and state.value.lower() not in states:
                continue
            listed.append(
                ListedGroup(
                    group_id=group_id,
                    protocol_type=shared.protocol_type_of(group_id),
                    group_state=state.value,
                    group_type=CLASSIC,
                )
            )
        return listed

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """One group with its members. Subscriptions and assignments are in it only while the group
        is stable."""
        shared = self._shared
        state = shared.state_of(group_id)
        if state is GroupState.DEAD:
            return _unknown(group_id, version)
        group = shared.find(group_id)
        stable = state is GroupState.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=state.value,
            protocol_type=shared.protocol_type_of(group_id),
            protocol_data=(group.protocol or "") if group is not None and stable else "",
            members=[] if group is None else _members(group, stable=stable),
        )


def _members(group: LiveGroup, *, stable: bool) -> list[DescribedGroupMember]:
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.subscription(group.protocol) if stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]


def _unknown(group_id: str, version: int) -> DescribedGroup:
    if version < UNKNOWN_GROUP_VERSION:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} not found.",
        group_id=group_id,
        group_state=GroupState.DEAD.value,
    )
