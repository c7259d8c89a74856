"""Planted bugs of runs: produce requests that are taken together and answered together (decision
0052)."""

from typing import Any

from raftlog.base.ids import Offset, RaftIndex
from raftlog.partition.produce_path import ACKS_ALL, ProducePath


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
    """36b: the batches of a run are told offsets that follow each other, however many records each
    of them has."""
    submit_run = ProducePath.submit_run

    def submit(self: ProducePath, fields: Any, acks: int, *rest: Any) -> list[Offset]:
        offsets = submit_run(self, fields, acks, *rest)
        return [Offset(offsets[0] + number) for number in range(len(offsets))]

    ProducePath.submit_run = submit  # type: ignore[method-assign]


MUTANTS = (
    ("36", "run-answered-with-its-first", run_answered_with_its_first,
     ("acknowledged-committed", "history-lost-write")),
    ("36b", "run-counted-by-batches", run_counted_by_batches,
     ("history-inconsistent-offsets", "acknowledged-committed")),
)  # fmt: skip
