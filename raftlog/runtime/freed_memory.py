"""Keeps what a broker frees for its next frames, instead of giving it back to the kernel each time.

The C library gives the end of its heap back as soon as 128 KiB of it are free, and asks for it
again a moment later. Each page then costs a fault, and the kernel fills it with zeros. A broker
makes and frees buffers of a megabyte for every large frame: to seal one took 1.2 ms, of which 1.0
was such faults.

Source: mallopt(3) of glibc. Best effort: another C library has other rules, and is left alone.
"""

import ctypes
import os
from typing import Final

from raftlog.base.units import MIB

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
KEPT_BYTES: Final = 64 * MIB
"""The most that stays free at the end of the heap."""
MAPPED_BYTES: Final = 8 * MIB
"""From this size on a buffer is a mapping of its own, which goes back as soon as it is freed."""


def keep_freed_memory() -> bool:
    """Set it for this whole process; whether the C library knows how.

    It belongs to the process of a broker: a user's own process keeps the rules that it came with.
    """
    if not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes, mallopt.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    kept = mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
    mapped = mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)
    return bool(kept and mapped)


def _is_glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):
        return False  # no such name, or no POSIX system
