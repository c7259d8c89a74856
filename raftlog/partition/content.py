"""Checks the bytes of a received append before the follower's log takes them.

The raft node checks the headers: terms, indexes, offsets, the chain, and Raft's own entries. Here
the follower checks that every batch matches its CRC.
"""

from collections.abc import Sequence

from raftlog.base.entries import Entry
from raftlog.base.ids import ReplicaId
from raftlog.base.limits import RECORD_COPY_BYTES_MAX
from raftlog.base.probes import probe
from raftlog.base.units import Instant
from raftlog.partition.machine.machine_feed import MachineFeed
from raftlog.raft.messages import Append, AppendRefused, Install, RaftMessage, RefusalReason
from raftlog.raft.node import RaftNode
from raftlog.records.batch import is_sound


def heard(
    node: RaftNode, feed: MachineFeed | None, messages: Sequence[RaftMessage], now: Instant
) -> list[RaftMessage]:
    """Let the node hear messages from peers, in order; returns the refusals to be sent.

    Appends that carry batches are checked first. The state of an install is judged first.
    """
    me, judge = node.me, None if feed is None else feed.judge
    fine: list[RaftMessage] = []
    refusals: list[RaftMessage] = []
    for message in messages:
        if judge is not None and type(message) is Install and message.to == me:
            # Earlier messages decide whether this piece completes a state: hear them first.
            node.receive(fine, now)
            fine = [judge.hear(node, message)]
            continue
        if type(message) is not Append or not message.entries or message.to != me:
            fine.append(message)
            continue
        checked = taken_over(message)
        if checked is not None:
            fine.append(checked)
            continue
        # Damaged bytes in an append. The node still hears from its leader (term, commit), else it
        # would campaign. Only the entries are left out.
        node.receive([*fine, message._replace(entries=())], now)
        fine = []
        if node.term == message.term:
            refusals.append(refusal_of(message, me))
    if fine:
        node.receive(fine, now)
    return refusals


def taken_over(message: Append) -> Append | None:
    """The append with its small batches copied; None when a batch fails its CRC.

    The copy keeps one small entry from holding a whole receive buffer in memory.
    """
    for entry in message.entries:
        if not is_sound(entry.batch):
            probe("append-fails-crc")
            return None
    return message._replace(entries=[_owned(entry) for entry in message.entries])


def refusal_of(message: Append, me: ReplicaId) -> AppendRefused:
    """The refusal that tells the leader that its content is bad, so that it verifies that range."""
    return AppendRefused(
        message.group,
        me,
        message.sender,
        message.term,
        RefusalReason.CONTENT,
        message.prev_index,
        message.prev_index,
        message.prev_term,
    )


def _owned(entry: Entry) -> Entry:
    index, term, kind, base_offset, next_offset, batch = entry
    if type(batch) is bytes or len(batch) >= RECORD_COPY_BYTES_MAX:
        return entry
    return Entry(index, term, kind, base_offset, next_offset, bytes(batch))
