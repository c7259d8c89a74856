"""A member's life in a group, as the coordinator sees it: join, sync, heartbeats, leave.

    UNJOINED --join--> JOINING --(the leader: ASSIGNING)--sync--> SYNCING --> STABLE

`GroupConsumer` decides when to join and, when this member leads, who gets what. This class asks the
coordinator, and judges its answers as Kafka's clients do:

* The coordinator moved, loads or cannot be reached: find it and ask again. Nothing is lost.
* REBALANCE_IN_PROGRESS: join again. The member keeps its partitions until it has joined.
* ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID: the group has rebalanced without this member. Its
  partitions may belong to another one now (`lost`).
* FENCED_INSTANCE_ID: another member took the instance id. This one must stop (`fenced`).
* Anything else is told to the user (`error`), and the next poll begins from the start.

Each request has a number. Only the answer to the last request counts.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.errors import ProtocolError, RaftlogError
from raftlog.base.ids import NodeId
from raftlog.base.ports import Entropy
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.client.core.connections import MEMBER_LANE, Connections, backoff
from raftlog.client.core.coordinators import Coordinators
from raftlog.client.core.errors import ConnectionLost, KafkaError, NotSent
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.group.protocol import PROTOCOL_TYPE, decode_assignment
from raftlog.client.core.group_asks import NO_MEMBER, GroupIdentity
from raftlog.client.core.values import ANY_NODE, ClientOptions, ClientTurn, TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.heartbeat import HeartbeatRequest
from raftlog.kafka.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from raftlog.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from raftlog.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from raftlog.kafka.versions import ApiKey

_COORDINATOR_MOVED: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_GENERATION_OVER: Final = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)
_JOIN_GRACE: Final = millis(5_000)
"""The time that a join may take beyond the rebalance timeout, for the network."""


@final
class Phase(enum.Enum):
    """See the module."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    ASSIGNING = "assigning"
    SYNCING = "syncing"
    STABLE = "stable"


