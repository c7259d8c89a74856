"""Keeps a replica id that this directory answers for, and its state from request to running."""

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
    """How far a replica has come from request to running, or why it does not run."""

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
"""States that last until the next boot: no replica of such a host runs before."""


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
    """Why the replica does not run, for operators."""
    attempts: int = 0
    """Failed attempts to open it, since it last ran steadily."""
    opened_at: Instant = Instant(0)
    """When it last began to run."""
