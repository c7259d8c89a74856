"""What an embedded cluster is set to unless its user says otherwise: quick elections, small
topics."""

from collections.abc import Mapping
from typing import Final

EMBED_SETTINGS: Final[Mapping[str, str]] = {
    "raftlog.raft.heartbeat.ms": "30",
    "raftlog.raft.election.timeout.ms": "300",
    "broker.session.timeout.ms": "1500",
    "group.min.session.timeout.ms": "1500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
"""An election takes three syncs of the disk. On a machine that is busy with other tests a sync
takes 50 ms and more: with 150 ms, thirty partitions elected for ever (measured at a load of 13 on
two cores); with 300 ms each elected once."""


def with_defaults(settings: Mapping[str, str] | None) -> dict[str, str]:
    """The user's settings over those of embed."""
    return {**EMBED_SETTINGS, **(settings or {})}
