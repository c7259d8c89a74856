"""What must hold of votes, of who asks for them and of who wins (Raft 5.2, 5.4.1).

Votes are counted as they leave, requests are remembered as they were sent, and what a damaged
voter once held is looked up on its disk too: none of it is asked of the candidate.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import GroupId, NodeId, ReplicaId
from raftlog.partition.replica import PartitionReplica
from raftlog.raft.messages import PreVoteRequest, VoteReply, VoteRequest
from raftlog_sim.facts import truth
from raftlog_sim.facts.outline import NOTHING, Outline

if TYPE_CHECKING:
    from raftlog_sim.world.node import Node


class _Request(NamedTuple):
    """A request for a vote that its voter may still grant."""

    group: GroupId
    term: int
    candidate: ReplicaId


End = tuple[int, int]
"""Of a log: last term, last index; in this order the newer one is the greater one."""


@final
@attrs.define(eq=False)
class ElectionChecks:
    """`votes`: whom a replica voted for in a term, ever. `asked`: per node, the requests sent to
    its replicas that may still be granted, each with the end of the candidate's log."""

    votes: dict[tuple[GroupId, int, ReplicaId], ReplicaId] = attrs.Factory(dict)
    asked: dict[NodeId, dict[_Request, End]] = attrs.Factory(dict)

    def asks(
        self, node: "Node", message: VoteRequest | PreVoteRequest, *, damaged: bool
    ) -> Iterator[tuple[str, str]]:
        """A replica campaigns, or asks whether it could. `damaged`: its disk was damaged by the
        run."""
        group, me = message.group, message.sender
        if type(message) is VoteRequest:
            request = _Request(group, message.term, me)
            end = (message.last_term, message.last_index)
            self.asked.setdefault(message.to.node, {})[request] = end
        replica = node.broker.context.replicas.get(group)
        if replica is None or replica.me != me:
            return
        claim = _claim(node, replica, damaged=damaged)
        wrong = f"{me} of group {group} campaigns, and has lost what it held up to {claim}"
        lost = replica.node._state.damaged is not None or claim > _end(replica)
        yield "damaged-never-campaigns", wrong if lost else ""

    def voted(
        self, node: "Node", message: VoteReply | VoteRequest, to: ReplicaId
    ) -> Iterator[tuple[str, str]]:
        """A vote leaves, a candidate's own one with its request."""
        group, term, me = message.group, message.term, message.sender
        before = self.votes.setdefault((group, term, me), to)
        wrong = f"{me} voted for {before} and {to} in term {term} of group {group}"
        yield "one-vote-a-term", wrong if before != to else ""
        wrong = f"{me} voted for {to} in term {term} of group {group}; its disk does not have it"
        yield "promise-durable", "" if truth.vote_is_durable(node, group, term, to) else wrong

    def granted(
        self,
        node: "Node",
        before: Mapping[tuple[GroupId, ReplicaId], Outline],
        *,
        damaged: bool,
    ) -> Iterator[tuple[str, str]]:
        """Those of the requests to this node that it granted in this turn. Where its log ended when
        it did so is not seen: `before` the turn, or after it, or between."""
        asked = self.asked[node.number]
        for request, candidate in list(asked.items()):
            replica = node.broker.context.replicas.get(request.group)
            if replica is None or replica.term < request.term:
                continue
            if replica.term == request.term and replica.node.vote is None:
                continue
            del asked[request]
            if replica.term == request.term and replica.node.vote == request.candidate:
                known = before.get((request.group, replica.me), NOTHING)
                claim = _claim(node, replica, damaged=damaged)
                ours = min((known.last_term, known.last_index), _end(replica))
                yield "vote-up-to-date", _outdated(replica, request, candidate, max(ours, claim))

    def elected(self, node: "Node", replica: PartitionReplica) -> str:
        """A replica leads, for the first time in its term: a majority of its voters, of both halves
        when joint, have voted for it, itself only if its disk says so."""
        group, me, term = replica.group, replica.me, replica.term
        membership = replica.membership
        granted = [each for each in membership.all_voters() if self._gave(group, term, each, me)]
        if truth.vote_is_durable(node, group, term, me):
            granted.append(me)
        if _is_majority(membership, granted):
            return ""
        return f"{me} leads group {group} in term {term} by {granted} of {membership}"

    def _gave(self, group: GroupId, term: int, voter: ReplicaId, to: ReplicaId) -> bool:
        return voter != to and self.votes.get((group, term, voter)) == to


def went_back(replica: PartitionReplica, before: Outline, now: Outline) -> str:
    """Whether a leader dropped entries since it was last seen to lead, or is being installed."""
    where = f"{replica.me} leads group {replica.group} in term {now.term}"
    if now.last_index < before.last_index:
        return f"{where} and went back from entry {before.last_index} to {now.last_index}"
    if replica.node._state.receiving is not None:
        return f"{where} and is being installed"
    return ""


def _is_majority(membership: Membership, granted: list[ReplicaId]) -> bool:
    halves = [half for half in (membership.voters, membership.outgoing) if half]
    return all(sum(each in granted for each in half) > len(half) // 2 for half in halves)


def _end(replica: PartitionReplica) -> End:
    return (replica.log.last_term, replica.log.last_index)


def _claim(node: "Node", replica: PartitionReplica, *, damaged: bool) -> End:
    """What a damaged replica once held, says it, or says its durable mark."""
    held, found = replica.node._state.damaged, (0, 0)
    if held is not None:
        found = (held.term, held.raft_index)
    if not damaged or node.rolled_back or not truth.is_registered(node, replica.group, replica.me):
        return found
    mark = truth.stored_mark(node, replica.group)
    return found if mark is None else max(found, (mark.term, mark.raft_index))


def _outdated(replica: PartitionReplica, request: _Request, candidate: End, ours: End) -> str:
    if candidate >= ours:
        return ""
    return (
        f"{replica.me} voted for {request.candidate} in term {request.term} of group "
        f"{request.group}, whose log ended with (term, index) {candidate}; its own is {ours}"
    )
