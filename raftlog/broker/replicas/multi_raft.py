"""Sends heartbeats per pair of nodes, so that idle groups cost nothing.

One message stands for every group that one node leads and the other follows.

Rules:

1. A heartbeat stands for a group only while both ends agreed on (group, term, leader) in this link
   session. The leader agrees when an append of this term is acknowledged, the follower when it
   takes one. The leader *offers* such a group; the follower covers it or *disagrees*.
   Every round carries the offer until a reply settles it. A refusal speaks only of the rounds up to
   its own, and does not take back what a later round offered.
2. A leader lists each group that it stopped leading in every heartbeat, until a reply to one of
   them arrives. A follower lists each group that it no longer agrees on in every reply, until a
   heartbeat says that one of them arrived. So no heartbeat and no reply ever speaks for more than
   its sender knows, even when messages are lost, repeated or late. Rounds only rise; a round that
   is not newer is dropped.
3. Silence for one election time ends the coverage of all groups of the pair. Each replica then
   counts its own election time from the last contact. A new session starts from nothing.

A pair without a covered group exchanges nothing.
"""

from typing import Final, final

import attrs

from raftlog.base.ids import GroupId, NodeId, ReplicaId, SessionId, Term
from raftlog.base.probes import probe
from raftlog.base.units import Instant, Nanos
from raftlog.broker.peer_messages import NodeHeartbeat, NodeHeartbeatReply, Offer, Place
from raftlog.broker.replicas.node_clocks import NodeClocks
from raftlog.broker.turn import Turn
from raftlog.partition.output import ReplicaOutput
from raftlog.partition.replica import PartitionReplica


@final
@attrs.define(eq=False)
class LeaderSide:
    """The groups that this node leads and the peer follows, in one session."""

    round: int = 0
    replied_round: int = 0
    """The highest round that the peer has replied to; always at most `round`."""
    replied_at: Instant = Instant(0)
    offers: dict[GroupId, tuple[Offer, int]] = attrs.Factory(dict)
    """Offers that have no reply yet, each with the first round that carried it."""
    covered: dict[GroupId, Offer] = attrs.Factory(dict)
    stopped: dict[GroupId, tuple[Place, int]] = attrs.Factory(dict)
    """Groups that this node no longer leads, each with the first round that says so."""

    @property
    def idle(self) -> bool:
        return not (self.covered or self.offers or self.stopped)


@final
@attrs.define(eq=False)
class FollowerSide:
    """The groups that the peer leads and this node follows, in one session."""

    heard_round: int = 0
    heard_at: Instant = Instant(0)
    agreed: dict[GroupId, tuple[Term, ReplicaId]] = attrs.Factory(dict)
    """The leader whose append a replica here took in this session."""
    covered: dict[GroupId, Offer] = attrs.Factory(dict)
    disagreed: dict[GroupId, tuple[Place, int]] = attrs.Factory(dict)
    """Groups that this node refuses, each with the first round whose reply says so."""
    watched: bool = False
    """Whether a timer is set that looks whether the peer fell silent."""


@final
@attrs.define(eq=False)
class Pair:
    """This node and one peer, for the life of a link session."""

    peer: NodeId
    session: SessionId
    leads: LeaderSide = attrs.Factory(LeaderSide)
    follows: FollowerSide = attrs.Factory(FollowerSide)


_NO_PLACES: Final[tuple[Place, ...]] = ()


