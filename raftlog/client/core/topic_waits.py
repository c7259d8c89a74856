"""Calls that wait until a topic, or a partition of it, is known. It may have been created a moment
ago, and the broker that is asked need not have heard of it, so an unknown one is waited for, a
bounded time; an impossible name is refused at once."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, final

import attrs

from raftlog.base.errors import LocalMisuse, RaftlogError
from raftlog.base.limits import CLIENT_CALLS_MAX
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.errors import KafkaError, NotDone
from raftlog.client.core.metadata_cache import MetadataCache, TopicView
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.requests import unknown_topic
from raftlog.client.core.values import CallId, ClientOptions, Complete, TopicPartition, Turn
from raftlog.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from raftlog.client.core.client import Produce


class _Wait(NamedTuple):
    topic: str
    partition: int | None
    record: "Produce | None"
    since: Instant
    answers: int
    """How many answers about metadata had come before."""


@final
@attrs.define(eq=False)
class TopicWaits:
    """See the module. `failed` collects the calls that were given up."""

    options: ClientOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    turn: Turn
    failed: list[Complete] = attrs.field(factory=list, init=False)
    _waits: dict[CallId, _Wait] = attrs.field(factory=dict, init=False)

    def wait(
        self,
        call_id: CallId,
        topic: str,
        partition: int | None = None,
        record: "Produce | None" = None,
    ) -> None:
        """Wait for a topic, and for a partition of it; `drive` gives the call back once they are
        known."""
        assert call_id not in self._waits, call_id
        if len(self._waits) >= CLIENT_CALLS_MAX:
            self.failed.append(Complete(call_id, LocalMisuse(f"{len(self._waits)} calls wait")))
            return
        self.keeper.follow(topic)
        answers = self.keeper.learned
        self._waits[call_id] = _Wait(topic, partition, record, self.turn.now, answers)

    def cancel(self, call_id: CallId) -> None:
        """Nobody waits for this call any more."""
        self._waits.pop(call_id, None)

    def drive(self) -> Iterable[tuple[CallId, TopicView, "Produce | None"]]:
        """The calls whose topic is known now, in the order in which they were made."""
        return self._known() if self._waits else ()

    def _known(self) -> Iterator[tuple[CallId, TopicView, "Produce | None"]]:
        for call_id, wait in list(self._waits.items()):
            view = self.cache.topic(wait.topic, wait.partition)
            if view is not None:
                del self._waits[call_id]
                yield call_id, view, wait.record
                continue
            error = self._given_up(wait)
            if error is not None:
                del self._waits[call_id]
                self.failed.append(Complete(call_id, error))
            else:
                self.keeper.refresh()

    def _given_up(self, wait: _Wait) -> RaftlogError | None:
        told = self.cache.topics.get(wait.topic)
        error = unknown_topic(told.error if told is not None else None, wait.topic)
        waited = self.turn.now - wait.since
        if error is not None and (not error.retriable or waited >= self.options.topic_wait_ns):
            self.keeper.unfollow(wait.topic)
            return KafkaError(error.code, on=error.on, do=f"raftlog topics create {wait.topic}")
        known = self.cache.topic(wait.topic)
        asked = self.keeper.learned > wait.answers
        if known is not None and asked and waited >= self.options.topic_wait_ns:
            return _unknown_partition(wait, known)
        if waited >= self.options.call_timeout_ns:
            last = f"; last: {self.keeper.last_error}" if self.keeper.last_error else ""
            return NotDone(f"no metadata in time{last}", on=f"topic {wait.topic}")
        return None

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` gives up something."""
        wake = NEVER
        for wait in self._waits.values():
            for limit in (self.options.topic_wait_ns, self.options.call_timeout_ns):
                if wait.since + limit > now:
                    wake = min(wake, Instant(wait.since + limit))
        return wake

    def close(self, error: RaftlogError) -> None:
        """Give up all."""
        for call_id in self._waits:
            self.failed.append(Complete(call_id, error))
        self._waits.clear()


def _unknown_partition(wait: _Wait, view: TopicView) -> KafkaError:
    assert wait.partition is not None, wait
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        on=str(TopicPartition(wait.topic, wait.partition)),
        do=f"{wait.topic} has partitions 0 to {view.count - 1}",
    )
