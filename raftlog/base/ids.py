"""The identities of the system, each its own type: no bare integer crosses a module boundary.

Consensus counts *replica ids*. A node is only a place: a wiped disk or a second placement on the
same node gets a new replica id. So a promise of the old replica never counts as a promise of the
new one.
"""

from typing import Final, NamedTuple, NewType

NodeId = NewType("NodeId", int)
"""A broker process, as configured (`node.id`); 0 to 2**31 - 1."""

DirectoryId = NewType("DirectoryId", int)
"""64 random bits, never 0, written once when a data directory is formatted."""

ReplicaEpoch = NewType("ReplicaEpoch", int)
"""The metadata version that placed a replica; 0 for the replicas that a format command founded."""

GroupId = NewType("GroupId", int)
"""One Raft group. Given by group 0, from 1 upward, never reused."""

Term = NewType("Term", int)
"""A Raft term, 0 to 2**31 - 1. At the Kafka border the same number is called leader epoch."""

RaftIndex = NewType("RaftIndex", int)
"""Ordinal of an entry (a batch) in its group, from 1; 0 is the place before the first entry."""

Offset = NewType("Offset", int)
"""Ordinal of a record in its partition, from 0. Raft's own entries take none."""

IoId = NewType("IoId", int)
"""One write round of one data directory; strictly increasing within a boot of the broker."""

BootNumber = NewType("BootNumber", int)
"""Counts the boots of a data directory, from 1; one lower than seen before is a rolled-back disk.
"""

SessionId = NewType("SessionId", int)
"""One authenticated link between two nodes, unique within the boots of both ends."""

ConnectionId = NewType("ConnectionId", int)
"""One client connection, unique within a boot of the broker."""

ClusterId = NewType("ClusterId", bytes)
"""16 random bytes, fixed once when the cluster is founded."""

TopicId = NewType("TopicId", bytes)
"""16 random bytes, never all zero; a topic created again under an old name has a new one."""

ProducerId = NewType("ProducerId", int)
"""An idempotent producer, handed out by group 0 in blocks; -1 on the wire means none."""

Chain = NewType("Chain", int)
"""64-bit fingerprint of a whole log prefix (raftlog.records.chain)."""

METADATA_GROUP: Final = GroupId(0)
TERM_MAX: Final = Term(2**31 - 1)


class ReplicaId(NamedTuple):
    """The identity of one replica: node, data directory and placement together."""

    node: NodeId
    directory: DirectoryId
    epoch: ReplicaEpoch

    def __str__(self) -> str:
        return f"{self.node}.{self.directory:016x}.{self.epoch}"
