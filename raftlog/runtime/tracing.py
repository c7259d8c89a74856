"""Trace events as JSON lines for operators: one object a line, wall time first."""

import json
from datetime import UTC, datetime
from typing import Final, TextIO, final

from raftlog.base.ports import Clock
from raftlog.base.trace import TraceEvent

LINE_CHARACTERS_MAX: Final = 4096
"""A field may quote what a client sent; one line stays one screenful."""


@final
class JsonTracer:
    """Writes each event to `stream` at once, so that a crash loses none. `node` stands in each
    line."""

    __slots__ = ("_clock", "_node", "_stream")

    def __init__(self, stream: TextIO, clock: Clock, node: int) -> None:
        self._stream = stream
        self._clock = clock
        self._node = node

    def emit(self, event: TraceEvent) -> None:
        """One line: time, node, event, where, and the event's own fields."""
        moment = datetime.fromtimestamp(self._clock.wall() / 1000, UTC)
        line = {
            "time": moment.isoformat(timespec="milliseconds"),
            "node": self._node,
            "event": event.name,
            "where": event.where,
            **dict(event.fields),
        }
        text = json.dumps(line, ensure_ascii=True)
        self._stream.write(text[:LINE_CHARACTERS_MAX] + "\n")
        self._stream.flush()
