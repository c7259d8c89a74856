"""AppliedMachine: a pure state machine that every replica of an internal topic's partition runs.

The problem: consumer groups (and later transactions) need state that survives its leader. Each
replica holds the log of that state anyway, so each of them computes the state from it.

Laws:
1. A machine is fed by `apply` alone: committed record batches, in order, each exactly once. It does
   not matter whether a batch was committed a moment ago, is replayed at a boot, or follows an
   install: equal batches give equal state, snapshot and digest on every replica.
2. Nothing in a machine knows a clock, a random number or who leads. The leader decides, and what it
   decides is a record.
3. `apply` does not refuse committed bytes that a producer could have brought in: it skips what it
   does not know. Records of a later release that must not be skipped raise `FutureFormat`; the
   replica then stops.

The state travels in the snapshot of the partition, beside the producer state: one file, written
whole or not at all, so that both are always of the same place in the log. See
docs/internals/partition.md.
"""

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.frozen import Frozen
from raftlog.base.ids import GroupId, Offset, RaftIndex
from raftlog.base.limits import (
    MACHINE_SNAPSHOT_BYTES_MAX,
    PRODUCER_SNAPSHOT_BYTES_MAX,
)
from raftlog.partition.producing.producer_snapshot import MAGIC, check_producers

VERSION: Final = 2
"""Follows version 1, producer state alone: an older release says that it cannot read this one."""
_DIGEST_BYTES: Final = 16


class AppliedMachine(Protocol):
    """See the module. Everything in it can be deep-copied."""

    def apply(self, batch: Buffer, base_offset: Offset, index: RaftIndex) -> None:
        """One committed record batch, whose first record has `base_offset`. `batch` may be a view
        that does not outlive the call. Raises `CorruptData` or `FutureFormat` when the machine
        cannot go on: the replica stops."""
        ...

    def snapshot(self) -> bytes:
        """The whole state in a format of its own that names its version. Equal states give equal
        bytes. Of at most MACHINE_SNAPSHOT_BYTES_MAX, or the log is not trimmed."""
        ...

    def frozen(self) -> Frozen:
        """What `snapshot` gives, to be made by a job: the bytes of a large state take too long for
        a turn, so this call must not make them."""
        ...

    def restore(self, body: Buffer) -> None:
        """Take the state that `snapshot` gave, in place of the present one. `CorruptData` when it
        is none, `FutureFormat` when a later release wrote it; the present state then stays."""
        ...

    def digest(self) -> bytes:
        """1 to 32 bytes that tell states apart; equal states give equal ones."""
        ...


MachineFactory = Callable[[], AppliedMachine]
"""Makes an empty machine: a class, or a partial of a function; never a closure, so that a
simulation can copy the whole broker."""


class PartitionState(NamedTuple):
    """The body of a snapshot of a partition with a machine: both parts as they stand in it."""

    producers: Buffer
    machine: Buffer


def write_state(producers: bytes, machine: bytes) -> bytes:
    """The body of a snapshot: producer state as `write_producers` gave it, and the machine's."""
    assert len(machine) <= MACHINE_SNAPSHOT_BYTES_MAX, len(machine)
    writer = Writer().raw(MAGIC).u16(VERSION).block(producers)
    content = writer.u64(len(machine)).raw(machine).bytes()
    return content + _digest(content)


def write_frozen_state(producers: bytes, frozen: Frozen) -> bytes:
    """The same of a state that is yet to be made into bytes: for a job."""
    made = frozen.make()
    assert len(made) == frozen.size, (len(made), frozen.size)
    return write_state(producers, made)


def read_state(group: GroupId, body: Buffer) -> PartitionState:
    """The reverse of `write_state`; judges the frame and neither part. `CorruptData` when it is no
    such body, `FutureFormat` when a later release wrote it."""
    reader = Reader(body, CorruptData, f"state of group {group}")
    view = memoryview(body)
    content = view[:-_DIGEST_BYTES]
    if len(view) <= _DIGEST_BYTES or _digest(content) != view[-_DIGEST_BYTES:]:
        raise reader.fail("the state of a partition fails its digest")
    reader = Reader(content, CorruptData, f"state of group {group}")
    if bytes(reader.take(len(MAGIC))) != MAGIC:
        raise reader.fail("not the state of a partition")
    version = reader.u16()
    if version > VERSION:
        raise FutureFormat(f"partition state of version {version}, this release reads {VERSION}")
    if version < VERSION:
        raise reader.fail("the state of the partition's machine is missing")
    producers = reader.block(PRODUCER_SNAPSHOT_BYTES_MAX)
    size = reader.u64()
    if size > MACHINE_SNAPSHOT_BYTES_MAX:
        raise reader.fail(f"the machine's state has {size} bytes")
    machine = reader.take(size)
    reader.end()
    return PartitionState(producers, machine)


def check_state(make: MachineFactory, group: GroupId, before: RaftIndex, body: Buffer) -> None:
    """The `StateCheck` of a replica with a machine (a partial of this): raises unless a boot could
    go on from the body."""
    state = read_state(group, body)
    check_producers(group, before, state.producers)
    make().restore(state.machine)


@final
@attrs.frozen
class MachineStates:
    """The `StateCheck` of replicas whose machines this makes."""

    make: MachineFactory

    def __call__(self, group: GroupId, before: RaftIndex, body: Buffer) -> None:
        check_state(self.make, group, before, body)


def _digest(content: Buffer) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
