"""The parts that only some clusters need. Each is loaded with its first use.

A cluster of processes loads no broker into the process that starts it: that would take as long as a
broker's own start. No cluster loads a client before it is asked for a leader.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from raftlog.base.imports import collector_waits
from raftlog.runtime.local.cluster import LocalCluster

if TYPE_CHECKING:
    from raftlog.embed.in_process import InProcessBrokers
    from raftlog.embed.metadata_client import MetadataClient
    from raftlog.embed.topic_files.fixture import Fixture
    from raftlog.runtime.disks.recording_files import RecordingFolder


def brokers_inside(
    cluster: LocalCluster, recordings: "RecordingFolder | None"
) -> "InProcessBrokers":
    """Brokers in this process, not started yet."""
    with collector_waits():
        from raftlog.embed.in_process import InProcessBrokers

    return InProcessBrokers(cluster, recordings)


def recording_folder(path: Path) -> "RecordingFolder":
    """The folder for recordings of brokers in this process."""
    with collector_waits():
        from raftlog.runtime.disks.recording_files import RecordingFolder

    return RecordingFolder(path)


def opened_fixture(folder: Path, directory: Path | None) -> "Fixture":
    """A checked export (`Fixture.open`)."""
    with collector_waits():
        from raftlog.embed.topic_files.fixture import Fixture

    return Fixture.open(folder, directory)


def metadata_client(bootstrap: str) -> "MetadataClient":
    """A client of the brokers at these addresses."""
    with collector_waits():
        from raftlog.embed.metadata_client import MetadataClient

    return MetadataClient(bootstrap)
