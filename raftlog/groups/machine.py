"""GroupsMachine: what the committed records of one partition of `__consumer_offsets` say."""

from typing import final

from raftlog.base.binary import Buffer
from raftlog.base.ids import Offset, RaftIndex


@final
class GroupsMachine:
    """The applied machine of an offsets partition: groups, committed offsets, generation floors."""

    def apply(self, batch: Buffer, base_offset: Offset, index: RaftIndex) -> None:
        """Take over the records of one committed batch. Records that are not ours are skipped."""
        raise NotImplementedError

    def snapshot(self) -> bytes:
        """The whole state; equal states give equal bytes."""
        raise NotImplementedError

    def restore(self, body: Buffer) -> None:
        """Become the state of a snapshot. CorruptData when it is not one."""
        raise NotImplementedError

    def digest(self) -> bytes:
        """16 bytes of the state; equal states give equal bytes."""
        raise NotImplementedError
