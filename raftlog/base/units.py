"""Units: durations and instants are integer nanoseconds, wall time is milliseconds.

`Instant` is a reading of a monotonic clock that has no meaning outside its process; `WallMillis` is
Unix time and is used for record timestamps and retention only, never for a protocol decision.
"""

from typing import Final, NewType

Instant = NewType("Instant", int)
Nanos = NewType("Nanos", int)
WallMillis = NewType("WallMillis", int)
ByteCount = NewType("ByteCount", int)

NANOS_PER_MICRO: Final = 1_000
NANOS_PER_MILLI: Final = 1_000_000
NANOS_PER_SECOND: Final = 1_000_000_000

NEVER: Final = Instant(2**63 - 1)
"""The deadline of a wait that time never ends: later than every instant."""

KIB: Final = 1024
MIB: Final = 1024 * 1024


def millis(count: int) -> Nanos:
    """`count` milliseconds as nanoseconds."""
    return Nanos(count * NANOS_PER_MILLI)
