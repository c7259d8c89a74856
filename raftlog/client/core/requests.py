"""The one-shot calls under way: each is routed, retried with backoff, and given up at its deadline.

A question that only reads also goes to another broker when it is not answered promptly; the first
answer counts. A call that changes the cluster is sent again only when it certainly had no effect.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import LocalMisuse, RaftlogError, WrongValue
from raftlog.base.ids import NodeId
from raftlog.base.limits import CLIENT_CALLS_MAX
from raftlog.base.ports import Entropy
from raftlog.base.units import NEVER, Instant
from raftlog.client.core.asks import Ask
from raftlog.client.core.connections import COMMIT_LANE, Connections, QueuedRequest, backoff
from raftlog.client.core.coordinators import Coordinators
from raftlog.client.core.errors import ConnectionLost, KafkaError, NotDone, NotSent, OutcomeUnknown
from raftlog.client.core.metadata_cache import MetadataCache, TopicView
from raftlog.client.core.metadata_keeper import MetadataKeeper
from raftlog.client.core.values import CallId, ClientOptions, ClientTurn, Complete, TopicPartition
from raftlog.kafka.error_codes import ErrorCode

_CALLERS_OWN: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The errors that a caller's own `make` or `read` raises when it is wrong. Such an error ends that
call only. If it ended the turn, it would end the client for all its users."""


_REFUSED_BEFORE_WORK: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""The errors that a coordinator returns before it looks at a request, which was then certainly not
done."""


@final
@attrs.define(eq=False)
class _Call:
    """A question that is not answered yet. `attempt` is the number of the request that counts; 0
    means none."""

    call: CallId
    ask: Ask
    since: Instant
    deadline: Instant
    then: Callable[[Any], None] | None = None
    """Set for the core's own calls: it is called with the result, which then is not put into
    `done`."""
    attempt: int = 0
    attempts: int = 0
    sent_at: Instant = Instant(0)
    sent_to: NodeId = NodeId(-1)
    carrier: QueuedRequest | None = None
    failures: int = 0
    retry_at: Instant = Instant(0)
    unled: bool = False
    """Whether it waits until its group's coordinator is found, which takes another turn."""
    last_error: RaftlogError | None = None


