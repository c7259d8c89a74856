"""The settings of an embedded cluster unless its user says otherwise: quick elections, small
topics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from raftlog.runtime.settings.fault_settings import FAULTS

EMBED_SETTINGS: Final[Mapping[str, str]] = {
    "raftlog.raft.heartbeat.ms": "30",
    "raftlog.raft.election.timeout.ms": "300",
    "broker.session.timeout.ms": "1500",
    "group.min.session.timeout.ms": "1500",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
}
"""The defaults. An election takes three syncs of the disk, and on a machine that is busy with other
tests a sync takes 50 ms or more. With an election timeout of 150 ms, thirty partitions never ended
their elections (measured at a load of 13 on two cores). With 300 ms each elected once."""


_LISTENERS: Final = ("listeners", "raftlog.peer.listener", "raftlog.admin.listener")


def with_defaults(
    settings: Mapping[str, str] | None, *, processes: bool, record: Path | None
) -> dict[str, str]:
    """The user's settings, with embed's defaults for the rest. Broker processes serve /faults,
    which the cluster's fault methods use, unless the user chooses their listeners. They also write
    their own recordings."""
    given = dict(settings or {})
    if processes and record is not None:
        given.setdefault("raftlog.recordings.directory", str(record.resolve()))
    if processes and not any(name in given for name in _LISTENERS):
        given.setdefault(FAULTS, "true")
    return {**EMBED_SETTINGS, **given}


def takes_faults(settings: Mapping[str, str]) -> bool:
    """Whether brokers with these settings serve /faults."""
    return settings.get(FAULTS, "").lower() == "true"
