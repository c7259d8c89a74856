"""The log on disk: segments written once, a store of votes and marks, recovery (floor 3).

The broker's turn touches only the memory of these objects. Only the functions that perform a write
round, a read or a job receive a Disk, and the runtime or the simulator runs them off the loop.

Laws: nothing is overwritten; damage is never mistaken for an ending; a failed sync poisons the
directory. The formats are in docs/internals and change only with their version number. May be
imported by: metadata and above. Imports: records and base. Strangers: raft, kafka, verify.
"""
