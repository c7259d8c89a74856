"""A range of a file that holds verbatim bytes to be sent or read."""

from typing import NamedTuple

from raftlog.base.ids import DirectoryId


class FileSlice(NamedTuple):
    """`size` bytes from `position` of the file `path` (relative, `/` between names) of a directory.

    The shell that performs the effect with the slice opens the file at once, and keeps it open
    until the bytes have left. So a file that is removed or replaced later still yields the old
    bytes.
    """

    directory: DirectoryId
    path: str
    position: int
    size: int

    def __len__(self) -> int:
        """The bytes that the slice stands for, so that parts of every kind can be summed alike."""
        return self.size
