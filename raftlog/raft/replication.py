"""The append path, the leader's side: what is sent to whom, and when something is committed.

The leader cuts appends in `take`, once per turn, so that everything proposed in one turn shares
one message and one sync; they leave while its own disk syncs. Its commit index moves by counting
durable matches, its own among them, and only to an entry of its own term (Raft 5.4.2).
"""

from collections.abc import Sequence

from raftlog.base.buggify import buggify
from raftlog.base.entries import Entry
from raftlog.base.ids import Chain, NodeId, RaftIndex, ReplicaId
from raftlog.base.probes import probe
from raftlog.base.units import NEVER, Instant
from raftlog.raft import install, membership, pacing, reads, transfer
from raftlog.raft.messages import (
    NO_CHAIN,
    Append,
    AppendRefused,
    AppendReply,
    InstallReply,
    ReadEcho,
    RefusalReason,
)
from raftlog.raft.output import LogRead
from raftlog.raft.progress import INSTALL, PROBE, REPLICATE, Progress
from raftlog.raft.quorum import joint_committed
from raftlog.raft.roles import become_follower
from raftlog.raft.state import LEADER, RaftState, ReadyAppend
from raftlog.raft.throttle import Throttle


def send_all(state: RaftState) -> None:
    """Everything that the leader owes its followers at the end of a turn."""
    voters_only = state.membership if state.reads.unsent and reads.seal(state) else None
    commit_due = state.commit_urgent or state.options.eager_commit
    last = state.log.last_index
    state.paced_until = NEVER
    for follower in state.progress.values():
        if follower.next <= last and _send_entries(state, follower, last):
            continue
        if (voters_only is not None and voters_only.is_voter(follower.replica)) or (
            commit_due and follower.commit_sent < min(state.commit, follower.match)
        ):
            send_heartbeat(state, follower)
    state.commit_urgent = False
    state.ready_append = None
    if state.heartbeat_deadline == NEVER and not is_quiet(state):
        state.heartbeat_deadline = Instant(state.now + state.options.heartbeat_ns)


def deadline(state: RaftState) -> Instant:
    """When the leader has something to do, if nothing happens before."""
    leads_until = state.rounds.leads_until(state.options.election_ns)
    return min(state.heartbeat_deadline, state.paced_until, leads_until)


def is_quiet(state: RaftState) -> bool:
    """Nothing is owed to anybody, and heartbeats of node pairs stand for all of ours."""
    if state.transferring is not None or state.reads.pending:
        return False
    last, commit = state.log.last_index, state.commit
    for follower in state.progress.values():
        if not follower.covered or follower.match != last or follower.commit_sent < commit:
            return False
    return True


def awaits_answers(state: RaftState) -> bool:
    """Whether the leader cannot go on without its followers: something is not committed, not sent,
    not known to all that should hear at once, or asked by a read or a transfer. If not, an
    acknowledgement only completes what is known of its sender, and may wait."""
    if state.role is not LEADER:
        return False
    last, commit = state.log.last_index, state.commit
    if commit != last or state.transferring is not None or state.reads.pending:
        return True
    told = commit if state.options.eager_commit else 0
    return any(each.next <= last or each.commit_sent < told for each in state.progress.values())


def _send_entries(state: RaftState, follower: Progress, last: RaftIndex) -> bool:
    """Fill the follower's window. Whether anything was sent."""
    limits = pacing.limits_on(state, follower)
    sent = False
    while follower.next <= last and follower.has_room(state.options):
        if limits:
            if not _send_paced(state, follower, limits):
                break
            sent = True
            continue
        ready = state.ready_append
        if ready is None or ready.first != follower.next:
            ready = _prepare(state, follower)
            if ready is None:
                break
        _send_append(state, follower, ready)
        sent = True
    return sent


def _send_paced(state: RaftState, follower: Progress, limits: tuple[Throttle, ...]) -> bool:
    """Send one append to a throttled learner, when its slot has come. Its cut is as small as the
    slot, and no other follower's."""
    if follower.read_token is not None:
        return False
    slot = pacing.slot_of(state, follower, limits)
    if slot.due > state.now:
        probe("learner-waits-for-its-throttle")
        state.paced_until = min(state.paced_until, slot.due)
        return False
    ready = _prepare(state, follower, slot.byte_count)
    state.ready_append = None
    if ready is None:
        return False
    _send_append(state, follower, ready)
    return True


def _prepare(
    state: RaftState, follower: Progress, bytes_max: int | None = None
) -> ReadyAppend | None:
    """Cut one append from the log's memory, or ask for what is not there."""
    first = follower.next
    if bytes_max is None:
        bytes_max = state.options.append_bytes_max
    if follower.read_token is not None:
        return None
    if first < state.log.first_index:
        install.begin(state, follower)
        return None
    ready = _cut(state, first, bytes_max)
    if ready is None:
        _ask_for_entries(state, follower, first, bytes_max)
    else:
        state.ready_append = ready
    return ready


