"""Coordinator: the leader's side of one partition of `__consumer_offsets`.

It is made when the replica leads and has applied all that is committed, and dropped when leadership
ends. The caller hands in requests and time, writes what `take` gives, and tells what became of it:

1. A request either is answered at once, waits for other members, or rests on records.
2. `take` gives the records of this turn as one batch; call it until it gives None.
3. `decided` tells that a batch was committed and applied, or why not; answers rest on that.
4. `close` answers every request that still waits, once, and ends the coordinator.

An `answer` is called exactly once, within the call that brought the request or in a later one. The
methods that give a value are about the committed state; the caller confirms its leadership (read
index) before it sends an answer of `fetch_offsets`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, final

from raftlog.base.ports import Entropy
from raftlog.base.units import Instant, WallMillis
from raftlog.groups.alarms import Alarm, AlarmKey
from raftlog.groups.joining import Joins
from raftlog.groups.leaving import Leaves
from raftlog.groups.listing import Listing
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.offsets import Offsets
from raftlog.groups.rebalance import Rebalances, join_refusal, sync_refusal
from raftlog.groups.removal import Removals
from raftlog.groups.settings import GroupClient, GroupSettings
from raftlog.groups.shared import Shared, TopicIds
from raftlog.groups.syncing import Syncs
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.describe_groups import DescribedGroup
from raftlog.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from raftlog.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
from raftlog.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from raftlog.kafka.messages.list_groups import ListedGroup, ListGroupsRequest
from raftlog.kafka.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from raftlog.kafka.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from raftlog.kafka.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from raftlog.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class GroupProposal(NamedTuple):
    """A batch to be written with acks=all semantics, and the token under which it is decided."""

    token: int
    batch: bytes


@final
class Coordinator:
    """The groups of one partition while its replica leads. See the module for the contract."""

    def __init__(
        self,
        machine: GroupsMachine,
        settings: GroupSettings,
        entropy: Entropy,
        now: Instant,
        wall: WallMillis,
    ) -> None:
        self._shared = Shared(machine, settings, entropy, now, wall)
        self._rebalances = Rebalances(self._shared)
        self._joins = Joins(self._shared, self._rebalances)
        self._syncs = Syncs(self._shared, self._rebalances)
        self._leaves = Leaves(self._shared, self._rebalances)
        self._offsets = Offsets(self._shared)
        self._listing = Listing(self._shared)
        self._removals = Removals(self._shared)
        self._shared.load()
        self._rebalances.shrink_loaded()

    def join(
        self,
        request: JoinGroupRequest,
        client: GroupClient,
        answer: Callable[[JoinGroupResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """JoinGroup. The answer waits for the other members, and for the generation's record."""
        self._at(now, wall)
        self._joins.join(request, client, answer)

    def sync(
        self,
        request: SyncGroupRequest,
        answer: Callable[[SyncGroupResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """SyncGroup. The answer waits for the leader's assignment to be committed."""
        self._at(now, wall)
        self._syncs.sync(request, answer)

    def heartbeat(
        self, request: HeartbeatRequest, now: Instant, wall: WallMillis
    ) -> HeartbeatResponse:
        """Heartbeat; keeps the member's session alive."""
        self._at(now, wall)
        return HeartbeatResponse(error_code=self._leaves.heartbeat(request))

    def leave(
        self,
        request: LeaveGroupRequest,
        client: GroupClient,
        answer: Callable[[LeaveGroupResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """LeaveGroup: one member before version 3, several from it on."""
        self._at(now, wall)
        self._leaves.leave(request, client.version, answer)

    def commit_offsets(
        self,
        request: OffsetCommitRequest,
        client: GroupClient,
        answer: Callable[[OffsetCommitResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """OffsetCommit of topics that exist. The caller fills in each topic's name and id, answers
        for the partitions that do not exist, and puts the parts together."""
        self._at(now, wall)
        self._offsets.commit(request, client.version, answer)

    def fetch_offsets(
        self,
        request: OffsetFetchRequestGroup,
        topic_ids: TopicIds,
        *,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of one group. Topics are asked by name; None stands for all of them."""
        return self._offsets.fetch(request, topic_ids)

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups of this partition that pass the filters, by name."""
        return self._listing.list_groups(request)

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """One group. An unknown one is `Dead`, and GROUP_ID_NOT_FOUND from version 6 on."""
        return self._listing.describe(group_id, version)

    def delete_group(
        self,
        group_id: str,
        answer: Callable[[ErrorCode], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """DeleteGroups, one group: it must be empty. Its offsets go with it."""
        self._at(now, wall)
        self._removals.delete_group(group_id, answer)

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        answer: Callable[[OffsetDeleteResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """OffsetDelete of partitions that exist."""
        self._at(now, wall)
        self._removals.delete_offsets(request, answer)

    def topics_changed(
        self,
        topic_ids: TopicIds,
        names: Sequence[str] | None,
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """Remove offsets of topics that are gone or were made again: of these `names` (from a
        delta of the image), or of all (None: once when leadership begins)."""
        self._at(now, wall)
        self._removals.topics_changed(topic_ids, names)

    def tick(self, now: Instant, wall: WallMillis, *, wall_agreed: bool) -> None:
        """Let the timers that are due fire. Offsets expire only while most voters agree with the
        wall clock (`wall_agreed`)."""
        self._at(now, wall)
        shared = self._shared
        # A bounded number: alarms that these set for now may be of the next tick.
        for _ in range(len(shared.alarms) + 1):
            due = shared.alarms.pop_due(now)
            if due is None:
                return
            self._fire(due, wall_agreed=wall_agreed)

    def next_deadline(self) -> Instant:
        """When `tick` wants to be called next; NEVER when it need not be."""
        return self._shared.alarms.next_deadline()

    def take(self) -> GroupProposal | None:
        """Records to write now, as one batch; None when there are none. Call it until then."""
        taken = self._shared.proposals.take()
        return None if taken is None else GroupProposal(*taken)

    def decided(self, token: int, error: ErrorCode | None, now: Instant, wall: WallMillis) -> None:
        """What became of a batch: None when it is committed and applied to the machine, else the
        error that Produce would get. Called once for each token."""
        if self._shared.is_closed:
            # Everything was answered when leadership ended; the proposals come in late.
            return
        self._at(now, wall)
        for then in self._shared.proposals.decide(token):
            then(error)

    def close(self, error: ErrorCode) -> None:
        """Leadership is over: answer whatever still waits with `error`, and serve nothing more."""
        shared = self._shared
        assert not shared.is_closed, "a coordinator is closed once"
        shared.is_closed = True
        for group in shared.groups.values():
            for member in group.members.values():
                join, member.join_answer = member.join_answer, None
                sync, member.sync_answer = member.sync_answer, None
                if join is not None:
                    join(join_refusal(member.member_id, error))
                if sync is not None:
                    sync(sync_refusal(error))
        for then in shared.proposals.close():
            then(error)
        shared.groups.clear()

    def _at(self, now: Instant, wall: WallMillis) -> None:
        """A turn: its time counts for everything that happens in it."""
        assert not self._shared.is_closed, "a closed coordinator serves nothing"
        self._shared.now, self._shared.wall = now, wall

    def _fire(self, key: AlarmKey, *, wall_agreed: bool) -> None:
        """One alarm. It looks at what is true now, not at what was true when it was set."""
        alarm, group_id, member_id = key
        if alarm is Alarm.RETENTION:
            self._removals.expire(wall_agreed=wall_agreed)
            return
        if alarm is Alarm.REMOVAL:
            self._removals.remove_again()
            return
        if alarm is Alarm.SWEEP:
            self._removals.sweep()
            return
        group = self._shared.find(group_id)
        if group is None:
            return
        if alarm is Alarm.SESSION:
            self._rebalances.session_is_over(group, member_id)
        elif alarm is Alarm.JOIN:
            self._rebalances.join_time_is_up(group)
        elif alarm is Alarm.SYNC:
            self._rebalances.sync_time_is_up(group)
        else:
            assert alarm is Alarm.WRITE, alarm
            self._rebalances.write_again(group)
        self._shared.settle(group)
