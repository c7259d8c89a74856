"""`probe("name")` marks a rare path, so that tests and sweeps can show that they reached it.

Counting is one dictionary update; there is no switch, so production and simulation run the same
code. Names are lower-case words joined by hyphens, unique in the tree. `fired()` is read by
reports.
"""

from collections import Counter
from collections.abc import Mapping

_fired: Counter[str] = Counter()


def probe(name: str) -> None:
    """Count one passage through the rare path `name`."""
    _fired[name] += 1


def fired() -> dict[str, int]:
    """How often each probe was passed in this process, by name, sorted."""
    return {name: _fired[name] for name in sorted(_fired)}


def reset(counts: Mapping[str, int] | None = None) -> None:
    """Forget all counts (tests and sweeps begin with it), or go back to earlier ones."""
    _fired.clear()
    _fired.update(counts or {})
