"""MetadataEngine: the small interface behind which the metadata group agrees on its commands.

The one engine is `raftlog.broker.control.metadata_log`, our RaftNode. An engine orders records and
says which are committed; what they mean is decided by `apply` alone, so two engines that commit the
same records give the same image.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from raftlog.base.ids import NodeId, Term
from raftlog.base.units import Instant, WallMillis


class Committed(NamedTuple):
    """One committed record. `position` rises by exactly one from record to record, from 0; it is
    the record's offset in `__cluster_metadata`-0."""

    position: int
    value: bytes


class MetadataEngine(Protocol):
    """Agreement on a sequence of records. Synchronous; whatever must be sent or written leaves
    through the effects of the broker's turn."""

    @property
    def name(self) -> str:
        """As in the configuration."""
        ...

    @property
    def leader(self) -> NodeId | None:
        """The node believed to lead the metadata group."""
        ...

    @property
    def leading_term(self) -> Term | None:
        """The term in which this node leads and has committed a record or entry of its own: from
        then on it knows everything that was committed before. None otherwise."""
        ...

    @property
    def caught_up(self) -> bool:
        """Whether every record known here is committed and was handed over by `committed`: nothing
        that this node once proposed is still undecided."""
        ...

    def propose(self, values: Sequence[bytes], now: Instant, wall_ms: WallMillis) -> bool:
        """Append records in this order. False: nothing was appended, this node does not lead (any
        more) or its log takes nothing now."""
        ...

    def committed(self) -> Sequence[Committed]:
        """Committed records not handed over before, in order, each once per boot. A gap in their
        positions says that the log was trimmed in between: this node was away for long, or boots
        from a log that begins later. What follows holds a snapshot of the image."""
        ...

    def trim(self, position: int, now: Instant, wall_ms: WallMillis) -> None:
        """Records before `position`, which holds a committed snapshot, are needed no more. The
        leader asks; how much of the log goes, and when, is the engine's business."""
        ...
