"""AppliedMachine: a pure state machine that every replica of an internal topic's partition runs.

The problem: consumer groups (and later transactions) need state that survives its leader. Each
replica holds the log of that state anyway, so each of them computes the state from it.

Laws:
1. A machine is fed by `apply` alone: committed record batches, in order, each exactly once. Equal
   batches give equal state, snapshot and digest on every replica. A batch may have been committed
   a moment ago, be replayed at a boot, or follow an install; the machine cannot tell.
2. A machine knows no clock, no random number and no leader. The leader decides, and writes its
   decision as a record.
3. `apply` does not refuse committed bytes that a producer could have written: it skips records that
   it does not know. A record of a later release that must not be skipped raises `FutureFormat`, and
   the replica stops.

The snapshot of the partition holds the machine's state beside the producer state. It is one file,
written whole or not at all, so both states are always of the same place in the log. See
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
"""The version of a snapshot with a machine. Version 1 is producer state alone
(`producer_snapshot`), so an older release refuses this one by its version."""
_DIGEST_BYTES: Final = 16


class AppliedMachine(Protocol):
    """A state machine that applies the committed batches of one partition (see the module).

    Everything in it can be deep-copied, for the simulator copies whole brokers.
    """

    def apply(self, batch: Buffer, base_offset: Offset, index: RaftIndex) -> None:
        """Apply one committed record batch, whose first record has `base_offset`.

        `batch` may be a view that is valid during the call only. Raises `CorruptData` or
        `FutureFormat` when the machine cannot go on; the replica then stops.
        """
        ...

    def snapshot(self) -> bytes:
        """The whole state as bytes, in the machine's own format with a version in it.

        Equal states give equal bytes. A state of more than MACHINE_SNAPSHOT_BYTES_MAX is not
        stored, and then the log is not trimmed.
        """
        ...

    def frozen(self) -> Frozen:
        """The present state, frozen, so that a job can make the bytes of `snapshot` from it.

        The bytes of a large state take too long for a turn of the broker, so this call must not
        make them.
        """
        ...

    def restore(self, body: Buffer) -> None:
        """Replace the present state with one that `snapshot` made.

        Raises `CorruptData` when the bytes are no such state, and `FutureFormat` when a later
        release wrote them. The present state then stays.
        """
        ...

    def digest(self) -> bytes:
        """A digest of the state, of 1 to 32 bytes; equal states give equal digests."""
        ...


MachineFactory = Callable[[], AppliedMachine]
"""Makes an empty machine. It is a class or a partial of a function, never a closure, so that the
simulator can copy the whole broker."""


class PartitionState(NamedTuple):
    """The two parts of a snapshot's body, as stored: producer state and the machine's state."""

    producers: Buffer
    machine: Buffer


def write_state(producers: bytes, machine: bytes) -> bytes:
    """The body of a snapshot from its two parts: the bytes of `write_producers` and of
    `AppliedMachine.snapshot`."""
    assert len(machine) <= MACHINE_SNAPSHOT_BYTES_MAX, len(machine)
    writer = Writer().raw(MAGIC).u16(VERSION).block(producers)
    content = writer.u64(len(machine)).raw(machine).bytes()
    return content + _digest(content)


def write_frozen_state(producers: bytes, frozen: Frozen) -> bytes:
    """The body of a snapshot whose machine state is frozen; for a job, which makes the bytes."""
    made = frozen.make()
    assert len(made) == frozen.size, (len(made), frozen.size)
    return write_state(producers, made)


def read_state(group: GroupId, body: Buffer) -> PartitionState:
    """The two parts of a body that `write_state` made. It checks the frame, not the parts.

    Raises `CorruptData` when it is no such body, `FutureFormat` when a later release wrote it.
    """
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
    """Raise unless a boot could go on from this snapshot body, whose last entry is the one before
    `before`. A partial of it is the `StateCheck` of a replica with a machine."""
    state = read_state(group, body)
    check_producers(group, before, state.producers)
    make().restore(state.machine)


@final
@attrs.frozen
class MachineStates:
    """The `StateCheck` of all replicas whose machines come from `make`."""

    make: MachineFactory

    def __call__(self, group: GroupId, before: RaftIndex, body: Buffer) -> None:
        check_state(self.make, group, before, body)


def _digest(content: Buffer) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()
