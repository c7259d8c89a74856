"""One replica and hand-made messages: the tests of this folder say one sentence of a paper each.

Replica 1 is the one under test, 2 and 3 (and more) are only names that messages come from.
"""

from raftlog.base.entries import Entry, EntryKind, HardState, Membership
from raftlog.base.ids import Offset, RaftIndex, Term
from raftlog.raft.messages import (
    Append,
    AppendRefused,
    AppendReply,
    PreVoteReply,
    RaftMessage,
    VoteReply,
    VoteRequest,
)
from raftlog.raft.node import Role
from raftlog.raft.options import RaftOptions
from raftlog.records.control import build_control_entry, write_membership_body
from tests.raft.cluster import BEAT, ELECTION, GROUP, START, WALL, Peer, log_of_terms, rid, voters

NO_PRE_VOTE = RaftOptions(heartbeat_ns=BEAT, election_ns=ELECTION, pre_vote=False)
THREE = voters(1, 2, 3)


def replica(
    *terms: int,
    term: int = 0,
    vote: int | None = None,
    membership: Membership = THREE,
    options: RaftOptions = NO_PRE_VOTE,
    commit: int = 0,
) -> Peer:
    """Replica 1 with entries of `terms`, booted in `term` with `vote`; everything durable."""
    log = log_of_terms(*terms, membership=membership)
    hard = HardState(Term(max(term, log.last_term)), None if vote is None else rid(vote))
    peer = Peer(rid(1), log, hard_state=hard, options=options, commit_hint=commit)
    peer.now = START
    return peer


def say(peer: Peer, *messages: RaftMessage) -> list[RaftMessage]:
    """Deliver, sync everything, and return what the replica then says."""
    peer.node.receive(messages, peer.now)
    return listen(peer)


def listen(peer: Peer) -> list[RaftMessage]:
    """Take and sync until nothing is left to sync; what was said meanwhile."""
    said = list(peer.take().send)
    while peer.persist(peer.now):
        said.extend(peer.take().send)
    return said


def wait(peer: Peer, nanos: int) -> list[RaftMessage]:
    """Let time pass, and one tick at its end."""
    peer.now += nanos
    peer.node.tick(peer.now)
    return listen(peer)


def time_out(peer: Peer) -> list[RaftMessage]:
    """Let the election timeout pass."""
    return wait(peer, 2 * ELECTION)


def append(
    term: int,
    prev: tuple[int, int] = (0, 0),
    entries: tuple = (),
    commit: int = 0,
    sender: int = 2,
    chain: int = 0,
    context: int = 0,
) -> Append:
    """An append of the leader `sender`; the chain is left out (0) unless a test is about it."""
    index, prev_term = prev
    return Append(
        GROUP, rid(sender), rid(1), Term(term), RaftIndex(index), Term(prev_term), chain,
        RaftIndex(commit), context, entries,
    )  # fmt: skip


def vote_request(
    term: int, last: tuple[int, int] = (0, 0), sender: int = 2, transfer: bool = False
) -> VoteRequest:
    index, last_term = last
    return VoteRequest(GROUP, rid(sender), rid(1), Term(term), index, Term(last_term), transfer)


def vote(term: int, sender: int = 2, granted: bool = True) -> VoteReply:
    return VoteReply(GROUP, rid(sender), rid(1), Term(term), granted)


def pre_vote(term: int, sender: int = 2, granted: bool = True) -> PreVoteReply:
    return PreVoteReply(GROUP, rid(sender), rid(1), Term(term), granted)


def matched(term: int, match: int, sender: int = 2) -> AppendReply:
    return AppendReply(GROUP, rid(sender), rid(1), Term(term), RaftIndex(match), False)


def refused(
    term: int, prev: int, hint: tuple[int, int], sender: int = 2, reason: int = 1
) -> AppendRefused:
    return AppendRefused(GROUP, rid(sender), rid(1), Term(term), reason, prev, *hint)


def lead(*terms: int, term: int = 0, ready: bool = True, **options) -> Peer:
    """Replica 1, elected by all; `ready` when 2 has its first entry too."""
    peer = replica(*terms, term=term, **options)
    time_out(peer)
    others = [v.node for v in peer.node.membership.all_voters() if v != peer.me]
    say(peer, *(vote(peer.node.term, sender) for sender in others))
    assert peer.role is Role.LEADER, peer.role
    if ready:
        say(peer, matched(peer.node.term, peer.log.last_index))
        assert peer.node.ready
    return peer


def of_kind(said: list[RaftMessage], kind: type) -> list:
    return [message for message in said if isinstance(message, kind)]


def control(index: int, term: int, offset: int, membership: Membership) -> Entry:
    """A membership entry as a leader would make it."""
    return build_control_entry(
        EntryKind.MEMBERSHIP,
        group=GROUP,
        term=Term(term),
        raft_index=RaftIndex(index),
        base_offset=Offset(offset),
        timestamp_ms=WALL,
        body=write_membership_body(membership),
    )
