"""Numbers for objects by identity, not by equality.

This is the only place below the shell that asks for an object's address. It only looks objects up
and orders nothing by address. It keeps the objects, so that no address is used twice.
"""

from typing import final


@final
class Identities:
    """Numbers objects in the order in which they were added."""

    __slots__ = ("_kept", "_numbers")

    def __init__(self) -> None:
        self._kept: list[object] = []
        self._numbers: dict[int, int] = {}

    def add(self, value: object) -> None:
        """Number the object; one that has a number keeps it."""
        self._numbers.setdefault(id(value), len(self._kept))
        self._kept.append(value)

    def number(self, value: object) -> int | None:
        """The number of objects that were added before this one; None when it was never added."""
        return self._numbers.get(id(value))
