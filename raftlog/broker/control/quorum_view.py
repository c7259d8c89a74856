"""Tells the state of the metadata group, from its leader to a broker that a client asked.

Only the leader knows how far the others are. Its answer is a controller answer whose message holds
one line a replica, voters first, all numbers:

    leader, term, commit                         raft indexes count entries from 1
    node, voter (1 or 0), log end, last heard of, last seen caught up

Times are in Unix milliseconds, -1 where they are not known.

A message has a bound, so learners that would not fit are left out.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple, final

from raftlog.base.errors import ProtocolError
from raftlog.base.ids import METADATA_GROUP, NodeId, RaftIndex, ReplicaId, Term
from raftlog.base.limits import CONTROLLER_TEXT_BYTES_MAX
from raftlog.base.units import NANOS_PER_MILLI, Instant
from raftlog.broker.turn import Turn
from raftlog.metadata.requests import ControllerAnswer
from raftlog.partition.replica import PartitionReplica

NOT_KNOWN: Final = -1
_ON: Final = "state of the metadata group"


@final
class QuorumMember(NamedTuple):
    """One replica; `log_end` is the index after its last entry that is known to be durable."""

    node: NodeId
    voter: bool
    log_end: int
    heard_ms: int
    caught_up_ms: int


@final
class QuorumState(NamedTuple):
    """The group in the leader's words."""

    leader: NodeId
    term: Term
    commit: RaftIndex
    members: tuple[QuorumMember, ...]


def quorum_answer(turn: Turn, heard: Mapping[NodeId, Instant], version: int) -> ControllerAnswer:
    """The answer of the active controller; `heard` is when it last heard each broker."""
    replica = turn.replicas[METADATA_GROUP]
    lines = [f"{replica.me.node},{replica.term},{replica.commit}"]
    size = len(lines[0])
    voters = replica.membership.voters
    for each in (*voters, *replica.membership.learners):
        member = _member(turn, replica, each, each in voters, heard)
        line = ",".join(str(int(value)) for value in member)
        size += len(line) + 1
        if size > CONTROLLER_TEXT_BYTES_MAX:
            break
        lines.append(line)
    return ControllerAnswer(refusal=None, message="\n".join(lines), version=version)


def _member(
    turn: Turn,
    replica: PartitionReplica,
    each: ReplicaId,
    voter: bool,
    heard: Mapping[NodeId, Instant],
) -> QuorumMember:
    wall = turn.wall
    if each == replica.me:
        durable = replica.log.durable_end
        end = 0 if durable is None else durable.raft_index
        return QuorumMember(each.node, voter, end + 1, wall, wall)
    progress = replica.node.progress.get(each)
    if progress is None:
        return QuorumMember(each.node, voter, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN)
    contact = progress.last_contact
    if progress.covered:
        # Heartbeats of the pair of nodes stand for the group's, which is silent while it is idle.
        contact = max(contact, heard.get(each.node, contact))
    heard_ms = max(0, wall - (turn.now - contact) // NANOS_PER_MILLI)
    caught_up = heard_ms if progress.match == replica.log.last_index else NOT_KNOWN
    return QuorumMember(each.node, voter, progress.match + 1, heard_ms, caught_up)


def quorum_state(message: str) -> QuorumState:
    """The state in such an answer; ProtocolError for any other message."""
    try:
        (leader, term, commit), *members = [
            [int(word) for word in line.split(",")] for line in message.split("\n")
        ]
        found = tuple(
            QuorumMember(NodeId(node), bool(voter), end, heard, caught_up)
            for node, voter, end, heard, caught_up in members
        )
    except ValueError as error:
        raise ProtocolError(f"it is not understood: {error}", on=_ON) from error
    return QuorumState(NodeId(leader), Term(term), RaftIndex(commit), found)
