"""The append path, the follower's side: what it takes, what it refuses, and what it acknowledges.

A follower compares (index, term, chain) at the seam. It drops a suffix only when an entry there
has another term than the leader's, never below commit; an older or shorter append that comes late
changes nothing. Its commit index moves only over what this leader's appends of this term have
verified. It answers with what is *durable* here.
"""

from collections.abc import Sequence
from typing import Final

from raftlog.base.entries import Entry
from raftlog.base.errors import ProtocolError
from raftlog.base.ids import Chain, RaftIndex, Term
from raftlog.base.probes import probe
from raftlog.raft import install, lease, membership
from raftlog.raft.messages import (
    NO_CHAIN,
    Append,
    AppendRefused,
    AppendReply,
    Install,
    ReadEcho,
    RefusalReason,
    Unreadable,
)
from raftlog.raft.roles import become_follower, learn_leader, stop
from raftlog.raft.state import FOLLOWER, MEMBERSHIP, RECORDS, STOPPED, RaftState
from raftlog.records.chain import chain_next

HEALED: Final = "healed"
"""The event of a damaged replica that is whole again."""


def on_append(state: RaftState, message: Append) -> None:
    """Take what continues our log, say what is durable, or say where the logs may agree."""
    if message.term < state.term:
        refuse_stale(state, message)
        return
    if message.term > state.term:
        become_follower(state, message.term, message.sender)
    if not learn_leader(state, message.sender):
        return
    if message.read_context:
        me, to, lasts = state.me, message.sender, lease.promise(state)
        state.promise(ReadEcho(state.group, me, to, state.term, message.read_context, lasts))
    if not _seam_holds(state, message):
        return
    entries = message.entries
    if entries and not _take_entries(state, message, entries):
        return
    verified = RaftIndex(message.prev_index + len(entries))
    if verified > state.verified:
        state.verified = verified
    if message.commit > state.commit:
        state.commit = max(state.commit, min(message.commit, state.verified))
    state.ack_wanted = state.ack_wanted or not entries or state.rounds.durable >= verified


def _seam_holds(state: RaftState, message: Append) -> bool:
    """Whether we hold the entry before the first one sent, with equal term and chain."""
    prev, log = message.prev_index, state.log
    term = log.term_at(prev)
    if term != message.prev_term:
        if prev > state.commit:
            _refuse(state, message, RefusalReason.MISMATCH)
            return False
        if term is not None:
            stop(
                state, f"committed entry {prev} has term {term}, its leader has {message.prev_term}"
            )
            return False
        return True  # below the first entry held here, hence committed, hence equal
    chain = log.chain_at(prev)
    if chain is not None and message.prev_chain not in (NO_CHAIN, chain):
        _diverged(state, message, prev, message.prev_chain)
        return False
    return True


def _diverged(state: RaftState, message: Append, index: RaftIndex, theirs: Chain) -> None:
    """Equal index and term, and yet another prefix: one of us is not what it was."""
    probe("chain-refused-at-append")
    _refuse(state, message, RefusalReason.CONTENT)
    ours = state.log.chain_at(index) or NO_CHAIN
    stop(state, f"chain at entry {index} is {ours:016x}, its leader's is {theirs:016x}")


def _take_entries(state: RaftState, message: Append, entries: Sequence[Entry]) -> bool:
    log = state.log
    if message.prev_index != log.last_index:
        known = _skip_known(state, message, entries)
        if known is None:
            return False
        entries = entries[known:]
        if not entries:
            return True
    if not _continues(state, message, entries):
        return False
    log.append(entries)
    state.log_changed = True
    for entry in entries:
        if entry.kind is MEMBERSHIP:
            membership.on_appended(state, entry)
    return True


def _skip_known(state: RaftState, message: Append, entries: Sequence[Entry]) -> int | None:
    """How many of the entries are here already. An entry of another term proves a conflict, and
    only that cuts the log; None: it is not to be cut, and this replica has stopped."""
    log, chain = state.log, message.prev_chain
    for position, entry in enumerate(entries):
        index = entry.raft_index
        if index > log.last_index:
            return position
        if message.prev_chain != NO_CHAIN:
            chain = chain_next(chain, entry.batch)
        term = log.term_at(index)
        if term is None or index < log.first_index:
            continue
        if term != entry.term:
            if index <= state.commit:
                stop(state, f"committed entry {index} has term {term}, its leader has {entry.term}")
                return None
            truncate(state, index)
            return position
        own = log.chain_at(index)
        if message.prev_chain != NO_CHAIN and own not in (None, chain):
            _diverged(state, message, index, chain)
            return None
    return len(entries)


