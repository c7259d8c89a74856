"""The records that a coordinator proposes, in units and batches, and the callbacks that wait.

A unit lies in one batch, so it is written whole or not at all. Units of one turn share batches, so
that many commits cost one entry. Batches are taken in order and decided in any order.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias, final

import attrs

from raftlog.base.limits import GROUPS_UNDECIDED_BYTES_MAX, GROUPS_UNDECIDED_UNITS_MAX
from raftlog.base.units import WallMillis
from raftlog.groups.records import NewRecord
from raftlog.kafka.error_codes import ErrorCode
from raftlog.records.builder import RecordBatchBuilder

Then: TypeAlias = Callable[[ErrorCode | None], None]
"""A callback that hears the outcome of a unit once: None when it is committed and applied."""


@final
@attrs.define(eq=False)
class Ticket:
    """A batch of records, with the callbacks that wait until it is decided (`is_decided`)."""

    builder: RecordBatchBuilder
    thens: list[Then] = attrs.field(factory=list)
    bytes: int = 0
    is_decided: bool = False


@final
class Proposals:
    """The undecided batches of a coordinator."""

    __slots__ = ("_flying", "_size_max", "_token", "_waiting", "undecided_bytes", "undecided_units")

    def __init__(self, batch_bytes_max: int) -> None:
        self._size_max = batch_bytes_max
        self._waiting: deque[Ticket] = deque()
        self._flying: dict[int, Ticket] = {}
        self._token = 0
        self.undecided_bytes = 0
        self.undecided_units = 0

    @property
    def is_full(self) -> bool:
        """Whether so much is undecided that requests which would propose must be refused."""
        return (
            self.undecided_units >= GROUPS_UNDECIDED_UNITS_MAX
            or self.undecided_bytes >= GROUPS_UNDECIDED_BYTES_MAX
        )

    def fits(self, records: Sequence[NewRecord]) -> bool:
        """Whether the records can be one unit."""
        return RecordBatchBuilder().size + _size(records) <= self._size_max

    def split(self, records: Sequence[NewRecord]) -> list[list[NewRecord]]:
        """The records in as few units as they need, in order; each record fits by itself."""
        parts: list[list[NewRecord]] = []
        left = 0
        for record in records:
            size = _size([record])
            if size > left:
                parts.append([])
                left = self._size_max - RecordBatchBuilder().size
            assert size <= left, (size, left)
            parts[-1].append(record)
            left -= size
        return parts

    def add(self, records: Sequence[NewRecord], then: Then, wall: WallMillis) -> Ticket:
        """Add one unit of records; `then` hears its outcome."""
        size = _size(records)
        if not self._waiting or self._waiting[-1].builder.size + size > self._size_max:
            self._waiting.append(Ticket(RecordBatchBuilder()))
        ticket = self._waiting[-1]
        for record in records:
            ticket.builder.append(
                record.value, key=record.key, timestamp_ms=wall, headers=record.headers
            )
        assert ticket.builder.size <= self._size_max, (ticket.builder.size, self._size_max)
        ticket.bytes += size
        self.undecided_bytes += size
        self.after(ticket, then)
        return ticket

    def after(self, ticket: Ticket, then: Then) -> None:
        """Let `then` hear the outcome of an undecided batch too."""
        assert not ticket.is_decided, "what is decided needs no waiting"
        ticket.thens.append(then)
        self.undecided_units += 1

    def take(self) -> tuple[int, bytes] | None:
        """The next batch to write, with the token under which it is decided."""
        if not self._waiting:
            return None
        self._token += 1
        ticket = self._flying[self._token] = self._waiting.popleft()
        return self._token, ticket.builder.build()

    def decide(self, token: int) -> list[Then]:
        """Mark a batch as decided; returns its callbacks, in the order in which they came."""
        return self._decide(self._flying.pop(token))

    def close(self) -> list[Then]:
        """Mark all batches as decided; returns their callbacks."""
        tickets = [*self._flying.values(), *self._waiting]
        self._flying.clear()
        self._waiting.clear()
        return [then for ticket in tickets for then in self._decide(ticket)]

    def _decide(self, ticket: Ticket) -> list[Then]:
        ticket.is_decided = True
        self.undecided_units -= len(ticket.thens)
        self.undecided_bytes -= ticket.bytes
        return ticket.thens


def _size(records: Sequence[NewRecord]) -> int:
    return sum(
        RecordBatchBuilder.size_bound(record.key, record.value, record.headers)
        for record in records
    )
