"""Coordinator: the leader's side of one partition of `__consumer_offsets`.

The broker makes it when the replica leads and has applied every committed entry, and drops it when
leadership ends. The caller hands in requests and time, writes the batches that `take` returns, and
reports the outcome of each:

1. A request is answered at once, or waits for other members, or waits for records.
2. `take` returns the records of this turn as a batch; call it until it returns None.
3. `decided` reports that a batch was committed and applied, or why not. Answers wait for that.
4. `close` answers every request that still waits, once, and ends the coordinator.

An `answer` is called exactly once, within the call that brought the request or in a later one.
Methods that return a value read the committed state. The caller confirms its leadership (read
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
    """The groups of one partition while its replica leads (see the module for the contract)."""

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
        """Handle a JoinGroup. The answer waits for the other members and the group's record."""
        self._at(now, wall)
        self._joins.join(request, client, answer)

    def sync(
        self,
        request: SyncGroupRequest,
        answer: Callable[[SyncGroupResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """Handle a SyncGroup. The answer waits until the leader's assignment is committed."""
        self._at(now, wall)
        self._syncs.sync(request, answer)

    def heartbeat(
        self, request: HeartbeatRequest, now: Instant, wall: WallMillis
    ) -> HeartbeatResponse:
        """Handle a Heartbeat: keep the member's session alive."""
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
        """Handle a LeaveGroup, which names one member before version 3 and several from it on."""
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
        """Handle an OffsetCommit of topics that exist.

        The caller fills in each topic's name and id, answers for partitions that do not exist, and
        merges both answers.
        """
        self._at(now, wall)
        self._offsets.commit(request, client.version, answer)

    def fetch_offsets(
        self,
        request: OffsetFetchRequestGroup,
        topic_ids: TopicIds,
        *,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup:
        """The committed offsets of one group, for topics by name; None stands for all topics."""
        return self._offsets.fetch(request, topic_ids)

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups of this partition that pass the filters, by name."""
        return self._listing.list_groups(request)

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """Describe one group. An unknown group is `Dead`; from version 6 on GROUP_ID_NOT_FOUND."""
        return self._listing.describe(group_id, version)

    def delete_group(
        self,
        group_id: str,
        answer: Callable[[ErrorCode], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """Handle one group of a DeleteGroups: remove it with its offsets; it must be empty."""
        self._at(now, wall)
        self._removals.delete_group(group_id, answer)

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        answer: Callable[[OffsetDeleteResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """Handle an OffsetDelete of partitions that exist."""
        self._at(now, wall)
        self._removals.delete_offsets(request, answer)

    def topics_changed(
        self,
        topic_ids: TopicIds,
        names: Sequence[str] | None,
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """Remove offsets of topics that were deleted, or deleted and created again.

        `names` are the changed topics (from a delta of the image). None, once when leadership
        begins, stands for all topics.
        """
        self._at(now, wall)
        self._removals.topics_changed(topic_ids, names)

    def tick(self, now: Instant, wall: WallMillis, *, wall_agreed: bool) -> None:
        """Fire the due alarms. Offsets expire only while most voters agree with the wall clock
        (`wall_agreed`)."""
        self._at(now, wall)
        shared = self._shared
        # The loop is bounded: an alarm that these set for now may wait for the next tick.
        for _ in range(len(shared.alarms) + 1):
            due = shared.alarms.pop_due(now)
            if due is None:
                return
            self._fire(due, wall_agreed=wall_agreed)

    def next_deadline(self) -> Instant:
        """When `tick` must be called at the latest; NEVER when it need not be."""
        return self._shared.alarms.next_deadline()

    def take(self) -> GroupProposal | None:
        """The next batch of records to write; None when there is none. Call it until then."""
        taken = self._shared.proposals.take()
        return None if taken is None else GroupProposal(*taken)

    def decided(self, token: int, error: ErrorCode | None, now: Instant, wall: WallMillis) -> None:
        """Take the outcome of a batch; the caller reports each token once.

        `error` is None when the batch is committed and applied to the machine, else the error of a
        Produce.
        """
        if self._shared.is_closed:
            # Leadership ended and `close` answered every request. This outcome comes late.
            return
        self._at(now, wall)
        for then in self._shared.proposals.decide(token):
            then(error)

    def close(self, error: ErrorCode) -> None:
        """End the coordinator with its leadership: answer every waiting request with `error`."""
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
        """Begin a turn at this time; everything in the turn happens at it."""
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
