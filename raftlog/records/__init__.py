"""The v2 record batch, Kafka's unit on the wire and ours on disk (floor 2).

The bytes a producer sent are the bytes in every replica's file and in every fetch; only the base
offset and the leader epoch are patched, and both lie outside the batch's CRC. Raft's own entries
are batches too, zero offsets wide, and no client ever sees one.

Laws: no I/O; every length is checked before anything is allocated; decompression is capped.
May be imported by: every floor above, except raftlog.verify. Imports: raftlog.base only.
"""
