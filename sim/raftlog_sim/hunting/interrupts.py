"""Ctrl-C and SIGTERM interrupt a command, which then tells what it has found.

An exception that a handler raises is lost where it strikes a finalizer: Python prints it there and
goes on. So the signal is remembered as well, and a sweep looks for it
after each seed.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)
_came: Final[list[int]] = []
"""The signals that came since the present command began."""


@contextmanager
def heard() -> Iterator[None]:
    """Raise `KeyboardInterrupt` for SIGTERM and SIGINT in this block, in the main thread only.

    A shell starts a background command (`&`) with SIGINT ignored, and Python leaves it so. Here
    SIGINT interrupts all the same, since its sender means it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        _came.append(number)
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupt) for number in _NUMBERS]
    try:
        yield
    finally:
        for number, handler in zip(_NUMBERS, before, strict=True):
            signal.signal(number, handler)
        _came.clear()


def raise_a_lost_one() -> None:
    """Raise `KeyboardInterrupt` if a signal came whose exception was lost. A command that goes on
    after it has caught one must not call this."""
    if _came:
        raise KeyboardInterrupt
