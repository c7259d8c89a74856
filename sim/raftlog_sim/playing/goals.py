"""The goal of a phase: the condition for which a run waits."""

from collections.abc import Callable
from typing import NamedTuple


class Goal(NamedTuple):
    """A condition for which a phase waits, and the longest wait."""

    reached: Callable[[], bool]
    limit_ns: int
    what: str
    look_ms: int = 0
    """The least time between two checks of the condition, since they are costly."""
    why_not: Callable[[], str] | None = None
    """Returns what keeps the condition from holding."""
