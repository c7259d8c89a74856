"""Handles OffsetCommit and OffsetFetch.

A commit is answered when its records are committed. A fetch reads the committed state in the
machine.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, final

import attrs

from raftlog.base.ids import TopicId
from raftlog.base.limits import INT64_MAX
from raftlog.groups.fences import commit_fence
from raftlog.groups.live import GroupState
from raftlog.groups.machine import PartitionKey
from raftlog.groups.records import NewRecord, offset_record
from raftlog.groups.shared import Shared, TopicIds, as_told
from raftlog.groups.stored import StoredOffset
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raftlog.kafka.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from raftlog.kafka.shape import ZERO_ID

CommitAnswer: TypeAlias = Callable[[OffsetCommitResponse], None]
NO_OFFSET: Final = -1
"""The offset in a fetch answer for a partition without a committed offset."""
_ENTRY_BYTES_MORE: Final = 64
"""The most bytes by which an offset's entry in a snapshot is larger than its record."""


@final
@attrs.define(eq=False)
class _Commit:
    """An OffsetCommit whose records are undecided.

    A large one lies in several batches. The answer waits for all of them, and carries the error
    that any of them met.
    """

    request: OffsetCommitRequest
    answer: CommitAnswer
    refused: dict[PartitionKey, ErrorCode]
    keys: list[PartitionKey]
    left: int
    error: ErrorCode | None = None


