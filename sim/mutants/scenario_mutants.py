"""Planted bugs for scenarios that had none. As in raft_mutants.py."""

from raftlog.broker import registration
from raftlog.raft import transfer


def forgotten_and_content() -> None:
    """47: a broker that hears that nobody knows it beats on."""
    registration._UNKNOWN = ()  # type: ignore[assignment]


def transfers_never_end() -> None:
    """48: a leader waits for its successor for ever, and takes no records meanwhile."""
    transfer._give_up = lambda state: None


MUTANTS = (
    ("47", "forgotten-and-content", forgotten_and_content, ("liveness",)),
    ("48", "transfers-never-end", transfers_never_end, ("liveness",)),
)
