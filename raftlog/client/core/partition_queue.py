"""The batches of one partition, kept in order whatever fails.

    unsent: gathering, or full, without a sequence     sent: built, in order of sequence, unsettled

Rules:

1. At most `in_flight_per_partition` batches fly at once, and one alone until the broker has
   acknowledged the first of an identity: a broker that knows nothing of a producer accepts any
   sequence as its first.
2. After a retriable failure nothing leaves until all that flies has been answered; then what is
   unacknowledged leaves again, in order, with the same sequences.
3. A sequence number that will never be appended breaks the sequence, and the partition goes on
   under a new identity. If the refusal is certain, the followers can only have been refused too and
   leave again; if the outcome is unknown, so is that of all followers, and they fail.

Each method returns the batches that it settled, in order.
"""

from collections import deque
from typing import final

import attrs

from raftlog.base.amounts import amount
from raftlog.base.errors import RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant, WallMillis
from raftlog.client.core.batches import SEQUENCES, Headers, PendingBatch, ProducerIdentity
from raftlog.client.core.errors import NotDone, OutcomeUnknown
from raftlog.client.core.values import ClientOptions, TopicPartition

Settled = list[PendingBatch]


@final
@attrs.define(eq=False)
class PartitionQueue:
    """The batches of one partition. `identity` is the one that the sent batches carry."""

    place: TopicPartition
    options: ClientOptions
    topic_id: bytes
    unsent: deque[PendingBatch] = attrs.field(factory=deque, init=False)
    sent: deque[PendingBatch] = attrs.field(factory=deque, init=False)
    identity: ProducerIdentity | None = attrs.field(default=None, init=False)
    needs_identity_after: ProducerIdentity | None = attrs.field(default=None, init=False)
    """An identity whose sequence is broken in this partition; only a newer one may be used."""
    next_sequence: int = attrs.field(default=0, init=False)
    proven: bool = attrs.field(default=False, init=False)
    flying: int = attrs.field(default=0, init=False)
    recovering: bool = attrs.field(default=False, init=False)
    broken: RaftlogError | None = attrs.field(default=None, init=False)
    broken_for_certain: bool = attrs.field(default=True, init=False)
    retry_at: Instant = attrs.field(default=Instant(0), init=False)
    failures: int = attrs.field(default=0, init=False)
    hurry: bool = attrs.field(default=False, init=False)

    @property
    def idle(self) -> bool:
        return not self.unsent and not self.sent

    def add(
        self,
        timestamp_ms: WallMillis,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
        now: Instant,
    ) -> tuple[PendingBatch, int]:
        """Put a record into the gathering batch. Return the batch and the record's index in it."""
        unsent = self.unsent
        if not unsent or unsent[-1].encoded or unsent[-1].size + size > self.options.batch_bytes:
            deadline = Instant(now + self.options.delivery_timeout_ns)
            unsent.append(PendingBatch(self.place, now, deadline))
        batch = unsent[-1]
        return batch, batch.add(timestamp_ms, key, value, headers, size)

    # --- sending ----------------------------------------------------------------------------------

    def next_batch(self, identity: ProducerIdentity | None, now: Instant) -> PendingBatch | None:
        """The batch that may leave now, built and counted as flying; None when none may."""
        if self.flying >= self._flying_max() or now < self.retry_at or self.broken is not None:
            return None
        if self.recovering:
            if self.flying:
                return None
            self.recovering = False
        for batch in self.sent:
            if not batch.flying and not batch.settled:
                return self._depart(batch)
        if not self.unsent or not self._is_due(self.unsent[0], now):
            return None
        if not self._adopt(identity):
            return None
        batch = self.unsent.popleft()
        batch.build(self.options.compression, self.identity, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) % SEQUENCES
        self.sent.append(batch)
        return self._depart(batch)

    def _depart(self, batch: PendingBatch) -> PendingBatch:
        batch.flying = True
        batch.attempts += 1
        self.flying += 1
        return batch

    def _flying_max(self) -> int:
        if self.options.idempotent and not self.proven:
            return 1
        return self.options.in_flight_per_partition

    def _is_due(self, head: PendingBatch, now: Instant) -> bool:
        """Whether a batch may leave: it is full, or `flush` was called, or nothing is in flight and
        it has lingered."""
        if len(self.unsent) > 1 or self.hurry or head.encoded:
            return True
        if head.size >= self.options.batch_bytes:
            return True
        return self.flying == 0 and now >= head.opened_at + self.options.linger_ns

    def _adopt(self, identity: ProducerIdentity | None) -> bool:
        """Whether a new batch may be built. Takes over a new identity when no batch of the old one
        is out."""
        if not self.options.idempotent:
            return True
        if self.identity is not None and (self.identity == identity or self.sent):
            return True
        if identity is None or identity == self.needs_identity_after:
            return False
        self.identity = identity
        self.needs_identity_after = None
        self.next_sequence = 0
        self.proven = False
        return True

    def next_instant(self, now: Instant) -> Instant:
        """When a batch may leave or must be given up, even if no event comes before."""
        wake = self.unsent[0].deadline if self.unsent else NEVER
        first = self._first_unsettled()
        if first is not None:
            wake = min(wake, first.deadline)
        if not self.idle and now < self.retry_at:
            return min(wake, self.retry_at)
        if self.unsent and self.flying == 0:
            lingered = Instant(self.unsent[0].opened_at + self.options.linger_ns)
            if lingered > now:
                wake = min(wake, lingered)
        return wake

    # --- answers ----------------------------------------------------------------------------------

    def _landed(self, batch: PendingBatch) -> None:
        assert batch.flying, self.place
        batch.flying = False
        self.flying -= 1

    def acked(self, batch: PendingBatch, base_offset: int, append_time_ms: int) -> Settled:
        """Handle the acknowledgement of a batch."""
        self._landed(batch)
        self.failures = 0
        self.proven = True
        settled: Settled = []
        if not batch.settled:
            batch.succeed(Offset(base_offset), WallMillis(append_time_ms))
            settled.append(batch)
        return settled + self._settle()

    def failed(
        self, batch: PendingBatch, error: RaftlogError, *, maybe_written: bool, retry_at: Instant
    ) -> Settled:
        """Handle an attempt that failed and may be repeated."""
        self._landed(batch)
        batch.last_error = error
        batch.maybe_written = batch.maybe_written or maybe_written
        self.recovering = True
        self.failures += 1
        self.retry_at = max(self.retry_at, retry_at)
        return self._settle()

    def refused(self, batch: PendingBatch, error: RaftlogError, *, lost: bool = False) -> Settled:
        """Handle a refusal that is final. With `lost` the broker has lost the producer's earlier
        batches."""
        self._landed(batch)
        settled: Settled = []
        certain = not batch.maybe_written and not lost
        if not batch.settled:
            batch.fail(error if not batch.maybe_written else _unknown(self.place, error))
            settled.append(batch)
        if self.options.idempotent:
            self._break(error, certain=certain)
        return settled + self._settle()

    def has_earlier(self, batch: PendingBatch) -> bool:
        """Whether an earlier batch has no place in the log yet. That explains a gap in the sequence
        before this one."""
        return self.broken is not None or self._first_unsettled() is not batch

    def _first_unsettled(self) -> PendingBatch | None:
        return next((batch for batch in self.sent if not batch.settled), None)

    def overdue(self, now: Instant) -> list[PendingBatch]:
        """The batches past their deadline whose requests may still be taken back."""
        return [
            batch
            for batch in self.sent
            if batch.flying and batch.deadline <= now and not batch.settled
        ]

    def expire(self, now: Instant) -> Settled:
        """Give up the batches past their deadline."""
        settled: Settled = []
        for batch in self.sent:
            if batch.deadline > now:
                break
            if batch.settled:
                continue
            unknown = batch.maybe_written or batch.flying
            batch.fail(self._too_late(batch, unknown=unknown))
            settled.append(batch)
            if self.options.idempotent:
                assert batch.error is not None
                self._break(batch.error, certain=not unknown)
        while self.unsent and self.unsent[0].deadline <= now:
            batch = self.unsent.popleft()
            batch.fail(self._too_late(batch, unknown=batch.maybe_written))
            settled.append(batch)
        return settled + self._settle()

    def _too_late(self, batch: PendingBatch, *, unknown: bool) -> RaftlogError:
        why = f"; last: {batch.last_error}" if batch.last_error is not None else ""
        if unknown:
            return OutcomeUnknown(
                f"not acknowledged in time: {amount(batch.count, 'record')} may be in the log "
                f"or not{why}",
                on=str(self.place),
                do="read the end of the partition before sending them again",
            )
        return NotDone(
            f"not sent in time, {amount(batch.count, 'record')}{why}", on=str(self.place)
        )

    def give_up_unsent(self, error: RaftlogError) -> Settled:
        """Fail the batches that were never sent."""
        settled = list(self.unsent)
        self.unsent.clear()
        for batch in settled:
            batch.fail(error)
        return settled

    def give_up(self, error: RaftlogError) -> Settled:
        """Fail all batches. The outcome of those that were sent is unknown."""
        settled = self.give_up_unsent(error)
        for batch in self.sent:
            if not batch.settled:
                certain = not batch.flying and not batch.maybe_written
                batch.fail(error if certain else _unknown(self.place, error))
                settled.append(batch)
        self.sent.clear()
        return settled

    # --- a broken sequence ------------------------------------------------------------------------

    def _break(self, error: RaftlogError, *, certain: bool) -> None:
        self.broken_for_certain = certain and (self.broken is None or self.broken_for_certain)
        self.broken = error
        probe("producer-sequence-broken")

    def topic_replaced(self, topic_id: bytes, error: RaftlogError) -> Settled:
        """Handle a topic that was deleted and created again: sent batches belonged to the old
        topic."""
        self.topic_id = topic_id
        if not self.sent:
            self.identity = None
            return []
        self._break(error, certain=False)
        return self._settle()

    def _settle(self) -> Settled:
        """Drop settled batches from the front. Mend a broken sequence once nothing is in flight."""
        settled: Settled = []
        if self.broken is not None and self.flying == 0:
            settled = self._mend()
        while self.sent and self.sent[0].settled and not self.sent[0].flying:
            self.sent.popleft()
        return settled

    def _mend(self) -> Settled:
        error = self.broken
        assert error is not None, self.place
        left = [batch for batch in self.sent if not batch.settled]
        self.sent.clear()
        self.broken = None
        self.recovering = False
        self.needs_identity_after, self.identity = self.identity, None
        if self.broken_for_certain and not any(batch.maybe_written for batch in left):
            self.unsent.extendleft(reversed(left))
            return []
        for batch in left:
            batch.fail(_unknown(self.place, error))
        return left


def _unknown(place: TopicPartition, cause: RaftlogError) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the records may or may not be in the log: {cause.what}",
        on=str(place),
        do="read the end of the partition before sending them again",
    )
