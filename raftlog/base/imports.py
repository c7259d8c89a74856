"""Imports that do not wake the garbage collector."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def collector_waits() -> Iterator[None]:
    """A block of imports. Classes and functions live as long as the process: the garbage collector
    would look through them 150 times, a fifth of the CPU time of a broker's imports."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def imported(module: str) -> ModuleType:
    """Import a module while the garbage collector waits."""
    with collector_waits():
        return import_module(module)
