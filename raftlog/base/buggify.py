"""`buggify("name")` marks a place where a legal but unusual path may be taken on purpose.

Outside a simulator nothing is ever armed, and the answer is False. A simulator arms a decision, so
that edges which need large files or long times are crossed often: a segment that rolls early, a
window that is shed at once. The unusual path must be one that the product might take anyway.
Names are lower-case words joined by hyphens, unique in the tree.
"""

from collections.abc import Callable
from typing import Final, final

Decision = Callable[[str], bool]


@final
class _Armed:
    """The place that holds the armed decision."""

    decision: Decision | None = None
    """The function that decides now; None outside a simulator."""


_ARMED: Final = _Armed()


def buggify(name: str) -> bool:
    """Whether to take the unusual path here, now."""
    return _ARMED.decision is not None and _ARMED.decision(name)


def arm(decision: Decision | None) -> None:
    """Set the function that decides from here on; None disarms. For simulators only."""
    _ARMED.decision = decision


def armed() -> Decision | None:
    """The function that decides now, or None. For simulators and for recorders of decisions."""
    return _ARMED.decision
