"""Calls that wait until a topic, or a partition of it, is known.

A topic may have been created a moment ago, and the broker that is asked may not have heard of it
yet. So a call waits for an unknown topic, for a bounded time; an answer that was asked for after
that time is believed. A name that no topic can have is refused at once.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import LocalMisuse, RaftlogError, WrongValue
from raftlog.base.limits import CLIENT_CALLS_MAX
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.errors import KafkaError, NotDone
from raftlog.client.core.metadata_cache import MetadataCache, TopicView
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.requests import unknown_topic
from raftlog.client.core.values import CallId, ClientOptions, ClientTurn, Complete, TopicPartition
from raftlog.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from raftlog.client.core.calls import Produce


class _Wait(NamedTuple):
    topic: str
    partition: int | None
    record: "Produce | None"
    since: Instant


@final
@attrs.define(eq=False)
class TopicWaits:
    """The waiting calls. `failed` collects those that were given up."""

    options: ClientOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    turn: ClientTurn
    failed: list[Complete] = attrs.field(factory=list, init=False)
    _waits: dict[CallId, _Wait] = attrs.field(factory=dict, init=False)

    def wait(
        self,
        call_id: CallId,
        topic: str,
        partition: int | None = None,
        record: "Produce | None" = None,
    ) -> None:
        """Let a call wait for a topic, and for a partition if one is named. `drive` returns the
        call once they are known."""
        assert call_id not in self._waits, call_id
        if len(self._waits) >= CLIENT_CALLS_MAX:
            self.failed.append(
                Complete(call_id, LocalMisuse(f"waiting: {amount(len(self._waits), 'call')}"))
            )
            return
        if partition is not None and partition < 0:
            error = WrongValue(f"partition must be 0 or more, not {partition}", on=f"topic {topic}")
            self.failed.append(Complete(call_id, error))
            return
        self.keeper.begin_wait(topic)
        self._waits[call_id] = _Wait(topic, partition, record, self.turn.now)

    def cancel(self, call_id: CallId) -> None:
        """Stop a call, whose result no caller waits for any more."""
        if call_id in self._waits:
            self._end(call_id)

    def _end(self, call_id: CallId) -> None:
        self.keeper.end_wait(self._waits.pop(call_id).topic)

    def drive(self) -> Iterable[tuple[CallId, TopicView, "Produce | None"]]:
        """Return the calls whose topic is known now, in the order in which they began."""
        return self._known() if self._waits else ()

    def _known(self) -> Iterator[tuple[CallId, TopicView, "Produce | None"]]:
        for call_id, wait in list(self._waits.items()):
            view = self.cache.topic(wait.topic, wait.partition)
            if view is not None:
                self.keeper.follow(wait.topic)
                self._end(call_id)
                yield call_id, view, wait.record
                continue
            error = self._given_up(wait)
            if error is not None:
                self._end(call_id)
                self.failed.append(Complete(call_id, error))
            else:
                self.keeper.refresh()

    def _given_up(self, wait: _Wait) -> RaftlogError | None:
        error = self._refusal(wait)
        if error is not None and not error.retriable:
            return error
        told = self.keeper.current_as_of
        if error is not None and told >= wait.since + self.options.topic_wait_ns:
            return error
        if self.turn.now < wait.since + self.options.call_timeout_ns:
            return None
        if error is not None and told >= wait.since:
            return error
        last = f"; last: {self.keeper.last_error}" if self.keeper.last_error else ""
        return NotDone(f"no metadata in time{last}", on=f"topic {wait.topic}")

    def _refusal(self, wait: _Wait) -> KafkaError | None:
        """The error of an unknown topic or partition; None while no answer has come."""
        known = self.cache.topics.get(wait.topic)
        error = unknown_topic(known.error if known is not None else None, wait.topic)
        if error is not None:
            return KafkaError(error.code, on=error.on, do=f"raftlog topics create {wait.topic}")
        if known is None or wait.partition is None:
            return None
        return KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            on=str(TopicPartition(wait.topic, wait.partition)),
            do=f"{wait.topic} has {amount(known.count, 'partition')}, numbered from 0",
        )

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` next gives up a call."""
        wake = NEVER
        for wait in self._waits.values():
            for limit in (self.options.topic_wait_ns, self.options.call_timeout_ns):
                if wait.since + limit > now:
                    wake = min(wake, Instant(wait.since + limit))
        return wake

    def close(self, error: RaftlogError) -> None:
        """Give up all calls."""
        for call_id in list(self._waits):
            self._end(call_id)
            self.failed.append(Complete(call_id, error))
