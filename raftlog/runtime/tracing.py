"""Trace events as JSON lines for operators: one object a line, wall time first.

Repeats are counted, not repeated. A client that sends rubbish in a loop would else fill the disk:
1.2 MB in 14 seconds was seen. For each kind the first `LINES_MAX` of a window are written, and at
its end one line says how many more there were, with the last of them. A kind is the name alone for
what any client or stranger can cause, and the whole event for everything else.
"""

import json
from datetime import UTC, datetime
from typing import Final, TextIO, final

import trio

from raftlog.base.ports import Clock
from raftlog.base.trace import TraceEvent, TraceValue
from raftlog.base.units import NANOS_PER_SECOND

LINE_CHARACTERS_MAX: Final = 4096
"""A field may quote what a client sent; one line stays one screenful."""
LINES_MAX: Final = 5
"""Lines of one kind in a window: enough to see what it is."""
WINDOW_SECONDS: Final = 10
KINDS_MAX: Final = 4096
"""Kinds that are counted in a window; what comes beyond them is written."""
FROM_STRANGERS: Final = frozenset(
    {
        "accept-failed",
        "admin-refused",
        "connection-broken",
        "connection-refused",
        "coordinator_refused",
        "group_refused",
        "hang-up",
        "hangup",
        "peer-refused",
        "replica-claim-refused",
    }
)
"""Events whose number is decided by whoever can connect: they differ in address and text only."""


@final
class JsonTracer:
    """Writes each event to `stream` at once, so that a crash loses none. `node` stands in each
    line. `flush` at the end, or repeats of the last window are not told."""

    __slots__ = ("_clock", "_kinds", "_node", "_stream", "_window_ends")

    def __init__(self, stream: TextIO, clock: Clock, node: int) -> None:
        self._stream = stream
        self._clock = clock
        self._node = node
        self._kinds: dict[str | TraceEvent, tuple[int, TraceEvent]] = {}
        self._window_ends = clock.now() + WINDOW_SECONDS * NANOS_PER_SECOND

    def emit(self, event: TraceEvent) -> None:
        """One line: time, node, event, where, and the event's own fields. Beyond `LINES_MAX` of a
        kind in a window it is counted."""
        if self._clock.now() >= self._window_ends:
            self.flush()
        kind = event.name if event.name in FROM_STRANGERS else event
        seen = self._kinds.get(kind, (0, event))[0] + 1
        if seen > 1 or len(self._kinds) < KINDS_MAX:
            self._kinds[kind] = seen, event
        if seen <= LINES_MAX:
            self._write(event)

    def flush(self) -> None:
        """End the window: tell what was counted and not written."""
        kinds, self._kinds = self._kinds, {}
        self._window_ends = self._clock.now() + WINDOW_SECONDS * NANOS_PER_SECOND
        for seen, last in kinds.values():
            if seen > LINES_MAX:
                more: tuple[tuple[str, TraceValue], ...]
                more = (("repeated", last.name), ("times", seen - LINES_MAX), *last.fields)
                self._write(TraceEvent("repeated", last.where, more))

    async def flush_for_ever(self) -> None:
        """Flush once a window, for a flood may end and nothing may follow it."""
        while True:
            await trio.sleep(WINDOW_SECONDS)
            self.flush()

    def _write(self, event: TraceEvent) -> None:
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
