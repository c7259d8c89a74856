"""Typed trace events: they tell operators, digests and pictures what a replica or broker did.

An event is a plain tuple of a name and fields, so that emitting costs little and a digest is exact.
Names are lower-case words joined by hyphens. Values are ints, strings, bools or None.
"""

from typing import NamedTuple, final

TraceValue = int | str | bool | None


class TraceEvent(NamedTuple):
    """`name` says what happened; `where` is the node, group or connection; fields are ordered
    pairs.
    """

    name: str
    where: str
    fields: tuple[tuple[str, TraceValue], ...] = ()


@final
class NoTracer:
    """A tracer that drops all events."""

    __slots__ = ()

    def emit(self, event: TraceEvent) -> None:
        """Drop the event."""


@final
class ListTracer:
    """A tracer for tests that keeps all events in order."""

    __slots__ = ("events",)

    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def emit(self, event: TraceEvent) -> None:
        self.events.append(event)
