"""The topics that a consumer subscribes to, and how many partitions those of the group have.

A pattern stands for the topics that match it. New topics are added as soon as metadata lists them.

The leader of the group divides the topics of all members. It watches metadata, and calls for a
rebalance when a topic has more partitions, is new, or is gone for good.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, final

import attrs

from raftlog.base.units import NEVER, Instant
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.values import ClientOptions, ClientTurn
from raftlog.kafka.error_codes import ErrorCode, is_retriable

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@final
@attrs.define(eq=False)
class SubscribedTopics:
    """See the module."""

    options: ClientOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    turn: ClientTurn
    topics: tuple[str, ...] = attrs.field(default=(), init=False)
    """The named topics, or those that match the pattern now."""
    pattern: re.Pattern[str] | None = attrs.field(default=None, init=False)
    _absent_since: dict[str, Instant] = attrs.field(factory=dict, init=False)
    """Topics that matched before and are missing in the last answer -> since when."""
    _matched: int = attrs.field(default=0, init=False)
    _counts: dict[str, int] = attrs.field(factory=dict, init=False)
    """Topic -> partition count, as used by the last division."""
    _unknown_since: dict[str, Instant] = attrs.field(factory=dict, init=False)
    """Topics that a broker does not know -> when metadata first said so."""
    _looked: int = attrs.field(default=-1, init=False)
    _refused_at: int = attrs.field(default=-1, init=False)
    _refresh_at: Instant = attrs.field(default=NEVER, init=False)

    @property
    def active(self) -> bool:
        """Whether there is a subscription. Its pattern may match no topic yet."""
        return bool(self.topics) or self.pattern is not None

    @property
    def known(self) -> bool:
        """Whether the subscribed topics are known, which a pattern's are after the first
        metadata."""
        return self.pattern is None or self._matched > 0

    def set(self, topics: Sequence[str]) -> bool:
        """Subscribe to exactly these topics. Return whether that is a change."""
        wanted = tuple(sorted(set(topics)))
        for topic in wanted:
            self.keeper.follow(topic)
        changed = wanted != self.topics or self.pattern is not None
        if self.pattern is not None:
            self.pattern = None
            self.keeper.follow_pattern(None)
        self.topics = wanted
        if not wanted:
            self._counts, self._refresh_at = {}, NEVER
        return changed

    def set_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to the topics that match a pattern, now or later."""
        self.pattern, self._matched, self._absent_since = pattern, 0, {}
        self.keeper.follow_pattern(pattern)

    def match_again(self) -> bool:
        """Match the pattern against the present metadata. Return whether the topics changed.

        A topic that is missing now may only be unknown to the broker that was asked, so it stays
        for a while. `LocalMisuse` when more topics match than a client can follow."""
        keeper = self.keeper
        if self.pattern is None or self._matched == keeper.matched:
            return False
        first, self._matched = self._matched == 0, keeper.matched
        if first:
            self._absent_since = {}
        told = keeper.matching
        self._absent_since = {
            topic: self._absent_since.get(topic, keeper.current_as_of)
            for topic in self.topics
            if topic not in told and self.pattern.match(topic)
        }
        kept = [
            topic
            for topic, since in self._absent_since.items()
            if keeper.current_as_of < since + self.options.topic_wait_ns
        ]
        wanted = tuple(sorted({*told, *kept}))
        for topic in wanted:
            keeper.follow(topic)
        for topic in self.topics:
            if topic not in wanted:
                keeper.unfollow(topic)
        changed = wanted != self.topics or first
        self.topics = wanted
        return changed

    def refused(self) -> KafkaError | None:
        """The error of a topic that this client may not read, once for each metadata answer; None
        without one."""
        if self._refused_at == self.keeper.learned:
            return None
        self._refused_at = self.keeper.learned
        for topic in self.topics:
            view = self.cache.topics.get(topic)
            if view is not None and view.error and not is_retriable(view.error):
                return KafkaError(view.error, on=f"topic {topic}")
        return None

    def counts(self, topics: Sequence[str]) -> dict[str, int] | None:
        """The partition count of each topic; None while metadata has not described all of them.
        `LocalMisuse` when there are more topics than a client can follow."""
        for topic in topics:
            self.keeper.follow(topic)
        if any(topic not in self.cache.topics for topic in topics):
            self.keeper.refresh()
            return None
        self._look_for_the_gone(topics)
        return {topic: self._count(topic) for topic in topics}

    def remember(self, counts: Mapping[str, int]) -> None:
        """Keep the counts that a division was made from."""
        self._counts = dict(counts)
        self._looked = self.keeper.learned

    def changed(self) -> bool:
        """Whether the present metadata would lead to another division than the last one."""
        if any(count == 0 for count in self._counts.values()) or self._absent_since:
            # The subscription waits for this topic. The regular refresh of metadata would be
            # minutes late.
            age = self.options.retry_backoff_max_ns
            self._refresh_at = self.keeper.refresh_if_older(age, self.turn.now)
        else:
            self._refresh_at = NEVER
        if self._looked == self.keeper.learned:
            return False
        self._looked = self.keeper.learned
        self._look_for_the_gone(list(self._counts))
        return any(self._count(topic) != count for topic, count in self._counts.items())

    def _look_for_the_gone(self, topics: Sequence[str]) -> None:
        for topic in topics:
            view = self.cache.topics.get(topic)
            if view is None or view.error != _UNKNOWN:
                self._unknown_since.pop(topic, None)
            else:
                self._unknown_since.setdefault(topic, self.keeper.current_as_of)

    def _count(self, topic: str) -> int:
        """The partition count of a topic. One that a broker does not know may be newer than that
        broker's metadata; it counts as gone (0) only when that lasts."""
        since = self._unknown_since.get(topic)
        if since is not None and self.keeper.current_as_of >= since + self.options.topic_wait_ns:
            return 0
        view = self.cache.topics.get(topic)
        return view.count if view is not None else 0

    def next_instant(self, now: Instant) -> Instant:
        """When to call `changed` again."""
        return self._refresh_at if self._refresh_at > now else NEVER
