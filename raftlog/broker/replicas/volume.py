"""Keeps one data directory as the broker sees it: its store, its next round, rounds in flight."""

from collections.abc import Callable
from typing import final

import attrs

from raftlog.base.errors import RaftlogError
from raftlog.base.ids import DirectoryId, IoId
from raftlog.base.units import NEVER, Instant
from raftlog.broker.events import Write
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.directories.store import StoreImage
from raftlog.storage.ops import StoreRecords, WriteOp

AfterRound = Callable[[], None]


@final
@attrs.define(eq=False)
class VolumeRound:
    """A write round that was handed out and has not come back."""

    replicas: list[PartitionReplica]
    """The replicas that gave operations or store records to this round."""
    after: list[AfterRound]
    """Called when the round is durable; never when it failed."""


@final
@attrs.define(eq=False)
class Volume:
    """One data directory. `poisoned` is the error of a failed sync, after which it writes no
    more."""

    directory: DirectoryId
    store: StoreImage
    poisoned: RaftlogError | None = None
    ops: list[WriteOp] = attrs.Factory(list)
    records: list[bytes] = attrs.Factory(list)
    """Store records that the next round must carry."""
    replicas: list[PartitionReplica] = attrs.Factory(list)
    after: list[AfterRound] = attrs.Factory(list)
    rounds: dict[IoId, VolumeRound] = attrs.Factory(dict)

    @property
    def deadline(self) -> Instant:
        """When a turn must write the store's pending records; NEVER once poisoned."""
        return self.store.deadline if self.poisoned is None else NEVER

    def when_durable(self, call: AfterRound) -> None:
        """Run `call()` once everything added so far in this turn is durable."""
        self.after.append(call)

    def take(self, io_id: IoId, now: Instant) -> Write | None:
        """The round of this turn, if there is anything to write."""
        if self.poisoned is not None:
            self.ops, self.records, self.replicas, self.after = [], [], [], []
            return None
        records = self.store.take_records(self.records, now)
        if not (self.ops or records or self.after):
            return None
        ops = self.ops
        if records:
            ops.append(StoreRecords(records))
        self.rounds[io_id] = VolumeRound(self.replicas, self.after)
        awaited = bool(records or self.after) or not all(
            replica.needs_peers for replica in self.replicas
        )
        self.ops, self.records, self.replicas, self.after = [], [], [], []
        return Write(self.directory, io_id, ops, awaited)
