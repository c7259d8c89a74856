"""Majorities and joint majorities: pure, and ignorant of messages, logs and time.

A joint configuration decides only when both of its halves do (thesis 4.3). By convention an empty
half agrees with everything, so a configuration that is not joint needs no special case.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import Final, final

from raftlog.base.entries import Membership
from raftlog.base.ids import RaftIndex, ReplicaId

EVERYTHING: Final = RaftIndex(2**63 - 1)
"""The commit index of an empty half, so that it never holds back the other half."""


@final
class VoteResult(enum.Enum):
    """How an election stands."""

    PENDING = "pending"
    LOST = "lost"
    WON = "won"


def majority(count: int) -> int:
    """How many of `count` voters decide. Two of three, three of four: more than half."""
    return count // 2 + 1


def majority_committed(
    voters: Sequence[ReplicaId], match: Mapping[ReplicaId, RaftIndex]
) -> RaftIndex:
    """The highest index that more than half of `voters` have; a voter not in `match` has
    nothing."""
    if not voters:
        return EVERYTHING
    matches = sorted([match.get(voter, 0) for voter in voters], reverse=True)
    return RaftIndex(matches[len(matches) // 2])


def joint_committed(membership: Membership, match: Mapping[ReplicaId, RaftIndex]) -> RaftIndex:
    """The highest index that majorities of both halves have."""
    incoming = majority_committed(membership.voters, match)
    if not membership.outgoing:
        return incoming
    return min(incoming, majority_committed(membership.outgoing, match))


def majority_vote(voters: Sequence[ReplicaId], votes: Mapping[ReplicaId, bool]) -> VoteResult:
    """Whether yes-votes of `voters` won, can still win, or cannot. Other votes do not count."""
    needed = majority(len(voters)) if voters else 0
    granted = missing = 0
    for voter in voters:
        answer = votes.get(voter)
        if answer is None:
            missing += 1
        elif answer:
            granted += 1
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.PENDING if granted + missing >= needed else VoteResult.LOST


def joint_vote(membership: Membership, votes: Mapping[ReplicaId, bool]) -> VoteResult:
    """Both halves must be won; either can be lost."""
    incoming = majority_vote(membership.voters, votes)
    outgoing = majority_vote(membership.outgoing, votes)
    if incoming is outgoing:
        return incoming
    if VoteResult.LOST in (incoming, outgoing):
        return VoteResult.LOST
    return VoteResult.PENDING
