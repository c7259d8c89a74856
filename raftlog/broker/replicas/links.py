"""Keeps the sessions with peers, and passes on the messages that come over them.

A message counts only over the present session with its peer. Raft's messages go to the replica
that they name, if it runs here and the sender is a replica on the data directory at the other end.
All others are dropped. A partition's group takes terms from known directories only
(`known_directories`). Votes and acknowledgements count once their sender is known to be no old copy
(`incarnations`).

The image may lag behind what is known here to be committed, for example while a boot still reads.
Until it has caught up, this broker cannot recognise an old copy of a peer's disk. Meanwhile, in the
metadata group, this broker counts no votes, gives none, takes over no leadership, and ignores the
acknowledgements of followers. None of that is lost: followers acknowledge every heartbeat, and a
leadership is offered again as often. The image catches up from this broker's own disk alone.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, final

import attrs

from raftlog.base.ids import METADATA_GROUP, BootNumber, DirectoryId, GroupId, NodeId, SessionId
from raftlog.base.probes import probe
from raftlog.broker.events import LinkDown, LinkUp, PeerAddress, PeerMessages, Unlink
from raftlog.broker.peer_messages import (
    ControllerReply,
    ControllerRequest,
    IncarnationConfirmed,
    IncarnationQuestion,
    NodeHeartbeat,
    NodeHeartbeatReply,
    VouchAnswer,
    VouchQuestion,
)
from raftlog.broker.replicas.incarnations import Incarnations
from raftlog.broker.replicas.known_directories import KnownDirectories
from raftlog.broker.replicas.multi_raft import MultiRaft
from raftlog.broker.turn import Turn
from raftlog.raft.messages import (
    AppendReply,
    InstallReply,
    PreVoteReply,
    PreVoteRequest,
    ReadEcho,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)

_OF_INCARNATIONS: Final = (IncarnationQuestion, IncarnationConfirmed, VouchQuestion, VouchAnswer)
_HEARD_ALWAYS: Final = (ControllerRequest, ControllerReply, *_OF_INCARNATIONS)
"""Messages that are heard even from refused peers. One end may refuse the other for a while without
the other knowing. A question dropped then would never be asked again in that session."""
_ELECTING: Final = (PreVoteRequest, PreVoteReply, VoteRequest, VoteReply, TimeoutNow)
_PROMISING: Final = (AppendReply, ReadEcho, InstallReply)
_HEARD_LATER: Final = frozenset((*_ELECTING, *_PROMISING))
"""Messages by which a majority decides: a peer on an old copy of its disk must not send them."""


class Gate(Protocol):
    """Decides which peers may take part: a rolled-back or condemned directory may not."""

    def peer_allowed(self, peer: NodeId, directory: DirectoryId, boot: BootNumber) -> bool: ...

    def peer_outlived(self, peer: NodeId, directory: DirectoryId, boot: BootNumber) -> bool: ...


class ControllerLinks(Protocol):
    """Both ends of the requests between brokers and their controller."""

    def link_down(self, peer: NodeId) -> None: ...

    def requested(self, peer: NodeId, session: SessionId, request: ControllerRequest) -> None: ...

    def replied(self, peer: NodeId, reply: ControllerReply) -> None: ...


class Knowledge(Protocol):
    """Says whether the present image lags behind what is known to be committed."""

    @property
    def behind(self) -> bool: ...


@final
@attrs.define(eq=False)
class Links:
    """All link sessions of a broker, and the set of peers it wants links to."""

    turn: Turn
    multi: MultiRaft
    gate: Gate
    knowledge: Knowledge
    controller: ControllerLinks
    incarnations: Incarnations
    refused: dict[NodeId, LinkUp] = attrs.Factory(dict)
    """Sessions of peers that may not take part; of those only `_HEARD_ALWAYS` is heard."""
    peers: tuple[PeerAddress, ...] = ()
    known: KnownDirectories = attrs.field(init=False)
    _peer_handlers: dict[type, Callable[[LinkUp, Any], None]] = attrs.Factory(dict)

    def __attrs_post_init__(self) -> None:
        self.known = KnownDirectories(self.turn)
        self._peer_handlers = {
            NodeHeartbeat: self._node_heartbeat,
            NodeHeartbeatReply: self._node_heartbeat_reply,
            ControllerRequest: self._controller_request,
            ControllerReply: self._controller_reply,
            IncarnationQuestion: self.incarnations.question,
            IncarnationConfirmed: self.incarnations.confirmed,
            VouchQuestion: self.incarnations.vouch_question,
            VouchAnswer: self.incarnations.vouch_answer,
        }
        self.incarnations.deliver = self._deliver_one

    # --- sessions ---

    def link_up(self, event: LinkUp) -> None:
        """Begin a session with a peer; an older one that was still open ends."""
        assert event.peer != self.turn.node, event
        old = self.turn.sessions.get(event.peer)
        if old is not None:
            self.link_down(LinkDown(event.peer, old.session))
        self.turn.sessions[event.peer] = event
        self.incarnations.link_up(event)
        if self.gate.peer_allowed(event.peer, event.directory, event.boot):
            self._admit(event)
        else:
            self._refuse(event)

    def _refuse(self, event: LinkUp) -> None:
        probe("rolled-back-peer-refused")
        self.turn.trace("peer-refused", f"node {event.peer}", boot=event.boot)
        self.refused[event.peer] = event

    def _admit(self, event: LinkUp) -> None:
        self.incarnations.admitted(event.peer)
        self.multi.link_up(event.peer, event.session)
        for group, replica in self.turn.replicas.items():
            replica.link_up(event.peer, self.turn.now)
            self.turn.touch(group)

    def link_down(self, event: LinkDown) -> None:
        """End a session; does nothing when it is no longer the present one."""
        link = self.turn.sessions.get(event.peer)
        if link is None or link.session != event.session:
            return
        del self.turn.sessions[event.peer]
        self.turn.outbox.pop(event.peer, None)
        self.known.forget(event.peer)
        if self.refused.pop(event.peer, None) is None:
            self._part(event.peer)
        self.incarnations.link_down(event.peer)
        self.controller.link_down(event.peer)

    def _part(self, peer: NodeId) -> None:
        self.incarnations.forget_words(peer)
        self.multi.link_down(peer)
        for group, replica in self.turn.replicas.items():
            replica.link_down(peer, self.turn.now)
            self.turn.touch(group)

    def recheck(self) -> None:
        """Judge every session again: the image changed what it says about boots.

        A session ends when the image now knows a later boot of its peer. As a rule the process at
        its other end is dead, and its last messages may still be on their way. If it lives, it
        was started from an old copy of the directory. It then makes a new handshake, so that its
        requests to the controller are not taken for late ones of the dead process.
        """
        for link in list(self.turn.sessions.values()):
            allowed = self.gate.peer_allowed(link.peer, link.directory, link.boot)
            if allowed == (link.peer not in self.refused):
                continue
            if allowed:
                del self.refused[link.peer]
                self._admit(link)
            elif self.gate.peer_outlived(link.peer, link.directory, link.boot):
                probe("session-outlived")
                self.link_down(LinkDown(link.peer, link.session))
                self.turn.effects.unlinks.append(Unlink(link.peer, link.session))
            else:
                self._part(link.peer)
                self._refuse(link)
        self._hear_who_waited()

    def _hear_who_waited(self) -> None:
        """Deliver messages that waited until the image named their sender's directory."""
        if not self.known:
            return
        for link in list(self.turn.sessions.values()):
            if link.peer not in self.refused and self.known.named(link):
                for group, messages in self.known.take(link):
                    self._deliver_one(link, group, messages)

    def addresses_changed(self) -> None:
        """Work out which peers to keep links to, and where: the controllers and every registered
        broker. A controller may have two addresses, the configured one and the registered one."""
        found: dict[NodeId, list[PeerAddress]] = {}
        for controller in self.turn.config.controllers:
            # The registered address was true when the controller registered. When all brokers came
            # back at other addresses, no leader exists that could tell the new ones. Then only
            # the configured addresses lead to a majority.
            found.setdefault(controller.node, []).append(controller)
        for node, broker in sorted(self.turn.image.brokers.items()):
            registered = PeerAddress(node, broker.peer_host, broker.peer_port)
            found.setdefault(node, []).append(registered)
        found.pop(self.turn.node, None)
        route = self.turn.config.route_to
        routed = [route(address) for node in sorted(found) for address in found[node]]
        peers = tuple(dict.fromkeys(routed))
        if peers != self.peers:
            self.peers = self.turn.effects.peers = peers

    # --- messages ---

    def messages(self, event: PeerMessages) -> None:
        """Handle the messages of one event in their order; those of one group that follow each
        other are delivered together."""
        link = self.turn.sessions.get(event.peer)
        if link is None or link.session != event.session:
            probe("message-of-another-session-dropped")
            return
        batches: dict[GroupId, list[Any]] = {}
        for message in event.messages:
            handle = self._peer_handlers.get(type(message))
            if event.peer in self.refused and type(message) not in _HEARD_ALWAYS:
                probe("message-of-a-refused-peer-dropped")
                continue
            if handle is None:
                batches.setdefault(message.group, []).append(message)
                continue
            if batches:
                self._deliver(link, batches)
                batches = {}
            handle(link, message)
        if batches:
            self._deliver(link, batches)

    def _deliver(self, link: LinkUp, batches: dict[GroupId, list[Any]]) -> None:
        turn = self.turn
        place = (link.peer, link.directory)
        named = self.known.named(link)
        for group, came in batches.items():
            replica = turn.replicas.get(group)
            if replica is None:
                probe("message-for-no-replica-dropped")
                continue
            messages = self._that_count(group, came)
            if any(message.sender[:2] != place for message in messages):
                probe("message-with-a-false-sender-dropped")
                messages = [message for message in messages if message.sender[:2] == place]
            if not named:
                messages = self.known.heard(link, replica, messages)
            replica.receive(self.incarnations.that_count(link, replica, messages), turn.now)
            turn.touched[group] = replica

    def _deliver_one(self, link: LinkUp, group: GroupId, messages: list[Any]) -> None:
        self._deliver(link, {group: messages})

    def _that_count(self, group: GroupId, messages: list[Any]) -> list[Any]:
        """The messages that count while the image may lag behind what is committed."""
        if group != METADATA_GROUP or not self.knowledge.behind:
            return messages
        # Appends count: voters that knew more elected their leader. Refusals count: they decide
        # nothing, but tell a leader that it is deposed.
        heard = [message for message in messages if type(message) not in _HEARD_LATER]
        if len(heard) < len(messages):
            probe("word-before-the-image-dropped")
        return heard

    def _node_heartbeat(self, link: LinkUp, message: NodeHeartbeat) -> None:
        self.multi.heard(link.peer, message)

    def _node_heartbeat_reply(self, link: LinkUp, message: NodeHeartbeatReply) -> None:
        self.multi.replied(link.peer, message)

    def _controller_request(self, link: LinkUp, message: ControllerRequest) -> None:
        self.controller.requested(link.peer, link.session, message)

    def _controller_reply(self, link: LinkUp, message: ControllerReply) -> None:
        self.controller.replied(link.peer, message)
