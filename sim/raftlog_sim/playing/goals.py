"""What a phase of a run waits for."""

from collections.abc import Callable
from typing import NamedTuple


class Goal(NamedTuple):
    """What a phase waits for, for how long at the most."""

    reached: Callable[[], bool]
    limit_ns: int
    what: str
    look_ms: int = 0
    """It costs much to look: no more often than this."""
    why_not: Callable[[], str] | None = None
    """Says what is in its way."""
