"""Describes the failure that ended a run in the one line by which it is known."""

import traceback

from raftlog_sim.base.stuck import StuckError
from raftlog_sim.base.violation import Violation


def told(error: BaseException) -> str:
    """Returns a failure as `<class>: <what>`."""
    if isinstance(error, Violation):
        return str(error)
    if isinstance(error, StuckError):
        return f"liveness: {error}"
    if isinstance(error, AssertionError):
        return f"assertion: {error} at {_place(error)}"
    return f"exception: {type(error).__name__}: {error} at {_place(error)}"


def _place(error: BaseException) -> str:
    """Returns file and line of the innermost frame, without the folder of this machine."""
    frames = traceback.extract_tb(error.__traceback__)
    name = frames[-1].filename.replace("\\", "/")
    for root in ("/raftlog/", "/raftlog_sim/"):
        if root in name:
            name = root.strip("/") + "/" + name.rpartition(root)[2]
    return f"{name}:{frames[-1].lineno}"
