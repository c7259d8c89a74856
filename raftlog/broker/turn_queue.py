"""The queue of events for a broker's turns, and the order in which a turn's effects are performed.

It is one policy for every shell, the runtime's and the simulator's.

1. Completions (syncs, reads, timers, links, admin calls) go first: they free what others wait for.
2. Acknowledgements of peers wait for the next turn, whatever it is for, when no group needs them to
   go on. The second of two followers only confirms what the first has made certain. A turn for
   that alone would cost as much as the turn that mattered.
3. Requests and messages of peers come last, in the order of their arrival. The end of a connection
   stands among them: a producer with acks=0 closes when its last request has left, and that request
   counts.

A turn takes at most TURN_EVENTS_MAX events and stops after TURN_BYTES_MAX bytes of requests.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol, final

import attrs

from raftlog.base.limits import TURN_BYTES_MAX, TURN_EVENTS_MAX
from raftlog.broker.events import (
    AdminReply,
    ConnectionClosed,
    Effects,
    Event,
    Hangup,
    Job,
    Pause,
    PeerAddress,
    PeerMessages,
    PeerSend,
    Read,
    Reply,
    Request,
    Resume,
    Unlink,
    Write,
)
from raftlog.raft.messages import Append, AppendReply

QUEUED_BYTES_MAX: Final = 2 * TURN_BYTES_MAX
"""The most bytes of requests that may wait: those of the next turn and of the one after it."""
WAITING_ACKS_MAX: Final = 64
"""The most acknowledgements that wait for whatever turn is next; one more brings a turn about."""
CROWDED_SHARE: Final = 8
"""Requests that one connection may queue while others wait: eight such connections share a turn."""

_BULKY: Final = (Request, PeerMessages, ConnectionClosed)
"""The events that wait for a turn with room for them."""


@final
@attrs.define(eq=False)
class TurnQueue:
    """The events that wait for one broker's next turns. Sans-I/O; the shell decides when a turn
    begins, and is told by the return values whether one is wanted."""

    acks_may_wait: bool = False
    """The last turn's `Effects.acks_may_wait`."""
    _completions: deque[Event] = attrs.field(factory=deque, init=False)
    _acks: deque[Event] = attrs.field(factory=deque, init=False)
    _requests: deque[Event] = attrs.field(factory=deque, init=False)
    _request_bytes: int = attrs.field(default=0, init=False)

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._completions) + len(self._acks) + len(self._requests)

    @property
    def wants_turn(self) -> bool:
        """Whether something waits that should not wait for other events."""
        return bool(self._completions or self._requests)

    @property
    def has_room(self) -> bool:
        """Whether a reader may hand in more. Above the bound it waits, or a client that sends
        faster than turns are taken would be queued without bound."""
        return len(self._requests) <= TURN_EVENTS_MAX and self._request_bytes <= QUEUED_BYTES_MAX

    @property
    def request_bytes(self) -> int:
        """The bytes of the clients' requests that wait."""
        return self._request_bytes

    def post(self, event: Event) -> None:
        """Queue an event."""
        if isinstance(event, _BULKY):
            self._requests.append(event)
            if type(event) is Request:
                self._request_bytes += len(event.frame)
        else:
            self._completions.append(event)

    def post_all(self, events: Sequence[Event], *, streamed: bool, round_ends_soon: bool) -> bool:
        """Queue events that arrived together. Returns whether they want a turn.

        Events are `streamed` when their sender goes on without waiting for answers. They want no
        turn while the end of a round is about to bring one about and there is room until then:
        they could only be written after that round. A turn of their own costs as much as some ten
        requests."""
        for event in events:
            self.post(event)
        return bool(events) and not (streamed and round_ends_soon and self.has_room)

    def post_from_peer(self, messages: Sequence[PeerMessages], *, round_ends_soon: bool) -> bool:
        """Queue what one peer has sent together. Returns whether it wants a turn: acknowledgements
        that may wait want none, and entries are streamed."""
        room = len(self._acks) < WAITING_ACKS_MAX
        if room and self.acks_may_wait and _only_acknowledges(messages):
            self._acks.extend(messages)
            return False
        streamed = _only_entries(messages)
        return self.post_all(messages, streamed=streamed, round_ends_soon=round_ends_soon)

    def share(self, *, crowded: bool) -> int:
        """How many requests one connection may hand in now. It is a turn's worth when no request
        waits and the readers are not `crowded`. Else it is a few, so that clients that send one
        request at a time do not wait behind a flood."""
        if not self._requests and not crowded:
            return TURN_EVENTS_MAX
        return min(CROWDED_SHARE, max(1, TURN_EVENTS_MAX - len(self._requests)))

    def collect(self, events: list[Event], most: int | None = None) -> list[Event]:
        """Take the events of the next turn: `events`, which the shell has at hand, then what waits,
        until there are `most` in all (TURN_EVENTS_MAX, unless the shell wants a shorter turn)."""
        most = TURN_EVENTS_MAX if most is None else most
        completions, acks, requests = self._completions, self._acks, self._requests
        while completions and len(events) < most:
            events.append(completions.popleft())
        while acks and len(events) < most:
            events.append(acks.popleft())
        size = 0
        # A peer's later messages stand among the requests: these wait until no acknowledgement
        # is left.
        while requests and not acks and len(events) < most and size < TURN_BYTES_MAX:
            event = requests.popleft()
            events.append(event)
            if type(event) is Request:
                size += len(event.frame)
        self._request_bytes -= size
        return events