def _cut(state: RaftState, first: RaftIndex, bytes_max: int) -> ReadyAppend | None:
    log = state.log
    bytes_max = 1 if buggify("smallest-append") else bytes_max
    entries = log.entries(first, bytes_max)
    if entries is None:
        return None
    prev = RaftIndex(first - 1)
    chain, term = log.chain_at(prev), log.term_at(prev)
    assert chain is not None, first
    assert term is not None, first
    assert entries, first
    assert entries[0].raft_index == first, (entries[0].raft_index, first)
    return ReadyAppend(first, term, chain, entries, sum([len(entry.batch) for entry in entries]))


def _ask_for_entries(
    state: RaftState, follower: Progress, first: RaftIndex, bytes_max: int
) -> None:
    follower.read_token = state.token()
    state.out.log_reads.append(LogRead(follower.read_token, first, bytes_max))


def on_log_read(
    state: RaftState,
    token: int,
    first: RaftIndex,
    prev_chain: Chain,
    entries: Sequence[Entry] | None,
) -> None:
    """Entries from the disk, for the follower whose read this token still names."""
    follower = next((p for p in state.progress.values() if p.read_token == token), None)
    if follower is None:
        probe("log-read-of-an-ended-sender")
        return
    follower.read_token = None
    term = state.log.term_at(RaftIndex(first - 1))
    if first != follower.next or term is None:
        return
    if not entries:
        probe("log-read-failed")
        follower.probe_again()
        follower.waiting = True  # asked again after the answer to a heartbeat, not in a circle
        return
    assert entries[0].raft_index == first, (entries[0].raft_index, first)
    size = sum([len(entry.batch) for entry in entries])
    _send_append(state, follower, ReadyAppend(first, term, prev_chain, entries, size))


def _send_append(state: RaftState, follower: Progress, ready: ReadyAppend) -> None:
    entries = ready.entries
    state.send.append(
        Append(
            state.group,
            state.me,
            follower.replica,
            state.term,
            RaftIndex(ready.first - 1),
            ready.prev_term,
            ready.prev_chain,
            state.commit,
            reads.context_of(state),
            entries,
        )
    )
    follower.commit_sent = state.commit
    follower.spoken_to = True
    follower.at_end = entries[-1].raft_index == state.log.last_index
    pacing.settle(state, follower, ready.byte_count)
    follower.sent(entries[-1].raft_index, ready.byte_count)


def send_heartbeat(state: RaftState, follower: Progress) -> None:
    """An append without entries, at the seam where the follower's log should end. Also a probe:
    when something that was in flight is lost, it is refused, and the sender looks for the seam
    again."""
    log = state.log
    prev = RaftIndex(follower.next - 1)
    if prev < log.first_index - 1:
        prev = RaftIndex(log.first_index - 1)
    term = log.term_at(prev)
    assert term is not None, prev
    state.send.append(
        Append(
            state.group,
            state.me,
            follower.replica,
            state.term,
            prev,
            term,
            log.chain_at(prev) or NO_CHAIN,
            state.commit,
            reads.context_of(state),
            (),
        )
    )
    follower.commit_sent = state.commit
    follower.spoken_to = True


def heartbeats(state: RaftState) -> None:
    """One interval has passed: speak to everybody who heard nothing in it and is not covered."""
    quiet = is_quiet(state)
    last = state.log.last_index
    if state.reads.pending:
        probe("read-round-sent-again")
    for follower in state.progress.values():
        idle = follower.match == last and follower.commit_sent >= state.commit
        covered = follower.covered and idle and not state.reads.pending
        if not covered and (not follower.spoken_to or state.reads.pending):
            install.resend(state, follower)
            send_heartbeat(state, follower)
        follower.spoken_to = False
    state.heartbeat_deadline = NEVER if quiet else Instant(state.now + state.options.heartbeat_ns)


def on_append_reply(state: RaftState, message: AppendReply) -> None:
    """A follower holds our log up to `match`, durably."""
    follower = _follower_of(state, message)
    if follower is None:
        return
    if message.match > state.log.last_index:
        probe("match-beyond-our-log")
        state.trace("nonsense", ("from", str(message.sender)), ("match", message.match))
        return
    follower.damaged = message.damaged
    if not follower.agreed:
        follower.agreed = True
        state.out.agreed.append(follower.replica)
    moved = follower.acknowledged(message.match)
    if follower.state is PROBE or (follower.in_flight and buggify("sent-again")):
        follower.become_replicate()
    elif follower.state is INSTALL and message.match >= state.log.first_index - 1:
        probe("install-done")
        follower.become_replicate()
    elif follower.state is INSTALL and install.is_outrun(follower, message.match):
        probe("install-outrun-by-retention")
        install.begin(state, follower)
    if moved:
        if message.match > state.commit:
            maybe_commit(state)
        if state.transferring is not None:
            transfer.after_progress(state, follower)
    if state.target is not None:
        membership.advance(state)


