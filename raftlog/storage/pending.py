"""Collects the writes of a log since the last round, in order."""

from typing import final

from raftlog.base.binary import Buffer
from raftlog.base.ids import GroupId
from raftlog.base.limits import SEGMENT_HEADER_BYTES
from raftlog.storage.ops import AppendBytes, CreateFile, WriteOp


@final
class PendingWrites:
    """The writes of one log; the batches of one file are gathered into one operation.

    `position` is where the next batch goes in `path`, the present file.
    """

    __slots__ = ("_group", "_ops", "_parts", "_parts_position", "obsolete", "path", "position")

    def __init__(
        self, group: GroupId, path: str, position: int, obsolete: tuple[str, ...] = ()
    ) -> None:
        self._group = group
        self._ops: list[WriteOp] = []
        self._parts: list[Buffer] = []
        self._parts_position = position
        self.path = path
        self.position = position
        self.obsolete = list(obsolete)

    def append(self, batch: Buffer) -> None:
        """Add the next batch of the present file."""
        self._parts.append(batch)
        self.position += len(batch)

    def create(self, path: str, content: Buffer) -> None:
        """Add a file beside the segments."""
        self._flush()
        self._ops.append(CreateFile(self._group, path, content))

    def begin_segment(self, path: str, header: Buffer) -> None:
        """Add the next segment file: batches go there from now on."""
        self.create(path, header)
        self.path = path
        self.position = self._parts_position = SEGMENT_HEADER_BYTES

    def take(self) -> tuple[list[WriteOp], list[str]]:
        """All operations, and the files that are void once they are durable."""
        self._flush()
        ops, obsolete = self._ops, self.obsolete
        if ops:
            self._ops, self.obsolete = [], []
        return ops, obsolete

    def _flush(self) -> None:
        if self._parts:
            self._ops.append(AppendBytes(self._group, self.path, self._parts_position, self._parts))
            self._parts = []
        self._parts_position = self.position
