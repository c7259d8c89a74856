"""Fetch: committed batches of several partitions, at once or when enough of them are available.

Rules:

1. The answer leaves at once when the client does not want to wait, asks for nothing, any partition
   has an error, or `min_bytes` are available. Available are committed bytes from the offset on.
2. Else one FetchWaiter counts the bytes missing in all partitions together. It wakes on commit, on
   a lost leader, on deletion; a timer or a closed connection ends it.
3. `max_bytes`, and the broker's `fetch.max.bytes`, are soft: the first batch of the first non-empty
   partition always goes whole.
4. Sessions are not kept: `session_id` is 0. A fetch that continues another one is answered
   FETCH_SESSION_ID_NOT_FOUND; one that begins or ends a session is a full fetch.
5. With linearizable reads the leader first confirms that it leads, after the request arrived.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, final

import attrs

from raftlog.base.ids import Offset
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.broker.context import Context
from raftlog.broker.deadlines import Timer
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.front.router import TopicKey
from raftlog.broker.handlers.leader_hints import (
    LeaderHints,
    claims_to_be_a_replica,
    deadline_after,
)
from raftlog.kafka.error_bodies import error_body
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from raftlog.partition.fetch_plan import FetchView, Part
from raftlog.partition.output import ReadAnswer
from raftlog.partition.replica import PartitionReplica
from raftlog.partition.waiters import FetchWaiter
from raftlog.storage.segments.cold import ColdRead
from raftlog.storage.segments.jobs import ScanOrder
from raftlog.storage.segments.segment import SegmentRef

_TOPIC_IDS_FROM: Final = 13
_REPLICA_STATE_FROM: Final = 15
_NO_HINT: Final = LeaderIdAndEpoch()
_COLD_READS_MAX: Final = 8
"""The most jobs for one partition of one fetch: verify, find the start, find the end; then again
once, should the log have moved in between. Beyond it the partition is empty this time."""
_READ_UNCOMMITTED: Final = 0
_FULL_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
"""The epoch of a fetch that ends a session. The initial epoch begins one. Each of these two names
all its partitions (KIP-227)."""
_NOTHING_SEEN: Final = FetchView(ErrorCode.NONE)


def handle(context: Context, request: KafkaRequest) -> None:
    """Answer now, or when enough is available, or when the client's time is up."""
    body: FetchRequest = request.body
    by_state = request.version >= _REPLICA_STATE_FROM
    replica_id = body.replica_state.replica_id if by_state else body.replica_id
    if claims_to_be_a_replica(context, request, replica_id):
        request.answer(error_body(body, ErrorCode.INVALID_REQUEST))
        return
    if body.session_id != 0 and body.session_epoch not in (_FULL_EPOCH, _FINAL_EPOCH):
        # This fetch names only changes since the fetch before it, which was not kept.
        request.answer(FetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
        return
    _Fetch(context, request, body).begin()


@final
@attrs.define(eq=False)
class _Wanted:
    """One partition of the request, and its result."""

    key: TopicKey
    asked: FetchPartition
    replica: PartitionReplica | None = None
    error: ErrorCode = ErrorCode.NONE
    view: FetchView = _NOTHING_SEEN
    parts: Sequence[Part] = ()
    cold_reads: int = 0
    rechecked: bool = False

    def fail(self, error: ErrorCode) -> None:
        self.error = error
        self.view = FetchView(error)
        self.parts = ()


@final
@attrs.define(eq=False)
class _Fetch:
    """One request on its way: confirm (if linearizable), look, perhaps wait, read, answer."""

    context: Context
    request: KafkaRequest
    body: FetchRequest
    wanted: list[_Wanted] = attrs.Factory(list)
    unconfirmed: int = 0
    waiter: FetchWaiter | None = None
    timer: Timer | None = None
    deadline: Instant = Instant(0)
    left_bytes: int = 0
    reading: int = 0
    anything: bool = False

    # --- confirm ----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Find the replicas; confirm the leadership where reads are linearizable."""
        body, by_id = self.body, self.request.version >= _TOPIC_IDS_FROM
        self.deadline = deadline_after(self.context, body.max_wait_ms)
        for topic in body.topics:
            key: TopicKey = topic.topic_id if by_id else topic.topic
            self.wanted += [_Wanted(key, asked) for asked in topic.partitions]
        for want in self.wanted:
            self._find(want)
            if want.replica is not None and want.replica.config.linearizable:
                self._confirm(want, want.replica)
        if self.unconfirmed:
            patience = Instant(self.context.now + 2 * self.context.config.election_ns)
            self._start_timer(max(self.deadline, patience), self._not_confirmed)
        else:
            self._look()

    def _find(self, want: _Wanted) -> None:
        """Find the replica that serves the partition now, or the error why none does."""
        want.replica = None
        if want.error:
            return
        found = self.context.router.replica(want.key, want.asked.partition)
        if isinstance(found, ErrorCode):
            want.fail(found)
            return
        error = found.leader_error(want.asked.current_leader_epoch)
        if error:
            want.fail(error)
        else:
            want.replica = found

    def _confirm(self, want: _Wanted, replica: PartitionReplica) -> None:
        refused = replica.read_index(partial(self._confirmed, want), self.context.now)
        self.context.touch(replica.group)
        if refused is None:
            self.unconfirmed += 1
        else:
            want.fail(refused.error)

    def _confirmed(self, want: _Wanted, answer: ReadAnswer) -> None:
        if self.unconfirmed == 0 or self.request.dead:
            return  # the request was answered meanwhile
        self.unconfirmed -= 1
        if answer.error:
            want.fail(answer.error)
        if self.unconfirmed == 0:
            self._stop_waiting()
            self._look()

    def _not_confirmed(self) -> None:
        """Give up: no majority confirmed this leadership in time, so nothing may be answered.

        Even an empty answer would claim that no record exists.
        """
        probe("linearizable-fetch-timed-out")
        self.unconfirmed = 0
        if self.request.dead:
            return
        for want in self.wanted:
            if want.replica is not None and want.replica.config.linearizable:
                want.fail(ErrorCode.REQUEST_TIMED_OUT)
        self._answer()

    # --- look and wait ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Answer, or wait until enough is available."""
        if self.request.dead:
            return
        available, failed = 0, False
        for want in self.wanted:
            self._find(want)
            if want.replica is not None:
                want.view = want.replica.view(want.asked.fetch_offset)
                want.error = want.view.error
                available += min(want.view.available, max(0, want.asked.partition_max_bytes))
            failed = failed or want.error != ErrorCode.NONE
        enough = available >= self.body.min_bytes or failed or not self.wanted
        if enough or self.context.now >= self.deadline:
            self._answer()
        else:
            self._wait(self.body.min_bytes - available)

    def _wait(self, missing_bytes: int) -> None:
        self.waiter = FetchWaiter(missing_bytes, self._woken)
        for want in self.wanted:
            assert want.replica is not None, want.key
            self.waiter.join(want.replica.fetches, Offset(want.asked.fetch_offset))
        self.request.on_close(self._stop_waiting)
        self._start_timer(self.deadline, self._timed_out)

    def _woken(self, waiter: FetchWaiter) -> None:
        """Look again: enough was committed, or a partition has changed."""
        if waiter is self.waiter and not self.request.dead:
            self._stop_waiting()
            self._look()

    def _timed_out(self) -> None:
        self._stop_waiting()
        self._look()

    def _start_timer(self, deadline: Instant, call: Callable[[], None]) -> None:
        self.timer = self.context.at(deadline, call)

    def _stop_waiting(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.waiter is not None:
            self.waiter.leave()
            self.waiter = None

    # --- read and answer --------------------------------------------------------------------------

    def _answer(self) -> None:
        """Read the partitions in order, within the bytes that are left; then reply."""
        self._stop_waiting()
        self.left_bytes = max(0, min(self.body.max_bytes, self.context.config.fetch_bytes_max))
        self.reading = 0
        self._read_on()

    def _read_on(self) -> None:
        while self.reading < len(self.wanted):
            want = self.wanted[self.reading]
            if want.replica is not None and want.view.available:
                cold = self._read(want, want.replica)
                if cold is not None:
                    done = partial(self._cold_done, want, want.replica, cold)
                    self.context.job(want.replica.directory, cold.function, cold.args, done)
                    return
            self.reading += 1
        self._reply()

    def _read(self, want: _Wanted, replica: PartitionReplica) -> ColdRead | None:
        """Read the partition's batches as far as they fit, or return the job to run first."""
        budget = min(max(0, want.asked.partition_max_bytes), self.left_bytes)
        if self.anything and budget == 0:
            return None
        offset, scrubber = Offset(want.asked.fetch_offset), self.context.scrubber
        connection = self.request.connection.id
        if not want.rechecked:
            # A client that asks again at once may have found the last answer damaged by its own
            # check.
            want.rechecked = True
            again = scrubber.recheck(connection, replica, offset)
            if again is not None:
                return again
        found = replica.read(offset, budget)
        if isinstance(found, ColdRead):
            want.cold_reads += 1
            if want.cold_reads <= _COLD_READS_MAX:
                return found
            probe("fetch-gave-up-cold-reads")
            return None
        size = sum(map(len, found))
        if self.anything and size > self.left_bytes:
            return None
        want.parts = found
        if size:
            scrubber.given(connection, replica.group, offset)
        self.left_bytes -= size
        self.anything = self.anything or size > 0
        return None

    def _cold_done(
        self, want: _Wanted, replica: PartitionReplica, cold: ColdRead, value: object
    ) -> None:
        """Take a job's result: the log knows more now, if it is still the log that asked."""
        replica.client_read_done(_place_of(cold), value, self.context.now)
        self.context.touch(replica.group)
        if self.request.dead:
            return
        self._find(want)
        if want.replica is replica and not isinstance(value, Exception):
            want.view = replica.view(want.asked.fetch_offset)
            want.error = want.view.error
        elif want.error == ErrorCode.NONE:
            want.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        self._read_on()

    def _reply(self) -> None:
        hints = LeaderHints(self.context, self.request.connection.listener)
        place, topics = 0, []
        for topic in self.body.topics:
            count = len(topic.partitions)
            partitions = [
                self._partition(want, hints) for want in self.wanted[place : place + count]
            ]
            place += count
            topics.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions))
        endpoints = hints.endpoints(NodeEndpoint)
        self.request.answer(FetchResponse(responses=topics, node_endpoints=endpoints))

    def _partition(self, want: _Wanted, hints: LeaderHints) -> PartitionData:
        view, number = want.view, want.asked.partition
        hint = hints.of(want.error, want.key, number, LeaderIdAndEpoch, _NO_HINT)
        return PartitionData(
            number,
            want.error,
            view.high_watermark,
            view.high_watermark,
            view.log_start,
            current_leader=hint,
            aborted_transactions=(None if self.body.isolation_level == _READ_UNCOMMITTED else ()),
            records=list(want.parts),
        )


def _place_of(cold: ColdRead) -> Hashable:
    """A key that is equal for the same place, though the log has grown meanwhile."""
    order = next(iter(cold.args), None)
    if isinstance(order, ScanOrder):
        return order.segment.path, order.start.position
    return order.path if isinstance(order, SegmentRef) else cold.function
