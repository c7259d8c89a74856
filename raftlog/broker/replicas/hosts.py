"""A replica id that this directory answers for, and where it stands between being asked for and
running."""

import enum
from typing import Final, final

import attrs

from raftlog.base.entries import Membership
from raftlog.base.ids import TopicId
from raftlog.base.units import Instant
from raftlog.partition.config import PartitionConfig
from raftlog.partition.machine.applied import MachineFactory
from raftlog.partition.replica import PartitionReplica
from raftlog.storage.replica import LogOptions, ReplicaSpec


@final
class HostState(enum.Enum):
    """Where a replica stands between being asked for and running."""

    OPENING = "opening"
    REGISTERING = "registering"
    RUNNING = "running"
    CLOSING = "closing"
    MOVING = "moving"
    WAITING = "waiting"
    LOST = "lost"
    POISONED = "poisoned"
    REFUSED = "refused"


FOR_GOOD: Final = (HostState.POISONED, HostState.REFUSED)
"""In this boot no replica comes of it any more."""


@final
@attrs.define(eq=False)
class Host:
    """One replica id that this directory answers for."""

    spec: ReplicaSpec
    label: str
    founding: Membership
    preferred: bool
    topic_id: TopicId
    config: PartitionConfig
    options: LogOptions
    make_machine: MachineFactory | None = None
    state: HostState = HostState.OPENING
    replica: PartitionReplica | None = None
    why: str = ""
    """Why it does not run, for operators."""
    attempts: int = 0
    opened_at: Instant = Instant(0)
