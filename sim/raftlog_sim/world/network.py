"""The simulated network between brokers: link sessions, as over TCP, and what befalls them.

Two running nodes get a session after a moment when one of them wants the other. A cut, a crash or a
reset ends it: both ends hear LinkDown, and all queued messages are lost, as with a broken TCP
connection. A node that crashes while its pipe is held leaves the session half open. The other end
then hears of the crash late, or by the next session, and still gets the messages on their way
(RFC 9293, 3.5.1). With `encode`, or with a later release at one end, every message goes through its
bytes, in the protocol that both ends know.

Each direction of a pair is a pipe, first-in first-out. A clog, a silent cut or a cut of one
direction holds a pipe. A held pipe keeps arriving messages and hands them over in one burst when it
is released. A pipe that is held too long, or that must keep too much, breaks the session. A pair
that is held or cut cannot be dialled.

A lossy pipe plays reconnects and buggy middle-boxes, not TCP itself. Messages vanish, come twice or
overtake each other, and their session breaks soon after. The cluster must stay safe. With `stale`,
messages that were under way when a session ended still arrive, with the old session's number, and
the broker has to refuse them. The same holds for replayed messages.
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
from raftlog_sim.world.link_checks import LinkChecks
from raftlog_sim.world.relay import Strike

DIAL_NS: Final = millis(1)
LATENCY_NS: Final = 100 * NANOS_PER_MICRO
JITTER_NS: Final = 100 * NANOS_PER_MICRO
GIVE_UP_NS: Final = millis(1500)
"""How long a session survives on a held pipe."""
QUEUE_MAX: Final = 4_096
_TAIL_OF: Final = 1_000
_TAIL_TIMES: Final = 50
_DOOM_NS: Final = millis(150)

PairKey = tuple[NodeId, NodeId]


@final
@attrs.define(eq=False)
class SimLink:
    """One session between two nodes."""

    session: SessionId
    codecs: dict[NodeId, tuple[PeerCodec, PeerCodec]]
    """The sender's codec and the receiver's codec, by sender; empty when messages are handed over
    as objects."""
    doomed: bool = False


@final
@attrs.define(eq=False)
class Pipe:
    """One direction of a pair. `last` is when the newest message arrives; rates are in percent.
    Messages of `kinds` vanish at the rate `kinds_drop`."""

    stream: Stream
    last: int = 0
    holds: int = 0
    deaf: bool = False
    """Whether messages that would be held vanish instead."""
    extra_ns: int = 0
    drop: int = 0
    duplicate: int = 0
    reorder_ns: int = 0
    kinds: tuple[type, ...] = ()
    kinds_drop: int = 0
    strike: Strike | None = None
    """The harm that a relay does to frames; used in networks of streams only."""
    append: Append | None = None
    """The last Append with entries that the pipe carried, while `replays` is set."""
    carried: Carried | None = None
    """A sample of all messages that the pipe carried, while `keeps` is set."""
    queue: deque[tuple[SessionId, Sequence[Any]]] = attrs.Factory(deque)

    @property
    def lossy(self) -> bool:
        return bool(self.drop or self.duplicate or self.reorder_ns or self.kinds_drop)

    def loses(self, message: object) -> bool:
        """Draw whether this message vanishes."""
        if self.stream.chance(self.drop, 100):
            return True
        return type(message) in self.kinds and self.stream.chance(self.kinds_drop, 100)


class SimCut(NamedTuple):
    """The pairs that a cut keeps from dialling, and the pipes (sender, receiver) that it holds."""

    pairs: tuple[PairKey, ...]
    pipes: tuple[PairKey, ...]


@final
@attrs.define(eq=False)
class HeapNetwork:
    """All links of a world."""

    world: SimWorld
    encode: bool = False
    stale: bool = False
    latency_ns: int = LATENCY_NS
    jitter_ns: int = JITTER_NS
    queue_max: int = QUEUE_MAX
    links: dict[PairKey, SimLink] = attrs.Factory(dict)
    cut: dict[PairKey, int] = attrs.Factory(dict)
    """How many cuts hold each pair apart, for pairs that cannot reach each other. Both orders of a
    pair are one key."""
    messages_sent: int = 0
    frames_read: int = 0
    replays: bool = False
    """Whether pipes remember their last Append, for `replay`."""
    keeps: bool = False
    """Whether pipes keep a sample of all messages, for `replay-any`."""
    pipes: dict[PairKey, Pipe] = attrs.Factory(dict)
    half_open: dict[PairKey, SessionId] = attrs.Factory(dict)
    """Half-open sessions, by (node that still believes in the session, node that is gone)."""
    order: LinkChecks | None = None
    """For networks of streams only."""
    diverted: dict[NodeId, NodeId] = attrs.Factory(dict)
    """The broker that answers in the place of another; for networks of streams only."""
    _dialling: dict[PairKey, None] = attrs.Factory(dict)
    _sessions: int = 0

    # --- links ---

    def look(self) -> None:
        """Begin to connect every pair that wants a link and has none."""
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
        self.links[pair] = SimLink(session, self._codecs(one, other))
        self._close_half_open(pair)
        one.deliver(_link_up(other, one, session))
        other.deliver(_link_up(one, other, session))

    def _codecs(self, one: SimNode, other: SimNode) -> dict[NodeId, tuple[PeerCodec, PeerCodec]]:
        """Returns the codecs of both directions; each end computes its own, as in a handshake."""
        if not (self.encode or one.release or other.release):
            return {}
        ends = {one.number: _spoken(one, other), other.number: _spoken(other, one)}
        return {
            one.number: (ends[one.number], ends[other.number]),
            other.number: (ends[other.number], ends[one.number]),
        }

    def reset(self, one: NodeId, other: NodeId) -> bool:
        """Break a link, lose everything queued on it, and dial it again soon. Returns False when
        there is no link."""
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
        """Break a session because one of its ends wants that."""
        if self.half_open.get((number, peer)) == session:
            del self.half_open[number, peer]
        self._reset_session(_key(number, peer), session)

    def node_down(self, number: NodeId) -> None:
        """Break all links of a node that goes down; peers behind a held pipe hear of it late."""
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
        """End a half-open session at the node that still believes in it."""
        if self.half_open.get((number, gone)) == session:
            del self.half_open[number, gone]
            self.world.nodes[number].deliver(LinkDown(gone, session))

    def _close_half_open(self, pair: PairKey) -> None:
        """End the half-open sessions of a pair, which gets a new session."""
        for believer, gone in (pair, pair[::-1]):
            session = self.half_open.pop((believer, gone), None)
            if session is not None:
                self.world.nodes[believer].deliver(LinkDown(gone, session))

    # --- cuts -------------------------------------------------------------------------------------

    def partition(self, side: Sequence[NodeId]) -> SimCut:
        """Cut every link between `side` and all other nodes; returns the cut, for `mend`."""
        others = [number for number in self.world.nodes if number not in side]
        return self.part([(member, other) for member in side for other in others])

    def part(self, pairs: Iterable[PairKey]) -> SimCut:
        """Break the links of these pairs and keep the pairs apart until `mend`."""
        cut = SimCut(tuple(dict.fromkeys(_key(*pair) for pair in pairs)), ())
        for pair in cut.pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            self.reset(*pair)
        return cut

    def hold(self, pipes: Iterable[PairKey]) -> SimCut:
        """Hold these pipes (sender, receiver) until `mend`; neither end hears of it."""
        chosen = tuple(dict.fromkeys(pipes))
        cut = SimCut(tuple(dict.fromkeys(_key(*pipe) for pipe in chosen)), chosen)
        for pipe in chosen:
            self.pipe(*pipe).holds += 1
        for pair in cut.pairs:
            self.cut[pair] = self.cut.get(pair, 0) + 1
            link = self.links.get(pair)
            if link is not None:
                self.world.after(GIVE_UP_NS, self._give_up, cut, pair, link.session)
        return cut

    def deafen(self, pipes: Iterable[PairKey]) -> None:
        """Let all messages on these pipes (sender, receiver) vanish until `heal`.

        The links stay, so the sender never notices. `heal` breaks them, since messages were lost.
        """
        for sender, receiver in pipes:
            pipe = self.pipe(sender, receiver)
            pipe.deaf, pipe.holds = True, pipe.holds + 1
            pair = _key(sender, receiver)
            self.cut[pair] = self.cut.get(pair, 0) + 1

    def _give_up(self, cut: SimCut, pair: PairKey, session: SessionId) -> None:
        if any(self.pipe(*pipe).holds for pipe in cut.pipes if _key(*pipe) == pair):
            self._reset_session(pair, session)

    def mend(self, cut: SimCut) -> None:
        """Take one cut back; pipes and pairs that another cut holds stay held."""
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
        """Let all nodes reach each other again, without loss or delay."""
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
        """Queue messages on the link; drop them when the session is over."""
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
        self, sender: NodeId, to: NodeId, link: SimLink, messages: Sequence[Any]
    ) -> Sequence[Any]:
        """Encode messages and decode them again. Raises `Violation` when they cannot be read.

        The way damages no bytes, so an unreadable message is the sender's fault.
        """
        writes, reads = link.codecs[sender]
        self.frames_read += 1
        try:
            return reads.decode(b"".join(writes.encode(messages)))
        except ProtocolError as error:
            raise Violation("peer-protocol", f"n{sender} to n{to}: {error.what}") from None

    def _delay(self, pipe: Pipe) -> int:
        """Draw the delay of a message: the latency and some jitter, once in a thousand a lot."""
        drawn = pipe.stream.below(self.jitter_ns * _TAIL_OF + 1)
        jitter, rest = divmod(drawn, _TAIL_OF)
        if rest == 0:
            jitter *= _TAIL_TIMES
        return self.latency_ns + pipe.extra_ns + jitter

    def _send_lossy(
        self, sender: NodeId, to: NodeId, link: SimLink, messages: Sequence[Any]
    ) -> None:
        """Send messages one by one; the session breaks soon after the first one that was harmed."""
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
        """Deliver an Append again in the present session, even when the pipe is held."""
        link, node = self.links.get(_key(sender, to)), self.world.nodes[to]
        if link is not None and node.up:
            node.deliver(PeerMessages(sender, link.session, (message,)))

    def replay_any(self, sender: NodeId, to: NodeId, draws: Stream, *, ended: bool) -> bool:
        """Deliver a message of the sample again, under the session in which it was sent.

        It arrives even when the pipe is held. With `ended`, that session is over. Returns False
        when no message fits or the receiver is down.
        """
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
        """Returns the pipe of one direction, made at its first use."""
        pipe = self.pipes.get((sender, to))
        if pipe is None:
            stream = self.world.stream(f"link/{sender}/{to}")
            pipe = self.pipes[sender, to] = Pipe(stream)
            pipe.carried = Carried(stream.fork("carried")) if self.keeps else None
        return pipe


def _spoken(mine: SimNode, theirs: SimNode) -> PeerCodec:
    """Returns the codec that the end `mine` chooses: the newest protocol that both ends know."""
    release = mine.config.release
    version = peer_codec.common_version(release.protocols, theirs.config.release.protocols)
    assert version is not None, (mine.release, theirs.release)
    return release.codecs[version]


def _link_up(peer: SimNode, told: SimNode, session: SessionId) -> LinkUp:
    """Make the LinkUp by which `told` hears of `peer`, as a handshake says it."""
    newest = min(end.config.release.protocols[1] for end in (peer, told))
    life = peer.broker.volume.store.incarnation if newest >= INCARNATIONS_FROM else NONE
    return LinkUp(peer.number, session, peer.directory, peer.boot, life)


def _key(one: NodeId, other: NodeId) -> PairKey:
    return (one, other) if one < other else (other, one)
