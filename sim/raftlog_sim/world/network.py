"""The simulated network between brokers: link sessions, as over TCP, and what befalls them.

A pair of running nodes of which one wants the other gets a session after a moment. A cut, a crash
or a reset ends it: both ends hear LinkDown and everything queued is lost, as with a broken TCP
connection. What crashes while nothing of it gets through leaves a session half open: the other
end hears of it late, or by the next session, and what was on its way still comes (RFC 9293, 3.5.1).
With `encode`, and where a later release is at one end, every message goes through its
bytes, in the protocol that both ends know.

Each direction of a pair is a pipe, first-in first-out. A pipe that is held (a clog, a silent cut, a
cut of one direction) keeps what arrives and hands it over in one burst when it is let go; one that
stays held for too long, or that must keep too much, breaks the session. While anything holds or
cuts a pair it cannot be dialled.

Lossy conduct belongs to no TCP, but to what reconnects and buggy middle-boxes make of it: messages
vanish, come twice or overtake each other, and the session that this happened to breaks soon after.
Nothing unsafe may come of it. With `stale`, what was under way when a session ended still arrives,
with the name of the old session, which the broker has to refuse; and so does what is replayed.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import NodeId, SessionId
from raftlog.base.units import NANOS_PER_MICRO, millis
from raftlog.broker import peer_codec
from raftlog.broker.events import LinkDown, LinkUp, PeerMessages
from raftlog.broker.peer_codec import INCARNATIONS_FROM, PeerCodec
from raftlog.raft.messages import Append
from raftlog.storage.directories.incarnations import NONE
from raftlog_sim.base.streams import Stream
from raftlog_sim.base.violation import Violation
from raftlog_sim.world.carried import Carried
from raftlog_sim.world.faces import SimNode, SimWorld
from raftlog_sim.world.relay import LinkChecks, Strike

DIAL_NS: Final = millis(1)
LATENCY_NS: Final = 100 * NANOS_PER_MICRO
JITTER_NS: Final = 100 * NANOS_PER_MICRO
GIVE_UP_NS: Final = millis(1500)
"""How long a session survives a pipe that carries nothing."""
QUEUE_MAX: Final = 4_096
_TAIL_OF: Final = 1_000
_TAIL_TIMES: Final = 50
_DOOM_NS: Final = millis(150)

PairKey = tuple[NodeId, NodeId]


@final
@attrs.define(eq=False)
class Link:
    """One session between two nodes."""

    session: SessionId
    codecs: dict[NodeId, tuple[PeerCodec, PeerCodec]]
    """By sender: what it writes and what the other end reads; empty when messages are handed over
    as they are."""
    doomed: bool = False


@final
@attrs.define(eq=False)
class Pipe:
    """One direction of a pair. `last` is when the newest message arrives; rates are in percent.
    `kinds_drop` is the rate at which messages of `kinds` vanish."""

    stream: Stream
    last: int = 0
    holds: int = 0
    deaf: bool = False
    """What arrives, and would be held, vanishes."""
    extra_ns: int = 0
    drop: int = 0
    duplicate: int = 0
    reorder_ns: int = 0
    kinds: tuple[type, ...] = ()
    kinds_drop: int = 0
    strike: Strike | None = None
    """Of streams only."""
    append: Append | None = None
    """The last append with entries that it carried, while `replays` is set."""
    carried: Carried | None = None
    """What of all that it carried is kept, while `keeps` is set."""
    queue: deque[tuple[SessionId, Sequence[Any]]] = attrs.Factory(deque)

    @property
    def lossy(self) -> bool:
        return bool(self.drop or self.duplicate or self.reorder_ns or self.kinds_drop)

    def loses(self, message: object) -> bool:
        """Whether this one vanishes."""
        if self.stream.chance(self.drop, 100):
            return True
        return type(message) in self.kinds and self.stream.chance(self.kinds_drop, 100)


class Cut(NamedTuple):
    """What one cut holds, for `mend`: pairs that cannot dial, and pipes (sender, receiver)."""

    pairs: tuple[PairKey, ...]
    pipes: tuple[PairKey, ...]


@final
@attrs.define(eq=False)
class Network:
    """All links of a world."""

    world: SimWorld
    encode: bool = False
    stale: bool = False
    latency_ns: int = LATENCY_NS
    jitter_ns: int = JITTER_NS
    queue_max: int = QUEUE_MAX
    links: dict[PairKey, Link] = attrs.Factory(dict)
    cut: dict[PairKey, int] = attrs.Factory(dict)
    """Pairs that cannot reach each other, and how many cuts hold them apart; both orders of a pair
    are one key."""
    messages_sent: int = 0
    frames_read: int = 0
    replays: bool = False
    """Remember appends, for `replay`."""
    keeps: bool = False
    """Keep a sample of everything, for `replay-any`."""
    pipes: dict[PairKey, Pipe] = attrs.Factory(dict)
    half_open: dict[PairKey, SessionId] = attrs.Factory(dict)
    """By (who still believes in it, who is gone)."""
    order: LinkChecks | None = None
    relayed: bool = False
    """Both of a network of streams only: messages are dropped and repeated here."""
    _dialling: dict[PairKey, None] = attrs.Factory(dict)
    _sessions: int = 0

    # --- links ---

    def look(self) -> None:
        """Begin to connect every pair that wants to be and is not."""
        nodes = self.world.running()
        for one in nodes:
            for other in nodes:
                if one.number != other.number and one.wants(other):
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
        self.links[pair] = Link(session, self._codecs(one, other))
        self._close_half_open(pair)
        one.deliver(_link_up(other, one, session))
        other.deliver(_link_up(one, other, session))

    def _codecs(self, one: SimNode, other: SimNode) -> dict[NodeId, tuple[PeerCodec, PeerCodec]]:
        """What the handshake fixes: each end reckons for itself what it writes and reads."""
        if not (self.encode or one.release or other.release):
            return {}
        ends = {one.number: _spoken(one, other), other.number: _spoken(other, one)}
        return {
            one.number: (ends[one.number], ends[other.number]),
            other.number: (ends[other.number], ends[one.number]),
        }

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
            if not self.stale:
                self.pipe(end, peer).queue.clear()
        self.world.after(DIAL_NS, self.look)
        return True

    def _reset_session(self, pair: PairKey, session: SessionId) -> None:
        link = self.links.get(pair)
        if link is not None and link.session == session:
            self.reset(*pair)

    def unlink(self, number: NodeId, peer: NodeId, session: SessionId) -> None:
        """One end breaks a session of its own will."""
        if self.half_open.get((number, peer)) == session:
            del self.half_open[number, peer]
        self._reset_session(_key(number, peer), session)

    def node_down(self, number: NodeId) -> None:
        """All links of a node break, and who cannot hear of it does not."""
        for pair in [pair for pair in self.half_open if pair[0] == number]:
            del self.half_open[pair]
        for pair in [pair for pair in self.links if number in pair]:
            other = pair[0] if pair[1] == number else pair[1]
            if self.pipe(number, other).holds:
                session = self.links.pop(pair).session
                self.half_open[other, number] = session
                self.world.after(GIVE_UP_NS, self._notice, other, number, session)
            else:
                self.reset(*pair)

    def _notice(self, number: NodeId, gone: NodeId, session: SessionId) -> None:
        """Who believes in a half-open session has heard nothing for too long."""
        if self.half_open.get((number, gone)) == session:
            del self.half_open[number, gone]
            self.world.nodes[number].deliver(LinkDown(gone, session))

    def _close_half_open(self, pair: PairKey) -> None:
        """A new session tells who still believed in an old one."""
        for believer, gone in (pair, pair[::-1]):
            session = self.half_open.pop((believer, gone), None)
            if session is not None:
                self.world.nodes[believer].deliver(LinkDown(gone, session))

    # --- cuts -------------------------------------------------------------------------------------

    def partition(self, side: Sequence[NodeId]) -> Cut:
        """Cut every link between `side` and all others; what `mend` wants."""
        others = [number for number in self.world.nodes if number not in side]
        return self.part([(member, other) for member in side for other in others])

    def part(self, pairs: Iterable[PairKey]) -> Cut:
        """These pairs break and cannot reach each other."""
        cut = Cut(tuple(dict.fromkeys(_key(*pair) for pair in pairs)), ())
        for pair in cut.pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            self.reset(*pair)
        return cut

    def hold(self, pipes: Iterable[PairKey]) -> Cut:
        """These pipes (sender, receiver) carry nothing; nobody is told."""
        chosen = tuple(dict.fromkeys(pipes))
        cut = Cut(tuple(dict.fromkeys(_key(*pipe) for pipe in chosen)), chosen)
        for pipe in chosen:
            self.pipe(*pipe).holds += 1
        for pair in cut.pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            link = self.links.get(pair)
            if link is not None:
                self.world.after(GIVE_UP_NS, self._give_up, cut, pair, link.session)
        return cut

    def deafen(self, pipes: Iterable[PairKey]) -> None:
        """What comes through these pipes (sender, receiver) vanishes until all is healed, and links
        stay: who sends never notices. Then they break, for something was lost on them."""
        for sender, receiver in pipes:
            pipe = self.pipe(sender, receiver)
            pipe.deaf, pipe.holds = True, pipe.holds + 1
            pair = _key(sender, receiver)
            self.cut[pair] = self.cut.get(pair, 0) + 1

    def _give_up(self, cut: Cut, pair: PairKey, session: SessionId) -> None:
        if any(self.pipe(*pipe).holds for pipe in cut.pipes if _key(*pipe) == pair):
            self._reset_session(pair, session)

    def mend(self, cut: Cut) -> None:
        """Take one cut back; what another cut holds stays held."""
        for pair in cut.pairs:
            left = self.cut.pop(pair, 0) - 1
            if left > 0:
                self.cut[pair] = left
        for pipe in cut.pipes:
            held = self.pipe(*pipe)
            held.holds = max(0, held.holds - 1)
            self._burst(*pipe)
        self.look()

    def heal(self) -> None:
        """Everybody can reach everybody again, without loss or delay."""
        self.cut.clear()
        for (sender, to), pipe in list(self.pipes.items()):
            if pipe.deaf:
                pipe.deaf = False
                self.reset(sender, to)
            pipe.holds = pipe.extra_ns = pipe.drop = pipe.duplicate = pipe.reorder_ns = 0
            pipe.kinds_drop = 0
            self._burst(sender, to)
        self.look()

    # --- messages ---

    def send(self, sender: NodeId, to: NodeId, session: SessionId, messages: Sequence[Any]) -> None:
        """Queue on the link; nothing happens when the session is over."""
        link = self.links.get(_key(sender, to))
        if link is None or link.session != session:
            return
        if link.codecs:
            messages = self._through_bytes(sender, to, link, messages)
        self.messages_sent += len(messages)
        pipe = self.pipe(sender, to)
        if self.replays:
            carried = [each for each in messages if type(each) is Append and each.entries]
            pipe.append = carried[-1] if carried else pipe.append
        if pipe.carried is not None:
            pipe.carried.note(session, messages)
        if pipe.lossy:
            self._send_lossy(sender, to, link, messages)
            return
        arrives = max(self.world.now + self._delay(pipe), pipe.last)
        pipe.last = arrives
        self.world.at(arrives, self._arrive, sender, to, session, messages)

    def _through_bytes(
        self, sender: NodeId, to: NodeId, link: Link, messages: Sequence[Any]
    ) -> Sequence[Any]:
        """As bytes and back. Nothing is ever damaged on the way, so what cannot be read should not
        have been sent."""
        writes, reads = link.codecs[sender]
        self.frames_read += 1
        try:
            return reads.decode(b"".join(writes.encode(messages)))
        except ProtocolError as error:
            raise Violation("peer-protocol", f"n{sender} to n{to}: {error.what}") from None

    def _delay(self, pipe: Pipe) -> int:
        """The least, some jitter, and once in a thousand very much."""
        drawn = pipe.stream.below(self.jitter_ns * _TAIL_OF + 1)
        jitter, rest = divmod(drawn, _TAIL_OF)
        if rest == 0:
            jitter *= _TAIL_TIMES
        return self.latency_ns + pipe.extra_ns + jitter

    def _send_lossy(self, sender: NodeId, to: NodeId, link: Link, messages: Sequence[Any]) -> None:
        """Message by message; the session breaks soon after the first one that was mistreated."""
        pipe = self.pipe(sender, to)
        stream, hurt = pipe.stream, False
        for message in messages:
            copies = 0 if pipe.loses(message) else 1
            if copies and stream.chance(pipe.duplicate, 100):
                copies = 2
            hurt = hurt or copies != 1 or bool(pipe.reorder_ns)
            for _ in range(copies):
                arrives = self.world.now + self._delay(pipe)
                arrives += stream.below(pipe.reorder_ns + 1)
                pipe.last = max(arrives, pipe.last)
                self.world.at(arrives, self._arrive, sender, to, link.session, (message,))
        if hurt and not link.doomed:
            link.doomed = True
            pair = _key(sender, to)
            self.world.after(stream.below(_DOOM_NS), self._reset_session, pair, link.session)

    def _arrive(
        self, sender: NodeId, to: NodeId, session: SessionId, messages: Sequence[Any]
    ) -> None:
        pipe = self.pipe(sender, to)
        if not pipe.holds:
            self._hand_over(sender, to, session, messages)
            return
        if pipe.deaf:
            return
        pipe.queue.append((session, messages))
        if len(pipe.queue) > self.queue_max:
            pipe.queue.clear()
            self._reset_session(_key(sender, to), session)

    def _burst(self, sender: NodeId, to: NodeId) -> None:
        pipe = self.pipe(sender, to)
        while pipe.queue and not pipe.holds:
            session, messages = pipe.queue.popleft()
            self._hand_over(sender, to, session, messages)

    def _hand_over(
        self, sender: NodeId, to: NodeId, session: SessionId, messages: Sequence[Any]
    ) -> None:
        link = self.links.get(_key(sender, to))
        node = self.world.nodes[to]
        present = link is not None and link.session == session
        present = present or self.half_open.get((to, sender)) == session
        if present or (self.stale and node.up):
            node.deliver(PeerMessages(sender, session, messages))

    def replay(self, sender: NodeId, to: NodeId, message: Append) -> None:
        """What was carried once arrives again, whatever holds the pipe."""
        link, node = self.links.get(_key(sender, to)), self.world.nodes[to]
        if link is not None and node.up:
            node.deliver(PeerMessages(sender, link.session, (message,)))

    def replay_any(self, sender: NodeId, to: NodeId, draws: Stream, *, ended: bool) -> bool:
        """Something that was carried once arrives again under the session in which it was sent,
        whatever holds the pipe and whether or not that session is over; False when nothing can."""
        carried, node = self.pipe(sender, to).carried, self.world.nodes[to]
        link = self.links.get(_key(sender, to))
        present = None if link is None else link.session
        found = None
        if carried is not None and node.up:
            found = carried.one(draws, ended=ended, present=present)
        if found is not None:
            node.deliver(PeerMessages(sender, found[0], (found[1],)))
        return found is not None

    def pipe(self, sender: NodeId, to: NodeId) -> Pipe:
        """One direction, to be shaped."""
        pipe = self.pipes.get((sender, to))
        if pipe is None:
            stream = self.world.stream(f"link/{sender}/{to}")
            pipe = self.pipes[sender, to] = Pipe(stream)
            pipe.carried = Carried(stream.fork("carried")) if self.keeps else None
        return pipe


def _spoken(mine: SimNode, theirs: SimNode) -> PeerCodec:
    """The protocol that an end of a link takes for the one that both know."""
    release = mine.config.release
    version = peer_codec.common_version(release.protocols, theirs.config.release.protocols)
    assert version is not None, (mine.release, theirs.release)
    return release.codecs[version]


def _link_up(peer: SimNode, told: SimNode, session: SessionId) -> LinkUp:
    """What one end hears of the other, as a handshake says it."""
    newest = min(end.config.release.protocols[1] for end in (peer, told))
    life = peer.broker.volume.store.incarnation if newest >= INCARNATIONS_FROM else NONE
    return LinkUp(peer.number, session, peer.directory, peer.boot, life)


def _key(one: NodeId, other: NodeId) -> PairKey:
    return (one, other) if one < other else (other, one)
