"""A live group, as its coordinator holds it: state, members, and the requests that wait.

```
          first join                    all have joined,           the leader's
                                        or time is up              assignment is committed
   Empty ----------> PreparingRebalance ----------> CompletingRebalance ----------> Stable
     ^                  |      ^   ^                        |                          |
     +------------------+      |   +------------------------+                          |
        all have left          +-------------------------------------------------------+
                                  a join, a leave, an ended session, a missing sync
```

A group whose removal is being written is Dead. This module knows no time and no records.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, TypeAlias, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.base.limits import REQUEST_ITEM_BYTES
from raftlog.groups.proposals import Ticket
from raftlog.groups.stored import StoredGroup, StoredMember
from raftlog.kafka.embedded import decode_embedded
from raftlog.kafka.messages.consumer_protocol import ConsumerProtocolSubscription
from raftlog.kafka.messages.join_group import JoinGroupResponse
from raftlog.kafka.messages.sync_group import SyncGroupResponse

JoinAnswer: TypeAlias = Callable[[JoinGroupResponse], None]
SyncAnswer: TypeAlias = Callable[[SyncGroupResponse], None]
Protocols: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names and subscriptions, in the order in which the member prefers them."""

_PENDING_BYTES: Final = 4 * REQUEST_ITEM_BYTES
"""The bytes that a pending member counts for, beside its id and the name of its group. The pending
member may be all that exists of the group."""
CONSUMER: Final = "consumer"
"""The protocol type whose subscriptions a broker can read."""


@final
class GroupState(Enum):
    """The states of the classic protocol, as Kafka names them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@final
@attrs.define(eq=False)
class Member:
    """A member of a group; at most one join and one sync of it wait at a time.

    `is_new`: its first join is not answered yet.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    join_answer: JoinAnswer | None = None
    sync_answer: SyncAnswer | None = None

    @property
    def weight(self) -> int:
        """The bytes that the member counts for against GROUPS_LIVE_BYTES_MAX."""
        named = len(self.member_id) + len(self.instance_id or "")
        return weight_of(self.protocols) + named + len(self.client_id) + len(self.client_host)

    def subscription(self, protocol: str | None) -> bytes:
        """The member's subscription under a protocol; empty when it does not support it."""
        return next((said for name, said in self.protocols if name == protocol), b"")


def weight_of(protocols: Protocols) -> int:
    """The bytes that a member with these protocols counts for, beside its names."""
    return REQUEST_ITEM_BYTES + sum(
        REQUEST_ITEM_BYTES + len(name) + len(said) for name, said in protocols
    )


@final
@attrs.define
class LiveBytes:
    """The sum of the bytes of all members of a coordinator."""

    total: int = 0


