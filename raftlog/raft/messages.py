"""The messages between replicas of one group: one tuple type per message, one union.

Every message names its group, who speaks, to whom, and the speaker's term. `sender` and `to` are
whole replica ids: a message that is not addressed to exactly me is dropped. A
pre-vote and a vote are different types, so that one can never be counted as the other.

Messages are hot: NamedTuples, immutable after hand-over. Their bytes are in `message_codec`.
"""

import enum
from collections.abc import Sequence
from typing import Final, NamedTuple, final

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry, InstallPosition
from raftlog.base.ids import Chain, GroupId, RaftIndex, ReplicaId, Term
from raftlog.base.units import Nanos

NO_CHAIN: Final = Chain(0)
"""Stands for a chain that is not in memory: nothing is compared with it."""


class PreVoteRequest(NamedTuple):
    """Would you vote for me? Raises no term anywhere (thesis 9.6). `term` is the one it would
    campaign in, one above its own."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    last_index: RaftIndex
    last_term: Term


class PreVoteReply(NamedTuple):
    """`term` is the asked term when granted, else the replier's own."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    granted: bool


class VoteRequest(NamedTuple):
    """RequestVote (Raft figure 2). Leaves only after the candidate's own vote is durable.
    `transfer` says that the leader itself asked for this election, so stickiness does not apply
    (thesis 3.10)."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    last_index: RaftIndex
    last_term: Term
    transfer: bool


class VoteReply(NamedTuple):
    """Leaves only after the replier's (term, vote) is durable."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    granted: bool


class Append(NamedTuple):
    """AppendEntries. With no entries it is the heartbeat of one group.

    `commit` is the leader's; the follower takes it only as far as this match is verified.
    `read_context` is 0, or the newest read-index round, to be echoed at once by `ReadEcho`.
    `entries` follow `prev_index` without a gap.
    """

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    prev_index: RaftIndex
    prev_term: Term
    prev_chain: Chain
    commit: RaftIndex
    read_context: int
    entries: Sequence[Entry]


class AppendReply(NamedTuple):
    """Everything up to `match` is equal to the log of the leader of `term`, and durable here.
    `damaged` says that the replica still misses entries that it once acknowledged: no learner to
    promote."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    match: RaftIndex
    damaged: bool


@final
class RefusalReason(enum.IntEnum):
    """Why an append was not taken."""

    STALE_TERM = 0
    """The leader is deposed: `term` is a newer one."""
    MISMATCH = 1
    """No entry (prev_index, prev_term) here; the hint says where to try next."""
    CONTENT = 2
    """The entries contradict what is known to be equal (chain, offsets, group): verify that
    range."""


class AppendRefused(NamedTuple):
    """The append at `prev_index` was not taken. `hint_index` is the highest index of the replier,
    at most `prev_index`, whose term is at most the asked one; `hint_term` is its term there."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    reason: RefusalReason
    prev_index: RaftIndex
    hint_index: RaftIndex
    hint_term: Term


class ReadEcho(NamedTuple):
    """Still your follower in this term, after you sent `context` (thesis 6.4). For `promised_ns`
    from now on the sender elects nobody else (raftlog.raft.lease); 0: it promises nothing, or is of
    a release that does not say."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    context: int
    promised_ns: Nanos = Nanos(0)


class Install(NamedTuple):
    """A piece of the state before the leader's first entry. `start` is the position of `chunk` in
    the snapshot of `total` bytes; the piece that ends at `total` completes it."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    position: InstallPosition
    total: int
    start: int
    chunk: Buffer


class InstallReply(NamedTuple):
    """Go on at `received`. When all is there and durable, an `AppendReply` says so instead."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    raft_index: RaftIndex
    received: int


class TimeoutNow(NamedTuple):
    """The leader hands over: campaign at once, without a pre-vote (thesis 3.10)."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term


class Unreadable(NamedTuple):
    """An append with an entry that this release does not know: the replica stops, it never skips.
    Made by the codec only, and never sent."""

    group: GroupId
    sender: ReplicaId
    to: ReplicaId
    term: Term
    why: str


RaftMessage = (
    PreVoteRequest
    | PreVoteReply
    | VoteRequest
    | VoteReply
    | Append
    | AppendReply
    | AppendRefused
    | ReadEcho
    | Install
    | InstallReply
    | TimeoutNow
    | Unreadable
)
