"""`GroupConsumer`: subscribe or assign, poll, commit, leave; without I/O.

A driver does this for each poll:

    consumer.poll_begin()                      it may join, and commit what earlier polls gave out
    while consumer.notice is not None:         tell the user, then
        consumer.notice_done()
    consumer.take(records_max)                 records, or raises what is wrong
    consumer.poll_end()                        it only keeps the membership alive

with a turn of the core after each. A rebalance begins only within a poll, because the user has then
finished with all earlier records. It goes through these stages:

    IDLE -> COMMITTING   what was processed, bounded in time
         -> REVOKING     eager: the user is told that everything goes, and it goes
         -> JOINING      join, divide when this member leads, sync
         -> GIVING_UP    cooperative: the user is told what goes; then join again, so that others
                         get it
         -> IDLE         the user is told what came
"""

import enum
import re
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.errors import LocalMisuse, RaftlogError, WrongValue
from raftlog.base.ids import Offset
from raftlog.base.limits import GROUP_NOTICES_MAX
from raftlog.base.ports import Entropy
from raftlog.base.units import NEVER, Instant, Nanos, millis
from raftlog.client.core.connections import Connections
from raftlog.client.core.coordinators import Coordinators
from raftlog.client.core.errors import CommitFailed
from raftlog.client.core.fetcher import Fetcher
from raftlog.client.core.group.leading import Leading
from raftlog.client.core.group.membership import GroupMembership, Phase
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.group.positions import Positions, Taken
from raftlog.client.core.group.protocol import encode_subscription
from raftlog.client.core.group.topics import SubscribedTopics
from raftlog.client.core.group_asks import (
    NO_MEMBER,
    GroupIdentity,
    OffsetAndMetadata,
    commit_offsets,
)
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.requests import Requests
from raftlog.client.core.values import CallId, ClientOptions, ClientTurn, Complete, TopicPartition
from raftlog.kafka.error_codes import ErrorCode

_COMMIT_ALL_NS: Final = millis(3_600_000)
"""How often an automatic commit also includes offsets that have not moved. Brokers drop offsets
that no member commits for days."""
_COMMIT_WAIT_NS: Final = millis(5_000)
"""How long a rebalance waits for the commit that precedes it."""


@final
class PartitionChange(enum.Enum):
    """The event that a notice reports about partitions. LOST: another member may have them
    already."""

    ASSIGNED = "assigned"
    REVOKED = "revoked"
    LOST = "lost"


class Notice(NamedTuple):
    """A change that the driver tells the user. The user may commit or seek before `notice_done`."""

    change: PartitionChange
    partitions: tuple[TopicPartition, ...]


class _Stage(enum.Enum):
    """See the module."""

    IDLE = "idle"
    COMMITTING = "committing"
    REVOKING = "revoking"
    JOINING = "joining"
    GIVING_UP = "giving up"


