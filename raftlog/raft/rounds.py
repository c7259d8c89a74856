"""Which of our own writes are durable: io_ids in flight, and what each of them makes durable.

A completion names an io_id, never an index. A round remembers the last index that it wrote. When
the log is truncated, the rounds in flight are cut too. So the completion of a write of an earlier
term can never stabilise entries of a later term at the same places (etcd-io/raft's append ABA
race).
"""

from collections import deque
from typing import Final, final

import attrs

from raftlog.base.ids import IoId, RaftIndex
from raftlog.base.units import NEVER, Instant

GIVEN_UP_MAX: Final = 6
"""Doublings of the time that a leader gives its disk."""


@final
@attrs.define(eq=False)
class Round:
    """One io_id that this node used. `last_index` is what the log ended with, cut by truncations;
    `hard_state` says that a (term, vote) went with it. `since` is when it was handed out, or when
    the round before it came back: before that the disk was at work for that one. `begun` is when it
    was handed out."""

    io_id: IoId
    last_index: RaftIndex
    hard_state: bool
    since: Instant
    begun: Instant
    done: bool = False


@final
@attrs.define(eq=False)
class RaftRounds:
    """The rounds in flight, oldest first.

    * `durable`: everything up to here survives a crash, in the present log.
    * `hard_states`: rounds in flight that carry a (term, vote).
    * `given_up`: how often in a row this replica stopped leading for the disk's sake. Many groups
      wait for one disk: when all of them step down because it has more to do than it can in the
      limit, they campaign, which is more for it to do, and none of them ever leads. So each waits
      twice as long the next time, until the disk has brought back a round within the limit.
    """

    durable: RaftIndex
    open: deque[Round] = attrs.Factory(deque)
    hard_states: int = 0
    given_up: int = 0
    _took: int = 0

    def begin(self, io_id: IoId, last_index: RaftIndex, *, hard_state: bool, now: Instant) -> None:
        """A take hands out a write. `io_id` is above all earlier ones."""
        if self.open:
            assert io_id > self.open[-1].io_id, (io_id, self.open[-1].io_id)
        self.open.append(Round(io_id, last_index, hard_state, since=now, begun=now))
        self.hard_states += hard_state

    def complete(self, io_id: IoId, now: Instant) -> bool:
        """The io_id is synced: whether the durable end or the hard state moved. Unknown io_ids
        are those that this node did not use. An earlier round that is still open holds back later
        ones."""
        for round_ in self.open:
            if round_.io_id == io_id:
                round_.done = True
                break
        moved = False
        while self.open and self.open[0].done:
            finished = self.open.popleft()
            self._took = now - finished.begun  # one sync may bring back many rounds at once
            self.hard_states -= finished.hard_state
            self.durable = max(self.durable, finished.last_index)
            moved = True
        if moved and self.open:
            self.open[0].since = now
        return moved

    def cut(self, last_index: RaftIndex) -> None:
        """The log now ends at `last_index` or was replaced there: nothing beyond is or gets
        durable by the writes that are in flight."""
        self.durable = min(self.durable, last_index)
        for round_ in self.open:
            round_.last_index = min(round_.last_index, last_index)

    def stalled(self, now: Instant, limit: int) -> bool:
        """Whether the disk has worked on the oldest write for `limit` nanoseconds. One that is slow
        and yet brings back round after round does not stand still."""
        return bool(self.open) and now - self.open[0].since >= limit

    def leads_until(self, limit: int) -> Instant:
        """When a leader gives up, if nothing comes back by then; NEVER without a round in
        flight."""
        if not self.open:
            return NEVER
        return Instant(self.open[0].since + (limit << min(self.given_up, GIVEN_UP_MAX)))

    def forgive(self, limit: int) -> None:
        """The last round that came back took less than the limit: the disk is itself again."""
        if self._took < limit:
            self.given_up = 0
