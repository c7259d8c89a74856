"""Repeated trace lines are counted, not repeated.

The fault: a stranger that sent rubbish in a loop made a broker write 1.2 MB in 14 seconds.
"""

import io
import json
import re

from raftlog.base.trace import TraceEvent
from raftlog.base.units import NANOS_PER_SECOND, Instant, WallMillis
from raftlog.runtime.tracing import FROM_STRANGERS, LINES_MAX, WINDOW_SECONDS, JsonTracer
from tests.tidy.tree import ROOT


class HandClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> Instant:
        return Instant(int(self.seconds * NANOS_PER_SECOND))

    def wall(self) -> WallMillis:
        return WallMillis(int(self.seconds * 1000))


class Traced:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.output = io.StringIO()
        self.tracer = JsonTracer(self.output, self.clock, 7)

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.output.getvalue().splitlines()]


def test_a_flood_of_strangers_is_a_few_lines():
    traced = Traced()
    for at in range(10_000):
        event = TraceEvent("hangup", f"connection {at}", (("why", f"a frame of {at} bytes"),))
        traced.tracer.emit(event)
    assert [line["where"] for line in traced.lines()] == [f"connection {at}" for at in range(5)]
    traced.clock.seconds += WINDOW_SECONDS
    traced.tracer.emit(TraceEvent("stopping", "process"))
    *_, counted, stopping = traced.lines()
    assert (counted["event"], counted["repeated"], counted["times"]) == ("repeated", "hangup", 9995)
    assert counted["where"] == "connection 9999", "the last of them"
    assert stopping["event"] == "stopping"


def test_what_the_broker_does_itself_is_never_counted_together():
    """A hundred partitions elect a leader at once: each of them is told."""
    traced = Traced()
    for at in range(100):
        traced.tracer.emit(TraceEvent("lead", f"orders-{at}", (("term", 3),)))
    assert len(traced.lines()) == 100


def test_the_same_event_again_and_again_is_counted():
    traced = Traced()
    for _ in range(LINES_MAX + 3):
        traced.tracer.emit(TraceEvent("errand-failed", "orders-0", (("why", "disk full"),)))
    assert len(traced.lines()) == LINES_MAX
    traced.tracer.flush()
    assert traced.lines()[-1]["times"] == 3
    assert traced.lines()[-1]["why"] == "disk full"


def test_each_window_begins_again():
    traced = Traced()
    for _ in range(3):
        for _ in range(LINES_MAX):
            traced.tracer.emit(TraceEvent("peer-refused", "1.2.3.4:5"))
        traced.clock.seconds += WINDOW_SECONDS
    assert [line["event"] for line in traced.lines()] == ["peer-refused"] * 3 * LINES_MAX
    traced.tracer.flush()
    assert len(traced.lines()) == 3 * LINES_MAX, "nothing was left out, so nothing is told"


def test_the_names_are_those_of_events():
    source = "".join(path.read_text() for path in sorted((ROOT / "raftlog").rglob("*.py")))
    for name in sorted(FROM_STRANGERS):
        assert source.count(f'"{name}"') >= 2, f"no event is called {name}"


def test_what_is_told_of_a_connection_is_counted_together():
    """A client that joined a group over one connection after another filled the log: each line
    names another connection."""
    told = re.compile(r'trace\(\s*"([a-z_-]+)",\s*(?:where\b|f"connection )')
    names = {
        name
        for path in sorted((ROOT / "raftlog" / "broker").rglob("*.py"))
        if 'f"connection ' in (text := path.read_text())
        for name in told.findall(text)
    }
    assert names >= {"coordinator_refused"}, "the pattern finds what is there"
    assert names - FROM_STRANGERS == set()