@final
class Offsets:
    """Handles the commits and fetches of offsets of a coordinator."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    # --- commit ---------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, version: int, answer: CommitAnswer) -> None:
        """Write the offsets of a commit as records.

        Offsets that the request may not commit, and offsets without room, are refused before
        anything is proposed.
        """
        shared = self._shared
        error = commit_fence(shared, request, version)
        if error is None and shared.proposals.is_full:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error is not None:
            answer(_commit_response(request, {}, error))
            return
        self._keep_alive(request)
        refused: dict[PartitionKey, ErrorCode] = {}
        records: dict[PartitionKey, NewRecord] = {}
        bytes_more = 0
        for topic in request.topics:
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                stored = self._stored(request, TopicId(topic.topic_id), partition)
                record = self._record(request.group_id, key, stored, bytes_more)
                if isinstance(record, ErrorCode):
                    refused[key] = record
                else:
                    records[key] = record
                    bytes_more += _size_of(record)
        if not records:
            answer(_commit_response(request, refused, None))
            return
        units = shared.proposals.split(list(records.values()))
        commit = _Commit(request, answer, refused, list(records), len(units))
        self._count(request.group_id, commit.keys, 1)
        for unit in units:
            shared.write(unit, partial(self._decided, commit))

    def _keep_alive(self, request: OffsetCommitRequest) -> None:
        """Begin the member's session again, for some clients commit often and send heartbeats
        late."""
        group = self._shared.find(request.group_id)
        if group is None or group.state not in (GroupState.STABLE, GroupState.PREPARING):
            return
        member = group.members.get(request.member_id)
        if member is not None:
            self._shared.keep_alive(group, member)

    def _stored(
        self,
        request: OffsetCommitRequest,
        topic_id: TopicId,
        partition: OffsetCommitRequestPartition,
    ) -> StoredOffset:
        wall = self._shared.wall
        retention_ms = request.retention_time_ms
        return StoredOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_ms=wall,
            # In versions 2 to 4 a client may give its own retention time; it beats the broker's.
            expire_ms=min(wall + retention_ms, INT64_MAX) if retention_ms >= 0 else -1,
            topic_id=topic_id,
        )

    def _record(
        self, group_id: str, key: PartitionKey, stored: StoredOffset, bytes_more: int
    ) -> NewRecord | ErrorCode:
        """The record of one offset, or the error why it cannot be committed.

        `bytes_more` is the size of the records before it in the same request.
        """
        shared = self._shared
        if len(stored.metadata) > shared.settings.offset_metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        record = offset_record(group_id, *key, stored)
        if not shared.proposals.fits([record]):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        known = shared.machine.offset(group_id, *key)
        grows = known is None or len(stored.metadata) > len(known.metadata)
        if grows and not shared.has_room(bytes_more + _size_of(record)):
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        return record

    def _decided(self, commit: _Commit, error: ErrorCode | None) -> None:
        commit.left -= 1
        commit.error = commit.error or error
        if commit.left:
            return
        self._count(commit.request.group_id, commit.keys, -1)
        told = None
        if commit.error is not None:
            told = as_told(commit.error)
            if told is ErrorCode.UNKNOWN_SERVER_ERROR:
                told = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        commit.answer(_commit_response(commit.request, commit.refused, told))

    def _count(self, group_id: str, keys: list[PartitionKey], step: int) -> None:
        """Change the number of undecided commits of each partition by `step`."""
        undecided = self._shared.undecided_offsets
        table = undecided.setdefault(group_id, {})
        for key in keys:
            count = table.get(key, 0) + step
            if count:
                table[key] = count
            else:
                del table[key]
        if not table:
            del undecided[group_id]

    # --- fetch ----------------------------------------------------------------------------------

    def fetch(
        self, request: OffsetFetchRequestGroup, topic_ids: TopicIds
    ) -> OffsetFetchResponseGroup:
        """Committed offsets of a group; of all its partitions when no topics are named."""
        topics = request.topics
        if topics is None:
            topics = self._all_topics(request.group_id)
        return OffsetFetchResponseGroup(
            group_id=request.group_id,
            topics=[self._fetch_topic(request.group_id, topic, topic_ids) for topic in topics],
        )

    def _fetch_topic(
        self, group_id: str, topic: OffsetFetchRequestTopics, topic_ids: TopicIds
    ) -> OffsetFetchResponseTopics:
        topic_id = topic_ids(topic.name)
        partitions = [
            self._fetch_partition(group_id, topic.name, partition, topic_id)
            for partition in topic.partition_indexes
        ]
        return OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id if topic_id is None else topic_id,
            partitions=partitions,
        )

    def _fetch_partition(
        self, group_id: str, topic: str, partition: int, topic_id: TopicId | None
    ) -> OffsetFetchResponsePartitions:
        stored = self._shared.machine.offset(group_id, topic, partition)
        if stored is None or _is_of_another_topic(stored, topic_id):
            return OffsetFetchResponsePartitions(
                partition_index=partition, committed_offset=NO_OFFSET
            )
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=stored.offset,
            committed_leader_epoch=stored.leader_epoch,
            metadata=stored.metadata,
        )

    def _all_topics(self, group_id: str) -> list[OffsetFetchRequestTopics]:
        partitions: dict[str, list[int]] = {}
        for topic, partition in self._shared.machine.offset_keys(group_id):
            partitions.setdefault(topic, []).append(partition)
        return [
            OffsetFetchRequestTopics(name=topic, partition_indexes=some)
            for topic, some in partitions.items()
        ]


def _size_of(record: NewRecord) -> int:
    """The most bytes that the entry of an offset takes in a snapshot."""
    return len(record.key) + len(record.value or b"") + _ENTRY_BYTES_MORE


def _is_of_another_topic(stored: StoredOffset, topic_id: TopicId | None) -> bool:
    """Whether an offset was committed for a deleted topic that had the same name."""
    if topic_id is None or stored.topic_id == ZERO_ID:
        return False
    return stored.topic_id != topic_id


def _commit_response(
    request: OffsetCommitRequest,
    refused: dict[PartitionKey, ErrorCode],
    error: ErrorCode | None,
) -> OffsetCommitResponse:
    """The answer with every partition of the request: its own refusal, or the common error."""
    rest = ErrorCode.NONE if error is None else error
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(
                    partition.partition_index,
                    refused.get((topic.name, partition.partition_index), rest),
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)
