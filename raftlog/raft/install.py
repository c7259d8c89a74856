"""Bringing a follower past what the leader no longer holds (Raft 7), in pieces, as one switch.

The leader asks its driver for the state before its first entry, sends it piece by piece, each
after the answer to the one before. The follower assembles it in memory and replaces its log in
one step; only an `AppendReply`, sent when that step is durable, tells the leader that it is done.
The log judges the state before it takes it. One that no boot could go on from is refused without
an answer, and the leader sends it again after an election timeout. An install that comes late,
when the follower holds that entry or has it committed, changes nothing.
"""

from typing import Final

from raftlog.base.binary import Buffer
from raftlog.base.buggify import buggify
from raftlog.base.entries import InstallPosition
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.ids import RaftIndex
from raftlog.base.limits import INSTALL_BYTES_MAX
from raftlog.base.probes import probe
from raftlog.raft import membership
from raftlog.raft.messages import Install, InstallReply
from raftlog.raft.output import Installed, SnapshotRead
from raftlog.raft.progress import Progress
from raftlog.raft.state import FOLLOWER, InstallReceiver, RaftState

_SMALL_PIECE_BYTES: Final = 64
"""The size of a piece when a simulator wants a small state to come in several."""

# --- the leader's side ----------------------------------------------------------------------------


def begin(state: RaftState, follower: Progress) -> None:
    """The follower needs an entry below our first one."""
    probe("install-begun")
    token = state.token()
    follower.become_install(token)
    state.out.snapshot_reads.append(SnapshotRead(token, follower.replica))
    state.trace("install", ("to", str(follower.replica)), ("first", state.log.first_index))


def on_snapshot_read(
    state: RaftState, token: int, position: InstallPosition | None, snapshot: Buffer
) -> None:
    """The snapshot for the install that this token still names. Without a position the read failed,
    and is tried again after the next answer of the follower."""
    for follower in state.progress.values():
        sender = follower.install
        if sender is None or sender.token != token:
            continue
        if position is None:
            probe("snapshot-read-failed")
            follower.probe_again()
            follower.waiting = True
            return
        assert len(snapshot) <= INSTALL_BYTES_MAX, len(snapshot)
        sender.position, sender.snapshot = position, snapshot
        _send_piece(state, follower)
        return
    probe("snapshot-read-of-an-ended-sender")


def _send_piece(state: RaftState, follower: Progress) -> None:
    sender = follower.install
    assert sender is not None
    assert sender.position is not None
    start = sender.next_byte
    small = buggify("small-install-piece")
    size = _SMALL_PIECE_BYTES if small else state.options.install_chunk_bytes
    piece = memoryview(sender.snapshot)[start : start + size]
    total = len(sender.snapshot)
    sender.sent_at = state.now
    follower.spoken_to = True
    me, to = state.me, follower.replica
    state.send.append(
        Install(state.group, me, to, state.term, sender.position, total, start, piece)
    )


def is_outrun(follower: Progress, match: RaftIndex) -> bool:
    """Whether the follower holds what is being sent, and yet our log begins behind that by now:
    what was read for it has grown too old, and sending it again brings it no further."""
    sender = follower.install
    return (
        sender is not None and sender.position is not None and match >= sender.position.raft_index
    )


def resend(state: RaftState, follower: Progress) -> None:
    """At a heartbeat: a piece without an answer for an election timeout is sent again."""
    sender = follower.install
    if sender is None or sender.position is None:
        return
    if state.now - sender.sent_at >= state.options.election_ns:
        probe("install-piece-again")
        _send_piece(state, follower)


def on_reply(state: RaftState, follower: Progress, message: InstallReply) -> None:
    """Go on where the follower says that it is."""
    sender = follower.install
    if (
        sender is None
        or sender.position is None
        or sender.position.raft_index != message.raft_index
    ):
        probe("install-reply-of-an-ended-sender")
        return
    if message.received != sender.next_byte and message.received <= len(sender.snapshot):
        sender.next_byte = message.received
        _send_piece(state, follower)


# --- the follower's side --------------------------------------------------------------------------


def on_piece(state: RaftState, message: Install) -> None:
    """A piece from the leader of our term; the caller has checked who speaks."""
    assert state.role is FOLLOWER, state.role
    position = message.position
    index = position.raft_index
    if index <= state.commit or state.log.term_at(index) == position.term:
        probe("late-install-ignored")
        _already_there(state, index)
        return
    received = _assemble(state, message)
    if received < message.total:
        reply = InstallReply(state.group, state.me, message.sender, state.term, index, received)
        state.promise(reply)
        return
    assert state.receiving is not None
    snapshot = bytes(state.receiving.buffer)
    state.receiving = None
    _switch(state, position, snapshot)


def whole_with(state: RaftState, message: Install) -> bytes | None:
    """The state that this piece completes, were it heard now; None when it completes none that
    would be taken."""
    index, receiver = message.position.raft_index, state.receiving
    known = receiver is not None and (receiver.index, receiver.total) == (index, message.total)
    held = receiver.buffer if receiver is not None and known else b""
    if message.term < state.term or index <= state.commit or message.total > INSTALL_BYTES_MAX:
        return None
    if message.start != len(held) or len(held) + len(message.chunk) != message.total:
        return None
    return b"".join((held, message.chunk))


def _already_there(state: RaftState, index: RaftIndex) -> None:
    """Up to `index` we are equal to the leader, which has it committed."""
    state.receiving = None
    state.verified = max(state.verified, index)
    state.commit = max(state.commit, index)
    state.ack_wanted = True


def _assemble(state: RaftState, message: Install) -> int:
    """Add the piece if it is the next one. How many bytes are there."""
    # A follower that was reopened or campaigned meanwhile holds nothing of what came before.
    receiver = None if buggify("install-begun-again") else state.receiving
    index = message.position.raft_index
    if receiver is None or (receiver.index, receiver.total) != (index, message.total):
        if message.total > INSTALL_BYTES_MAX:
            probe("install-too-large")
            return 0
        receiver = state.receiving = InstallReceiver(index, message.total)
    fits = len(receiver.buffer) + len(message.chunk) <= message.total
    if message.start == len(receiver.buffer) and fits:
        receiver.buffer += message.chunk
    else:
        probe("install-piece-out-of-order")
    return len(receiver.buffer)


def _switch(state: RaftState, position: InstallPosition, snapshot: bytes) -> None:
    """Replace the log. Writes in flight for the old log make nothing of the new one durable."""
    index = position.raft_index
    try:
        state.log.install(position, snapshot)
    except (CorruptData, FutureFormat) as error:
        probe("install-refused")
        state.trace("install-refused", ("index", index), ("why", str(error)))
        return
    probe("installed")
    state.rounds.cut(state.commit)
    state.log_changed = True
    state.commit = index
    state.verified = index
    membership.on_installed(state, position)
    state.out.installed = Installed(position, snapshot)
    state.trace("installed", ("index", index), ("entry_term", position.term))
