"""Planted bugs that are the second half of another one, as in raft_mutants.py."""

from typing import Any

import attrs

from raftlog.base.units import millis
from raftlog.broker.broker import Broker
from raftlog.raft import lease
from raftlog.raft.state import LEADER, RaftState
from raftlog.storage.boot import behind_fault, recovery, walked_log
from raftlog.storage.segments.walk import Walk, segment_start

_wall: dict[str, int] = {"ns": 0}
"""The wall clock of the broker whose turn it is."""


def lease_by_the_wall_clock() -> None:
    """12e: a lease is measured by the clock that people set."""
    real = Broker.handle

    def handle(self: Broker, events: Any, now_ns: int, wall_ms: int) -> Any:
        _wall["ns"] = millis(wall_ms)
        return real(self, events, now_ns, wall_ms)

    def holds(state: RaftState) -> bool:
        return state.role is LEADER and state.ready and _wall["ns"] < state.lease_until

    def round_sent(state: RaftState, context: int) -> None:
        if state.options.lease_ns and not state.lease_given_up:
            state.reads.sent_at[context] = _wall["ns"]  # type: ignore[assignment]

    Broker.handle = handle  # type: ignore[method-assign]
    lease.holds = holds
    lease.round_sent = round_sent


def index_from_the_oldest_entry() -> None:
    """25d: a boot counts the entries before a log by the offset of the first one in it."""

    def start(header: Any) -> Any:
        return segment_start(attrs.evolve(header, first_index=header.base_offset + 1))

    walked_log.segment_start = start  # type: ignore[attr-defined]
    behind_fault.segment_start = start  # type: ignore[attr-defined]


def names_in_doubt_are_believed() -> None:
    """59: a boot goes on in a file whose name a failed sync left in the kernel's memory."""
    recovery._name_in_doubt_again = lambda disk, spec, files, mark: None


def checksums_are_all_that_is_looked_at() -> None:
    """60: a walk takes a batch whose checksum is right, whatever its chain says.

    It also takes any base offset, which no checksum covers.
    """
    fault_of, check = Walk._fault_of, Walk.check

    def believed(self: Walk, batch: Any, header: Any) -> str | None:
        return fault_of(self, batch, header._replace(base_offset=self.place.offset))

    def unchained(self: Walk, raft_index: Any, chain: Any, position: Any, what: str) -> bool:
        del chain
        return check(self, raft_index, self.place.chain, position, what)

    Walk._fault_of = believed  # type: ignore[method-assign]
    Walk.check = unchained  # type: ignore[method-assign]


MUTANTS = (
    ("12e", "lease-by-the-wall-clock", lease_by_the_wall_clock, ("linearizable-read",)),
    ("25d", "index-from-the-oldest-entry", index_from_the_oldest_entry,
     ("assertion", "exception")),
    ("59", "names-in-doubt-are-believed", names_in_doubt_are_believed, ("promise-durable",)),
    ("60", "checksums-are-all", checksums_are_all_that_is_looked_at,
     ("history-poll-skip",)),
)  # fmt: skip
