"""The state that the parts of a coordinator share: machine, live groups, alarms, proposals.

A coordinator answers from the machine's committed state plus everything that this leader proposed
beyond it: live groups, `removing`, `undecided_offsets`. All that is dropped when leadership ends.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from raftlog.base.ids import TopicId
from raftlog.base.limits import (
    GROUP_CLIENT_ID_CHARS_MAX,
    GROUP_MEMBERS_MAX,
    GROUPS_BATCH_BYTES_MIN,
    GROUPS_STATE_BYTES_MAX,
)
from raftlog.base.ports import Entropy
from raftlog.base.units import Instant, WallMillis, millis
from raftlog.groups.alarms import Alarm, Alarms
from raftlog.groups.live import GroupState, LiveBytes, LiveGroup, Member
from raftlog.groups.machine import GroupsMachine, PartitionKey
from raftlog.groups.proposals import Proposals, Then, Ticket
from raftlog.groups.records import NewRecord
from raftlog.groups.settings import GroupSettings
from raftlog.groups.stored import StoredGroup
from raftlog.kafka.error_codes import ErrorCode

TopicIds = Callable[[str], TopicId | None]
"""A function that returns the present id of a topic name; None when there is no such topic."""

_AS_TOLD: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def as_told(error: ErrorCode) -> ErrorCode:
    """The error for a group client when a record could not be written.

    Group clients do not know the errors of Produce. They repeat a request when the error says that
    the coordinator has moved or is not available.
    """
    return _AS_TOLD.get(error, error)


@final
class Shared:
    """The state of a coordinator, and the steps that several of its parts take."""

    __slots__ = (
        "alarms",
        "entropy",
        "groups",
        "is_closed",
        "live_bytes",
        "machine",
        "now",
        "proposals",
        "removing",
        "settings",
        "undecided_offsets",
        "wall",
    )

    def __init__(
        self,
        machine: GroupsMachine,
        settings: GroupSettings,
        entropy: Entropy,
        now: Instant,
        wall: WallMillis,
    ) -> None:
        self.machine = machine
        self.settings = settings
        self.entropy = entropy
        self.now = now
        self.wall = wall
        self.alarms = Alarms()
        self.proposals = Proposals(max(settings.batch_bytes_max, GROUPS_BATCH_BYTES_MIN))
        self.live_bytes = LiveBytes()
        self.groups: dict[str, LiveGroup] = {}
        """Groups about which the coordinator knows more than the machine holds."""
        self.removing: dict[str, None] = {}
        """Groups whose removal is undecided, and which are Dead until it is decided."""
        self.undecided_offsets: dict[str, dict[PartitionKey, int]] = {}
        """Group id -> partition -> the number of its undecided commits."""
        self.is_closed = False

    @property
    def group_size_max(self) -> int:
        """The most members that a group may have."""
        return min(self.settings.group_size_max, GROUP_MEMBERS_MAX)

    # --- groups -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Make every stored group with members live; all sessions begin in full."""
        for group_id in self.machine.group_ids():
            stored = self.machine.group(group_id)
            if stored is not None and stored.members:
                self.groups[group_id] = self._loaded(group_id, stored)

    def find(self, group_id: str) -> LiveGroup | None:
        """The live group; None when the machine holds everything about it, or it is unknown."""
        return self.groups.get(group_id)

    def exists(self, group_id: str) -> bool:
        """Whether the group is live, is stored, or has undecided commits."""
        return (
            group_id in self.groups
            or self.machine.knows(group_id)
            or group_id in self.undecided_offsets
        )

    def revive(self, group_id: str) -> LiveGroup:
        """The live group; it is made from the stored group, or empty, when it is not live."""
        group = self.groups.get(group_id)
        if group is None:
            stored = self.machine.group(group_id)
            if stored is not None and stored.members:
                # An earlier leader wrote this record, or a record was committed late.
                group = self._loaded(group_id, stored)
            else:
                group = LiveGroup(group_id, self.live_bytes)
                group.generation = self.machine.generation_floor(group_id)
                if stored is not None:
                    group.protocol_type = stored.protocol_type or None
                    group.state_ms = stored.state_ms
            self.groups[group_id] = group
        return group

    def settle(self, group: LiveGroup) -> None:
        """Forget a live group if the machine holds everything about it."""
        if group.is_idle and self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def state_of(self, group_id: str) -> GroupState:
        """The state of a group that exists; Dead for one that does not."""
        if group_id in self.removing:
            return GroupState.DEAD
        group = self.groups.get(group_id)
        if group is not None:
            return group.state
        return GroupState.EMPTY if self.exists(group_id) else GroupState.DEAD

    def protocol_type_of(self, group_id: str) -> str:
        """The protocol type of a group; empty for one that only commits offsets."""
        group, stored = self.groups.get(group_id), self.machine.group(group_id)
        if group is not None:
            return group.protocol_type or ""
        return "" if stored is None else stored.protocol_type

    def move(self, group: LiveGroup, state: GroupState) -> None:
        """Move a group to a state, at the present time."""
        group.state = state
        group.state_ms = self.wall

    # --- members ----------------------------------------------------------------------------------

    def keep_alive(self, group: LiveGroup, member: Member) -> None:
        """Begin the member's session again, for the member was heard."""
        self.set_session(group.group_id, member.member_id, member.session_timeout_ms)

    def set_session(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """Set the alarm of a member's or pending member's session to this time from now."""
        self.alarms.set((Alarm.SESSION, group_id, member_id), self.after(timeout_ms))

    def end_session(self, group_id: str, member_id: str) -> None:
        """Clear the session alarm of a member that is gone."""
        self.alarms.clear((Alarm.SESSION, group_id, member_id))

    def after(self, timeout_ms: int) -> Instant:
        """The instant that lies `timeout_ms` milliseconds from now."""
        return Instant(self.now + millis(timeout_ms))

    def new_member_id(self, prefix: str) -> str:
        """An id for a member: its client id or instance id, and a random UUID (version 4)."""
        drawn = bytearray(self.entropy.bytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        digits = drawn.hex()
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        return "-".join((prefix[:GROUP_CLIENT_ID_CHARS_MAX], *parts))

    # --- records ----------------------------------------------------------------------------------

    def write(self, records: Sequence[NewRecord], then: Then) -> Ticket:
        """Propose one unit of records; `then` hears its outcome."""
        return self.proposals.add(records, then, self.wall)

    def write_of(self, group: LiveGroup, records: Sequence[NewRecord], then: Then) -> Ticket:
        """Propose records of a live group, which stays live until they are decided."""
        group.resting += 1
        return self.write(records, partial(self._rested, group, then))

    def has_room(self, size: int) -> bool:
        """Whether the state may grow by so many bytes."""
        held = self.machine.state_bytes + self.proposals.undecided_bytes
        return held + size <= GROUPS_STATE_BYTES_MAX

    def _rested(self, group: LiveGroup, then: Then, error: ErrorCode | None) -> None:
        group.resting -= 1
        then(error)
        self.settle(group)

    def _loaded(self, group_id: str, stored: StoredGroup) -> LiveGroup:
        """The live group of a stored one, with the members that it had when it became stable.

        Their sessions begin in full, for the former leader may have heard them just now.
        """
        group = LiveGroup(group_id, self.live_bytes)
        for entry in stored.members:
            if entry.member_id in group.members or entry.instance_id in group.static:
                # No coordinator writes a name twice, but a producer may: keep the first member.
                continue
            session_ms = min(max(entry.session_timeout_ms, 0), self.settings.session_timeout_ms_max)
            member = Member(
                member_id=entry.member_id,
                instance_id=entry.instance_id,
                client_id=entry.client_id,
                client_host=entry.client_host,
                rebalance_timeout_ms=max(entry.rebalance_timeout_ms, 0),
                session_timeout_ms=session_ms,
                protocols=((stored.protocol or "", entry.subscription),),
                assignment=entry.assignment,
            )
            group.add(member, stored.protocol_type, None)
            self.keep_alive(group, member)
        # A floor above it belongs to a join phase whose assignment was not committed before the
        # leader changed. Members of that generation get ILLEGAL_GENERATION and join again. Members
        # of the stored generation go on meanwhile.
        group.generation = max(stored.generation, 0)
        group.protocol = stored.protocol or ""
        if stored.leader in group.members:
            group.leader = stored.leader
        group.state, group.state_ms = GroupState.STABLE, stored.state_ms
        return group
