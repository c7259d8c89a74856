"""Requests that wait for a partition: produces for offsets, fetches for bytes.

A produce waits in one partition, in log order, so a commit takes waiters from the front. A fetch
waits in many partitions. One FetchWaiter per request counts the bytes that it still misses, and a
commit subtracts from that count without looking at anything else. The first partition, timer or
closed connection that ends the wait takes the fetch out of every partition's list.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, final

from raftlog.base.ids import Offset, RaftIndex
from raftlog.base.units import NEVER, Instant

Then = Callable[..., None]  # type: ignore[explicit-any]  # each asker has its own answer type
"""The callback for an answer. It is a bound method or a partial of one, never a closure, so that
the simulator can copy the whole broker."""


class ProduceWaiter(NamedTuple):
    """One produced batch that is in the log and waits for its answer."""

    raft_index: RaftIndex
    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    deadline: Instant
    then: Then


@final
class ProduceWaiters:
    """The waiting produces of one partition, in two lines: acks=all, and the others.

    acks=all waits longer, so it has a line of its own. In each line indexes ascend. A duplicate
    waits for an entry in the middle of the log, so duplicates stand apart.
    """

    __slots__ = ("_duplicates", "_earliest", "_in_sync", "_plain")

    def __init__(self) -> None:
        self._plain: deque[ProduceWaiter] = deque()
        self._in_sync: deque[ProduceWaiter] = deque()
        self._duplicates: list[tuple[ProduceWaiter, bool]] = []
        self._earliest = NEVER

    def __len__(self) -> int:
        return len(self._plain) + len(self._in_sync) + len(self._duplicates)

    @property
    def deadline(self) -> Instant:
        """A time at or before the earliest deadline of a waiter; `take_expired` corrects it when it
        passes."""
        return self._earliest if len(self) else NEVER

    def add(self, waiter: ProduceWaiter, *, in_sync: bool) -> None:
        """Add a waiter for the newest entry of the log; `in_sync` means acks=all."""
        line = self._in_sync if in_sync else self._plain
        assert not line or line[-1].raft_index < waiter.raft_index, (line[-1], waiter)
        line.append(waiter)
        self._note(waiter.deadline)

    def add_duplicate(self, waiter: ProduceWaiter, *, in_sync: bool) -> None:
        """Add a waiter for a retry of a batch that is in the log and not committed."""
        self._duplicates.append((waiter, in_sync))
        self._note(waiter.deadline)

    def take_committed(self, commit: RaftIndex, held: RaftIndex) -> list[ProduceWaiter]:
        """Remove and return the waiters at or below `commit`; with acks=all also at or below
        `held`, the index that enough in-sync replicas hold durably."""
        decided: list[ProduceWaiter] = []
        _take_front(self._plain, commit, decided)
        _take_front(self._in_sync, min(commit, held), decided)
        if self._duplicates:
            self._take_duplicates(commit, held, decided)
        if not (self._plain or self._in_sync or self._duplicates):
            self._earliest = NEVER
        return decided

    def take_short_of_replicas(self, commit: RaftIndex) -> list[ProduceWaiter]:
        """Remove and return the acks=all waiters at or below `commit`: too few are in sync now."""
        failed: list[ProduceWaiter] = []
        _take_front(self._in_sync, commit, failed)
        kept = []
        for waiter, in_sync in self._duplicates:
            if in_sync and waiter.raft_index <= commit:
                failed.append(waiter)
            else:
                kept.append((waiter, in_sync))
        self._duplicates = kept
        return failed

    def committed_and_waiting(self, commit: RaftIndex) -> bool:
        """Whether an acks=all waiter at or below `commit` is left."""
        if self._in_sync and self._in_sync[0].raft_index <= commit:
            return True
        if not self._duplicates:
            return False
        return any(waiter.raft_index <= commit for waiter, _ in self._duplicates)

    def take_expired(self, now: Instant) -> list[ProduceWaiter]:
        """Remove and return the waiters whose deadline is at or before `now`."""
        if now < self._earliest:
            return []
        expired: list[ProduceWaiter] = []
        self._plain = _split_expired(self._plain, now, expired)
        self._in_sync = _split_expired(self._in_sync, now, expired)
        duplicates, self._duplicates = self._duplicates, []
        for waiter, in_sync in duplicates:
            if waiter.deadline <= now:
                expired.append(waiter)
            else:
                self._duplicates.append((waiter, in_sync))
        self._earliest = min((waiter.deadline for waiter in self._all()), default=NEVER)
        return expired

    def take_all(self) -> list[ProduceWaiter]:
        """Remove and return all waiters."""
        everybody = list(self._all())
        self._plain.clear()
        self._in_sync.clear()
        self._duplicates.clear()
        self._earliest = NEVER
        return everybody

    def _all(self) -> Iterable[ProduceWaiter]:
        yield from self._plain
        yield from self._in_sync
        for waiter, _ in self._duplicates:
            yield waiter

    def _note(self, deadline: Instant) -> None:
        if deadline < self._earliest:
            self._earliest = deadline

    def _take_duplicates(
        self, commit: RaftIndex, held: RaftIndex, decided: list[ProduceWaiter]
    ) -> None:
        kept = []
        for waiter, in_sync in self._duplicates:
            if waiter.raft_index <= (min(commit, held) if in_sync else commit):
                decided.append(waiter)
            else:
                kept.append((waiter, in_sync))
        self._duplicates = kept


def _take_front(line: deque[ProduceWaiter], up_to: RaftIndex, taken: list[ProduceWaiter]) -> None:
    while line and line[0].raft_index <= up_to:
        taken.append(line.popleft())


def _split_expired(
    line: deque[ProduceWaiter], now: Instant, expired: list[ProduceWaiter]
) -> deque[ProduceWaiter]:
    kept: deque[ProduceWaiter] = deque()
    for waiter in line:
        if waiter.deadline <= now:
            expired.append(waiter)
        else:
            kept.append(waiter)
    return kept


@final
class FetchWaiter:
    """One fetch request that waits until `missing_bytes` more bytes are committed in its
    partitions.

    `then` is called once, with this waiter, when it should look again: enough bytes, a lost
    leader, a deleted partition. A timer or a closed connection calls `leave` instead.
    """

    __slots__ = ("_lines", "missing_bytes", "then")

    def __init__(self, missing_bytes: int, then: Then) -> None:
        assert missing_bytes > 0, missing_bytes
        self.missing_bytes = missing_bytes
        self.then = then
        self._lines: list[FetchWaiters] = []

    @property
    def waiting(self) -> bool:
        return bool(self._lines)

    def join(self, line: "FetchWaiters", offset: Offset) -> None:
        """Wait in this partition too, for bytes from `offset` on."""
        line.join(self, offset)
        self._lines.append(line)

    def leave(self) -> None:
        """Leave every partition's line."""
        lines, self._lines = self._lines, []
        for line in lines:
            line.drop(self)


