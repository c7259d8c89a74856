"""Removes run folders that would be left behind empty.

The demo, the simulator and the black-box tests make one such folder each, and share this.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

RUNS: Final = "runs"
LATEST: Final = "latest"


@contextmanager
def removed_if_empty(folder: Path) -> Iterator[None]:
    """Remove `folder` when the block fails before it wrote anything.

    A `runs` folder that holds nothing else is removed as well.
    """
    try:
        yield
    except BaseException:
        if not any(folder.iterdir()):
            folder.rmdir()
            latest = folder.parent / LATEST
            if latest.is_symlink() and not latest.exists():
                latest.unlink()
            if folder.parent.name == RUNS and not any(folder.parent.iterdir()):
                folder.parent.rmdir()
        raise
