"""Asks for metadata when a part of the client misses something, and when the known metadata is old.

* One request is under way at a time. If it is not answered within `suspect_ns`, the keeper asks
  another broker.
* While a leader or a topic is missing, the keeper asks every `metadata_retry_ns`. A failover takes
  half a second, and a longer pause would add to it.
* When a broker's answers have not helped for `suspect_ns`, the keeper turns to another broker
  (`search`).
"""

import re
from collections import Counter
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import LocalMisuse, RaftlogError
from raftlog.base.limits import CLIENT_TOPICS_MAX
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.connections import Connections
from raftlog.client.core.metadata_cache import MetadataCache
from raftlog.client.core.search import BrokerSearch
from raftlog.client.core.values import ANY_NODE, ClientOptions
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from raftlog.kafka.versions import ApiKey

_NOBODY: Final = 0


@final
@attrs.define(eq=False)
class MetadataKeeper:
    """Keeps `cache` up to date for `topics` and for the topics that calls wait for. `learned`
    counts the answers. `current_as_of` is when the newest answered request was sent."""

    options: ClientOptions
    cache: MetadataCache
    connections: Connections
    topics: dict[str, None] = attrs.field(factory=dict, init=False)
    pattern: re.Pattern[str] | None = attrs.field(default=None, init=False)
    """Set by `follow_pattern`: requests then ask for all topics, and matching topics are kept
    too."""
    matching: dict[str, None] = attrs.field(factory=dict, init=False)
    """Topics of the last answer that match the pattern and that clients may read, in its order."""
    matched: int = attrs.field(default=0, init=False)
    """How many answers described all topics."""
    learned: int = attrs.field(default=0, init=False)
    current_as_of: Instant = attrs.field(default=Instant(0), init=False)
    last_error: RaftlogError | None = attrs.field(default=None, init=False)
    _awaited: Counter[str] = attrs.field(factory=Counter, init=False)
    """Topic -> how many calls wait for it. It may not exist, and is dropped when the last call
    gives up."""
    _wanted: bool = attrs.field(default=False, init=False)
    _asking: int = attrs.field(default=_NOBODY, init=False)
    """The number of the request under way. The answer to an older request is merged as well."""
    _asks: int = attrs.field(default=0, init=False)
    _asked_at: Instant = attrs.field(default=Instant(0), init=False)
    _not_before: Instant = attrs.field(default=Instant(0), init=False)
    _fresh_until: Instant = attrs.field(default=NEVER, init=False)
    _missed: bool = attrs.field(default=False, init=False)
    """Whether something was missing or wrong in this turn."""
    _search: BrokerSearch = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._search = BrokerSearch(self.options)

    def follow(self, topic: str) -> None:
        """Keep this topic's metadata from now on."""
        if topic not in self.topics:
            self._begin(topic)
            self.topics[topic] = None

    def follow_pattern(self, pattern: re.Pattern[str] | None) -> None:
        """Keep the topics, present and future, whose names match from the first character on; None
        ends that."""
        self.pattern, self.matching, self.matched = pattern, {}, 0
        self._wanted = True
        self._not_before = Instant(0)

    def unfollow(self, topic: str) -> None:
        """Undo `follow`."""
        self.topics.pop(topic, None)

    def begin_wait(self, topic: str) -> None:
        """Keep a topic's metadata until `end_wait` was called as often as this."""
        if topic not in self.topics:
            self._begin(topic)
        self._awaited[topic] += 1

    def end_wait(self, topic: str) -> None:
        """End one wait for a topic."""
        self._awaited[topic] -= 1
        if self._awaited[topic] == 0:
            del self._awaited[topic]

    def _begin(self, topic: str) -> None:
        if topic in self._awaited:
            return
        kept = len(self._asked_for())
        if kept >= CLIENT_TOPICS_MAX:
            raise LocalMisuse(f"{amount(kept, 'topic')} in one client", do="use several clients")
        self._wanted = True
        self._not_before = Instant(0)

    def _asked_for(self) -> dict[str, None]:
        return self.topics | dict.fromkeys(self._awaited)

    def refresh(self) -> None:
        """Ask soon: something is missing or was wrong."""
        self._wanted = self._missed = True

    def refresh_if_older(self, age_ns: int, now: Instant) -> Instant:
        """Ask again unless the last request is younger than `age_ns`. Return when the next one may
        leave."""
        if now >= self._asked_at + age_ns:
            self._wanted = True
            return Instant(now + age_ns)
        return Instant(self._asked_at + age_ns)

    def drive(self, now: Instant) -> None:
        """Ask when it is time to."""
        if self._missed:
            self._missed = False
            self._search.missed(now)
        if now >= self._fresh_until:
            self._wanted = True
        if self._asking and now >= self._asked_at + self.options.suspect_ns:
            self._asking = _NOBODY
        if self._wanted and not self._asking and now >= self._not_before:
            self._ask(now)

    def _ask(self, now: Instant) -> None:
        self._wanted = False
        self._asks += 1
        self._asking = self._asks
        self._asked_at = now
        self._not_before = Instant(now + self.options.metadata_retry_ns)
        self._fresh_until = Instant(now + self.options.metadata_max_age_ns)
        named = tuple(MetadataRequestTopic(name=name) for name in self._asked_for())
        request = MetadataRequest(
            topics=named if self.pattern is None else None,
            allow_auto_topic_creation=self.options.auto_create and self.pattern is None,
        )
        then = partial(self._answered, self._asks, now, self.pattern)
        waiting = self.connections.send(
            ANY_NODE,
            ApiKey.METADATA,
            request,
            then,
            now,
            other_than=self._search.asked_in_vain(now),
        )
        self._search.asked = waiting.target

    def _answered(
        self,
        number: int,
        asked_at: Instant,
        pattern: re.Pattern[str] | None,
        answer: MetadataResponse | RaftlogError,
    ) -> None:
        if number == self._asking:
            self._asking = _NOBODY
        if isinstance(answer, RaftlogError):
            self.last_error = answer
            self.refresh()
            return
        self.cache.learn(answer if pattern is None else self._kept(answer, pattern))
        self.learned += 1
        self.current_as_of = max(self.current_as_of, asked_at)
        self.last_error = None

    def _kept(self, answer: MetadataResponse, pattern: re.Pattern[str]) -> MetadataResponse:
        """The part of an answer about all topics that is kept. A followed topic that the answer
        lacks does not exist as far as that broker knows."""
        told = {topic.name or "": topic for topic in answer.topics or ()}
        matching = {
            name: None
            for name, topic in told.items()
            if not topic.is_internal and pattern.match(name)
        }
        if pattern is self.pattern:
            self.matching = matching
            self.matched += 1
        asked_for = self._asked_for()
        gone = [
            MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
            for name in asked_for
            if name not in told
        ]
        kept = [topic for name, topic in told.items() if name in matching or name in asked_for]
        return answer._replace(topics=[*kept, *gone])

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        if self._asking:
            return Instant(self._asked_at + self.options.suspect_ns)
        if self._wanted:
            return max(self._not_before, now)
        return self._fresh_until