def on_append_refused(state: RaftState, message: AppendRefused) -> None:
    """Look for the seam: by the terms of both logs, never one entry at a time (Raft 5.3)."""
    follower = _follower_of(state, message)
    if follower is None:
        return
    if message.reason is RefusalReason.CONTENT:
        _content_refused(state, follower, message.prev_index)
        return
    if follower.state is INSTALL:
        return
    if follower.next < state.log.first_index:
        # it is there, and needs what we no longer hold; with its window cleared an install begins
        follower.probe_again()
        return
    if follower.state is REPLICATE and message.prev_index <= follower.match:
        _match_refused(state, follower, message.prev_index)
        return
    if follower.state is PROBE and message.prev_index != follower.next - 1:
        probe("stale-refusal-while-probing")
        return
    back = state.log.last_index_at_or_below(message.hint_term)
    seam = min(message.hint_index, back, RaftIndex(message.prev_index - 1))
    if follower.state is REPLICATE:
        seam = max(seam, follower.match)
    elif seam < follower.match:
        # It proves that it lost what it had acknowledged (a damaged disk): its match no longer
        # counts.
        probe("match-regressed")
        follower.match = RaftIndex(max(seam, 0))
    follower.become_probe(RaftIndex(max(seam, 0) + 1))


def _match_refused(state: RaftState, follower: Progress, prev: RaftIndex) -> None:
    """It refuses what it acknowledged. Below the match that is an old word. At the match it may be
    one, too; or the replica was opened anew within the session, and lost that to its disk. A probe
    there tells."""
    if prev < follower.match:
        probe("stale-refusal-while-replicating")
        return
    probe("match-refused-while-replicating")
    follower.become_probe(RaftIndex(prev + 1))
    send_heartbeat(state, follower)


def _content_refused(state: RaftState, follower: Progress, prev: RaftIndex) -> None:
    """Our copy may be the bad one: have that range read and checked, and do not send it in a
    circle."""
    probe("content-refused")
    last = max(RaftIndex(follower.next - 1), RaftIndex(prev + 1))
    state.out.verify.append((RaftIndex(prev + 1), min(last, state.log.last_index)))
    follower.probe_again()
    follower.waiting = True


def on_install_reply(state: RaftState, message: InstallReply) -> None:
    """A piece of a snapshot has arrived."""
    follower = _follower_of(state, message)
    if follower is not None:
        install.on_reply(state, follower, message)


def _follower_of(
    state: RaftState, message: AppendReply | AppendRefused | ReadEcho | InstallReply
) -> Progress | None:
    """The follower that answered our present leadership; a newer term ends it."""
    if message.term > state.term:
        become_follower(state, message.term, None)
        return None
    if message.term < state.term or state.role is not LEADER:
        probe("answer-to-an-ended-term")
        return None
    follower = state.progress.get(message.sender)
    if follower is not None:
        follower.last_contact = state.now
    return follower


def on_read_echo(state: RaftState, message: ReadEcho) -> None:
    """A follower was still ours after it got this read round."""
    follower = _follower_of(state, message)
    if follower is not None and message.context > follower.echoed:
        follower.echoed, follower.promised_ns = message.context, message.promised_ns
        reads.confirm(state)


def maybe_commit(state: RaftState) -> None:
    """Commit what a majority (of both halves, if joint) holds durably, if it is of this term."""
    match = {replica: follower.match for replica, follower in state.progress.items()}
    match[state.me] = state.rounds.durable
    index = joint_committed(state.membership, match)
    if index <= state.commit:
        return
    if index < state.term_start:
        probe("commit-held-back-by-an-earlier-term")
        return
    assert index <= state.log.last_index, (index, state.log.last_index)
    state.commit = index
    if not state.ready:
        state.ready = True
        reads.unpark(state)
        state.trace("ready", ("commit", index))
    membership.after_commit(state)


def on_link_up(state: RaftState, node: NodeId) -> None:
    """A new session with a node: what was in flight is lost, look for the seam again at once."""
    for follower in state.progress.values():
        if follower.replica.node == node:
            follower.probe_again()
            follower.agreed = False
            follower.covered = False
            send_heartbeat(state, follower)


def on_link_down(state: RaftState, node: NodeId) -> None:
    """The session is over, and with it what was agreed on it."""
    for follower in state.progress.values():
        if follower.replica.node == node:
            follower.probe_again()
            follower.waiting = True
            uncover(follower, state.now)


def cover(state: RaftState, peer: ReplicaId) -> bool:
    """Heartbeats of the pair of nodes stand for ours from now on. False when it is not (any more) a
    follower that agreed on this leadership on the present session."""
    follower = state.progress.get(peer)
    if follower is None or not follower.agreed:
        return False
    follower.covered = True
    return True


def uncover(follower: Progress, last_contact: Instant) -> None:
    """The pair of nodes does not beat for it any more, or will not; when it did, it was known alive
    until `last_contact`. Its next answer tells that it agrees still, so that it can be covered
    again."""
    follower.agreed = False
    if follower.covered:
        follower.covered = False
        follower.last_contact = max(follower.last_contact, last_contact)
