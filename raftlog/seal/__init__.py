"""Sealed links: how two brokers prove who they are, and how they seal each frame (floor 3).

`handshake` proves both ends and draws the keys of one session; `frames` seals and opens. Both are
pure: bytes in, bytes out, nonces are arguments.

Laws: no I/O, no clock, no dice; nothing a stranger sent is parsed before its proof is checked; a
frame that does not open ends its link.
May be imported by: runtime. Imports: base. Strangers: raft, kafka, storage, verify.
"""
