"""The published high watermark: what clients may see of the committed end.

Rules:

1. It is the offset after the last committed entry that a client was allowed to learn of.
2. It never goes back while this replica lives.
3. A new leader holds it still until an entry of its own term is committed: until then it may know
   less than the leader before it told its clients (Raft 5.4.2, KIP-207).
4. A produce reply leaves only through `promise`, which asserts that the record is below it.
"""

from typing import final

from raftlog.base.ids import Offset


@final
class HighWatermark:
    """One partition's high watermark. `committed` follows the log's commit at once; `published`
    follows it only while that is allowed."""

    __slots__ = ("committed", "published")

    def __init__(self, committed: Offset) -> None:
        self.committed = committed
        self.published = committed

    def advance(self, committed: Offset, *, may_publish: bool) -> bool:
        """The commit moved (or may be published now): whether the published mark moved."""
        assert committed >= self.committed, (committed, self.committed)
        self.committed = committed
        if not may_publish or committed == self.published:
            return False
        assert committed > self.published, (committed, self.published)
        self.published = committed
        return True

    def promise(self, last_offset: Offset) -> None:
        """Every produce reply that reports success passes here: its record is committed."""
        assert last_offset < self.published, (last_offset, self.published)
