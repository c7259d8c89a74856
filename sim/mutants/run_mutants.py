"""Planted bugs of requests: runs of produce requests (decision 0052), and the ledger of clients."""

from typing import Any

from raftlog.base.ids import ConnectionId, Offset, RaftIndex
from raftlog.broker.front.ledger import Ledger
from raftlog.partition.producing.produce_path import ACKS_ALL, ProducePath


def run_answered_with_its_first() -> None:
    """36: a run is answered when the first of its batches is committed."""
    submit_run = ProducePath.submit_run

    def submit(self: ProducePath, fields: Any, acks: int, *rest: Any) -> list[Offset]:
        offsets = submit_run(self, fields, acks, *rest)
        if offsets:
            waiters = self._waiters
            line = waiters._in_sync if acks == ACKS_ALL else waiters._plain
            last = line[-1]
            first = RaftIndex(last.raft_index - len(offsets) + 1)
            line[-1] = last._replace(raft_index=first, last_offset=last.base_offset)
        return offsets

    ProducePath.submit_run = submit  # type: ignore[method-assign]


def run_counted_by_batches() -> None:
    """36b: batches of a run get consecutive offsets, however many records they have."""
    submit_run = ProducePath.submit_run

    def submit(self: ProducePath, fields: Any, acks: int, *rest: Any) -> list[Offset]:
        offsets = submit_run(self, fields, acks, *rest)
        return [Offset(offsets[0] + number) for number in range(len(offsets))]

    ProducePath.submit_run = submit  # type: ignore[method-assign]


def gone_clients_still_weigh() -> None:
    """45c: the weight of a connection's requests is not given back when it ends."""

    def closed(self: Ledger, connection: ConnectionId) -> None:
        account = self._accounts.pop(connection)
        self._changed.pop(connection, None)
        for group in account.groups_over:
            self._group_producers[group].pop(connection, None)
        self._hold(account, 0)
        self._unpin(account.pinned_bytes)

    Ledger.closed = closed  # type: ignore[method-assign]


MUTANTS = (
    ("36", "run-answered-with-its-first", run_answered_with_its_first,
     ("acknowledged-committed", "history-lost-write")),
    ("36b", "run-counted-by-batches", run_counted_by_batches,
     ("history-inconsistent-offsets", "acknowledged-committed")),
    ("45c", "gone-clients-still-weigh", gone_clients_still_weigh, ("bounded",)),
)  # fmt: skip