@final
class FetchWaiters:
    """The fetches that wait in one partition, in order of arrival."""

    __slots__ = ("_offsets",)

    def __init__(self) -> None:
        self._offsets: dict[FetchWaiter, Offset] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def join(self, waiter: FetchWaiter, offset: Offset) -> None:
        """Add a waiter; only `FetchWaiter.join` calls it."""
        # A client may name a partition twice in one fetch: wait once, from the lower offset.
        known = self._offsets.get(waiter)
        self._offsets[waiter] = offset if known is None else min(offset, known)

    def drop(self, waiter: FetchWaiter) -> None:
        """Remove a waiter; only `FetchWaiter.leave` calls it."""
        self._offsets.pop(waiter, None)

    def published(
        self, old: Offset, new: Offset, bytes_between: Callable[[Offset, Offset], int]
    ) -> list[FetchWaiter]:
        """Return the waiters that have enough bytes now that the high watermark went from `old` to
        `new`. They have left every line."""
        ready: list[FetchWaiter] = []
        moved = bytes_between(old, new)
        for waiter, offset in self._offsets.items():
            if offset <= old:
                waiter.missing_bytes -= moved
            elif offset < new:
                waiter.missing_bytes -= bytes_between(offset, new)
            if waiter.missing_bytes <= 0:
                ready.append(waiter)
        for waiter in ready:
            waiter.leave()
        return ready

    def wake_all(self) -> list[FetchWaiter]:
        """Return all waiters, for they must look again. They have left every line."""
        everybody = list(self._offsets)
        for waiter in everybody:
            waiter.leave()
        return everybody
