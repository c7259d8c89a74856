"""The one back-pressure ledger: decides which clients may send more, from what is owed and held.

Per connection it counts unanswered requests, their bytes with the objects made of them, and answer
bytes that have not left the process. Per group it counts uncommitted bytes. These pause only the
connections that produce to the group, and at twice the limit other producers are refused. Per
process it counts:

* bytes of large produce requests, which pin receive slabs while they are unanswered;
* the weight of all unanswered requests, and the answers in memory that have not left. These two
  pause only the connections that hold much of them.

A connection is paused while any of its limits is passed and resumed when all are at half or below,
so that it does not flutter. A paused connection still gets its answers. Every limit admits at least
one request of any size, because only the *next* one is held back.

Pausing cannot bound thousands of clients that hold a little each. Hanging up does. It ends the
connection that has taken no answers for longest, or whose requests hold most for longest
(docs/decisions/0054).
"""

from collections.abc import Iterator
from typing import final

import attrs

from raftlog.base.ids import ConnectionId, GroupId
from raftlog.base.limits import HELD_BYTES_MIN, HELD_SHARES
from raftlog.base.probes import probe
from raftlog.broker.config import BrokerLimits
from raftlog.broker.events import Pause, Resume


@final
@attrs.define(eq=False)
class Account:
    """The account of one connection: its open requests and the answers it has not taken."""

    connection: ConnectionId
    requests: int = 0
    """Requests received and not yet answered."""
    request_bytes: int = 0
    """The weight of these requests: their bytes as sent, and the objects made of them."""
    pinned_bytes: int = 0
    output_bytes: int = 0
    """Answer bytes not yet drained."""
    memory_bytes: int = 0
    """The part of `output_bytes` that lies in memory. Slices of files do not count. It never
    exceeds what is left."""
    held_bytes: int = 0
    """The part of `memory_bytes` that counts for the process: all of it, from HELD_BYTES_MIN on,
    until it is 0."""
    over: bool = False
    """Whether a limit of this connection alone is passed."""
    groups_over: dict[GroupId, None] = attrs.Factory(dict)
    """The groups over their limit to which this connection produced."""
    paused: bool = False
    ended: bool = False
    """Whether the broker hung up: no limit of this connection matters any more, and it is not read.
    """


