"""Checks that a replica that hears its leader begins no election (thesis 4.2.3, 3.10).

The rule holds when the replica's term is not above the leader's and it heard the leader within an
election timeout. The replica may campaign if that leader began a transfer to it, or if their link
broke since.

The replica's own clock counts, and only messages that it heard before the turn. This module also
passes turns to `pace_checks`, which judges the pace at which leaders send.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, final

import attrs

from raftlog.base.ids import GroupId, ReplicaId
from raftlog.broker.events import Effects, Event, LinkUp, PeerMessages
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import Append, TimeoutNow
from raftlog_sim.checks.incarnation_checks import IncarnationChecks
from raftlog_sim.checks.pace_checks import PaceChecks
from raftlog_sim.facts.outline import Outline

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node

Key = tuple[GroupId, ReplicaId]


class _Heard(NamedTuple):
    """The last append of a leader: its term, when it came by the hearer's clock, in which boot, and
    over which session of their link."""

    leader: ReplicaId
    term: int
    at: int
    boots: int
    session: LinkUp


@final
@attrs.define(eq=False)
class HearingChecks:
    """Checks every campaign of a run. `told` holds the newest term in which a leader told a replica
    to campaign. `urged` holds the replicas that the run itself let campaign."""

    heard: dict[Key, _Heard] = attrs.Factory(dict)
    told: dict[Key, int] = attrs.Factory(dict)
    urged: dict[Key, None] = attrs.Factory(dict)
    paces: PaceChecks = attrs.Factory(PaceChecks)
    lives: IncarnationChecks = attrs.Factory(IncarnationChecks)

    def campaigned(self, node: "Node", replica: PartitionReplica, before: Outline) -> str:
        """Returns what is wrong with an election that a replica begins in this turn, or ""."""
        key = (replica.group, replica.me)
        heard, urged = self.heard.get(key), key in self.urged
        self.urged.pop(key, None)
        if heard is None or urged or (heard.boots, heard.term) != (node.boots, before.term):
            return ""
        context = node.broker.context
        ago = context.now - heard.at
        linked = context.sessions.get(heard.leader.node) is heard.session
        refused = heard.leader.node in node.broker.links.refused
        if not linked or refused or ago >= context.config.election_ns:
            return ""
        if self.told.get(key) == before.term:
            return ""
        return (
            f"{replica.me} campaigns in group {replica.group} and heard {heard.leader}, who leads "
            f"in its term {before.term}, {ago} ns before"
        )

    def after_turn(
        self, node: "Node", events: Sequence[Event], effects: Effects
    ) -> Iterator[tuple[str, str]]:
        """Note the messages that a turn heard and sent; yields (invariant, error or "").

        The findings are those of `paces` about sent messages and of `lives` about heard ones.
        """
        context = node.broker.context
        for send in effects.sends:
            for message in send.messages:
                if type(message) is TimeoutNow:
                    self._tells(context.replicas.get(message.group), message)
        for event in events:
            if type(event) is not PeerMessages:
                continue
            session = context.sessions.get(event.peer)
            if session is None or session.session != event.session:
                continue  # a late message of a link that has ended
            for message in event.messages:
                if type(message) is not Append:
                    continue
                replica = context.replicas.get(message.group)
                if replica is None or (replica.me, replica.term) != (message.to, message.term):
                    continue
                self.heard[message.group, message.to] = _Heard(
                    message.sender, message.term, context.now, node.boots, session
                )
        yield from self.paces.after_turn(node, effects)
        yield from self.paces.copied(node, events, effects)
        yield from self.lives.after_turn(node, events)

    def _tells(self, leader: PartitionReplica | None, message: TimeoutNow) -> None:
        """Note that a leader transfers to a replica, or has handed over and leads no more."""
        over = leader is None or leader.me != message.sender or not leader.is_leader
        if over or (leader is not None and leader.node._state.transferring == message.to):
            self.told[message.group, message.to] = message.term
