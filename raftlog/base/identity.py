"""Numbers for objects, by which one they are, and not by what they are equal to.

The only place below the shell that asks for an address: it looks objects up, nothing is ordered by
it, and the objects are kept, so that no address is used twice.
"""

from typing import final


@final
class Identities:
    """Objects in the order in which they were added."""

    __slots__ = ("_kept", "_numbers")

    def __init__(self) -> None:
        self._kept: list[object] = []
        self._numbers: dict[int, int] = {}

    def add(self, value: object) -> None:
        """Number the object; one that has a number keeps it."""
        self._numbers.setdefault(id(value), len(self._kept))
        self._kept.append(value)

    def number(self, value: object) -> int | None:
        """How many objects were added before this one; None when it was not."""
        return self._numbers.get(id(value))
