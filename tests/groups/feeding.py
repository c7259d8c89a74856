"""Hands records to a machine as a committed batch would."""

from raftlog.base.ids import Offset, RaftIndex
from raftlog.groups.machine import GroupsMachine
from raftlog.groups.records import NewRecord
from raftlog.records.builder import RecordBatchBuilder


def batch_of(records, **options) -> bytes:
    """A batch of these records."""
    builder = RecordBatchBuilder(**options)
    for record in records:
        builder.append(
            record.value, key=record.key, timestamp_ms=1, headers=getattr(record, "headers", ())
        )
    return builder.build()


def feed(machine: GroupsMachine, *records: NewRecord) -> GroupsMachine:
    """Apply the records as one batch."""
    if records:
        machine.apply(batch_of(records), Offset(0), RaftIndex(1))
    return machine


def machine_of(records) -> GroupsMachine:
    """A machine that applied the records, each in a batch of its own."""
    machine = GroupsMachine()
    for record in records:
        feed(machine, record)
    return machine
