"""Checks votes, the candidates that ask for them and the leaders that win (Raft 5.2, 5.4.1).

The checks never rely on the candidate's own view. They count votes as they leave and remember
requests as they were sent. They look up on a damaged voter's disk, too, which entries it once held.
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
"""The last term and the last index of a log. The newer of two logs has the greater end."""


@final
@attrs.define(eq=False)
class ElectionChecks:
    """Checks every vote of a run. `votes` holds the candidate that each replica ever voted for in a
    term. `asked` holds, per node, the requests to its replicas that it may still grant, each with
    the end of the candidate's log."""

    votes: dict[tuple[GroupId, int, ReplicaId], ReplicaId] = attrs.Factory(dict)
    asked: dict[NodeId, dict[_Request, End]] = attrs.Factory(dict)

    def asks(
        self, node: "Node", message: VoteRequest | PreVoteRequest, *, damaged: bool
    ) -> Iterator[tuple[str, str]]:
        """Check a replica that campaigns or asks for pre-votes.

        `damaged` says that the run damaged its disk.
        """
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
        """Check a vote that leaves a node; a candidate's own vote leaves with its request."""
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
        """Check the requests that this node granted in this turn.

        The check does not see where the log ended at the moment of the vote: as `before` the turn,
        as after it, or in between. It takes the lesser of the first two ends.
        """
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
        """Check a replica that begins to lead; returns an error when it lacks a majority of votes.

        A joint configuration needs a majority of both halves. The replica's own vote counts only if
        it is on its disk.
        """
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
    """Returns the log end that a damaged replica once held, by its own word or its durable mark."""
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
