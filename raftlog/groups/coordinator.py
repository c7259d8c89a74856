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
from typing import NamedTuple, TypeAlias, final

from raftlog.base.ids import TopicId
from raftlog.base.ports import Entropy
from raftlog.base.units import Instant, WallMillis
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.settings import GroupClient, GroupSettings
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

TopicIds: TypeAlias = Callable[[str], TopicId | None]
"""The id that a topic name has now; None when there is no such topic."""


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
        raise NotImplementedError

    def join(
        self,
        request: JoinGroupRequest,
        client: GroupClient,
        answer: Callable[[JoinGroupResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """JoinGroup. The answer waits for the other members, and for the generation's record."""
        raise NotImplementedError

    def sync(
        self,
        request: SyncGroupRequest,
        answer: Callable[[SyncGroupResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """SyncGroup. The answer waits for the leader's assignment to be committed."""
        raise NotImplementedError

    def heartbeat(
        self, request: HeartbeatRequest, now: Instant, wall: WallMillis
    ) -> HeartbeatResponse:
        """Heartbeat; keeps the member's session alive."""
        raise NotImplementedError

    def leave(
        self,
        request: LeaveGroupRequest,
        client: GroupClient,
        answer: Callable[[LeaveGroupResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """LeaveGroup: one member before version 3, several from it on."""
        raise NotImplementedError

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
        raise NotImplementedError

    def fetch_offsets(
        self,
        request: OffsetFetchRequestGroup,
        topic_ids: TopicIds,
        *,
        require_stable: bool,
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of one group. Topics are asked by name; None stands for all of them."""
        raise NotImplementedError

    def list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        """The groups of this partition that pass the filters, by name."""
        raise NotImplementedError

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        """One group. An unknown one is `Dead`, and GROUP_ID_NOT_FOUND from version 6 on."""
        raise NotImplementedError

    def delete_group(
        self,
        group_id: str,
        answer: Callable[[ErrorCode], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """DeleteGroups, one group: it must be empty. Its offsets go with it."""
        raise NotImplementedError

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        answer: Callable[[OffsetDeleteResponse], None],
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """OffsetDelete of partitions that exist."""
        raise NotImplementedError

    def topics_changed(
        self,
        topic_ids: TopicIds,
        names: Sequence[str] | None,
        now: Instant,
        wall: WallMillis,
    ) -> None:
        """Remove offsets of topics that are gone or were made again: of these `names` (from a
        delta of the image), or of all (None: once when leadership begins)."""
        raise NotImplementedError

    def tick(self, now: Instant, wall: WallMillis, *, wall_agreed: bool) -> None:
        """Let the timers that are due fire. Offsets expire only while most voters agree with the
        wall clock (`wall_agreed`)."""
        raise NotImplementedError

    def next_deadline(self) -> Instant:
        """When `tick` wants to be called next; NEVER when it need not be."""
        raise NotImplementedError

    def take(self) -> GroupProposal | None:
        """Records to write now, as one batch; None when there are none. Call it until then."""
        raise NotImplementedError

    def decided(self, token: int, error: ErrorCode | None, now: Instant, wall: WallMillis) -> None:
        """What became of a batch: None when it is committed and applied to the machine, else the
        error that Produce would get. Called once for each token."""
        raise NotImplementedError

    def close(self, error: ErrorCode) -> None:
        """Leadership is over: answer whatever still waits with `error`, and serve nothing more."""
        raise NotImplementedError
