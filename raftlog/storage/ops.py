"""What a write round is told to do, in order; performed by `raftlog.storage.write_round`.

An operation names its group, so that a failure is charged to that replica alone. Buffers are
immutable.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raftlog.base.binary import Buffer
from raftlog.base.ids import GroupId


class CreateFile(NamedTuple):
    """Make `path` with these first bytes (a segment header), sync it and its directory, before any
    later operation of the round on that group is performed."""

    group: GroupId
    path: str
    header: Buffer


class AppendBytes(NamedTuple):
    """Write `parts` one after another from `position` of `path`; synced at the end of the round."""

    group: GroupId
    path: str
    position: int
    parts: Sequence[Buffer]


class StoreRecords(NamedTuple):
    """Append records to the directory's store, in order (votes, registrations, marks, hints)."""

    records: Sequence[bytes]


WriteOp = CreateFile | AppendBytes | StoreRecords
