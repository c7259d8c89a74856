"""Partitions and delays between brokers: messages from and to a broker are held back.

Nothing is lost and nothing overtakes, as on a TCP connection whose packets are dropped for a while:
the messages arrive when the partition heals. The broker does not learn of the end of a link or the
beginning of a new one before then. Both ends hold back what crosses the cut, so one of them may be
paused while the fault is installed. A link on which too many messages are held is broken.
"""

from collections import deque
from typing import Final, final

import attrs

from raftlog.base.ids import NodeId, SessionId
from raftlog.base.units import NEVER, Instant, millis
from raftlog.broker.events import (
    Effects,
    Event,
    LinkDown,
    LinkUp,
    PeerMessages,
    PeerSend,
    Unlink,
)
from raftlog.testing.room import FaultRoom
from raftlog.testing.rules import Action

KEPT_MAX: Final = 8_192
"""The most messages held back for one peer in one direction: some minutes of heartbeats. Raft's
windows bound the entries."""

FromPeer = LinkUp | LinkDown | PeerMessages
FROM_PEERS: Final = (LinkUp, LinkDown, PeerMessages)


@final
@attrs.define(eq=False)
class PeerFaults:
    """The messages held back on one broker. A new boot begins with none."""

    room: FaultRoom
    _inbox: dict[NodeId, deque[tuple[Instant, FromPeer]]] = attrs.field(factory=dict, init=False)
    """Events in the order in which they came, each with the instant from which the broker may get
    it."""
    _outbox: dict[NodeId, deque[PeerSend]] = attrs.field(factory=dict, init=False)
    _sessions: dict[NodeId, SessionId] = attrs.field(factory=dict, init=False)
    """The link of each peer from which events are or were held back."""
    _to_break: dict[NodeId, SessionId] = attrs.field(factory=dict, init=False)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do: no fault, and no message held back."""
        return not (self.room.peers or self._inbox or self._outbox)

    def keep(self, event: FromPeer, now: Instant) -> bool:
        """Hold an event of a peer back if a fault concerns it. Return whether it is held back."""
        peer = event.peer
        self._sessions[peer] = event.session
        kept, delay = self._inbox.get(peer), self._delay(peer)
        cut = self._is_cut(peer, self.room.node, count=True)
        if kept is None and not delay and not cut:
            return False
        if kept is None:
            kept = self._inbox[peer] = deque()
        kept.append((Instant(now + delay), event))
        if len(kept) > KEPT_MAX:
            self._give_up(peer)
        return True

    def released(self, now: Instant) -> list[Event]:
        """Return the held events that the broker may get now."""
        found: list[Event] = []
        for peer in list(self._inbox):
            if self._is_cut(peer, self.room.node):
                continue
            kept = self._inbox[peer]
            while kept and kept[0][0] <= now:
                found.append(kept.popleft()[1])
            if not kept:
                del self._inbox[peer]
        return found

    def leave(self, effects: Effects) -> None:
        """Hold back a turn's messages to peers that it cannot reach; add the held ones that may
        leave now."""
        sends: list[PeerSend] = []
        for send in effects.sends:
            if self._is_cut(self.room.node, send.peer, count=True):
                self._sessions[send.peer] = send.session
                kept = self._outbox.setdefault(send.peer, deque())
                kept.append(send)
                if len(kept) > KEPT_MAX:
                    self._give_up(send.peer)
            else:
                sends.append(send)
        for peer in list(self._outbox):
            if not self._is_cut(self.room.node, peer):
                earlier = self._outbox.pop(peer)
                sends = [*earlier, *sends]
        effects.sends = sends
        for peer, session in self._to_break.items():
            effects.unlinks.append(Unlink(peer, session))
        self._to_break.clear()

    def wake_at(self) -> Instant:
        """When the next delayed message is due. A partition that heals causes a turn by itself."""
        due = NEVER
        for peer, kept in self._inbox.items():
            if not self._is_cut(peer, self.room.node):
                due = min(due, kept[0][0])
        return due

    def _delay(self, peer: NodeId) -> int:
        total = 0
        for fault in self.room.peers:
            if fault.action is Action.DELAY_PEERS and fault.touches(peer, self.room.node):
                self.room.count(fault)
                total += millis(fault.ms)
        return total

    def _is_cut(self, sender: int, receiver: int, *, count: bool = False) -> bool:
        cut = False
        for fault in self.room.peers:
            if fault.action is Action.PARTITION and fault.touches(sender, receiver):
                cut = True
                if count:
                    self.room.count(fault)
        return cut

    def _give_up(self, peer: NodeId) -> None:
        """Drop the held messages and break the link, as a TCP connection ends after a long silence.
        The events of links that begin or end stay: the broker gets them when the peer is reached
        again."""
        self._outbox.pop(peer, None)
        kept = self._inbox.get(peer, deque())
        links = [each for each in kept if type(each[1]) is not PeerMessages]
        self._inbox[peer] = deque(links[-KEPT_MAX // 2 :])
        if not self._inbox[peer]:
            del self._inbox[peer]
        session = self._sessions.get(peer)
        if session is not None:
            self._to_break[peer] = session
