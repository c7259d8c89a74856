"""The data directory that a command without a running broker is given."""

from pathlib import Path

from raftlog.base.errors import OperatingError
from raftlog.runtime.real_ports import PosixDisk
from raftlog.storage.directories.data_dir import is_formatted


def data_disk(directory: Path) -> PosixDisk:
    """The disk of a broker's data directory; OperatingError when there is none at the path."""
    if not directory.is_dir():
        raise OperatingError("no such directory", on=str(directory))
    disk = PosixDisk(str(directory))
    if not is_formatted(disk):
        raise OperatingError(
            "not a data directory", on=str(directory), do="name the directory of one broker"
        )
    return disk
