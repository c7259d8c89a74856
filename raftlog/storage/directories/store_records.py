"""The records of a directory's store, and the state that they add up to.

A record is a kind byte and a body (big-endian); unknown kinds are refused:

    1 boot              boot number u64
    2 register          group u64, replica id (20 bytes), path (u32 length, UTF-8)
    3 unregister        group u64: its hard state and mark go with it
    4 hard state        group u64, term u32, voted u8 (0 or 1), then the replica id voted for
    5 mark              group u64, file sequence u64, end position u64, raft index u64, term u32,
                        chain u64, commit hint u64
    6 promise           u64 nanoseconds: how long voters here may promise to elect no other
                        replica; 0 to begin with. Known from version 2 of the store's files on
    7, 8, 9             incarnations (`incarnations`). Known from version 3 on
"""

import struct
from collections.abc import Iterator
from typing import Final, final

import attrs

from raftlog.base.binary import Buffer, Reader, Writer
from raftlog.base.entries import HardState, read_replica_id, write_replica_id
from raftlog.base.errors import CorruptData
from raftlog.base.ids import BootNumber, Chain, GroupId, RaftIndex, Term
from raftlog.base.limits import REPLICA_PATH_BYTES_MAX
from raftlog.base.units import Nanos
from raftlog.storage.directories import incarnations
from raftlog.storage.directories.incarnations import IncarnationBook
from raftlog.storage.replica import Mark, Registration

_BOOT: Final = 1
_REGISTER: Final = 2
_UNREGISTER: Final = 3
_HARD_STATE: Final = 4
_MARK: Final = 5
_PROMISE: Final = 6
_MARK_LAYOUT: Final = struct.Struct(">QQQQIQQ")


def boot_record(boot: BootNumber) -> bytes:
    """The record of this boot's number."""
    return Writer().u8(_BOOT).u64(boot).bytes()


def register_record(group: GroupId, registration: Registration) -> bytes:
    """The record by which this directory answers for the replica from now on."""
    writer = Writer().u8(_REGISTER).u64(group)
    write_replica_id(writer, registration.replica)
    return writer.text(registration.path).bytes()


def unregister_record(group: GroupId) -> bytes:
    """The record by which this directory no longer answers for the group."""
    return Writer().u8(_UNREGISTER).u64(group).bytes()


def hard_state_record(group: GroupId, state: HardState) -> bytes:
    """The record of term and vote, as one pair."""
    writer = Writer().u8(_HARD_STATE).u64(group).u32(state.term).flag(state.vote is not None)
    if state.vote is not None:
        write_replica_id(writer, state.vote)
    return writer.bytes()


def mark_record(mark: Mark) -> bytes:
    """The record of how far the group's log is durable."""
    assert mark.commit <= mark.raft_index, mark
    return Writer().u8(_MARK).pack(_MARK_LAYOUT, *mark).bytes()


def promise_record(promised_ns: Nanos) -> bytes:
    """The record of the longest time for which a voter here promises to elect no other replica."""
    return Writer().u8(_PROMISE).u64(promised_ns).bytes()


@final
@attrs.define(eq=False)
class StoreState:
    """The state that all records add up to.

    Registering a group again, or unregistering it, forgets its hard state and mark.
    """

    boot: BootNumber = BootNumber(0)
    registrations: dict[GroupId, Registration] = attrs.Factory(dict)
    hard_states: dict[GroupId, HardState] = attrs.Factory(dict)
    marks: dict[GroupId, Mark] = attrs.Factory(dict)
    promised_ns: Nanos = Nanos(0)
    incarnations: IncarnationBook = attrs.Factory(IncarnationBook)

    def apply(self, record: Buffer, on: str) -> None:
        """Take in one record. Raises `CorruptData` for a record that no release writes."""
        reader = Reader(record, CorruptData, on)
        kind = reader.u8()
        if kind == _MARK:
            self._apply_mark(reader)
        elif kind == _HARD_STATE:
            self._apply_hard_state(reader)
        elif kind == _REGISTER:
            self._apply_registration(reader)
        elif kind == _UNREGISTER:
            self._forget(GroupId(reader.u64()))
        elif kind == _BOOT:
            self._apply_boot(reader)
        elif kind == _PROMISE:
            self.promised_ns = Nanos(reader.u64())
        elif kind in (incarnations.OWN, incarnations.KNOWN, incarnations.HELD):
            self.incarnations.read(kind, reader)
        else:
            raise reader.fail(f"store record of unknown kind {kind}")
        reader.end()

    def records(self) -> Iterator[bytes]:
        """The shortest list of records that makes the same state: a full image."""
        yield boot_record(self.boot)
        if self.promised_ns:
            yield promise_record(self.promised_ns)
        yield from self.incarnations.records()
        for group, registration in self.registrations.items():
            yield register_record(group, registration)
        for group, hard_state in self.hard_states.items():
            yield hard_state_record(group, hard_state)
        for mark in self.marks.values():
            yield mark_record(mark)

    def _apply_boot(self, reader: Reader) -> None:
        boot = BootNumber(reader.u64())
        if boot < self.boot:
            raise reader.fail(f"boot number {boot} after {self.boot}")
        self.boot = boot

    def _apply_registration(self, reader: Reader) -> None:
        group, replica = GroupId(reader.u64()), read_replica_id(reader)
        self._forget(group)
        self.registrations[group] = Registration(replica, reader.text(REPLICA_PATH_BYTES_MAX))

    def _apply_hard_state(self, reader: Reader) -> None:
        group, term = GroupId(reader.u64()), Term(reader.u32())
        state = HardState(term, read_replica_id(reader) if reader.flag() else None)
        known = self.hard_states.get(group)
        if known is not None and state.term < known.term:
            raise reader.fail(f"group {group}: term {state.term} after {known.term}")
        self.hard_states[group] = state

    def _apply_mark(self, reader: Reader) -> None:
        group, sequence, position, index, term, chain, commit = reader.unpack(_MARK_LAYOUT)
        self.marks[GroupId(group)] = Mark(
            GroupId(group),
            sequence,
            position,
            RaftIndex(index),
            Term(term),
            Chain(chain),
            RaftIndex(commit),
        )

    def _forget(self, group: GroupId) -> None:
        self.registrations.pop(group, None)
        self.hard_states.pop(group, None)
        self.marks.pop(group, None)
