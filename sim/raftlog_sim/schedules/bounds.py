"""Bounds of each option that is a number. `options.check_together` has the rules between them.

Drawn options lie within the bounds. A file may hold anything, and is refused before anything is
made of it. The upper bounds are those of a run that ends in minutes and fits into a gigabyte.
"""

from typing import Final

from raftlog.base.errors import OperatingError
from raftlog.base.limits import SEGMENT_BYTES_MAX
from raftlog_sim.world.releases import RELEASES

TIME_MAX_MS: Final = 3_600_000
"""The most milliseconds of a step or a phase: an hour."""
RETENTION_MS_MAX: Final = 10 * 365 * 86_400_000
_SECOND_US: Final = 1_000_000
"""The longest sync or message, in microseconds; with longer ones no cluster elects a leader."""

BOUNDS: Final[dict[str, tuple[int, int]]] = {
    "seed": (-(1 << 63), (1 << 63) - 1),
    "brokers": (1, 9),  # each is seen by each: the cost of a turn grows with the square
    "controllers": (1, 9),
    "partitions": (1, 100),
    "replication": (1, 9),
    "min_in_sync": (1, 9),
    "producers": (0, 1_000),  # as many as slots that a step can name
    "pipelines": (0, 1_000),
    "members": (0, 100),
    "directories": (0, 9),
    "release": (0, len(RELEASES) - 1),
    "sync_us": (0, _SECOND_US),
    "latency_us": (0, _SECOND_US),
    "jitter_us": (0, _SECOND_US),
    "queue_max": (1, 1_000_000),
    "heartbeat_ms": (1, 99),
    "election_ms": (100, 60_000),
    "turn_us": (0, _SECOND_US),
    "value_bytes": (0, 65_536),  # disks and the network are memory, and a history keeps all
    "segment_bytes": (4_600, SEGMENT_BYTES_MAX),  # the header, and room for one small record
    "store_bytes": (4_096, 1 << 22),
    "tear_bytes": (512, 4_096),
    "retention_bytes": (0, SEGMENT_BYTES_MAX),
    "retention_ms": (0, RETENTION_MS_MAX),
    "snapshot_every": (0, 1_000_000),
    "producer_expiration_ms": (0, TIME_MAX_MS),
    "scrub_ms": (0, TIME_MAX_MS),
    "safety_ms": (1, TIME_MAX_MS),
    "events_max": (1, 1_000_000),
}
"""The least and the most, both included, of every option that is a number."""


def check_number(name: str, value: int) -> None:
    """Raise `OperatingError` for a number out of bounds."""
    low, high = BOUNDS[name]
    if not low <= value <= high:
        raise OperatingError(
            f"{_short(value)} is out of bounds", on=name, do=f"give a number from {low} to {high}"
        )


def _short(value: int) -> str:
    """Returns a number as text; one of thousands of digits is shortened."""
    text = str(value)
    return text if len(text) <= 24 else f"{text[:20]}... ({len(text)} digits)"
