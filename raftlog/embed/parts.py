"""The parts that only some clusters need. Each is loaded with its first use.

A cluster of processes loads no broker into the process that starts it: that would take as long as a
broker's own start. No cluster loads a client before it is asked for a leader. The garbage collector
waits while a part is loaded.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from raftlog.base.imports import imported
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
    made: InProcessBrokers = imported("raftlog.embed.in_process").InProcessBrokers(
        cluster, recordings
    )
    return made


def recording_folder(path: Path) -> "RecordingFolder":
    """The folder for recordings of brokers in this process."""
    made: RecordingFolder = imported("raftlog.runtime.disks.recording_files").RecordingFolder(path)
    return made


def opened_fixture(folder: Path, directory: Path | None) -> "Fixture":
    """A checked export (`Fixture.open`)."""
    made: Fixture = imported("raftlog.embed.topic_files.fixture").Fixture.open(folder, directory)
    return made


def metadata_client(bootstrap: str) -> "MetadataClient":
    """A client of the brokers at these addresses."""
    made: MetadataClient = imported("raftlog.embed.metadata_client").MetadataClient(bootstrap)
    return made
