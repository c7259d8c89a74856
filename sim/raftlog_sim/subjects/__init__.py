"""Subjects beside our own brokers: other people's libraries, as a control of the tools.

This file needs none of them; the modules below do.
"""

from typing import Final

GUEST_PROFILES: Final = ("resets", "kills", "restarts")
GUEST_SUBJECT: Final = "pysyncobj"
_HEAD_LINES: Final = 200


def is_guest_plan(text: str) -> bool:
    """Whether a file holds a plan of guests. To say so needs no library."""
    wanted = ["subject", GUEST_SUBJECT]
    return any(line.split() == wanted for line in text.splitlines()[:_HEAD_LINES])
