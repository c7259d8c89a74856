"""Planted bugs for scenarios that had none. As in raft_mutants.py."""

from raftlog.base.units import NEVER
from raftlog.broker import registration
from raftlog.partition.produce_path import ProducePath
from raftlog.raft import transfer


def forgotten_and_content() -> None:
    """47: a broker that hears that nobody knows it beats on."""
    registration._UNKNOWN = ()  # type: ignore[assignment]


def transfers_never_end() -> None:
    """48: a leader waits for its successor for ever, and takes no records meanwhile."""
    transfer._give_up = lambda state: None


def produces_without_an_end() -> None:
    """49: a leader that cannot commit lets its producers wait for ever."""
    ProducePath.deadline = property(lambda self: NEVER)  # type: ignore[method-assign, assignment]
    ProducePath.expire = lambda self, now: None  # type: ignore[method-assign]


MUTANTS = (
    ("47", "forgotten-and-content", forgotten_and_content, ("liveness",)),
    ("48", "transfers-never-end", transfers_never_end, ("liveness",)),
    ("49", "produces-without-an-end", produces_without_an_end, ("answered-in-time",)),
)