class Hands(Protocol):
    """A shell's way to perform each kind of effect."""

    def write(self, writes: Sequence[Write]) -> None: ...
    def unlink(self, unlink: Unlink) -> None: ...
    def keep_peers(self, peers: tuple[PeerAddress, ...]) -> None: ...
    def send(self, sends: Sequence[PeerSend]) -> None: ...
    def throttle(self, change: Pause | Resume) -> None: ...
    def reply(self, replies: Sequence[Reply]) -> None: ...
    def hang_up(self, hangup: Hangup) -> None: ...
    def read(self, read: Read) -> None: ...
    def run_job(self, job: Job) -> None: ...
    def answer_admin(self, reply: AdminReply) -> None: ...
    def sync_lone_rounds(self, writes: Sequence[Write]) -> None: ...
    def leave(self) -> None: ...


def perform(effects: Effects, hands: Hands) -> None:
    """Perform the effects of a turn in the order of the broker's contract: queue the writes, then
    send to peers, then answer clients. Nothing else is ordered; the rest follows, and a lone round
    that the shell syncs inside the turn comes last, when sends and answers are under way."""
    if effects.writes:
        hands.write(effects.writes)
    for unlink in effects.unlinks:
        hands.unlink(unlink)
    if effects.peers is not None:
        hands.keep_peers(effects.peers)
    if effects.sends:
        hands.send(effects.sends)
    for change in effects.pauses:
        hands.throttle(change)
    if effects.replies:
        hands.reply(effects.replies)
    for hangup in effects.hangups:
        hands.hang_up(hangup)
    for read in effects.reads:
        hands.read(read)
    for job in effects.jobs:
        hands.run_job(job)
    for answer in effects.admin_replies:
        hands.answer_admin(answer)
    if effects.writes:
        hands.sync_lone_rounds(effects.writes)
    if effects.stopped:
        hands.leave()


def _only_acknowledges(events: Sequence[PeerMessages]) -> bool:
    """Whether nothing but success of appends is reported."""
    return all(type(each) is AppendReply for event in events for each in event.messages)


def _only_entries(events: Sequence[PeerMessages]) -> bool:
    """Whether nothing but entries arrived, which must be written before anything is answered."""
    return all(
        type(each) is Append and each.entries and not each.read_context
        for event in events
        for each in event.messages
    )