@final
@attrs.define(eq=False)
class GroupMembership:
    """The membership of one consumer. `assignment` is new while `assigned` is set. `error` stays
    until the owner clears it."""

    options: ClientOptions
    settings: ConsumerOptions
    coordinators: Coordinators
    connections: Connections
    entropy: Entropy
    turn: ClientTurn
    phase: Phase = attrs.field(default=Phase.UNJOINED, init=False)
    identity: GroupIdentity = attrs.field(default=NO_MEMBER, init=False)
    protocol: str = attrs.field(default="", init=False)
    members: Sequence[JoinGroupResponseMember] = attrs.field(default=(), init=False)
    """While ASSIGNING: the members among which this leader divides the partitions."""
    leads: bool = attrs.field(default=False, init=False)
    keeps_assignment: bool = attrs.field(default=False, init=False)
    """While ASSIGNING: this static leader came back after a restart, and the group keeps its
    present assignment. The leader only learns the members' subscriptions."""
    assignment: list[TopicPartition] = attrs.field(factory=list, init=False)
    assigned: bool = attrs.field(default=False, init=False)
    rejoin_wanted: bool = attrs.field(default=False, init=False)
    lost: bool = attrs.field(default=False, init=False)
    error: RaftlogError | None = attrs.field(default=None, init=False)
    fenced: bool = attrs.field(default=False, init=False)
    retry_at: Instant = attrs.field(default=Instant(0), init=False)
    _request: int = attrs.field(default=0, init=False)
    """The number of the last request of the join sequence; heartbeats have their own."""
    _asked: NodeId | None = attrs.field(default=None, init=False)
    """The coordinator that owes the answer to that request; None when none does."""
    _joined_at: NodeId = attrs.field(default=ANY_NODE, init=False)
    _look_again_at: Instant = attrs.field(default=NEVER, init=False)
    _heartbeat_at: Instant = attrs.field(default=NEVER, init=False)
    _heartbeats: int = attrs.field(default=0, init=False)
    _beating: NodeId | None = attrs.field(default=None, init=False)
    """The coordinator that owes the answer to a heartbeat; None when none does."""
    _failures: int = attrs.field(default=0, init=False)

    @property
    def group(self) -> str:
        assert self.settings.group_id is not None, "a member has a group"
        return self.settings.group_id

    @property
    def is_member(self) -> bool:
        """Whether the coordinator would accept a commit of this member."""
        return self.identity.generation >= 0

    @property
    def may_join(self) -> bool:
        """Whether it is time to join, for the first time or again."""
        if self.fenced or self.turn.now < self.retry_at:
            return False
        wanted = self.phase is Phase.STABLE and self.rejoin_wanted and not self.assigned
        if self.phase is not Phase.UNJOINED and not wanted:
            return False
        return self.coordinators.node_of(self.group) is not None

    # --- joining ----------------------------------------------------------------------------------

    def join(self, protocols: Sequence[tuple[str, bytes]]) -> None:
        """Ask the coordinator to take this member into the generation that begins."""
        node = self._coordinator()
        if node is None:
            return
        self.rejoin_wanted = False
        self.phase = Phase.JOINING
        # The answer to a heartbeat under way would only report the rebalance that this join
        # answers. It no longer counts.
        self._beating = None
        self._heartbeats += 1
        body = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.max_poll_interval_ms,
            member_id=self.identity.member_id,
            group_instance_id=self.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=tuple(JoinGroupRequestProtocol(*each) for each in protocols),
        )
        timeout = Nanos(self.settings.max_poll_interval_ns + _JOIN_GRACE)
        self._send(node, ApiKey.JOIN_GROUP, body, self._joined, timeout)

    def sync(self, assignments: Mapping[str, bytes]) -> None:
        """Send SyncGroup with the partitions of each member. A member that does not lead sends
        none."""
        self.phase = Phase.SYNCING
        body = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.identity.generation,
            member_id=self.identity.member_id,
            group_instance_id=self.settings.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol,
            assignments=tuple(SyncGroupRequestAssignment(*each) for each in assignments.items()),
        )
        timeout = Nanos(self.settings.max_poll_interval_ns + _JOIN_GRACE)
        # This goes to the broker that answered the join, even while another request looks for the
        # coordinator. Only that broker, or its successor, knows this generation.
        self._send(self._joined_at, ApiKey.SYNC_GROUP, body, self._synced, timeout)

    def _coordinator(self) -> NodeId | None:
        found = self.coordinators.node_of(self.group)
        if isinstance(found, RaftlogError):
            self._fail(found)
            return None
        return found

    def _send(
        self,
        node: NodeId,
        api: ApiKey,
        body: object,
        then: Callable[[Any], None],
        timeout: Nanos,
    ) -> None:
        self._request += 1
        self._asked = self._joined_at = node
        self._look_again_at = Instant(self.turn.now + 4 * self.options.suspect_ns)
        answered = partial(self._answered, self._request, node, then)
        self.connections.send(
            node, api, body, answered, self.turn.now, lane=MEMBER_LANE, timeout_ns=timeout
        )

    def _answered(
        self, number: int, node: NodeId, then: Callable[[Any], None], answer: Any
    ) -> None:
        if number != self._request or self._asked is None:
            return
        self._asked = None
        if isinstance(answer, ConnectionLost | NotSent):
            self.coordinators.forget(self.group, node)
            self._again()
        elif isinstance(answer, RaftlogError):
            self._fail(answer)  # the broker does not serve groups
        elif answer.error_code == ErrorCode.NONE:
            self._failures = 0
            then(answer)
        else:
            self._refused(node, answer)

    def _refused(self, node: NodeId, answer: JoinGroupResponse | SyncGroupResponse) -> None:
        """Handle a refused join or sync. The phase goes back to UNJOINED; the next join begins a
        new sequence."""
        code = answer.error_code
        self.phase = Phase.UNJOINED
        if code == ErrorCode.MEMBER_ID_REQUIRED and isinstance(answer, JoinGroupResponse):
            # MEMBER_ID_REQUIRED is no failure: the broker gives a new member its id first and
            # expects a second join with it.
            self.identity = GroupIdentity(-1, answer.member_id, self.settings.group_instance_id)
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
            self._again()
        elif code in _COORDINATOR_MOVED:
            self.coordinators.refused(self.group, node, code)
            self._again()
        else:
            self.judge(code)

    def judge(self, code: int) -> None:
        """Handle an error code about the membership, in the answer to any request of this
        member."""
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin_wanted = self.rejoin_wanted or self.phase is Phase.STABLE
        elif code in _GENERATION_OVER:
            probe("client-group-goes-on-without-member")
            keeps = code == ErrorCode.ILLEGAL_GENERATION
            self.forget_generation(keep_member_id=keeps)
            self._again()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.fenced = True
            self.forget_generation()
            self.error = self._error(
                code, "another consumer uses the same group_instance_id: give each its own"
            )
        else:
            self._fail(self._error(code, ""))

    def _error(self, code: int, do: str) -> KafkaError:
        return KafkaError(code, on=f"group {self.group}", do=do)

    def _fail(self, error: RaftlogError) -> None:
        """Keep an error for the user. The member keeps its partitions until the coordinator says
        otherwise."""
        self.error = error
        if self.phase is not Phase.STABLE:
            self.phase = Phase.UNJOINED
        self._again()

    def _again(self) -> None:
        self._failures += 1
        if self.phase is not Phase.STABLE:
            self.phase = Phase.UNJOINED
        pause = backoff(self.options, self._failures, self.entropy)
        self.retry_at = Instant(self.turn.now + pause)

    def forget_generation(self, *, keep_member_id: bool = False) -> None:
        """Forget the generation: the group has rebalanced without this member, or the member has
        left."""
        self.lost = self.lost or self.is_member
        member_id = self.identity.member_id if keep_member_id else ""
        self.identity = GroupIdentity(-1, member_id, self.settings.group_instance_id)
        self.phase = Phase.UNJOINED
        self.leads = self.assigned = self.rejoin_wanted = False
        self._asked = self._beating = None
        self._heartbeat_at = NEVER
        self._request += 1
        self._heartbeats += 1

    # --- answers ----------------------------------------------------------------------------------

    def _joined(self, answer: JoinGroupResponse) -> None:
        self.identity = GroupIdentity(
            answer.generation_id, answer.member_id, self.settings.group_instance_id
        )
        self.protocol = answer.protocol_name or ""
        names = self.settings.partition_assignment_strategy
        if self.protocol not in names:
            self._fail(
                ProtocolError(f"the group chose {self.protocol!r}", on=f"group {self.group}")
            )
            return
        self.leads = answer.leader == answer.member_id and bool(answer.members)
        self._beat_from_now()
        if self.leads:
            self.members, self.keeps_assignment = answer.members, answer.skip_assignment
            self.phase = Phase.ASSIGNING
        else:
            self.sync({})

    def _synced(self, answer: SyncGroupResponse) -> None:
        try:
            self.assignment = decode_assignment(answer.assignment)
        except ProtocolError as error:
            self._fail(error)
            return
        self.phase = Phase.STABLE
        self.assigned, self.members = True, ()
        self._beat_from_now()

    # --- heartbeats -------------------------------------------------------------------------------

    def _beat_from_now(self) -> None:
        self._heartbeat_at = Instant(self.turn.now + self.settings.heartbeat_interval_ns)

    def drive(self) -> None:
        """Send a heartbeat that is due. Drop a silent coordinator when another broker is the
        coordinator now."""
        now = self.turn.now
        if self._asked is not None or self._beating is not None:
            self._watch_silence()
        if self.phase not in (Phase.STABLE, Phase.ASSIGNING):
            return  # the coordinator counts a member as alive while it holds its join or sync
        if self._beating is None and now >= self._heartbeat_at:
            self._beat()

    def _watch_silence(self) -> None:
        """Look the coordinator up again while it owes an answer. It may be silent because a
        rebalance takes long, or because the broker is paused; the other brokers know which."""
        if self.turn.now >= self._look_again_at:
            self._look_again_at = Instant(self.turn.now + 4 * self.options.suspect_ns)
            self.coordinators.look_again(self.group)
        found = self.coordinators.node_of(self.group)
        if not isinstance(found, int):
            return
        if self._asked is not None and found != self._asked:
            probe("client-coordinator-moved-in-silence")
            self._asked = None
            self._request += 1
            self._again()
        if self._beating is not None and found != self._beating:
            self._beating = None
            self._heartbeats += 1
            self._heartbeat_at = self.turn.now

    def _beat(self) -> None:
        found = self.coordinators.node_of(self.group)
        self._heartbeat_at = Instant(self.turn.now + self.settings.heartbeat_interval_ns)
        if isinstance(found, RaftlogError):
            self.error = found
            return
        if found is None:
            self._heartbeat_at = Instant(self.turn.now + self.options.metadata_retry_ns)
            return
        body = HeartbeatRequest(
            self.group,
            self.identity.generation,
            self.identity.member_id,
            self.settings.group_instance_id,
        )
        self._heartbeats += 1
        self._beating = found
        self._look_again_at = Instant(self.turn.now + 4 * self.options.suspect_ns)
        then = partial(self._beaten, self._heartbeats, found, self.identity)
        self.connections.send(
            found,
            ApiKey.HEARTBEAT,
            body,
            then,
            self.turn.now,
            lane=MEMBER_LANE,
            timeout_ns=self.settings.session_timeout_ns,
        )

    def _beaten(self, number: int, node: NodeId, identity: GroupIdentity, answer: Any) -> None:
        if number != self._heartbeats:
            return
        self._beating = None
        soon = Instant(self.turn.now + self.options.metadata_retry_ns)
        if isinstance(answer, RaftlogError):
            self.coordinators.forget(self.group, node)
            self._heartbeat_at = min(self._heartbeat_at, soon)
            return
        code = answer.error_code
        if code in _COORDINATOR_MOVED or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self.coordinators.refused(self.group, node, code)
            self._heartbeat_at = min(self._heartbeat_at, soon)
            return
        if code != ErrorCode.NONE and identity == self.identity:
            self.judge(code)

    # --- leaving ----------------------------------------------------------------------------------

    def leave(self, then: Callable[[Any], None]) -> None:
        """Tell the coordinator that this member leaves. `then` is called once, with the answer or
        an error. A static member sends nothing, because it may come back."""
        identity, found = self.identity, self.coordinators.node_of(self.group)
        self.forget_generation()
        static = self.settings.group_instance_id is not None
        if static or not identity.member_id or found is None or isinstance(found, RaftlogError):
            then(None)
            return
        body = LeaveGroupRequest(
            self.group, identity.member_id, (MemberIdentity(identity.member_id),)
        )
        self.connections.send(
            found, ApiKey.LEAVE_GROUP, body, then, self.turn.now, lane=MEMBER_LANE
        )

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        wake = NEVER
        if self._asked is not None or self._beating is not None:
            wake = self._look_again_at
        if self.phase in (Phase.STABLE, Phase.ASSIGNING) and self._beating is None:
            wake = min(wake, self._heartbeat_at)
        waits = self.phase is Phase.UNJOINED or self.rejoin_wanted
        if waits and self.retry_at > now:
            wake = min(wake, self.retry_at)
        return wake
