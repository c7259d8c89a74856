"""Planted bugs of incarnations, by which peers recognise an old copy of a data directory.

As in raft_mutants.py.
"""

from typing import Any

from raftlog.broker.replicas.incarnations import Incarnations
from raftlog.storage.directories.incarnations import IncarnationBook
from raftlog.storage.directories.store_file import StoreFiles


def compared_by_number() -> None:
    """28e: a life counts as known when some life on the list has a higher number."""
    IncarnationBook.has = (  # type: ignore[method-assign]
        lambda self, incarnation: incarnation <= max(self.own, default=0)
    )


def list_not_synced() -> None:
    """28f: a boot tells others its life, which is in memory only."""

    def begin_life(self: Any, incarnation: Any) -> None:
        self.state.incarnations.begin(incarnation)

    StoreFiles.begin_life = begin_life  # type: ignore[method-assign]


def counted_before_the_sync() -> None:
    """28g: deciding messages count at once, whether the life of their sender is synced or not."""
    Incarnations.counts = lambda self, peer, replica: True  # type: ignore[method-assign]


MUTANTS = (
    ("28e", "incarnation-compared-by-number", compared_by_number, ("leader-completeness",)),
    ("28f", "incarnations-not-synced", list_not_synced, ("liveness", "put-back-rightly")),
    ("28g", "counted-before-the-sync", counted_before_the_sync, ("counted-once-known",)),
)  # fmt: skip