@final
@attrs.define(eq=False)
class Ledger:
    """All accounts of a broker. Changes are collected and given out once per turn."""

    limits: BrokerLimits
    pinned_bytes: int = 0
    pinned_over: bool = False
    waiting_bytes: int = 0
    """The weight of the open requests of all accounts."""
    waiting_over: bool = False
    held_bytes: int = 0
    held_over: bool = False
    _holding: dict[ConnectionId, None] = attrs.Factory(dict)
    """Connections that hold answers in memory; the one that has taken none for longest comes first.
    """
    _accounts: dict[ConnectionId, Account] = attrs.Factory(dict)
    _group_producers: dict[GroupId, dict[ConnectionId, None]] = attrs.Factory(dict)
    """Group over its limit -> the connections that it pauses."""
    _changed: dict[ConnectionId, None] = attrs.Factory(dict)

    def __len__(self) -> int:
        return len(self._accounts)

    # --- connections ---

    def opened(self, connection: ConnectionId) -> None:
        assert connection not in self._accounts, connection
        self._accounts[connection] = Account(connection)
        if self.pinned_over:
            self._changed[connection] = None

    def closed(self, connection: ConnectionId) -> None:
        """Forget the connection; the bytes it pinned are free once its answers are dropped."""
        account = self._accounts.pop(connection)
        self._hold(account, 0)
        self._weigh(account, -account.request_bytes)
        self._changed.pop(connection, None)
        for group in account.groups_over:
            self._group_producers[group].pop(connection, None)
        self._unpin(account.pinned_bytes)

    def ended(self, connection: ConnectionId) -> None:
        """Take note of a hang-up: the connection's requests wait no longer and get no answer."""
        account = self._accounts[connection]
        self._weigh(account, -account.request_bytes)
        account.ended = True

    def received(
        self, connection: ConnectionId, weight: int, requests: int = 1, pinned: int = 0
    ) -> None:
        """Count a request, or a run of them, with its weight and the bytes that it pins."""
        account = self._accounts[connection]
        account.requests += requests
        self._weigh(account, weight)
        if pinned:
            account.pinned_bytes += pinned
            self._pin(pinned)
        self._judge(account)

    def answered(
        self,
        connection: ConnectionId,
        weight: int,
        output_bytes: int,
        in_memory: int = 0,
        requests: int = 1,
        pinned: int = 0,
    ) -> None:
        """Count the answer to a request, or to a run of them; the connection may be gone.

        `output_bytes` is its size (0 for acks=0), `in_memory` the part of it that lies in memory.
        """
        account = self._accounts.get(connection)
        if account is None:
            return
        account.requests -= requests
        self._weigh(account, -weight)
        account.output_bytes += output_bytes
        account.memory_bytes += in_memory
        if account.held_bytes or account.memory_bytes >= HELD_BYTES_MIN:
            self._hold(account, account.memory_bytes)
        assert account.requests >= 0, account.requests
        if pinned:
            account.pinned_bytes -= pinned
            self._unpin(pinned)
        self._judge(account)

    def drained(self, connection: ConnectionId, output_bytes: int) -> None:
        """Count answer bytes that left the process. The connection may be gone."""
        account = self._accounts.get(connection)
        if account is None:
            return
        account.output_bytes = max(0, account.output_bytes - output_bytes)
        account.memory_bytes = min(account.memory_bytes, account.output_bytes)
        if account.held_bytes:
            del self._holding[connection]  # it took some, so it goes to the end
            self._hold(account, account.memory_bytes)
        self._judge(account)

    def overdue(self) -> Iterator[ConnectionId]:
        """The connections to hang up on because pausing does not help.

        While all connections together hold twice the limit, these are the ones that have taken
        nothing for longest; their bytes do not count any more. A single connection may hold an
        answer of any size, or it would never get that answer.
        """
        while self.held_bytes > 2 * self.limits.held_bytes and len(self._holding) > 1:
            connection = next(iter(self._holding), None)
            assert connection is not None, len(self._holding)
            probe("answers-given-up")
            self._hold(self._accounts[connection], 0)
            yield connection

    def waiting_of(self, connection: ConnectionId) -> int:
        """The weight of the connection's open requests."""
        return self._accounts[connection].request_bytes

    def owed(self, connection: ConnectionId) -> tuple[int, int] | None:
        """Requests without an answer, and answer bytes that have not left; None when it is gone."""
        account = self._accounts.get(connection)
        return None if account is None else (account.requests, account.output_bytes)

    def waits_too_much(self) -> bool:
        """Whether a connection with waiting requests must be hung up on: pausing does not help."""
        return self.waiting_bytes > 2 * self.limits.waiting_bytes

    # --- groups ---

    def produced(self, connection: ConnectionId, group: GroupId, uncommitted_bytes: int) -> None:
        """Note that the connection produced to a group that has so many uncommitted bytes now."""
        if uncommitted_bytes <= self.limits.uncommitted_bytes:
            return
        account = self._accounts.get(connection)
        if account is None:
            return
        probe("group-over-uncommitted-limit")
        self._group_producers.setdefault(group, {})[connection] = None
        account.groups_over[group] = None
        self._changed[connection] = None

    def full(self, uncommitted_bytes: int) -> bool:
        """Whether a group with so many uncommitted bytes takes no more.

        Connections that produce to it are paused, but others may begin to.
        """
        return uncommitted_bytes > 2 * self.limits.uncommitted_bytes

    def settled(self, group: GroupId, uncommitted_bytes: int) -> None:
        """Note a group's uncommitted bytes (0 when it leads no more); resume at half the limit."""
        producers = self._group_producers.get(group)
        if producers is None or uncommitted_bytes > self.limits.uncommitted_bytes // 2:
            return
        del self._group_producers[group]
        for connection in producers:
            self._accounts[connection].groups_over.pop(group, None)
            self._changed[connection] = None

    @property
    def has_groups_over(self) -> bool:
        """Whether any group pauses a connection."""
        return bool(self._group_producers)

    # --- the verdict ---

    def changes(self) -> list[Pause | Resume]:
        """The connections to pause or resume since the last call, in order of first change."""
        if not self._changed:
            return []
        found = list(self._verdicts())
        self._changed.clear()
        return found

    def _verdicts(self) -> Iterator[Pause | Resume]:
        for connection in self._changed:
            account = self._accounts[connection]
            if account.ended:
                continue
            paused = (
                account.over
                or bool(account.groups_over)
                or self.pinned_over
                or (self.held_over and self._holds_much(account))
                or (self.waiting_over and self._waits_much(account))
            )
            if paused and not account.paused:
                account.paused = True
                probe("connection-paused")
                yield Pause(connection)
            elif account.paused and not paused:
                account.paused = False
                yield Resume(connection)

    def _judge(self, account: Account) -> None:
        limits = self.limits
        if account.over:
            over = (
                account.requests > limits.unanswered_requests // 2
                or account.request_bytes > limits.unanswered_bytes // 2
                or account.output_bytes > limits.output_bytes // 2
            )
        else:
            over = (
                account.requests >= limits.unanswered_requests
                or account.request_bytes >= limits.unanswered_bytes
                or account.output_bytes >= limits.output_bytes
            )
        if over is not account.over:
            account.over = over
            self._changed[account.connection] = None

    def _holds_much(self, account: Account) -> bool:
        share = self.limits.held_bytes // HELD_SHARES
        return account.held_bytes > (share // 2 if account.paused else share)

    def _waits_much(self, account: Account) -> bool:
        share = self.limits.waiting_bytes // HELD_SHARES
        return account.request_bytes > (share // 2 if account.paused else share)

    def _weigh(self, account: Account, more: int) -> None:
        """Change the weight of the account's open requests by `more`."""
        account.request_bytes += more
        assert account.request_bytes >= 0, account.request_bytes
        self.waiting_bytes += more
        if self.waiting_over:
            self._changed[account.connection] = None
            if self.waiting_bytes <= self.limits.waiting_bytes // 2:
                self._waits(over=False)
        elif self.waiting_bytes >= self.limits.waiting_bytes:
            probe("waiting-bytes-over-limit")
            self._waits(over=True)

    def _waits(self, *, over: bool) -> None:
        self.waiting_over = over
        self._changed.update((each, None) for each in self._accounts)

    def _hold(self, account: Account, held: int) -> None:
        """Set the bytes that the account holds."""
        self.held_bytes += held - account.held_bytes
        account.held_bytes = held
        assert self.held_bytes >= 0, self.held_bytes
        if self.held_over:
            self._changed[account.connection] = None
        if held:
            self._holding[account.connection] = None
        else:
            self._holding.pop(account.connection, None)
        self._judge_held()

    def _judge_held(self) -> None:
        limit = self.limits.held_bytes
        over = self.held_bytes > limit // 2 if self.held_over else self.held_bytes >= limit
        if over is not self.held_over:
            self.held_over = over
            probe("held-bytes-over-limit")
            self._changed.update(self._holding)

    def _pin(self, frame_bytes: int) -> None:
        self.pinned_bytes += frame_bytes
        if not self.pinned_over and self.pinned_bytes >= self.limits.pinned_bytes:
            self.pinned_over = True
            probe("pinned-bytes-over-limit")
            self._changed.update(dict.fromkeys(self._accounts))

    def _unpin(self, frame_bytes: int) -> None:
        self.pinned_bytes -= frame_bytes
        assert self.pinned_bytes >= 0, self.pinned_bytes
        if self.pinned_over and self.pinned_bytes <= self.limits.pinned_bytes // 2:
            self.pinned_over = False
            self._changed.update(dict.fromkeys(self._accounts))
