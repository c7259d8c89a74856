"""Writes a scenario of the shape of an incident.

It says which broker died, stood still or was cut off when, and how much clients sent. It replays
nothing byte for byte: a search with other seeds begins there.

Instants are milliseconds after the first request of a client, which the scenario has at 100.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_MILLI
from raftlog.broker.events import LinkDown, LinkUp, Request, Stop
from raftlog_sim.incidents.incident_folder import BootFiles, IncidentFolder

LINES_MAX: Final = 400
PAUSE_MS_MIN: Final = 250
"""The shortest pause. A broker takes a turn every few heartbeats; one that took none for so long
stood still."""
WINDOW_MS: Final = 100
_BEGIN_MS: Final = 100
_SLOTS: Final = 2
_COUNT_MAX: Final = 50
_PRODUCE: Final = 0


@final
class _Line(NamedTuple):
    """A step of the scenario, in nanoseconds of the machine's clock."""

    at: int
    text: str
    lasts: int = 0


@final
@attrs.define(eq=False)
class _Life:
    """The facts that one recording holds about its boot."""

    node: int
    boot: int
    begun: int
    end: int
    pauses: list[tuple[int, int]] = attrs.Factory(list)
    produced: Counter[int] = attrs.Factory(Counter)
    """Produce requests by window of time."""
    requests_from: int | None = None
    cut: list[tuple[int, int, int]] = attrs.Factory(list)
    """Times without a link, as (peer, from, to)."""
    stopped: bool = False


def scenario_of(folder: IncidentFolder, boots: Sequence[BootFiles]) -> str:
    """Returns the text of the scenario. Raises `OperatingError` when no client has asked for
    anything."""
    lives = [_life(folder, boot) for boot in boots]
    first = min((each.requests_from for each in lives if each.requests_from is not None), default=0)
    if not first:
        raise OperatingError(
            "no client has sent a request", on=str(folder.path), do="replay the recordings"
        )
    config = folder.recording(boots[0]).config
    end = max(each.end for each in lives)
    lines = sorted(
        [*_deaths(lives, end), *_pauses(lives), *_cuts(lives), *_produces(lives, first)],
        key=lambda line: (line.at, line.text),
    )
    steps = [_text(line, first) for line in lines if line.at >= first]
    kept = steps[:LINES_MAX]
    nodes = max(each.node for each in lives)
    head = [
        f"# The shape of the recordings in {folder.path.name}: no byte of them is in here.",
        *([f"# {len(steps) - len(kept)} further steps were left out."] if kept != steps else []),
        f"set brokers {nodes}",
        f"set controllers {len(config.controllers)}",
        f"set safety_ms {_BEGIN_MS + (end - first) // NANOS_PER_MILLI + 1000}",
    ]
    return "\n".join([*head, *kept, ""])


def _text(line: _Line, first: int) -> str:
    at = _BEGIN_MS + (line.at - first) // NANOS_PER_MILLI
    lasts = f" for {max(1, line.lasts // NANOS_PER_MILLI)}" if line.lasts else ""
    return f"{at} {line.text}{lasts}"


# --- from a recording -----------------------------------------------------------------------------


def _life(folder: IncidentFolder, boot: BootFiles) -> _Life:
    recording = folder.recording(boot)
    life = _Life(boot.node, boot.boot, recording.begun_at, recording.begun_at)
    down: dict[int, int] = {}
    for turn in recording.turns():
        if turn.now - life.end >= PAUSE_MS_MIN * NANOS_PER_MILLI and turn.number > 1:
            life.pauses.append((life.end, int(turn.now)))
        life.end = int(turn.now)
        for event in recording.plain_events(turn):
            if isinstance(event, Request):
                life.requests_from = life.requests_from or life.end
                if int.from_bytes(event.frame[:2], "big") == _PRODUCE:
                    life.produced[life.end // (WINDOW_MS * NANOS_PER_MILLI)] += 1
            elif isinstance(event, LinkDown):
                down[event.peer] = life.end
            elif isinstance(event, LinkUp) and event.peer in down:
                life.cut.append((event.peer, down.pop(event.peer), life.end))
            elif isinstance(event, Stop):
                life.stopped = True
    return life


# --- into steps -----------------------------------------------------------------------------------


def _deaths(lives: list[_Life], end: int) -> Iterator[_Line]:
    for life in lives:
        later = [
            each.begun for each in lives if (each.node, each.boot - 1) == (life.node, life.boot)
        ]
        again = later[0] if later else end
        if again - life.end >= PAUSE_MS_MIN * NANOS_PER_MILLI:
            yield _Line(life.end, f"crash node=n{life.node}", again - life.end)


def _pauses(lives: list[_Life]) -> Iterator[_Line]:
    for life in lives:
        for begun, ended in life.pauses:
            yield _Line(begun, f"pause node=n{life.node}", ended - begun)


def _cuts(lives: list[_Life]) -> Iterator[_Line]:
    """Yields links that were down while both ends were up; the lower number tells of each once."""
    for life in lives:
        for peer, begun, ended in life.cut:
            there = any(each.node == peer and each.begun <= begun <= each.end for each in lives)
            there = there and any(
                each.node == peer and each.begun <= ended <= each.end for each in lives
            )
            same = [each.boot for each in lives if each.node == peer and each.begun <= ended]
            before = [each.boot for each in lives if each.node == peer and each.begun <= begun]
            if there and life.node < peer and same == before:
                yield _Line(begun, f"reset one=n{life.node} other=n{peer}")


def _produces(lives: list[_Life], first: int) -> Iterator[_Line]:
    windows: Counter[int] = Counter()
    for life in lives:
        windows.update(life.produced)
    for number, window in enumerate(sorted(windows)):
        at = max(first, window * WINDOW_MS * NANOS_PER_MILLI)
        for sent in range(0, windows[window], _COUNT_MAX):
            count = min(_COUNT_MAX, windows[window] - sent)
            yield _Line(at, f"produce slot={number % _SLOTS} partition=0 count={count}")
