"""Changes that operators make step by step while faults strike, drawn before the run.

Each source has a stream of its own, so that all other steps of a seed stay as they were without it.
"""

from collections.abc import Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.options import VOTERS_MAX, SimOptions
from raftlog_sim.schedules.schedule import Step, step

_WHEN: Final = ("membership", "learner", "caught-up", "joint", "final")
_WHAT: Final = (
    "crash", "power", "pause", "stall", "cut", "deaf", "mute", "cut-old", "crash-new", "power-new",
    "cut-new", "cancel", "cancel",
)  # fmt: skip
_RATES: Final = (2_000, 20_000, 200_000)
_STRUCK: Final = ("crash", "power", "pause", "stall", "cut", "deaf", "mute", "cut-old")


def controllers_come_and_go(options: SimOptions) -> Iterator[Step]:
    """In a third of the wide seeds brokers begin and end to vote as controllers.

    They do so one at a time, sometimes the next before the last is done, and the leading one goes
    too. Half of the changes are struck at the moment when they are proposed.
    """
    stream = Stream(options.seed, "schedule/controllers")
    on, at_ms = stream.chance(1, 3), stream.between(50, 1_000)
    voting = list(range(1, options.controllers + 1))
    while on and options.brokers > 1 and at_ms < options.safety_ms:
        others = [each for each in range(1, options.brokers + 1) if each not in voting]
        goes = len(voting) > 1 and stream.chance(1 + 2 * (len(voting) > 3), 4)
        if others and len(voting) < VOTERS_MAX and not goes:
            kind, number = "add-controller", others[stream.below(len(others))]
            voting.append(number)
        else:
            kind, number = "remove-controller", voting.pop(stream.below(len(voting)))
        node = "controller" if kind.startswith("remove") and stream.chance(1, 3) else f"n{number}"
        struck, what = stream.chance(1, 2), _STRUCK[stream.below(len(_STRUCK))]
        if struck:
            lasts_ms = stream.between(20, 900)
            yield step(
                at_ms, "at-moment", lasts_ms, partition=0, when="controllers", what=what
            )  # fmt: skip
        yield step(at_ms, kind, node=node)
        at_ms += 20 << stream.below(7)


def controllers_take_turns(options: SimOptions) -> Iterator[Step]:
    """In a quarter of the wide seeds the controller changes again and again while a broker that is
    to vote cannot be reached.

    The change takes long, so whoever leads in the end must go on with it, and one may lead twice.
    """
    stream = Stream(options.seed, "schedule/controllers-take-turns")
    on, at_ms = stream.chance(1, 4), stream.between(50, 1_000)
    spare, turns = options.brokers, stream.between(2, 4)
    if not on or spare <= options.controllers:
        return
    gap_ms = stream.between(4, 8) * options.election_ms
    away_ms = options.election_ms + 300 + turns * gap_ms
    yield step(at_ms, "partition", away_ms, side=f"n{spare}", how="silent")
    at_ms += options.election_ms + stream.below(100)
    yield step(at_ms, "add-controller", node=f"n{spare}")
    for turn in range(turns):
        when_ms = at_ms + 200 + turn * gap_ms
        yield step(when_ms, "partition", gap_ms // 2, side="controller", how="loud")


def moves_are_interrupted(options: SimOptions) -> Iterator[Step]:
    """In a third of the wide seeds partitions move, and a fault strikes each move at one of its
    steps.

    The leader, the joining nodes or the old majority fail, or the move is taken back. A quarter of
    the moves is throttled.
    """
    stream = Stream(options.seed, "schedule/interrupted")
    on, at_ms = stream.chance(1, 3), stream.between(100, 800)
    while on and options.brokers > 1 and at_ms < options.safety_ms:
        partition = stream.below(options.partitions)
        left = list(range(1, options.brokers + 1))
        places = [left.pop(stream.below(len(left))) for _ in range(options.replication)]
        when, what = _WHEN[stream.below(len(_WHEN))], _WHAT[stream.below(len(_WHAT))]
        lasts_ms, rate = stream.between(20, 900), _RATES[stream.below(len(_RATES))]
        if stream.chance(1, 4):
            yield step(at_ms, "throttle", stream.between(50, 900), rate=rate)
        yield step(at_ms, "at-moment", lasts_ms, partition=partition, when=when, what=what)
        nodes = "+".join(f"n{number}" for number in places)
        yield step(at_ms, "reassign", partition=partition, nodes=nodes)
        at_ms += stream.between(100, 1_500)


def copies_are_throttled(options: SimOptions) -> Iterator[Step]:
    """Where brokers have several log directories, in half of the seeds moves are throttled for a
    while: a copy then lasts, and what it copied is appended to, truncated and removed meanwhile."""
    stream = Stream(options.seed, "schedule/copies")
    on, at_ms = stream.chance(1, 2), stream.between(20, 600)
    while on and options.directories and at_ms < options.safety_ms:
        rate, lasts_ms = _RATES[stream.below(len(_RATES))], stream.between(100, 1_500)
        yield step(at_ms, "throttle", lasts_ms, rate=rate)
        at_ms += lasts_ms + stream.between(50, 1_000)


def directories_are_used(options: SimOptions) -> Iterator[Step]:
    """Where brokers have several log directories, replicas move between them now and then.

    The broker stops in the middle of every second move, at some call to its disk. Sometimes a
    directory breaks, perhaps during a move.
    """
    stream = Stream(options.seed, "schedule/directories")
    at_ms = stream.between(50, 800)
    while options.directories and at_ms < options.safety_ms:
        node = f"n{stream.between(1, options.brokers)}"
        to, number = stream.below(options.directories + 1), stream.below(options.directories)
        breaks, lasts_ms = stream.chance(1, 4), stream.between(50, 1_500)
        how, stops = ("writes", "all")[stream.below(2)], stream.chance(1, 2)
        calls, tear = stream.below(1 << stream.below(7)), ("no", "yes")[stream.below(2)]
        soon_ms, keep = 1 << stream.below(7), ("none", "some", "all")[stream.below(3)]
        if not breaks or stream.chance(1, 2):
            yield step(at_ms, "move-replicas", node=node, to=to)
        if breaks:
            yield step(
                at_ms + soon_ms, "break-directory", lasts_ms, node=node, number=number, how=how
            )  # fmt: skip
        elif stops and stream.chance(1, 2):
            yield step(at_ms + soon_ms, "kill-at", node=node, calls=calls, tear=tear)
        elif stops:
            yield step(at_ms + soon_ms, "crash-at", node=node, calls=calls, keep=keep, tear=tear)
        at_ms += stream.between(50, 1_000)
