"""What a follower checks in a received append before its log takes it: bytes, not protocol.

Consensus checks terms, indexes, offsets, the chain, and what Raft's own entries say of
themselves; all of that lies in headers. Here every batch must be what its CRC says.
"""

from raftlog.base.entries import Entry
from raftlog.base.ids import ReplicaId
from raftlog.base.limits import RECORD_COPY_BYTES_MAX
from raftlog.base.probes import probe
from raftlog.raft.messages import Append, AppendRefused, RefusalReason
from raftlog.records.batch import is_sound


def taken_over(message: Append) -> Append | None:
    """The append with its small batches copied out of the receive buffer, so that one small entry
    does not keep a whole frame alive; None when a batch fails its CRC."""
    for entry in message.entries:
        if not is_sound(entry.batch):
            probe("append-fails-crc")
            return None
    return message._replace(entries=[_owned(entry) for entry in message.entries])


def refusal_of(message: Append, me: ReplicaId) -> AppendRefused:
    """Tell the leader that its content is bad: it verifies that range (LESSONS: review 17)."""
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
