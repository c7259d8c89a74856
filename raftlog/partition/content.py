"""What a follower checks in a received append before its log takes it: bytes, not protocol.

Consensus checks terms, indexes, offsets, the chain, and what Raft's own entries say of
themselves; all of that lies in headers. Here every batch must be what its CRC says.
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
    """Let the node hear messages from peers, in order; appends that carry batches are checked
    first, and states that are installed are judged. Returns the refusals that are to be sent."""
    me, judge = node.me, None if feed is None else feed.judge
    fine: list[RaftMessage] = []
    refusals: list[RaftMessage] = []
    for message in messages:
        if judge is not None and type(message) is Install and message.to == me:
            # Whether it completes a state depends on what is heard before.
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
        # The leader is heard all the same: only its entries are not taken.
        node.receive([*fine, message._replace(entries=())], now)
        fine = []
        if node.term == message.term:
            refusals.append(refusal_of(message, me))
    if fine:
        node.receive(fine, now)
    return refusals


def taken_over(message: Append) -> Append | None:
    """The append with its small batches copied out of the receive buffer, so that one small entry
    does not keep a whole frame alive; None when a batch fails its CRC."""
    for entry in message.entries:
        if not is_sound(entry.batch):
            probe("append-fails-crc")
            return None
    return message._replace(entries=[_owned(entry) for entry in message.entries])


def refusal_of(message: Append, me: ReplicaId) -> AppendRefused:
    """Tell the leader that its content is bad: it verifies that range."""
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
