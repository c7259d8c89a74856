"""Checks the links between brokers, whatever a relay or a lying peer does.

* A broker hears on a session only messages that its peer sent in it, and each once. Their order is
  not judged, since a driver may delay messages for which no client waits. The tests of
  `raftlog.seal` prove the order of frames.
* A session that was struck ends: its reader takes nothing more once it has received what does not
  open.
* A broker is linked only with a directory that its peer has said in a handshake of its own, or with
  one that a lying peer may state (`lies`); of that one nothing is heard.
* No more frames fail to open than were struck.
"""

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, final

import attrs

from raftlog.base.checksum import crc32c
from raftlog.base.errors import ProtocolError
from raftlog.base.ids import NodeId, SessionId
from raftlog.base.probes import probe
from raftlog.broker.events import Effects, Event, LinkUp, PeerMessages
from raftlog.broker.peer_codec import PROTOCOL_MAX, PROTOCOLS
from raftlog.seal.fields import IDENTITY, INCARNATION, read_fields
from raftlog_sim.base.violation import Violation
from raftlog_sim.world.faces import SimNode

Ends = tuple[NodeId, NodeId]
Place = tuple[int, int, int, int]
"""Node, directory, boot and incarnation, as a handshake states them and as a `LinkUp` has them."""
IDENTITY_HEAD: Final = Struct(">16sIQQ")
"""Cluster, node, directory, boot: how the identity of a handshake begins."""
LIFE: Final = Struct(">Q")


@final
@attrs.define(eq=False)
class LinkChecks:
    """Knows what was said on each session and not heard yet. `struck` counts frames that were
    struck, and `lives` has by node the fields of its handshakes, each once, the newest last.

    Ended sessions stay: a broker may handle a session's last messages in the turn after it heard of
    the end.
    """

    heard: int = 0
    struck: int = 0
    unopened: int = 0
    """Links that ended by a frame that does not open."""
    wrong: str = ""
    """Found between two turns."""
    lives: dict[NodeId, dict[bytes, None]] = attrs.Factory(dict)
    openings: dict[Ends, tuple[bytes, ...]] = attrs.Factory(dict)
    """The dialler's messages of the last handshake, by dialler and acceptor."""
    lies: dict[Place, None] = attrs.Factory(dict)
    _places: dict[Place, None] = attrs.Factory(dict)
    _sent: dict[tuple[SessionId, NodeId], deque[int]] = attrs.Factory(dict)

    def said(self, fields: bytes) -> None:
        """A handshake carried these fields of a broker, or a refusal."""
        try:
            place = place_of(fields)
        except ProtocolError:
            return
        self._places[place] = None
        self.lives.setdefault(NodeId(place[0]), {})[fields] = None

    def frame_did_not_open(self) -> None:
        """A broker has ended a link by a frame that does not open. Raises `Violation`."""
        self.unopened += 1
        if self.unopened > self.struck:
            raise Violation(
                "peer-protocol",
                f"{self.unopened} frames did not open, and {self.struck} were struck",
            )

    def reads_on(self, ends: Ends) -> None:
        """A reader went on after a frame that does not open."""
        sender, receiver = ends
        self.wrong = f"node {receiver} reads on behind a frame of node {sender} that does not open"

    def after_turn(self, node: SimNode, events: Sequence[Event], effects: Effects) -> None:
        """Check the links and messages that a turn heard of, and note those that it sent. Raises
        `Violation`."""
        if self.wrong:
            raise Violation("peer-protocol", self.wrong)
        for event in events:
            if type(event) is LinkUp:
                self._linked(node, event)
            elif type(event) is PeerMessages:
                waiting = self._sent.get((event.session, event.peer), deque())
                for message in event.messages:
                    self.heard += 1
                    digest = _digest(message)
                    if digest not in waiting:
                        raise Violation(
                            "peer-protocol",
                            f"node {node.config.node} heard {type(message).__name__} on its link "
                            f"to node {event.peer}, which did not send that there, or only once",
                        )
                    waiting.remove(digest)
        for send in effects.sends:
            key = (send.session, node.config.node)
            self._sent.setdefault(key, deque()).extend(map(_digest, send.messages))

    def _linked(self, node: SimNode, link: LinkUp) -> None:
        place = (link.peer, link.directory, link.boot, link.incarnation)
        if place in self.lies and place not in self._places:
            probe("lying-peer-linked")
        elif place not in self._places:
            raise Violation(
                "peer-protocol",
                f"node {node.config.node} is linked with node {link.peer} as directory "
                f"{link.directory:016x}, boot {link.boot}, life {link.incarnation:016x}: no broker "
                "of this cluster is that",
            )


def place_of(fields: bytes) -> Place:
    """Returns the place in the fields of a handshake. Raises `ProtocolError` when they are no
    list."""
    found = read_fields(fields)
    if len(found.get(IDENTITY, b"")) < IDENTITY_HEAD.size:
        raise ProtocolError("no identity")
    _, node, directory, boot = IDENTITY_HEAD.unpack_from(found[IDENTITY])
    return node, directory, boot, LIFE.unpack(found.get(INCARNATION, bytes(8)))[0]


def _digest(message: Any) -> int:
    return crc32c(b"".join(PROTOCOLS[PROTOCOL_MAX].encode([message])))
