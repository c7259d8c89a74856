"""Consumer groups as a pure state machine and its leader's side (floor 4, beside metadata).

`GroupsMachine` holds what the records of one partition of `__consumer_offsets` say, on every
replica. `Coordinator` serves the groups of that partition while its replica leads: it decides,
proposes records, and answers when they are committed.

Laws: no I/O, no clock and no random numbers but the ports handed in. Equal records give equal state
and digest.
May be imported by: partition and above. Imports: floor 3 and below.
"""
