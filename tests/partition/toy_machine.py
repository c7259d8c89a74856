"""A machine for tests: the last value of each key; a value without a key is counted.

`heard` is what `apply` was called with since the machine was made or restored, for tests of order.
"""

import hashlib
from functools import partial

from raftlog.base.binary import Reader, Writer
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.frozen import Frozen
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.record import records_of
from tests.partition.group import WALL

ON = "toy machine"


class LastValues:
    def __init__(self):
        self.values = {}
        self.keyless = 0
        self.heard = []

    def apply(self, batch, base_offset, index):
        records = list(records_of(batch, CorruptData, ON))
        assert records[0].offset == base_offset
        self.heard.append((index, base_offset))
        for record in records:
            if record.key is None:
                self.keyless += 1
            elif record.value is None:
                self.values.pop(bytes(record.key), None)
            elif bytes(record.key) == b"later release":
                raise FutureFormat("a record of a later release", on=ON)
            else:
                self.values[bytes(record.key)] = bytes(record.value)

    def snapshot(self):
        return snapshot_of(self.keyless, self.values)

    def frozen(self):
        return Frozen(len(self.snapshot()), partial(snapshot_of, self.keyless, dict(self.values)))

    def restore(self, body):
        reader = Reader(body, CorruptData, ON)
        if bytes(reader.take(4)) != b"TOY1":
            raise reader.fail("not a toy")
        keyless, values = reader.u64(), {}
        for _ in range(reader.u32()):
            key = bytes(reader.block(1 << 20))
            values[key] = bytes(reader.block(1 << 20))
        reader.end()
        self.keyless, self.values, self.heard = keyless, values, []

    def digest(self):
        return hashlib.blake2b(self.snapshot(), digest_size=16).digest()


def snapshot_of(keyless, values):
    writer = Writer().raw(b"TOY1").u64(keyless).u32(len(values))
    for key in sorted(values):
        writer.block(key).block(values[key])
    return writer.bytes()


def pairs(*items):
    """A batch of the broker's own: key, value pairs."""
    builder = RecordBatchBuilder()
    for key, value in items:
        builder.append(value, key=key, timestamp_ms=WALL)
    return builder.build()
