"""Removes groups and offsets: for DeleteGroups, OffsetDelete, deleted topics, and expiry.

No replica removes anything by itself. The leader writes records without a value (tombstones), and
every replica applies them. While the removal of a group is undecided, the group is Dead and refuses
joins and commits with COORDINATOR_NOT_AVAILABLE. So no member joins a group whose generation is
about to be forgotten.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.limits import (
    GROUP_WRITE_PAUSE_MS,
    GROUPS_EXPIRED_AT_ONCE,
    OFFSETS_EXPIRED_AT_ONCE,
    OFFSETS_SWEPT_AT_ONCE,
)
from raftlog.base.probes import probe
from raftlog.groups.alarms import Alarm
from raftlog.groups.live import CONSUMER, GroupState
from raftlog.groups.machine import PartitionKey
from raftlog.groups.records import NewRecord, floor_record, group_record, offset_record
from raftlog.groups.shared import Shared, TopicIds, as_told
from raftlog.groups.stored import StoredGroup, StoredOffset
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from raftlog.kafka.shape import ZERO_ID

_NEXT_TURN_MS: Final = 1
"""The delay to the next turn, in milliseconds. An alarm for the present instant would fire again in
the same turn."""
_RETENTION = (Alarm.RETENTION, "", "")
_REMOVAL = (Alarm.REMOVAL, "", "")
_SWEEP = (Alarm.SWEEP, "", "")


@final
class _Doomed(NamedTuple):
    """An offset of a deleted topic, as it was when its tombstone was proposed."""

    group_id: str
    key: PartitionKey
    stored: StoredOffset


@final
@attrs.define(eq=False)
class _Leaving:
    """A group that is being removed.

    * `keys`: the offsets that it still has, the next one last.
    * `then`: hears the outcome.
    """

    group_id: str
    keys: list[PartitionKey]
    then: Callable[[ErrorCode | None], None]


@final
class Removals:
    """Removes groups and offsets of a coordinator."""

    __slots__ = (
        "_changed",
        "_doomed",
        "_shared",
        "_suspects",
        "_topic_ids",
        "_unchecked",
        "_unchecked_keys",
    )

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._unchecked: list[str] = []
        """Groups that the present round of expiry has not looked at, the next one last."""
        self._unchecked_keys: list[PartitionKey] = []
        """The rest of the last group's offsets, when it has too many for a turn."""
        self._topic_ids: TopicIds | None = None
        self._changed: dict[str, None] = {}
        """Topics that were deleted or created again, and whose offsets were not looked at yet."""
        self._suspects: list[tuple[str, PartitionKey]] = []
        """Offsets of one changed topic that are to be looked at, the next one last."""
        self._doomed: list[_Doomed] = []
        shared.alarms.set(_RETENTION, shared.after(shared.settings.retention_check_ms))

    # --- DeleteGroups -----------------------------------------------------------------------------

    def delete_group(self, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
        """Remove an empty group and all its offsets."""
        error = self._why_not_delete(group_id)
        if error is not None:
            answer(error)
        else:
            self._remove_group(group_id, partial(_group_removed, answer))

    def _why_not_delete(self, group_id: str) -> ErrorCode | None:
        shared = self._shared
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group_id in shared.removing or shared.proposals.is_full:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not shared.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        if shared.state_of(group_id) is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        live = shared.find(group_id)
        if live is not None and (live.resting or live.is_unwritten):
            # The record that the group is empty is not committed. If the removal failed now, the
            # machine would still name its members.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return None

    def _remove_group(self, group_id: str, then: Callable[[ErrorCode | None], None]) -> None:
        """Write the tombstones of a group and all its offsets.

        They lie in one batch when a batch can hold them and there are not too many for a turn.
        """
        shared = self._shared
        undecided = shared.undecided_offsets.get(group_id, {})
        new = [key for key in undecided if shared.machine.offset(group_id, *key) is None]
        keys = sorted(new) + shared.machine.offset_keys(group_id)
        keys.reverse()
        live = shared.groups.pop(group_id, None)
        if live is not None:
            # Pending members, which have an id and have not joined yet, find their id unknown.
            for member_id in list(live.pending):
                live.remove(member_id)
                shared.end_session(group_id, member_id)
        shared.removing[group_id] = None
        self._remove_some(_Leaving(group_id, keys, then), None)

    def _remove_some(self, leaving: _Leaving, error: ErrorCode | None) -> None:
        """Write the next tombstones of a group, once the tombstones before them are decided.

        The tombstone of the group itself comes last, so that a removal that stops half-way leaves
        no offsets without a group.
        """
        if error is not None:
            self._group_decided(leaving.group_id, leaving.then, error)
            return
        shared, group_id = self._shared, leaving.group_id
        some = leaving.keys[: -OFFSETS_SWEPT_AT_ONCE - 1 : -1]
        tombstones = [offset_record(group_id, *key, None) for key in some]
        own = [group_record(group_id, None), floor_record(group_id, None)]
        if len(some) == len(leaving.keys) and shared.proposals.fits([*tombstones, *own]):
            then = partial(self._group_decided, group_id, leaving.then)
            shared.write([*tombstones, *own], then)
            return
        probe("group-removed-in-several-turns")
        first = shared.proposals.split(tombstones)[0]
        del leaving.keys[-len(first) :]
        shared.write(first, partial(self._remove_some, leaving))

    def _group_decided(
        self,
        group_id: str,
        then: Callable[[ErrorCode | None], None],
        error: ErrorCode | None,
    ) -> None:
        self._shared.removing.pop(group_id, None)
        then(error)

    # --- OffsetDelete -----------------------------------------------------------------------------

    def delete_offsets(
        self, request: OffsetDeleteRequest, answer: Callable[[OffsetDeleteResponse], None]
    ) -> None:
        """Remove offsets of topics that no member subscribes to."""
        shared, group_id = self._shared, request.group_id
        error = self._why_not_delete_offsets(group_id)
        if error is not None:
            answer(OffsetDeleteResponse(error_code=error))
            return
        group = shared.find(group_id)
        busy = group is not None and group.state is not GroupState.EMPTY
        subscribed = group.subscribed_topics() if group is not None and busy else set()
        topics: list[OffsetDeleteResponseTopic] = []
        tombstones: list[NewRecord] = []
        for topic in request.topics:
            # A client's subscription that the broker cannot read may name every topic.
            kept = subscribed is None or topic.name in subscribed
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if kept else ErrorCode.NONE
            partitions: list[OffsetDeleteResponsePartition] = []
            for each in topic.partitions:
                partitions.append(OffsetDeleteResponsePartition(each.partition_index, code))
                key = (topic.name, each.partition_index)
                if not kept and self._has_offset(group_id, key):
                    tombstones.append(offset_record(group_id, *key, None))
            topics.append(OffsetDeleteResponseTopic(topic.name, partitions))
        response = OffsetDeleteResponse(topics=topics)
        if not tombstones:
            answer(response)
            return
        *first, last = shared.proposals.split(tombstones)
        for unit in first:
            shared.write(unit, _nothing)
        shared.write(last, partial(_offsets_removed, answer, response))

    def _why_not_delete_offsets(self, group_id: str) -> ErrorCode | None:
        shared = self._shared
        if group_id in shared.removing or shared.proposals.is_full:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not shared.exists(group_id):
            return ErrorCode.GROUP_ID_NOT_FOUND
        busy = shared.state_of(group_id) is not GroupState.EMPTY
        if busy and shared.protocol_type_of(group_id) != CONSUMER:
            return ErrorCode.NON_EMPTY_GROUP
        return None

    def _has_offset(self, group_id: str, key: PartitionKey) -> bool:
        shared = self._shared
        if key in shared.undecided_offsets.get(group_id, {}):
            return True
        return shared.machine.offset(group_id, *key) is not None

    # --- topics that are gone -----------------------------------------------------------------

    def topics_changed(self, topic_ids: TopicIds, names: Sequence[str] | None) -> None:
        """Remove offsets of topics that are gone, or that have another id than at the commit.

        This turn looks at some of them, later turns at the rest.
        """
        shared = self._shared
        self._topic_ids = topic_ids
        changed = dict.fromkeys(shared.machine.topics() if names is None else names)
        self._changed.update(changed)
        for group_id, table in shared.undecided_offsets.items():
            # Race: these commits are on their way to the log, and their topic existed when they
            # came.
            gone = [key for key in table if key[0] in changed and topic_ids(key[0]) is None]
            for unit in shared.proposals.split(
                [offset_record(group_id, *key, None) for key in sorted(gone)]
            ):
                shared.write(unit, _nothing)
        self.sweep()

    def sweep(self) -> None:
        """Look at some of the offsets whose topic may be gone; an alarm continues with the rest."""
        shared = self._shared
        if shared.proposals.is_full:
            shared.alarms.set(_SWEEP, shared.after(GROUP_WRITE_PAUSE_MS))
            return
        doomed: list[_Doomed] = []
        for _ in range(OFFSETS_SWEPT_AT_ONCE):
            if self._suspects:
                self._judge(*self._suspects.pop(), doomed)
            elif self._changed:
                topic = next(iter(self._changed))
                del self._changed[topic]
                self._suspects = [
                    (group_id, (topic, partition))
                    for group_id, partition in shared.machine.offsets_of_topic(topic)
                ]
            else:
                break
        self._doom(doomed)
        if self._suspects or self._changed:
            probe("offsets-of-gone-topics-wait-for-a-turn")
            shared.alarms.set(_SWEEP, shared.after(_NEXT_TURN_MS))

    def _judge(self, group_id: str, key: PartitionKey, doomed: list[_Doomed]) -> None:
        """Doom an offset, now or later, if its topic is gone."""
        stored = self._shared.machine.offset(group_id, *key)
        assert self._topic_ids is not None, "topics have changed"
        topic_id = self._topic_ids(key[0])
        if stored is None or (topic_id is not None and stored.topic_id in (ZERO_ID, topic_id)):
            return
        one = _Doomed(group_id, key, stored)
        if key in self._shared.undecided_offsets.get(group_id, {}):
            # Race: a commit to the present topic of that name is undecided. The tombstone would
            # come after it in the log and remove it.
            self._doom_later([one])
        else:
            doomed.append(one)

    def _doom(self, doomed: list[_Doomed]) -> None:
        """Write the tombstones of these offsets; try again until they are written."""
        shared = self._shared
        tombstones = [offset_record(one.group_id, *one.key, None) for one in doomed]
        at = 0
        for unit in shared.proposals.split(tombstones):
            shared.write(unit, partial(self._doom_decided, doomed[at : at + len(unit)]))
            at += len(unit)

    def _doom_decided(self, doomed: list[_Doomed], error: ErrorCode | None) -> None:
        if error is not None and not self._shared.is_closed:
            self._doom_later(doomed)

    def _doom_later(self, doomed: list[_Doomed]) -> None:
        shared = self._shared
        self._doomed += doomed
        if not shared.alarms.is_set(_REMOVAL):
            shared.alarms.set(_REMOVAL, shared.after(GROUP_WRITE_PAUSE_MS))

    def remove_again(self) -> None:
        """Handle the alarm after tombstones that could not be written.

        An offset that was committed since then belongs to the present topic, and stays.
        """
        shared = self._shared
        if shared.proposals.is_full:
            shared.alarms.set(_REMOVAL, shared.after(GROUP_WRITE_PAUSE_MS))
            return
        some = self._doomed[:OFFSETS_SWEPT_AT_ONCE]
        self._doomed = self._doomed[OFFSETS_SWEPT_AT_ONCE:]
        again: list[_Doomed] = []
        for one in some:
            if shared.machine.offset(one.group_id, *one.key) != one.stored:
                continue
            if one.key in shared.undecided_offsets.get(one.group_id, {}):
                # Race: the tombstone would come after the undecided commit and remove it.
                self._doom_later([one])
            else:
                again.append(one)
        self._doom(again)
        if self._doomed and not shared.alarms.is_set(_REMOVAL):
            shared.alarms.set(_REMOVAL, shared.after(_NEXT_TURN_MS))

    # --- expiry -------------------------------------------------------------------------------

    def expire(self, *, wall_agreed: bool) -> None:
        """Handle the alarm of retention: look through some groups for expired offsets.

        Offsets expire only while most voters agree with the wall clock, for a clock that jumped
        must not remove offsets.
        """
        shared = self._shared
        if not wall_agreed or shared.proposals.is_full:
            shared.alarms.set(_RETENTION, shared.after(shared.settings.retention_check_ms))
            return
        if not self._unchecked:
            self._unchecked = shared.machine.all_ids()[::-1]
        looked_at = 0
        for _ in range(min(GROUPS_EXPIRED_AT_ONCE, len(self._unchecked))):
            looked_at += self._expire_group(
                self._unchecked[-1], OFFSETS_EXPIRED_AT_ONCE - looked_at
            )
            if self._unchecked_keys:
                break
            self._unchecked.pop()
            if looked_at >= OFFSETS_EXPIRED_AT_ONCE:
                break
        pause_ms = _NEXT_TURN_MS if self._unchecked else shared.settings.retention_check_ms
        shared.alarms.set(_RETENTION, shared.after(pause_ms))

    def _expire_group(self, group_id: str, most: int) -> int:
        """Remove expired offsets of a group, and the group itself when it is empty without them.

        It looks at `most` offsets at most, and returns how many it looked at.
        """
        shared, rest = self._shared, self._unchecked_keys
        self._unchecked_keys = []
        if group_id in shared.removing:
            return 0
        machine = shared.machine
        group, stored_group = shared.find(group_id), machine.group(group_id)
        state, subscribed = shared.state_of(group_id), set[str]()
        if group is not None and state is not GroupState.EMPTY:
            topics = group.subscribed_topics() if state is GroupState.STABLE else None
            if topics is None:
                return 0
            subscribed = topics
        undecided = shared.undecided_offsets.get(group_id, {})
        # A group with too many offsets for one look is removed by the next round, when it has no
        # offsets left.
        keys = rest or machine.offset_keys(group_id)
        kept = bool(undecided) or bool(rest) or len(keys) > most
        keys, self._unchecked_keys = keys[:most], keys[most:]
        expired: list[NewRecord] = []
        for key in keys:
            stored = machine.offset(group_id, *key)
            if stored is None:
                continue  # race: another request removed it since the turn before
            if key in undecided or key[0] in subscribed:
                kept = True
            elif self._is_expired(stored, stored_group, state):
                expired.append(offset_record(group_id, *key, None))
            else:
                kept = True
        if not kept and (group is None or group.is_idle):
            self._remove_group(group_id, _nothing)
            return len(keys)
        for unit in shared.proposals.split(expired):
            shared.write(unit, _nothing)
        return len(keys)

    def _is_expired(
        self, stored: StoredOffset, group: StoredGroup | None, state: GroupState
    ) -> bool:
        """Whether an offset has expired.

        A client's own expiry time decides if there is one. Else an offset expires a retention time
        after the group became empty, or after the commit when the group never had members or has
        some now.
        """
        wall = self._shared.wall
        if stored.expire_ms >= 0:
            return wall >= stored.expire_ms
        since = stored.commit_ms
        typed = group is not None and bool(group.protocol_type)
        if group is not None and typed and state is GroupState.EMPTY and group.state_ms >= 0:
            since = group.state_ms
        return wall - since >= self._shared.settings.offsets_retention_ms


def _nothing(error: ErrorCode | None) -> None:
    """Ignore the outcome of a record: no request waits, and a later look finds what is left."""


def _group_removed(answer: Callable[[ErrorCode], None], error: ErrorCode | None) -> None:
    answer(ErrorCode.NONE if error is None else as_told(error))


def _offsets_removed(
    answer: Callable[[OffsetDeleteResponse], None],
    response: OffsetDeleteResponse,
    error: ErrorCode | None,
) -> None:
    if error is not None:
        response = OffsetDeleteResponse(error_code=as_told(error))
    answer(response)
