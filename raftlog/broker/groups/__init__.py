"""Consumer groups inside a broker: the internal topic, and the coordinator of each partition of it
that this broker leads.

`GroupCoordinators` (coordinators.py) is the one face; handlers reach everything through it.
`raftlog.groups`, which knows no broker, decides what a group is and what its members are told.
"""