@final
@attrs.define(eq=False)
class GroupConsumer:
    """See the module."""

    options: ClientOptions
    settings: ConsumerOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    connections: Connections
    entropy: Entropy
    turn: ClientTurn
    coordinators: Coordinators
    requests: Requests
    fetcher: Fetcher
    membership: GroupMembership = attrs.field(init=False)
    leading: Leading = attrs.field(init=False)
    positions: Positions = attrs.field(init=False)
    subscribed: SubscribedTopics = attrs.field(init=False)
    done: list[Complete] = attrs.field(factory=list, init=False)
    commit_error: RaftlogError | None = attrs.field(default=None, init=False)
    """The error of the last automatic commit, which is tried again; None when it succeeded."""
    _notices: deque[Notice] = attrs.field(factory=deque, init=False)
    _stage: _Stage = attrs.field(default=_Stage.IDLE, init=False)
    _stage_until: Instant = attrs.field(default=NEVER, init=False)
    _polling: bool = attrs.field(default=False, init=False)
    _polled_at: Instant = attrs.field(default=Instant(0), init=False)
    _commit_at: Instant = attrs.field(default=NEVER, init=False)
    _commit_all_at: Instant = attrs.field(default=Instant(0), init=False)
    _committing: int = attrs.field(default=0, init=False)
    """The number of the automatic commit under way; 0 is none."""
    _commits: int = attrs.field(default=0, init=False)
    _arriving: tuple[TopicPartition, ...] = attrs.field(default=(), init=False)
    _leaving: tuple[TopicPartition, ...] = attrs.field(default=(), init=False)
    _before: tuple[tuple[TopicPartition, ...], int] = attrs.field(default=((), -1), init=False)
    """The last assignment and its generation. The sticky assignor tries to keep it."""
    _error: RaftlogError | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        options, settings, entropy, turn = self.options, self.settings, self.entropy, self.turn
        self.membership = GroupMembership(
            options, settings, self.coordinators, self.connections, entropy, turn
        )
        self.positions = Positions(options, settings, self.requests, self.fetcher, entropy, turn)
        self.subscribed = SubscribedTopics(options, self.cache, self.keeper, turn)
        self.leading = Leading(options, self.membership, self.subscribed, entropy, turn)
        self._polled_at = turn.now

    # --- what to read -----------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to topics, whose partitions are shared with the group. The next polls join
        it."""
        if self.settings.group_id is None:
            raise LocalMisuse("subscribe needs a group_id", do="give one, or call assign")
        self._must_not_be_assigned()
        if self.subscribed.set(topics):
            self.membership.rejoin_wanted = self.membership.phase is not Phase.UNJOINED

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to the topics whose names match a regular expression from the first character
        on.

        Topics that are created later match too; internal ones never do. The client asks for the
        metadata of all topics, and again after `metadata_max_age_ns`. The next polls join the
        group."""
        if self.settings.group_id is None:
            raise LocalMisuse("subscribe needs a group_id", do="give one, or call assign")
        self._must_not_be_assigned()
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise WrongValue(f"the pattern {pattern!r} is no regular expression: {error}") from None
        self.subscribed.set_pattern(compiled)
        self.membership.rejoin_wanted = self.membership.phase is not Phase.UNJOINED

    def _must_not_be_assigned(self) -> None:
        if not self.subscribed.active and self.positions.places():
            raise LocalMisuse("partitions are assigned by hand", do="call unsubscribe first")

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, even if other consumers read them too. The group then only
        keeps offsets."""
        if self.subscribed.active:
            raise LocalMisuse("topics are subscribed to", do="call unsubscribe first")
        wanted = dict.fromkeys(places)
        self.positions.drop([each for each in self.positions.places() if each not in wanted])
        self.positions.begin(wanted)

    def unsubscribe(self) -> None:
        """Leave the group, and read nothing."""
        if self.subscribed.active:
            self.membership.leave(_ignore)
        self.membership.lost = False
        self.subscribed.set(())
        self.positions.drop(self.positions.places())
        self._notices.clear()
        self._stage, self._stage_until = _Stage.IDLE, NEVER

    # --- polls ------------------------------------------------------------------------------------

    def poll_begin(self) -> None:
        """See the module."""
        self._polling, self._polled_at = True, self.turn.now
        self.positions.mark_processed()
        if self._commit_at == NEVER:
            self._commit_at = Instant(self.turn.now + self.settings.auto_commit_interval_ns)

    def poll_end(self) -> None:
        """See the module."""
        self._polling, self._polled_at = False, self.turn.now

    @property
    def notice(self) -> Notice | None:
        """The next change to tell the user; None when there is none."""
        return self._notices[0] if self._notices else None

    def notice_done(self) -> None:
        """Go on after the user was told of the notice."""
        notice = self._notices.popleft()
        if notice.change is not PartitionChange.REVOKED:
            return
        if self._stage is _Stage.REVOKING:
            self.positions.drop(notice.partitions)
            self._join()
        elif self._stage is _Stage.GIVING_UP:
            self.positions.drop(self._leaving)
            self._leaving = ()
            self.membership.rejoin_wanted = True
            self._take_what_came()

    @property
    def has_ready(self) -> bool:
        """Whether a poll that waits has something to do now."""
        return bool(self._notices) or self._error is not None or self.positions.has_ready

    def take(self, records_max: int) -> Taken:
        """Take at most `records_max` records. Raises the error of the group; raises that of a
        partition once no records are left."""
        if self._error is not None:
            error = self._error
            if not self.membership.fenced:
                self._error = None
            raise error
        return self.positions.take(records_max)

    # --- commits ----------------------------------------------------------------------------------

    def commit(
        self, call_id: CallId, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None
    ) -> None:
        """Commit these offsets, or the position of each partition. Completes the call with None."""
        wanted = self.positions.consumed() if offsets is None else dict(offsets)
        if self.settings.group_id is None:
            error = LocalMisuse("commit needs a group_id")
            self.done.append(Complete(call_id, error))
            return
        self._commit(wanted, partial(self._complete, call_id))

    def _complete(self, call_id: CallId, result: Any) -> None:
        self.done.append(Complete(call_id, result))

    def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], then: Any) -> None:
        assert self.settings.group_id is not None, "only groups keep offsets"
        identity = self._identity()
        outside = self.subscribed.active and not self.membership.is_member
        if outside and (offsets or self._notices):
            # This consumer is no longer a member. Its partitions may be lost already; the next poll
            # reports that.
            group = f"group {self.settings.group_id}"
            then(CommitFailed(ErrorCode.UNKNOWN_MEMBER_ID, on=group))
        elif not offsets:
            then(None)
        else:
            ask = commit_offsets(self.settings.group_id, offsets, identity)
            self.requests.start_own(ask, partial(self._committed, offsets, identity, then))

    def _identity(self) -> GroupIdentity:
        return self.membership.identity if self.subscribed.active else NO_MEMBER

    def _committed(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        identity: GroupIdentity,
        then: Any,
        answer: Any,
    ) -> None:
        if answer is None:
            self.positions.committed(offsets)
        elif isinstance(answer, CommitFailed) and NO_MEMBER != identity == self._identity():
            self.membership.judge(answer.code)
        then(answer)

    def _commit_processed(self) -> None:
        now = self.turn.now
        all_again = now >= self._commit_all_at
        if all_again:
            self._commit_all_at = Instant(now + _COMMIT_ALL_NS)
        self._commit_at = Instant(now + self.settings.auto_commit_interval_ns)
        self._commits += 1
        self._committing = self._commits
        then = partial(self._processed_committed, self._commits)
        self._commit(self.positions.processed(all_again=all_again), then)

    def _processed_committed(self, number: int, answer: Any) -> None:
        if number != self._committing:
            return
        self._committing = 0
        self.commit_error = answer if isinstance(answer, RaftlogError) else None
        if self._stage is _Stage.COMMITTING:
            self._go_on_after_commit()

    # --- turns ------------------------------------------------------------------------------------

    def drive(self) -> None:
        """Do everything that is due in this turn."""
        if self.subscribed.active:
            self._drive_group()
        self.positions.drive()
        if self._auto_commits and not self._committing and self.turn.now >= self._commit_at:
            self._commit_processed()

    @property
    def _auto_commits(self) -> bool:
        if not self.settings.enable_auto_commit or self.settings.group_id is None:
            return False
        return self._polling and (self.membership.is_member or not self.subscribed.active)

    def _drive_group(self) -> None:
        membership = self.membership
        self._watch_polls()
        membership.drive()
        self.leading.drive()
        if membership.lost:
            membership.lost = False
            self._lose()
        self._error = membership.error or self._error
        membership.error = None
        if self._notices:
            return
        self._watch_topics()
        if self._stage is _Stage.JOINING:
            # This comes first: the broker may only have given the member an id, and then it must
            # join again at once. No timer would wake it for that.
            self._follow_join()
        if self._notices:
            return
        may_join = membership.may_join and self.subscribed.known
        if self._stage is _Stage.IDLE and self._polling and may_join:
            self._begin_rebalance()
        elif self._stage is _Stage.COMMITTING and self.turn.now >= self._stage_until:
            self._go_on_after_commit()

    def _watch_polls(self) -> None:
        """Leave the group when the user no longer polls, so that other members get its
        partitions."""
        if self._polling or self.membership.phase is Phase.UNJOINED:
            return
        if self.turn.now >= self._polled_at + self.settings.max_poll_interval_ns:
            self.membership.leave(_ignore)

    def _watch_topics(self) -> None:
        error = self.subscribed.refused()
        if error is not None:
            self._error = error
        try:
            if self.subscribed.match_again():
                self.membership.rejoin_wanted = self.membership.phase is not Phase.UNJOINED
        except LocalMisuse as misuse:
            self._error = misuse
        divided = self.membership.leads and self.membership.phase is Phase.STABLE
        if divided and self.subscribed.changed():
            self.membership.rejoin_wanted = True

    # --- rebalances -------------------------------------------------------------------------------

    def _begin_rebalance(self) -> None:
        if self._auto_commits and self.positions.places():
            self._stage = _Stage.COMMITTING
            self._stage_until = Instant(self.turn.now + _COMMIT_WAIT_NS)
            self._commit_processed()
        else:
            self._go_on_after_commit()

    def _go_on_after_commit(self) -> None:
        self._committing, self._stage_until = 0, NEVER
        places = tuple(self.positions.places())
        if places and not self.settings.cooperative:
            self._stage = _Stage.REVOKING
            self._tell(PartitionChange.REVOKED, places)
        else:
            self._join()

    def _join(self) -> None:
        owned: tuple[TopicPartition, ...] = tuple(self.positions.places())
        generation = self.membership.identity.generation
        protocols: list[tuple[str, bytes]] = []
        for each in self.settings.assignors:
            had = self._before if each.name == "sticky" else (owned, generation)
            protocols.append(
                (each.name, encode_subscription(each.name, self.subscribed.topics, *had))
            )
        self.membership.join(protocols)
        joining = self.membership.phase is Phase.JOINING
        self._stage = _Stage.JOINING if joining else _Stage.IDLE

    def _follow_join(self) -> None:
        membership = self.membership
        if membership.phase is Phase.UNJOINED:
            self._stage = _Stage.IDLE
        elif membership.phase is Phase.ASSIGNING:
            self.leading.divide()
        elif membership.phase is Phase.STABLE and membership.assigned:
            membership.assigned = False
            self._take_over(membership.assignment)

    def _take_over(self, assignment: Sequence[TopicPartition]) -> None:
        owned = self.positions.places()
        self._before = (tuple(assignment), self.membership.identity.generation)
        self.leading.assigned()
        new = dict.fromkeys(assignment)
        self._leaving = tuple(each for each in owned if each not in new)
        self._arriving = tuple(each for each in assignment if each not in owned)
        if self._leaving:
            self._stage = _Stage.GIVING_UP
            self._tell(PartitionChange.REVOKED, self._leaving)
        else:
            self._take_what_came()

    def _take_what_came(self) -> None:
        came, self._arriving = self._arriving, ()
        self.positions.begin(came)
        self._stage = _Stage.IDLE
        self._tell(PartitionChange.ASSIGNED, came)

    def _lose(self) -> None:
        places = tuple(self.positions.places())
        self.positions.drop(places)
        self._notices.clear()
        self._leaving = self._arriving = ()
        self._stage, self._stage_until = _Stage.IDLE, NEVER
        if places:
            self._tell(PartitionChange.LOST, places)

    def _tell(self, change: PartitionChange, places: tuple[TopicPartition, ...]) -> None:
        assert len(self._notices) < GROUP_NOTICES_MAX, self._notices
        self._notices.append(Notice(change, places))

    # --- the end ----------------------------------------------------------------------------------

    def leave(self, call_id: CallId) -> None:
        """Leave the group. Completes the call when the coordinator knows, or cannot be told."""
        if self.subscribed.active and self.membership.identity.member_id:
            self.membership.leave(partial(self._left, call_id))
        else:
            self._left(call_id, None)
        self.membership.lost = False
        self.subscribed.set(())
        self.positions.drop(self.positions.places())
        self._notices.clear()

    def _left(self, call_id: CallId, answer: object) -> None:
        # the coordinator removes a member that it did not hear leave when its session ends
        del answer
        self.done.append(Complete(call_id, None))

    def position(self, place: TopicPartition) -> Offset | None:
        """The offset of the next record that a poll gives out; None while it is being looked up."""
        return self.positions.of(place).offset

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        wake = self.positions.next_instant(now)
        if self._auto_commits and not self._committing:
            wake = min(wake, max(self._commit_at, now))
        if not self.subscribed.active:
            return wake
        wake = min(wake, self.membership.next_instant(now), self._stage_until)
        wake = min(wake, self.leading.again_at)
        if not self._polling and self.membership.phase is not Phase.UNJOINED:
            left = Nanos(self._polled_at + self.settings.max_poll_interval_ns)
            wake = min(wake, Instant(left))
        return min(wake, self.subscribed.next_instant(now))


def _ignore(answer: object) -> None:
    del answer
