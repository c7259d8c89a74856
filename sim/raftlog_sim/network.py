"""The simulated network between brokers, first-in first-out: link sessions over directed links.

A pair of running nodes of which one wants the other gets a session after a moment. A cut, a crash
or a reset ends it: both ends hear LinkDown and everything queued is lost, as with a broken TCP
connection. With `encode`, every message goes through its bytes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.base.ids import NodeId, SessionId
from raftlog.base.units import NANOS_PER_MICRO, millis
from raftlog.broker import peer_codec
from raftlog.broker.events import LinkDown, LinkUp, PeerMessages
from raftlog_sim.streams import Stream

if TYPE_CHECKING:
    from raftlog_sim.world import World

DIAL_NS: Final = millis(1)
LATENCY_NS: Final = 100 * NANOS_PER_MICRO
JITTER_NS: Final = 100 * NANOS_PER_MICRO

PairKey = tuple[NodeId, NodeId]


@final
@attrs.define(eq=False)
class Link:
    """One session between two nodes; `last` is when the newest message of each direction
    arrives."""

    session: SessionId
    last: dict[NodeId, int] = attrs.Factory(dict)


@final
@attrs.define(eq=False)
class Network:
    """All links of a world."""

    world: "World"
    encode: bool = False
    latency_ns: int = LATENCY_NS
    jitter_ns: int = JITTER_NS
    links: dict[PairKey, Link] = attrs.Factory(dict)
    cut: dict[PairKey, int] = attrs.Factory(dict)
    """Pairs that cannot reach each other, and how many cuts hold them apart; both orders of a pair
    are one key."""
    messages_sent: int = 0
    _dialling: dict[PairKey, None] = attrs.Factory(dict)
    _sessions: int = 0
    _streams: dict[PairKey, Stream] = attrs.Factory(dict)

    # --- links ---

    def look(self) -> None:
        """Begin to connect every pair that wants to be and is not."""
        nodes = self.world.running()
        for one in nodes:
            for other in nodes:
                if one.number != other.number and one.wants(other.number):
                    self._dial(_key(one.number, other.number))

    def _dial(self, pair: PairKey) -> None:
        if pair in self.links or pair in self._dialling or pair in self.cut:
            return
        self._dialling[pair] = None
        self.world.after(DIAL_NS, self._connect, pair)

    def _connect(self, pair: PairKey) -> None:
        self._dialling.pop(pair, None)
        one, other = self.world.nodes[pair[0]], self.world.nodes[pair[1]]
        if pair in self.links or pair in self.cut or not (one.up and other.up):
            return
        self._sessions += 1
        session = SessionId(self._sessions)
        self.links[pair] = Link(session)
        one.deliver(LinkUp(other.number, session, other.directory, other.boot))
        other.deliver(LinkUp(one.number, session, one.directory, one.boot))

    def reset(self, one: NodeId, other: NodeId) -> bool:
        """The link breaks now and loses everything queued; it is dialled again soon. False when
        there is none."""
        link = self.links.pop(_key(one, other), None)
        if link is None:
            return False
        for end, peer in ((one, other), (other, one)):
            node = self.world.nodes[end]
            if node.up:
                node.deliver(LinkDown(peer, link.session))
        self.world.after(DIAL_NS, self.look)
        return True

    def node_down(self, number: NodeId) -> None:
        """All links of a node break."""
        for pair in [pair for pair in self.links if number in pair]:
            self.reset(*pair)

    # --- partitions ---

    def partition(self, side: Sequence[NodeId]) -> tuple[PairKey, ...]:
        """Cut every link between `side` and all others; the pairs, for `mend`."""
        others = [number for number in self.world.nodes if number not in side]
        pairs = tuple(_key(member, other) for member in side for other in others)
        for pair in pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            self.reset(*pair)
        return pairs

    def mend(self, pairs: Sequence[PairKey]) -> None:
        """Take one cut back; a pair that another cut holds apart stays apart."""
        for pair in pairs:
            left = self.cut.pop(pair, 0) - 1
            if left > 0:
                self.cut[pair] = left
        self.look()

    def heal(self) -> None:
        """Everybody can reach everybody again."""
        self.cut.clear()
        self.look()

    # --- messages ---

    def send(self, sender: NodeId, to: NodeId, session: SessionId, messages: Sequence[Any]) -> None:
        """Queue on the link; nothing happens when the session is over."""
        link = self.links.get(_key(sender, to))
        if link is None or link.session != session:
            return
        if self.encode:
            messages = peer_codec.decode(b"".join(peer_codec.encode(messages)))
        self.messages_sent += len(messages)
        stream = self._streams.setdefault((sender, to), self.world.stream(f"link/{sender}/{to}"))
        arrives = self.world.now + self.latency_ns + stream.below(self.jitter_ns + 1)
        arrives = max(arrives, link.last.get(to, 0))
        link.last[to] = arrives
        self.world.at(arrives, self._arrive, sender, to, session, messages)

    def _arrive(
        self, sender: NodeId, to: NodeId, session: SessionId, messages: Sequence[Any]
    ) -> None:
        link = self.links.get(_key(sender, to))
        if link is not None and link.session == session:
            self.world.nodes[to].deliver(PeerMessages(sender, session, messages))


def _key(one: NodeId, other: NodeId) -> PairKey:
    return (one, other) if one < other else (other, one)
