"""Consumer groups inside a broker: the internal topic, and the coordinator of each partition of it
that this broker leads.

`GroupCoordinators` (coordinators.py) is the one face; handlers reach everything through it. What a
group is, and what its members are told, is decided in `raftlog.groups`, which knows no broker.
"""
