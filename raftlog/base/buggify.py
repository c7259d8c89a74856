"""`buggify("name")` marks a place where a legal but unusual path may be taken on purpose.

Outside a simulator nothing is ever armed, and the answer is False. A simulator arms a decision, so
that edges which need large files or long times are crossed often: a segment that rolls early, a
window that is shed at once. Whatever is chosen must be something that the product might do anyway.
Names are lower-case words joined by hyphens, unique in the tree.
"""

from collections.abc import Callable
from typing import Final, final

Decision = Callable[[str], bool]


@final
class _Armed:
    """What decides now; None outside a simulator."""

    decision: Decision | None = None


_ARMED: Final = _Armed()


def buggify(name: str) -> bool:
    """Whether to take the unusual path here, now."""
    return _ARMED.decision is not None and _ARMED.decision(name)


def arm(decision: Decision | None) -> None:
    """For simulators only: who decides from here on; None for nobody."""
    _ARMED.decision = decision


def armed() -> Decision | None:
    """Who decides now; for simulators, and for recorders of what is decided."""
    return _ARMED.decision
