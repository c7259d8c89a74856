"""Frozen: the state of something at one moment, whose bytes are made later and elsewhere."""

from collections.abc import Callable
from typing import NamedTuple


class Frozen(NamedTuple):
    """No later change of what it was taken from changes it. `make` gives the bytes of that moment,
    `size` of them, whenever it is called and in whatever thread."""

    size: int
    make: Callable[[], bytes]