@final
@attrs.define(eq=False)
class Requests:
    """All one-shot calls. `done` collects the completed ones."""

    options: ClientOptions
    cache: MetadataCache
    keeper: MetadataKeeper
    connections: Connections
    entropy: Entropy
    turn: ClientTurn
    coordinators: Coordinators
    done: list[Complete] = attrs.field(factory=list, init=False)
    _calls: dict[CallId, _Call] = attrs.field(factory=dict, init=False)
    _last_own: CallId = attrs.field(default=0, init=False)

    def start_own(self, ask: Ask, then: Callable[[Any], None]) -> None:
        """Begin a call of the core itself. `then` is called with its result or a `RaftlogError`."""
        if len(self._calls) >= CLIENT_CALLS_MAX:
            then(LocalMisuse(f"waiting: {amount(len(self._calls), 'call')}"))
            return
        self._last_own -= 1  # drivers number their calls upwards from 1
        deadline = Instant(self.turn.now + min(ask.timeout_ns, self.options.call_timeout_ns))
        self._calls[self._last_own] = _Call(self._last_own, ask, self.turn.now, deadline, then)

    def start(self, call_id: CallId, ask: Ask) -> None:
        """Begin a call, whose result will be in `done`."""
        assert call_id not in self._calls, call_id
        if len(self._calls) >= CLIENT_CALLS_MAX:
            self.done.append(
                Complete(call_id, LocalMisuse(f"waiting: {amount(len(self._calls), 'call')}"))
            )
            return
        now = self.turn.now
        deadline = Instant(now + min(ask.timeout_ns, self.options.call_timeout_ns))
        self._calls[call_id] = _Call(call_id, ask, now, deadline)

    def cancel(self, call_id: CallId) -> None:
        """Stop a call, whose result no caller waits for any more."""
        self._calls.pop(call_id, None)

    def drive(self) -> None:
        """Send the calls that are due; give up those that are overdue."""
        now = self.turn.now
        for call in list(self._calls.values()):
            if now >= call.deadline:
                if call.attempt and call.carrier is not None:
                    self.connections.withdraw(call.carrier)
                self._finish(call, self._too_late(call))
            elif call.attempt and now >= self._impatient_at(call):
                call.attempt = 0
                call.last_error = ConnectionLost("no answer yet", on=f"node {call.sent_to}")
                if call.ask.group is not None:
                    self.coordinators.look_again(call.ask.group)
            if not call.attempt and now >= call.retry_at and call.call in self._calls:
                self._send(call)

    def _impatient_at(self, call: _Call) -> Instant:
        if call.ask.changes or call.ask.node >= 0:
            return NEVER
        doubled = self.options.suspect_ns << min(call.attempts - 1, 4)
        return Instant(call.sent_at + doubled + call.ask.patience_ns)

    def _send(self, call: _Call) -> None:
        ask, now = call.ask, self.turn.now
        target, body, lane = ask.node, ask.body, 0
        if ask.group is not None:
            lane, found = COMMIT_LANE, self.coordinators.node_of(ask.group)
            if isinstance(found, RaftlogError):
                self._finish(call, found)
                return
            call.unled = found is None
            if found is None:
                return
            target = found
        if ask.place is not None:
            self.keeper.follow(ask.place.topic)
            leader = self.cache.leader_of(ask.place)
            if leader is None:
                self._without_leader(call)
                return
            view = self.cache.topics[ask.place.topic]
            target = leader
            try:
                assert ask.make is not None, ask
                body = ask.make(view.leaders[ask.place.partition].epoch, view.topic_id)
            except _CALLERS_OWN as error:
                self._finish(call, WrongValue(f"request.make raised {error!r}"))
                return
        call.attempts += 1
        call.attempt = call.attempts
        call.sent_at, call.sent_to = now, target
        then = partial(self._answered, call, call.attempt)
        call.carrier = self.connections.send(target, ask.api_key, body, then, now, lane=lane)

    def _without_leader(self, call: _Call) -> None:
        """Let a call wait for metadata. It ends in an error if its topic or partition stays
        unknown."""
        place = call.ask.place
        assert place is not None, call.ask
        view = self.cache.topics.get(place.topic)
        error = unknown_place(view, place)
        if error is not None:
            call.last_error = error
            waited = self.keeper.current_as_of >= call.since + self.options.topic_wait_ns
            if waited or not error.retriable:
                self._finish(call, error)
                return
        self.keeper.refresh()
        call.retry_at = Instant(self.turn.now + self.options.metadata_retry_ns)

    def _answered(self, call: _Call, attempt: int, answer: Any) -> None:
        if self._calls.get(call.call) is not call:
            return
        if isinstance(answer, RaftlogError):
            if attempt == call.attempt:
                self._failed(call, answer)
            return
        try:
            result = call.ask.read(answer)
        except KafkaError as error:
            if attempt == call.attempt:
                self._refused(call, error)
        except RaftlogError as error:
            self._finish(call, error)
        except _CALLERS_OWN as error:
            self._finish(call, WrongValue(f"request.read raised {error!r}"))
        else:
            self._finish(call, result)

    def _failed(self, call: _Call, error: RaftlogError) -> None:
        call.attempt = 0
        call.last_error = error
        if isinstance(error, ConnectionLost) and call.ask.changes:
            self._finish(call, _unknown(error))
        elif isinstance(error, ConnectionLost | NotSent):
            self.keeper.refresh()
            if call.ask.group is not None:
                self.coordinators.forget(call.ask.group, call.sent_to)
            self._again(call)
        else:
            self._finish(call, error)

    def _refused(self, call: _Call, error: KafkaError) -> None:
        call.attempt = 0
        call.last_error = error
        if error.retriable and call.ask.place is not None:
            self.cache.forget_leader(call.ask.place)
            self.keeper.refresh()
        if error.retriable and call.ask.group is not None:
            self.coordinators.refused(call.ask.group, call.sent_to, error.code)
        not_done = call.ask.group is not None and error.code in _REFUSED_BEFORE_WORK
        if error.retriable and (not_done or not call.ask.changes):
            self._again(call)
        else:
            self._finish(call, error)

    def _again(self, call: _Call) -> None:
        call.failures += 1
        pause = backoff(self.options, call.failures, self.entropy)
        call.retry_at = Instant(self.turn.now + pause)

    def _too_late(self, call: _Call) -> RaftlogError:
        carrier = call.carrier
        if call.attempt and call.ask.changes and carrier is not None and carrier.departed:
            return _unknown(ConnectionLost("no answer in time"))
        last = f"; last: {call.last_error}" if call.last_error is not None else ""
        if isinstance(call.last_error, KafkaError):  # the brokers can be reached, and refuse
            return NotDone(f"refused until time was up{last}", do="mend that, or give it more time")
        return NotDone(f"no answer in time{last}", do="check that the brokers can be reached")

    def _finish(self, call: _Call, value: object) -> None:
        if self._calls.pop(call.call, None) is None:
            return
        if call.then is not None:
            call.then(value)
        else:
            self.done.append(Complete(call.call, value))

    def next_instant(self, now: Instant) -> Instant:
        """When `drive` has something to do again."""
        wake = NEVER
        for call in self._calls.values():
            wake = min(wake, call.deadline)
            if call.unled:
                continue
            wake = min(wake, self._impatient_at(call) if call.attempt else max(call.retry_at, now))
        return wake

    def close(self, error: RaftlogError) -> None:
        """End all calls."""
        for call in list(self._calls.values()):
            self._finish(call, error)


def unknown_topic(code: int | None, topic: str) -> KafkaError | None:
    """The error of a topic that metadata does not know; None while no answer has come."""
    if code is None or code == ErrorCode.NONE:
        return None
    return KafkaError(code, on=f"topic {topic}")


def unknown_place(view: TopicView | None, place: TopicPartition) -> KafkaError | None:
    """The error of a partition that metadata does not know: its topic is unknown or has fewer
    partitions."""
    if view is None or not view.partitions or place.partition in view.leaders:
        return unknown_topic(view.error if view is not None else None, place.topic)
    return KafkaError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        on=str(place),
        do=f"{place.topic} has {amount(view.count, 'partition')}, numbered from 0",
    )


def _unknown(error: RaftlogError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"it may or may not have been done: {error.what}",
        on=error.on,
        do="look at the state of the cluster before asking again",
    )
