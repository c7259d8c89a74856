"""The topics that a consumer subscribes to, and how many partitions those of the group have.

The member that leads divides the topics of all members. It looks at metadata for changes, and calls
for a rebalance when one has more partitions, is new, or is gone for good.
"""

from collections.abc import Mapping, Sequence
from typing import Final, final

import attrs

from raftlog.base.units import NEVER, Instant
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.values import ClientOptions, Turn
from raftlog.kafka.error_codes import ErrorCode, is_retriable

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@final
@attrs.define(eq=False)
class SubscribedTopics:
    """See the module."""

    options: ClientOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    turn: Turn
    topics: tuple[str, ...] = attrs.field(default=(), init=False)
    _counts: dict[str, int] = attrs.field(factory=dict, init=False)
    """What the last division was made from."""
    _unknown_since: dict[str, Instant] = attrs.field(factory=dict, init=False)
    """Topics that a broker does not know, and when metadata first said so."""
    _looked: int = attrs.field(default=-1, init=False)
    _refused_at: int = attrs.field(default=-1, init=False)
    _refresh_at: Instant = attrs.field(default=NEVER, init=False)

    def set(self, topics: Sequence[str]) -> bool:
        """Subscribe to exactly these; whether that is a change."""
        wanted = tuple(sorted(set(topics)))
        for topic in wanted:
            self.keeper.follow(topic)
        changed = wanted != self.topics
        self.topics = wanted
        if not wanted:
            self._counts, self._refresh_at = {}, NEVER
        return changed

    def refused(self) -> KafkaError | None:
        """Why a topic may not be read, once for each answer of metadata."""
        if self._refused_at == self.keeper.learned:
            return None
        self._refused_at = self.keeper.learned
        for topic in self.topics:
            view = self.cache.topics.get(topic)
            if view is not None and view.error and not is_retriable(view.error):
                return KafkaError(view.error, on=f"topic {topic}")
        return None

    def counts(self, topics: Sequence[str]) -> dict[str, int] | None:
        """How many partitions each has; None while metadata has not told of all. `LocalMisuse` when
        there are more topics than a client can follow."""
        for topic in topics:
            self.keeper.follow(topic)
        if any(topic not in self.cache.topics for topic in topics):
            self.keeper.refresh()
            return None
        self._look_for_the_gone(topics)
        return {topic: self._count(topic) for topic in topics}

    def remember(self, counts: Mapping[str, int]) -> None:
        """These counts were divided."""
        self._counts = dict(counts)
        self._looked = self.keeper.learned

    def changed(self) -> bool:
        """Whether a division by today's metadata would be another one."""
        if any(count == 0 for count in self._counts.values()):
            # It is waited for, so a usual refresh of metadata would be minutes late.
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
        """A topic that one broker does not know may be younger than what that broker has heard. It
        counts as gone when that lasts."""
        since = self._unknown_since.get(topic)
        if since is not None and self.keeper.current_as_of >= since + self.options.topic_wait_ns:
            return 0
        view = self.cache.topics.get(topic)
        return view.count if view is not None else 0

    def next_instant(self, now: Instant) -> Instant:
        """When `changed` wants to be asked again."""
        return self._refresh_at if self._refresh_at > now else NEVER
