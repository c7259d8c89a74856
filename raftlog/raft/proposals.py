"""Entries that a leader makes: its clients' batches, and Raft's own."""

from collections.abc import Sequence

from raftlog.base.binary import Buffer
from raftlog.base.entries import Entry, EntryKind
from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import RaftIndex
from raftlog.raft.state import LEADER, RECORDS, RaftState
from raftlog.records.batch import entry_of
from raftlog.records.control import build_control_entry


def check_ready(state: RaftState) -> None:
    """Only a leader that committed in its term, and is not handing over, takes proposals."""
    if not state.ready or state.transferring is not None:
        raise LocalMisuse(
            f"replica {state.me} takes no proposals as {state.role.value} of term {state.term}",
            on=state.where,
            do="ask the leader, or wait until it is ready",
        )


def append_batches(state: RaftState, batches: Sequence[Buffer]) -> tuple[RaftIndex, RaftIndex]:
    """Append whole record batches, patched with the offsets that follow and with our term."""
    log = state.log
    first = log.last_index + 1
    offset, term = log.next_offset, state.term
    entries: list[Entry] = []
    for ordinal, batch in enumerate(batches):
        entry = entry_of(RaftIndex(first + ordinal), batch, LocalMisuse, state.where)
        if entry.base_offset != offset or entry.term != term or entry.kind is not RECORDS:
            raise LocalMisuse(
                f"batch has offset {entry.base_offset}, epoch {entry.term}, kind {entry.kind}",
                on=state.where,
                do=f"patch it with offset {offset} and epoch {term}",
            )
        offset = entry.next_offset
        entries.append(entry)
    if not entries:
        raise LocalMisuse("no batches to propose", on=state.where)
    log.append(entries)
    state.log_changed = True
    return RaftIndex(first), RaftIndex(first + len(entries) - 1)


def append_control(state: RaftState, kind: EntryKind, body: bytes) -> Entry:
    """Append one of Raft's own entries."""
    assert state.role is LEADER, state.role
    log = state.log
    entry = build_control_entry(
        kind,
        group=state.group,
        term=state.term,
        raft_index=RaftIndex(log.last_index + 1),
        base_offset=log.next_offset,
        timestamp_ms=state.wall_ms,
        body=body,
    )
    log.append([entry])
    state.log_changed = True
    return entry
