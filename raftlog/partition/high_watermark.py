"""The published high watermark: the end of the committed records that clients may see.

Rules:

1. It is the offset after the last committed entry that a client was allowed to learn of.
2. It never goes back while this replica lives.
3. A new leader holds it still until an entry of its own term is committed. Before that it may know
   less than the earlier leader told its clients (Raft 5.4.2, KIP-207).
4. A produce reply leaves only through `promise`, which asserts that the record is below it.
"""

from typing import final

from raftlog.base.ids import Offset


@final
class HighWatermark:
    """One partition's high watermark, as two offsets.

    * `committed`: the offset after the last committed record; it follows the commit at once.
    * `published`: what clients may see; it follows `committed` only while that is allowed.
    """

    __slots__ = ("committed", "published")

    def __init__(self, committed: Offset) -> None:
        self.committed = committed
        self.published = committed

    def advance(self, committed: Offset, *, may_publish: bool) -> bool:
        """Follow the commit to `committed`; whether the published high watermark moved."""
        assert committed >= self.committed, (committed, self.committed)
        self.committed = committed
        if not may_publish or committed == self.published:
            return False
        assert committed > self.published, (committed, self.published)
        self.published = committed
        return True

    def promise(self, last_offset: Offset) -> None:
        """Assert that a record is committed and published; every successful produce reply calls
        it."""
        assert last_offset < self.published, (last_offset, self.published)