def _continues(state: RaftState, message: Append, entries: Sequence[Entry]) -> bool:
    """Whether the entries continue the log in index, term, offset and group; refused otherwise."""
    log = state.log
    index, term, offset = log.last_index, log.last_term, log.next_offset
    for entry in entries:
        index = RaftIndex(index + 1)
        if (
            entry.raft_index != index
            or entry.base_offset != offset
            or not term <= entry.term <= message.term
            or (entry.kind is not RECORDS and not _control_fits(state, entry))
        ):
            probe("append-content-refused")
            state.trace("content", ("index", index), ("offset", offset))
            _refuse(state, message, RefusalReason.CONTENT)
            return False
        term, offset = entry.term, entry.next_offset
    return True


def _control_fits(state: RaftState, entry: Entry) -> bool:
    try:
        membership.check_control(state, entry)
    except ProtocolError:
        return False
    return True


def truncate(state: RaftState, index: RaftIndex) -> None:
    """Drop our suffix from `index` on: a leader's entry there has another term."""
    assert index > state.commit, (index, state.commit)
    assert state.role is FOLLOWER, state.role
    probe("conflict-truncation")
    state.log.truncate_from(index)
    state.log_changed = True
    last = RaftIndex(index - 1)
    state.rounds.cut(last)
    state.verified = min(state.verified, last)
    membership.on_truncated(state, index)
    state.trace("truncate", ("index", index))


def _refuse(state: RaftState, message: Append, reason: RefusalReason) -> None:
    """Say no, with the place where our log may agree. A word about content must not wait for a sync
    that may never come: it promises nothing."""
    log = state.log
    hint = min(message.prev_index, log.last_index, log.last_index_at_or_below(message.prev_term))
    term = log.term_at(hint)
    refusal = AppendRefused(
        state.group,
        state.me,
        message.sender,
        state.term,
        reason,
        message.prev_index,
        hint,
        Term(0) if term is None else term,
    )
    if reason is RefusalReason.CONTENT:
        state.send.append(refusal)
    else:
        state.promise(refusal)


def refuse_stale(state: RaftState, message: Append | Install) -> None:
    """A deposed leader still speaks: our term makes it follow."""
    probe("append-of-a-deposed-leader")
    me, to = state.me, message.sender
    none, reason = RaftIndex(0), RefusalReason.STALE_TERM
    state.promise(AppendRefused(state.group, me, to, state.term, reason, none, none, Term(0)))


def on_install(state: RaftState, message: Install) -> None:
    """A piece of a snapshot: from a leader, under the same fences as an append."""
    if message.term < state.term:
        refuse_stale(state, message)
        return
    if message.term > state.term:
        become_follower(state, message.term, message.sender)
    if learn_leader(state, message.sender):
        install.on_piece(state, message)


def on_unreadable(state: RaftState, message: Unreadable) -> None:
    """Our leader writes entries that this release cannot understand, hence cannot obey."""
    if message.term >= state.term:
        probe("unknown-entry-kind")
        stop(state, message.why)


def durable_moved(state: RaftState) -> None:
    """A round of ours is synced: what it made durable may be news for the leader."""
    if min(state.verified, state.rounds.durable) > state.acked:
        state.ack_wanted = True


def _heal(state: RaftState, match: RaftIndex) -> None:
    """A damaged replica is whole again when what it holds, verified and durable, is at least what
    its mark says it once held. If that very entry came back with another chain, one of us is
    wrong."""
    mark = state.damaged
    term = state.log.term_at(match)
    if mark is None or term is None or (term, match) < (mark.term, mark.raft_index):
        return
    if mark.chain != NO_CHAIN and state.log.term_at(mark.raft_index) == mark.term:
        chain = state.log.chain_at(mark.raft_index)
        if chain not in (None, mark.chain):
            stop(state, f"entry {mark.raft_index} came back with another chain than its mark")
            return
    probe("damaged-replica-healed")
    state.damaged = None
    state.trace(HEALED, ("match", match))


def keep_promises(state: RaftState) -> None:
    """Term and vote are durable: what was said in this term may leave."""
    if state.ack_wanted and state.role is FOLLOWER and state.leader is not None:
        acknowledge(state)
    if state.promises:
        send = state.send
        for message in state.promises:
            if message.term == state.term:
                send.append(message)
            else:
                probe("promise-of-an-ended-term-dropped")
        state.promises.clear()


def acknowledge(state: RaftState) -> None:
    """Tell the leader what is verified and durable; called when no hard state is in flight."""
    leader = state.leader
    assert leader is not None, state.term
    match = min(state.verified, state.rounds.durable)
    if state.damaged is not None:
        _heal(state, match)
        if state.role is STOPPED:
            return
    state.ack_wanted = False
    state.acked = max(state.acked, match)
    if not state.agreed:
        state.agreed = True
        state.out.agreed.append(leader)
    damaged = state.damaged is not None
    state.send.append(AppendReply(state.group, state.me, leader, state.term, match, damaged))
