"""Consumer groups inside a broker: the internal topic, and the coordinators that this broker runs.

A coordinator serves one partition of the topic, on the broker that leads the partition.
`GroupCoordinators` (coordinators.py) is the one face; handlers reach everything through it.
`raftlog.groups`, which knows no broker, decides what a group is and what its members are told.
"""
