"""Names the state machine of each internal topic, which runs on every replica of it."""

from collections.abc import Mapping
from typing import Final

from raftlog.groups.machine import GroupsMachine
from raftlog.metadata.rules.topic_names import OFFSETS_TOPIC
from raftlog.partition.machine.applied import MachineFactory

MACHINES: Final[Mapping[str, MachineFactory]] = {OFFSETS_TOPIC: GroupsMachine}
"""Topic name -> factory of an empty machine: a class or a partial, never a closure."""


def machine_for(topic: str) -> MachineFactory | None:
    """The factory of this internal topic's machine; None when the topic has none."""
    return MACHINES.get(topic)
