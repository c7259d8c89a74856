"""Faults on demand, for tests of programs that use a broker (floor between runtime and embed).

A `FaultRoom` holds the faults that are in force on one broker. `FaultyBroker` stands between the
shell and `Broker.handle` and applies them. The test disk asks the room before each operation. The
`FaultDoor` serves /faults on the admin listener. The broker itself knows nothing of faults.

Laws: nothing here is imported unless a test asks for it (`raftlog.testing.faults=true`, or an
embedded cluster). The shell takes a room only while every listener is on loopback.
May be imported by: embed, cli. Imports: runtime and below.
"""
