"""The leader's knowledge of one follower, and its one sender: probe, replicate or install.

    PROBE      one append at a time, to find where the logs agree
    REPLICATE  appends ahead of their answers, within a small window
    INSTALL    the follower is below the first entry held; it is sent a snapshot, piece by piece

There are never two senders for one follower: changing the state forgets what the other one had
sent.
"""

import enum
from collections import deque
from typing import Final, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.entries import InstallPosition
from raftlog.base.ids import RaftIndex, ReplicaId
from raftlog.base.units import Instant, Nanos
from raftlog.raft.options import RaftOptions
from raftlog.raft.throttle import Slot


@final
class ProgressState(enum.Enum):
    """Which sender serves the follower."""

    PROBE = "probe"
    REPLICATE = "replicate"
    INSTALL = "install"


# Bound once, for the same reason as the roles in `state`.
PROBE: Final = ProgressState.PROBE
REPLICATE: Final = ProgressState.REPLICATE
INSTALL: Final = ProgressState.INSTALL


@final
@attrs.define(eq=False)
class InstallSender:
    """The state before the leader's first entry, on its way to one follower. `position` is None
    until the snapshot was read; `next_byte` is where the piece that is out begins."""

    token: int
    position: InstallPosition | None = None
    snapshot: Buffer = b""
    next_byte: int = 0
    sent_at: Instant = Instant(0)


@final
@attrs.define(eq=False)
class Progress:
    """One follower or learner, as its leader sees it.

    * `match`: everything up to here is equal to our log and *durable* there; moves by its replies
      in this term, falls only when the follower refuses a probe there: it holds less.
    * `next`: the next entry to send; above `match`, at most one above our last.
    * `in_flight`: (last index, bytes) of the appends that are out, only in REPLICATE.
    * `waiting`: the one probe is out; cleared by an answer. Only in PROBE.
    * `last_contact`: when its last message of this term arrived; our election to begin with.
    * `covered`: heartbeats of the pair of nodes stand for ours. `agreed`: it answered an append
      of this term on the present link session.
    * `commit_sent`: the highest commit index told to it. `spoken_to`: something was sent to it
      since the last heartbeat.
    * `read_token`: the log read under way for it.
    * `slot`: when a throttled learner may be sent entries next. `at_end`: the last entries that it
      was sent ended at our last one.
    * `echoed`: the newest read-index round that it echoed; `promised_ns`: for how long it elects
      nobody else since then.
    """

    replica: ReplicaId
    next: RaftIndex
    last_contact: Instant
    match: RaftIndex = RaftIndex(0)
    state: ProgressState = PROBE
    in_flight: deque[tuple[RaftIndex, int]] = attrs.Factory(deque)
    in_flight_bytes: int = 0
    waiting: bool = False
    covered: bool = False
    agreed: bool = False
    damaged: bool = False
    commit_sent: RaftIndex = RaftIndex(0)
    spoken_to: bool = False
    read_token: int | None = None
    install: InstallSender | None = None
    slot: Slot | None = None
    at_end: bool = False
    echoed: int = 0
    promised_ns: Nanos = Nanos(0)

    def become_probe(self, next_index: RaftIndex) -> None:
        """Look for the agreement again, from `next_index`; what was in flight is forgotten."""
        assert next_index >= 1, next_index
        self._leave_state(PROBE)
        self.at_end = False
        self.next = next_index

    def probe_again(self) -> None:
        """Look for the agreement again: what was in flight may be lost.

        It lies behind the match, if there is one. A follower that was away at the election has
        none yet: `next` stays near our end, and its refusal tells where its log ends. From the
        first entry on, it would be sent all that it has.
        """
        self.become_probe(RaftIndex(self.match + 1) if self.match else self.next)

    def become_replicate(self) -> None:
        """The agreement at `match` is found: stream from there."""
        self._leave_state(REPLICATE)
        self.next = RaftIndex(self.match + 1)

    def become_install(self, token: int) -> None:
        """It needs what we no longer hold; `token` names the snapshot read."""
        self._leave_state(INSTALL)
        self.install = InstallSender(token)

    def _leave_state(self, state: ProgressState) -> None:
        self.state = state
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.waiting = False
        self.read_token = None
        self.install = None

    def has_room(self, options: RaftOptions) -> bool:
        """Whether one more append may go out. With nothing in flight one of any size is
        admitted."""
        if self.state is REPLICATE:
            return not self.in_flight or (
                len(self.in_flight) < options.appends_in_flight_max
                and self.in_flight_bytes < options.inflight_bytes_max
            )
        return self.state is PROBE and not self.waiting

    def sent(self, last_index: RaftIndex, byte_count: int) -> None:
        """An append with entries up to `last_index` is on its way."""
        if self.state is REPLICATE:
            self.in_flight.append((last_index, byte_count))
            self.in_flight_bytes += byte_count
            self.next = RaftIndex(last_index + 1)
        else:
            assert self.state is PROBE, self.state
            self.waiting = True

    def acknowledged(self, match: RaftIndex) -> bool:
        """It holds everything up to `match` durably; whether that is news. Frees the window."""
        while self.in_flight and self.in_flight[0][0] <= match:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
        if match <= self.match:
            return False
        self.match = match
        self.next = max(self.next, RaftIndex(match + 1))
        return True
