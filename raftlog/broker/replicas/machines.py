"""Which internal topic has which state machine on every replica of its partitions."""

from collections.abc import Mapping
from typing import Final

from raftlog.groups.machine import GroupsMachine
from raftlog.metadata.rules.topic_names import OFFSETS_TOPIC
from raftlog.partition.machine.applied import MachineFactory

MACHINES: Final[Mapping[str, MachineFactory]] = {OFFSETS_TOPIC: GroupsMachine}
"""Topic name to what makes an empty machine: a class, or a partial, never a closure."""


def machine_for(topic: str) -> MachineFactory | None:
    """What makes the machine of this internal topic; None when it has none."""
    return MACHINES.get(topic)
