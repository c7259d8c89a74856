"""Planted bugs (LESSONS part 5), by number. Each `apply` breaks one rule of the product in this
process.

Only `raftlog_sim.mutation` loads this file; nothing here
is ever installed.
"""

from typing import Any

from raftlog_sim import disk as simulated_disk

from raftlog.base.entries import HardState
from raftlog.base.ids import RaftIndex, Term
from raftlog.partition import producers
from raftlog.partition.replica import PartitionReplica
from raftlog.raft import election, following, node, quorum, replication
from raftlog.raft.rounds import Rounds
from raftlog.raft.state import RaftState
from raftlog.storage import store as storage_store


def vote_before_its_sync() -> None:
    """1: what must wait for the disk leaves at once."""

    def promise(self: RaftState, message: Any) -> None:
        self.send.append(message)

    RaftState.promise = promise  # type: ignore[method-assign]


def term_not_persisted() -> None:
    """2: the stored pair is always that of a replica that never voted."""
    real = storage_store.hard_state_record

    def forgetful(group: Any, state: Any) -> bytes:
        del state
        return real(group, HardState(Term(0), None))

    storage_store.hard_state_record = forgetful


def acknowledged_before_its_sync() -> None:
    """3: a round counts as durable as soon as it is handed out, on leaders and followers alike."""
    real = Rounds.begin

    def begin(self: Rounds, io_id: Any, last_index: RaftIndex, **more: Any) -> None:
        real(self, io_id, last_index, **more)
        self.durable = max(self.durable, last_index)

    Rounds.begin = begin  # type: ignore[method-assign]


def old_term_committed_by_count() -> None:
    """4: the leader commits entries of earlier terms by counting (figure 8)."""
    real = replication.maybe_commit

    def maybe_commit(state: RaftState) -> None:
        start, state.term_start = state.term_start, RaftIndex(0)
        try:
            real(state)
        finally:
            state.term_start = start

    replication.maybe_commit = maybe_commit
    node.replication.maybe_commit = maybe_commit


def stale_log_gets_votes() -> None:
    """9: the up-to-date check is gone."""
    election._is_up_to_date = lambda state, last_term, last_index: True


def producers_forgotten_at_failover() -> None:
    """13: a batch whose producer is known is taken as new."""
    producers.ProducerTable.check = lambda self, header: None  # type: ignore[method-assign]


def uncommitted_is_readable() -> None:
    """14: a reader gets what lies above the high watermark."""

    def read(self: PartitionReplica, offset: Any, bytes_max: int) -> Any:
        return self.log.plan_read(offset, bytes_max, self.log.next_offset)

    PartitionReplica.read = read  # type: ignore[method-assign]


def names_not_synced() -> None:
    """16: a new file's directory is never synced."""
    simulated_disk.SimulatedDisk.sync_dir = lambda self, path: None  # type: ignore[method-assign]


def half_is_a_majority() -> None:
    """19: one of two, two of four, and one of three decide."""
    quorum.majority = lambda count: max(1, count // 2)

    def majority_committed(voters: Any, match: Any) -> RaftIndex:
        if not voters:
            return quorum.EVERYTHING
        matches = sorted([match.get(voter, 0) for voter in voters], reverse=True)
        return RaftIndex(matches[max(0, len(matches) // 2 - 1)])

    quorum.majority_committed = majority_committed


def segment_sync_skipped() -> None:
    """21: a round reports before its files are synced."""
    simulated_disk.SimulatedFile.sync = lambda self: None  # type: ignore[method-assign]


def conflicting_suffix_kept() -> None:
    """8: the entry before the first one sent is not compared."""
    following._seam_holds = lambda state, message: message.prev_index <= state.log.last_index


MUTANTS = (
    ("1", "vote-before-its-sync", vote_before_its_sync),
    ("2", "term-not-persisted", term_not_persisted),
    ("3", "acknowledged-before-its-sync", acknowledged_before_its_sync),
    ("4", "old-term-committed-by-count", old_term_committed_by_count),
    ("8", "seam-not-compared", conflicting_suffix_kept),
    ("9", "stale-log-gets-votes", stale_log_gets_votes),
    ("13", "producers-forgotten", producers_forgotten_at_failover),
    ("14", "uncommitted-is-readable", uncommitted_is_readable),
    ("16", "names-not-synced", names_not_synced),
    ("19", "half-is-a-majority", half_is_a_majority),
    ("21", "sync-skipped", segment_sync_skipped),
)
