"""The folder of a cluster that was given no directory."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder, removed at the end of the block, or else at the end of the program. A process
    that was forked meanwhile leaves it alone: the brokers of its parent write there."""
    folder = Path(tempfile.mkdtemp(prefix="raftlog-"))
    remove = partial(_remove, folder, os.getpid())
    atexit.register(remove)
    try:
        yield folder
    finally:
        atexit.unregister(remove)
        remove()


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        # Something may still write there, such as a broker that was killed a moment ago.
        shutil.rmtree(folder, ignore_errors=True)