@final
@attrs.define(eq=False)
class LiveGroup:
    """One group.

    * `generation`: never falls. `protocol_type`: None until the first member.
    * `pending`: ids that were given out to clients that have not joined with them yet.
    * `static`: the member id of each instance id.
    * `unsynced`: members that have joined the present generation and not synced.
    * `resting`: the number of undecided records of the group. `is_unwritten`: the record of its
      last change is not committed. While either holds, the group must not be loaded from the
      machine again.
    """

    group_id: str
    live_bytes: LiveBytes
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    state: GroupState = GroupState.EMPTY
    state_ms: int = -1
    members: dict[str, Member] = attrs.field(factory=dict)
    pending: dict[str, None] = attrs.field(factory=dict)
    static: dict[str, str] = attrs.field(factory=dict)
    unsynced: dict[str, None] = attrs.field(factory=dict)
    joined: int = 0
    """The number of members whose join waits."""
    supported: dict[str, int] = attrs.field(factory=dict)
    """Protocol name -> the number of members that support it."""
    is_first_rebalance: bool = False
    """Whether the join phase began from Empty, so that it lasts for the initial delay."""
    has_newcomer: bool = False
    """Whether a member came during the initial delay, which extends the delay."""
    delay_ms: int = 0
    delay_left_ms: int = 0
    generation_ticket: Ticket | None = None
    """The ticket of the present generation's record; joins are answered after it."""
    assignment_ticket: Ticket | None = None
    """The ticket of the assignment that the leader of the present generation sent."""
    empty_ticket: Ticket | None = None
    """The ticket of the record that says that the group has no members."""
    resting: int = 0
    is_unwritten: bool = False

    # --- members without a first join -----------------------------------------------------------

    def add_pending(self, member_id: str) -> None:
        """Note an id that was given out, with which a member will join."""
        self.pending[member_id] = None
        self.live_bytes.total += self._pending_weight(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Forget an id that was given out."""
        if member_id in self.pending:
            del self.pending[member_id]
            self.live_bytes.total -= self._pending_weight(member_id)

    def _pending_weight(self, member_id: str) -> int:
        return _PENDING_BYTES + len(self.group_id) + len(member_id)

    # --- members --------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str, answer: JoinAnswer | None) -> None:
        """Add a member; the first one leads and sets the group's protocol type."""
        assert member.member_id not in self.members, member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        self.remove_pending(member.member_id)
        if self.leader is None:
            self.leader = member.member_id
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        self.members[member.member_id] = member
        self._count(member, 1)
        self.wait_for_join(member, answer)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending one; if it led, another member leads now.

        The caller answers the requests for which the member waits.
        """
        self.remove_pending(member_id)
        self.unsynced.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count(member, -1)
        if member.join_answer is not None:
            self.joined -= 1
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def update(
        self, member: Member, protocols: Protocols, rebalance_ms: int, session_ms: int
    ) -> None:
        """Take a member's changed protocols and timeouts."""
        self._count(member, -1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_ms
        member.session_timeout_ms = session_ms
        self._count(member, 1)

    def came_from(self, member: Member, client_id: str, client_host: str) -> None:
        """Take the client id and host of the program that is the static member now."""
        self._count(member, -1)
        member.client_id, member.client_host = client_id, client_host
        self._count(member, 1)

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member a new id; it keeps its place, its instance id and the leadership."""
        assert member.instance_id is not None, member.member_id
        assert member.join_answer is None, "the replaced join is answered before"
        old = member.member_id
        del self.members[old]
        self._count(member, -1)
        member.member_id = member_id
        self._count(member, 1)
        self.members[member_id] = member
        self.static[member.instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        if old in self.unsynced:
            del self.unsynced[old]
            self.unsynced[member_id] = None

    def wait_for_join(self, member: Member, answer: JoinAnswer | None) -> None:
        """Let a member wait for the end of the join phase; None ends its wait."""
        self.joined += (answer is not None) - (member.join_answer is not None)
        member.join_answer = answer
        assert 0 <= self.joined <= len(self.members), (self.joined, len(self.members))

    def _count(self, member: Member, sign: int) -> None:
        # The names of the group count for each member, because a group may have only one member.
        named = len(self.group_id) + len(self.protocol_type or "")
        self.live_bytes.total += sign * (member.weight + named)
        for name in dict.fromkeys(name for name, _ in member.protocols):
            count = self.supported.get(name, 0) + sign
            if count:
                self.supported[name] = count
            else:
                del self.supported[name]

    # --- questions ------------------------------------------------------------------------------

    @property
    def all_joined(self) -> bool:
        """Whether every member waits with its join, and no pending member is expected."""
        return self.joined == len(self.members) and not self.pending

    @property
    def is_idle(self) -> bool:
        """Whether the machine holds everything about the group, so that it need not be live."""
        return (
            self.state is GroupState.EMPTY
            and not self.members
            and not self.pending
            and not self.resting
            and not self.is_unwritten
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members, in milliseconds."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can be in the group."""
        if self.state is GroupState.EMPTY:
            return True
        if protocol_type != self.protocol_type:
            return False
        return any(self.supported.get(name, 0) == len(self.members) for name in names)

    def choose_protocol(self) -> str:
        """The protocol that all members support and most prefer; with equal votes the first one."""
        votes: dict[str, int] = {}
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.supported[name] == len(self.members):
                    votes[name] = votes.get(name, 0) + 1
                    break
        assert votes, f"the members of group {self.group_id} have no protocol in common"
        return max(votes, key=votes.__getitem__)

    def elect(self) -> bool:
        """Make sure that the leader is a member whose join waits; False when no join waits."""
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_answer is not None:
            return True
        for member in self.members.values():
            if member.join_answer is not None:
                self.leader = member.member_id
                return True
        return False

    def subscribed_topics(self) -> set[str] | None:
        """The topics that a consumer group's members subscribe to; None when the broker cannot
        tell."""
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            named = _topics(member.subscription(self.protocol))
            if named is None:
                return None
            topics.update(named)
        return topics

    def stored(self, assignments: dict[str, bytes] | None = None) -> StoredGroup:
        """The record of the group, with these assignments or the present ones."""
        members = tuple(
            StoredMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.subscription(self.protocol),
                assignment=(
                    member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b"")
                ),
            )
            for member in self.members.values()
        )
        return StoredGroup(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_ms=self.state_ms,
            members=members,
        )


def _topics(subscription: bytes) -> Sequence[str] | None:
    """The topics of a consumer's subscription; None when it cannot be read.

    Every version begins with the fields of version 0.
    """
    try:
        _, body = decode_embedded("ConsumerProtocolSubscription", b"\x00\x00" + subscription[2:])
    except ProtocolError:
        return None
    assert isinstance(body, ConsumerProtocolSubscription), body
    return body.topics
