"""The operations of a write round, in order; `raftlog.storage.write_round` performs them.

An operation names its group, so that a failure is charged to that replica alone. Buffers are
immutable.
"""

from collections.abc import Sequence
from typing import NamedTuple

from raftlog.base.binary import Buffer
from raftlog.base.ids import GroupId


class CreateFile(NamedTuple):
    """Make `path` with these bytes (a segment header, a snapshot), whole or not at all.

    The writer first syncs what the group wrote before, then the new file, then its name. So the
    file vouches for everything below it, and later operations of the round may append to it.
    """

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


class CloseGroup(NamedTuple):
    """Forget the group's open files and its failure: it is about to be deleted, or was reopened.

    A job may touch the files only after this operation is reported persisted.
    """

    group: GroupId


WriteOp = CreateFile | AppendBytes | StoreRecords | CloseGroup
