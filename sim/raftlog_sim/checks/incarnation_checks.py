"""Checks how a broker treats peers whose directory may be an old copy.

A broker takes a directory for an old copy only if the run put one back. A message that decides
counts only when the life of its sender's directory is on the disk of the broker that counts it. The
checks look for it on that disk, as a power loss would leave it. While it is not there, the broker
counts no vote of that peer. The progress that it knows of the peer's replicas does not grow.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, final

import attrs

from raftlog.base.ids import GroupId, NodeId
from raftlog.broker.events import Event, LinkUp, PeerMessages
from raftlog.metadata.refusals import Refusal
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import AppendReply, ReadEcho, VoteReply
from raftlog.raft.state import CANDIDATE
from raftlog.storage.directories.incarnations import NONE
from raftlog_sim.facts import truth

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node

_COUNTED: Final = (VoteReply, AppendReply, ReadEcho)
Place = tuple[NodeId, NodeId, GroupId]


@final
@attrs.define(eq=False)
class IncarnationChecks:
    """Checks whom a broker believes. `before` holds what a leader knew of a follower when their
    session began, and the term."""

    before: dict[Place, tuple[int, int, int]] = attrs.Factory(dict)

    def after_turn(self, node: "Node", events: Sequence[Event]) -> Iterator[tuple[str, str]]:
        if node.broker.registration.refused is Refusal.ROLLED_BACK:
            yield "put-back-rightly", _wrongly_refused(node)
        for event in events:
            if type(event) is LinkUp:
                self._begun(node, event)
                yield "put-back-rightly", ""
            elif type(event) is PeerMessages:
                yield "counted-once-known", self._heard(node, event)

    def _begun(self, node: "Node", link: LinkUp) -> None:
        for group, replica in node.broker.context.replicas.items():
            key = (node.number, link.peer, group)
            self.before.pop(key, None)
            if replica.is_leader:
                self.before[key] = (replica.term, *_progress(replica, link.peer))

    def _heard(self, node: "Node", event: PeerMessages) -> str:
        context = node.broker.context
        link = context.sessions.get(event.peer)
        if link is None or link.session != event.session or link.incarnation == NONE:
            return ""
        groups = {each.group for each in event.messages if type(each) in _COUNTED}
        if not groups or truth.stored_incarnation(node, link.directory) == link.incarnation:
            return ""
        for group in sorted(groups):
            replica = context.replicas.get(group)
            what = "" if replica is None else self._wrong(node, link, replica)
            if what:
                return what
        return ""

    def _wrong(self, node: "Node", link: LinkUp, replica: PartitionReplica) -> str:
        who = f"{replica.me} of group {replica.group} counts"
        peer = f"node {link.peer}, whose life {link.incarnation:016x} is not on its disk"
        state = replica.node._state
        # A pre-vote binds nobody, so it counts from any life (seed 11000773).
        votes = state.votes if state.role is CANDIDATE else ()
        voted = [each for each in votes if each.node == link.peer]
        if voted and link.directory == voted[0].directory:
            return f"{who} a vote of {peer}"
        if not replica.is_leader:
            return ""
        term, *known = self.before.get((node.number, link.peer, replica.group), (0, 0, 0))
        known = known if term == replica.term else [0, 0]
        found = _progress(replica, link.peer)
        if any(now > then for now, then in zip(found, known, strict=True)):
            return f"{who} what {peer}, says: {tuple(known)} became {found}"
        return ""


def _wrongly_refused(node: "Node") -> str:
    message = node.broker.registration.message
    return "" if node.rolled_back else f"node {node.number} was not put back: {message}"


def _progress(replica: PartitionReplica, peer: NodeId) -> tuple[int, int]:
    """Returns match and echoed round of a follower; 0 where there is none."""
    for each, follower in replica.node.progress.items():
        if each.node == peer:
            return follower.match, follower.echoed
    return 0, 0
