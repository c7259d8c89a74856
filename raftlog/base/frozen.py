"""Frozen: the state of an object at one moment, which another thread may turn into bytes later."""

from collections.abc import Callable
from typing import NamedTuple


class Frozen(NamedTuple):
    """The state of an object at one moment. Later changes of the object do not change it.

    `make` returns the `size` bytes of that state, at any time and in any thread."""

    size: int
    make: Callable[[], bytes]