@final
@attrs.define(eq=False)
class MultiRaft:
    """All pairs of one node."""

    turn: Turn
    heartbeat_ns: Nanos
    election_ns: Nanos
    clocks: NodeClocks
    _pairs: dict[NodeId, Pair] = attrs.Factory(dict)
    _beating: bool = False

    # --- what the broker reports ---

    def link_up(self, peer: NodeId, session: SessionId) -> None:
        """Begin a session, in which nothing is agreed on yet. The caller tells the replicas."""
        self._pairs[peer] = Pair(peer, session)

    def link_down(self, peer: NodeId) -> None:
        """End the session, and every coverage with it. The caller tells the replicas."""
        self._pairs.pop(peer, None)
        self.clocks.forget(peer)

    def taken(self, replica: PartitionReplica, output: ReplicaOutput) -> None:
        """Take in which peers a replica agreed with, or lost coverage from, in this turn."""
        for peer in output.uncovered:
            self._uncovered(replica.group, peer)
        if output.leadership:
            self._check_leading(replica)
        for peer in output.agreed:
            self._agreed(replica, peer)

    def dropped(self, group: GroupId) -> None:
        """Forget a group whose replica stopped running here."""
        for pair in self._pairs.values():
            self._stop_leading(pair, group)
            self._stop_following(pair, group)
            pair.follows.agreed.pop(group, None)

    def covered_groups(self, peer: NodeId) -> tuple[int, int]:
        """How many groups the heartbeats of a pair stand for: led here, led by the peer."""
        pair = self._pairs.get(peer)
        return (len(pair.leads.covered), len(pair.follows.covered)) if pair else (0, 0)

    # --- the leader's side ---

    def _agreed(self, replica: PartitionReplica, peer: ReplicaId) -> None:
        pair = self._pairs.get(peer.node)
        if pair is None:
            return
        if not replica.is_leader:
            pair.follows.agreed[replica.group] = (replica.term, peer)
            return
        offer = Offer(replica.group, replica.term, replica.me, peer)
        if pair.leads.covered.get(replica.group) == offer:
            return
        pair.leads.covered.pop(replica.group, None)
        pair.leads.offers[replica.group] = (offer, pair.leads.round + 1)
        self._begin_beating()

    def _check_leading(self, replica: PartitionReplica) -> None:
        """Stop speaking for a group that this node no longer leads in the offered term."""
        for pair in self._pairs.values():
            found = pair.leads.covered.get(replica.group)
            waiting = pair.leads.offers.get(replica.group)
            offer = found or (waiting[0] if waiting else None)
            if offer and not (replica.is_leader and replica.term == offer.term):
                self._stop_leading(pair, replica.group)

    def _stop_leading(self, pair: Pair, group: GroupId) -> None:
        side = pair.leads
        waiting = side.offers.pop(group, None)
        offer = side.covered.pop(group, None) or (waiting[0] if waiting else None)
        if offer is not None:
            side.stopped[group] = (Place(group, offer.term), side.round + 1)
            self._begin_beating()

    def _begin_beating(self) -> None:
        if not self._beating:
            self._beating = True
            self.turn.at(Instant(self.turn.now + self.heartbeat_ns), self._beat)

    def _beat(self) -> None:
        self._beating = False
        now = self.turn.now
        for pair in self._pairs.values():
            self._look_for_silence(pair, now)
            side = pair.leads
            if side.idle:
                continue
            side.round += 1
            offers = tuple(offer for offer, _ in side.offers.values())
            stopped = tuple(place for place, _ in side.stopped.values())
            wall = self.turn.wall
            message = NodeHeartbeat(side.round, side.replied_round, offers, stopped, wall)
            self.turn.send(pair.peer, message)
            self._begin_beating()

    def _look_for_silence(self, pair: Pair, now: Instant) -> None:
        side = pair.leads
        if not side.covered or now - side.replied_at < self.election_ns:
            return
        probe("node-heartbeat-unanswered")
        for group, offer in list(side.covered.items()):
            self._stop_leading(pair, group)
            self._uncover(group, offer.follower, side.replied_at)

    def replied(self, peer: NodeId, message: NodeHeartbeatReply) -> None:
        """Take in a follower's reply to one of our rounds."""
        pair = self._pairs.get(peer)
        if pair is None:
            return
        side = pair.leads
        if not side.replied_round < message.round <= side.round:
            probe("node-heartbeat-reply-not-newer")
            return
        contact = side.replied_at
        side.replied_round, side.replied_at = message.round, self.turn.now
        self.clocks.heard(peer, message.wall_ms, self.turn.now)
        for place in message.disagreed:
            self._refused(pair, place, contact)
        for group in [g for g, (_, first) in side.stopped.items() if first <= message.round]:
            del side.stopped[group]
        for group in [g for g, (_, first) in side.offers.items() if first <= message.round]:
            self._accepted(side, side.offers.pop(group)[0])

    def _refused(self, pair: Pair, place: Place, contact: Instant) -> None:
        side = pair.leads
        self._refused_offer(side, place, contact)
        offer = side.covered.get(place.group)
        if offer is not None and offer.term <= place.term:
            probe("node-heartbeat-refused-for-a-group")
            del side.covered[place.group]
            self._uncover(place.group, offer.follower, contact)

    def _refused_offer(self, side: LeaderSide, place: Place, contact: Instant) -> None:
        """Drop an offer that a reply refused, unless a later round offered it again.

        A reply speaks of the rounds up to its own. The follower may have agreed since, when it
        heard a later round that carried the offer, and covers the group then.
        """
        waiting, replied = side.offers.get(place.group), side.replied_round
        if waiting is None or waiting[0].term > place.term or waiting[1] > replied:
            return
        if replied < side.round:
            side.offers[place.group] = (waiting[0], replied + 1)
            return
        del side.offers[place.group]
        self._uncover(place.group, waiting[0].follower, contact)

    def _accepted(self, side: LeaderSide, offer: Offer) -> None:
        replica = self.turn.replicas.get(offer.group)
        if (
            replica is None
            or not replica.is_leader
            or replica.term != offer.term
            or not replica.cover(offer.follower, self.turn.now)
        ):
            side.stopped[offer.group] = (Place(offer.group, offer.term), side.round + 1)
            return
        side.covered[offer.group] = offer
        self.turn.touch(offer.group)

    # --- the follower's side ---

    def heard(self, peer: NodeId, message: NodeHeartbeat) -> None:
        """Take in a heartbeat of a node that leads groups, and reply to it."""
        pair = self._pairs.get(peer)
        if pair is None:
            return
        side = pair.follows
        if message.round <= side.heard_round:
            probe("node-heartbeat-not-newer")
            return
        side.heard_round, side.heard_at = message.round, self.turn.now
        self.clocks.heard(peer, message.wall_ms, self.turn.now)
        for group in [g for g, (_, n) in side.disagreed.items() if n <= message.acked_round]:
            del side.disagreed[group]
        for place in message.stopped:
            self._leader_stopped(side, place)
        for offer in message.offers:
            self._offered(pair, offer)
        disagreed = tuple(place for place, _ in side.disagreed.values())
        reply = NodeHeartbeatReply(message.round, disagreed or _NO_PLACES, self.turn.wall)
        self.turn.send(peer, reply)
        if side.covered and not side.watched:
            side.watched = True
            self._watch(pair)

    def _leader_stopped(self, side: FollowerSide, place: Place) -> None:
        offer = side.covered.get(place.group)
        if offer is not None and offer.term <= place.term:
            del side.covered[place.group]
            self._uncover(place.group, offer.leader, side.heard_at)

    def _offered(self, pair: Pair, offer: Offer) -> None:
        side = pair.follows
        if side.covered.get(offer.group) == offer:
            return
        replica = self.turn.replicas.get(offer.group)
        if (
            replica is None
            or replica.failed
            or replica.me != offer.follower
            or (replica.term, replica.leader) != (offer.term, offer.leader)
            or side.agreed.get(offer.group) != (offer.term, offer.leader)
            or not replica.cover(offer.leader, self.turn.now)
        ):
            probe("node-heartbeat-offer-refused")
            place = Place(offer.group, offer.term)
            side.disagreed[offer.group] = (place, side.heard_round)
            return
        side.covered[offer.group] = offer
        side.disagreed.pop(offer.group, None)
        self.turn.touch(offer.group)

    def _stop_following(self, pair: Pair, group: GroupId) -> None:
        side = pair.follows
        offer = side.covered.pop(group, None)
        if offer is not None:
            side.disagreed[group] = (Place(group, offer.term), side.heard_round + 1)

    def _watch(self, pair: Pair) -> None:
        deadline = Instant(pair.follows.heard_at + self.election_ns)
        self.turn.at(deadline, self._look_at, pair.peer, pair.session)

    def _look_at(self, peer: NodeId, session: SessionId) -> None:
        """End all coverage if the peer fell silent; the timer of an ended session does nothing."""
        pair = self._pairs.get(peer)
        if pair is None or pair.session != session:
            return
        side = pair.follows
        if not side.covered:
            side.watched = False
        elif self.turn.now < side.heard_at + self.election_ns:
            self._watch(pair)
        else:
            probe("node-heartbeat-silent")
            side.watched = False
            for group, offer in list(side.covered.items()):
                self._stop_following(pair, group)
                self._uncover(group, offer.leader, side.heard_at)

    # --- both ---

    def _uncovered(self, group: GroupId, peer: ReplicaId) -> None:
        """Note that a replica ended its coverage: its term, leader or role changed."""
        pair = self._pairs.get(peer.node)
        if pair is not None:
            self._stop_leading(pair, group)
            self._stop_following(pair, group)

    def _uncover(self, group: GroupId, peer: ReplicaId, last_contact: Instant) -> None:
        replica = self.turn.replicas.get(group)
        if replica is not None:
            replica.uncover(peer, self.turn.now, last_contact)
            self.turn.touch(group)
