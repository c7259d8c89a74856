"""From a seed to a schedule: every fault and every client operation, drawn before the run.

Each source draws from a stream of its own, so switching one off leaves the others as they are. A
source may draw several steps at once: power that fails everywhere is one step for each node.
"""

from collections.abc import Callable, Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules import drawing_admin, drawing_disks, drawing_groups, drawing_links
from raftlog_sim.schedules.drawing_brokers import brokers_come_and_go
from raftlog_sim.schedules.drawing_moments import at_moments, late_rounds
from raftlog_sim.schedules.drawing_targets import (
    KEEPS,
    draw_node,
    draw_pair,
    draw_side,
    drawn_instants,
)
from raftlog_sim.schedules.options import FAULTS, WIDE, SimOptions
from raftlog_sim.schedules.schedule import Schedule, Step, step
from raftlog_sim.world.releases import level_of

Source = Callable[[Stream, SimOptions, int], Iterator[Step]]
_MESSAGES: Final = ("appends", "acks", "asks", "votes", "echoes")
_BURST_MAX: Final = 6
_SMALL_VALUE_BYTES: Final = 200
_READ_MS: Final = 40
_FLOOD_MAX: Final = 600
_QUESTIONS: Final = ("latest", "earliest", "epoch-end", "epoch-end", "time", "time", "largest")
_EPOCHS_BACK: Final = 4


def draw_schedule(options: SimOptions) -> Schedule:
    """Returns the whole run of these options. The same options give the same schedule."""
    steps = [*draw_client_steps(options), *draw_fault_steps(options)]
    if options.profile == WIDE:
        steps += list(_cancels(options, steps))
        steps += at_moments(options)
        steps += late_rounds(options)
        steps += brokers_come_and_go(options)
        steps += drawing_admin.controllers_come_and_go(options)
        steps += drawing_admin.controllers_take_turns(options)
        steps += drawing_admin.moves_are_interrupted(options)
        steps += drawing_admin.directories_are_used(options)
        steps += drawing_admin.copies_are_throttled(options)
        steps += _questions(options)
    return Schedule(options, tuple(each for each in steps if each.at_ms < options.safety_ms))


def draw_client_steps(options: SimOptions) -> Iterator[Step]:
    """Draw the requests of producers, readers and, in trio mode, flooding clients."""
    for slot in range(options.producers):
        yield from _produce(options, slot)
    for slot in range(options.pipelines):
        yield from _pipeline(options, slot)
    yield from _read(options)
    yield from drawing_groups.draw_group_steps(options)
    if options.trio:
        yield from _flood(options)


def draw_fault_steps(options: SimOptions) -> Iterator[Step]:
    """Draw the steps of every kind of faults that is on."""
    yield from drawing_groups.draw_group_faults(options)
    if options.trio and options.profile != "calm":
        yield from drawing_links.links_are_struck(options)
    for source, gap_ms in options.fault_gaps_ms:
        if gap_ms:
            yield from _faults(options, source, gap_ms)


def _faults(options: SimOptions, source: str, gap_ms: int) -> Iterator[Step]:
    stream = Stream(options.seed, f"schedule/{source}")
    first_ms = stream.between(gap_ms // 2, gap_ms * 2)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        yield from _SOURCES[source](stream, options, at_ms)


def _cancels(options: SimOptions, steps: list[Step]) -> Iterator[Step]:
    """Take one move in three back, a millisecond to half a second after it was asked for.

    The stream is one of its own, so all other steps stay as they were without it.
    """
    stream = Stream(options.seed, "schedule/cancel-move")
    for move in steps:
        if move.kind == "reassign":
            taken_back, soon_ms = stream.chance(1, 3), 1 << stream.below(10)
            if taken_back:
                partition = move.argument("partition")
                yield step(move.at_ms + soon_ms, "cancel-move", partition=partition)


def _questions(options: SimOptions) -> Iterator[Step]:
    """Let a client ask for an offset now and then, for old epochs more often than for the
    present."""
    stream = Stream(options.seed, "schedule/ask")
    gap_ms = 20 << stream.below(4)
    first_ms = stream.below(gap_ms)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        partition = stream.below(options.partitions)
        what, back = _QUESTIONS[stream.below(len(_QUESTIONS))], stream.below(_EPOCHS_BACK + 1)
        yield step(at_ms, "ask", partition=partition, what=what, back=back)


def _produce(options: SimOptions, slot: int) -> Iterator[Step]:
    """Draw bursts of one to six records, with pauses between them that differ from seed to seed."""
    stream = Stream(options.seed, f"schedule/produce/{slot}")
    gap_ms = 8 << stream.below(4)
    first_ms = stream.below(gap_ms)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        partition = stream.below(options.partitions)
        count = stream.between(1, _BURST_MAX)
        yield step(at_ms, "produce", slot=slot, partition=partition, count=count)


def _pipeline(options: SimOptions, slot: int) -> Iterator[Step]:
    """Draw bursts that share turns: a few requests, or so many that some have to wait.

    Bursts are shorter where records are large.
    """
    stream = Stream(options.seed, f"schedule/pipeline/{slot}")
    gap_ms, most = 50 << stream.below(4), (6, 50)[stream.below(2)]
    if options.value_bytes > _SMALL_VALUE_BYTES:
        most = _BURST_MAX
    first_ms = stream.below(gap_ms)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        partition, count = stream.below(options.partitions), stream.between(2, most)
        acks = ("all", "all", "leader")[stream.below(3)]
        yield step(at_ms, "pipeline", slot=slot, partition=partition, count=count, acks=acks)


def _read(options: SimOptions) -> Iterator[Step]:
    for number, at_ms in enumerate(range(_READ_MS, options.safety_ms, _READ_MS)):
        yield step(at_ms, "read", partition=number % options.partitions)


def _flood(options: SimOptions) -> Iterator[Step]:
    """Let a client ask for more than it reads now and then."""
    stream = Stream(options.seed, "schedule/flood")
    gap_ms = 200 << stream.below(4)
    first_ms = stream.below(gap_ms)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        node, count = draw_node(stream, options), stream.between(1, _FLOOD_MAX)
        yield step(at_ms, "flood", stream.below(500), node=node, count=count)


# --- sources --------------------------------------------------------------------------------------


def _crash(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, down_ms = draw_node(stream, options), stream.between(10, 1200)
    yield step(at_ms, "crash", down_ms, node=node)


def _partition(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    side, lasts_ms, how = draw_side(stream, options), stream.between(50, 1500), _how(stream)
    if options.brokers > 1:
        yield step(at_ms, "partition", lasts_ms, side=side, how=how)


def _how(stream: Stream) -> str:
    return "silent" if stream.chance(1, 3) else "loud"


def _one_way(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    side, way = draw_side(stream, options), ("in", "out")[stream.below(2)]
    lasts_ms = stream.between(50, 2000)
    if options.brokers > 1:
        yield step(at_ms, "one-way", lasts_ms, side=side, way=way)


def _shape(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Draw a bridge or a ring; with fewer than five nodes only a bridge differs from a
    partition."""
    hub, how, lasts_ms = draw_node(stream, options), _how(stream), stream.between(200, 2000)
    ring = stream.chance(1, 2)
    if options.brokers >= 5 and ring:
        yield step(at_ms, "ring", lasts_ms, how=how)
    elif options.brokers >= 3:
        yield step(at_ms, "bridge", lasts_ms, hub=hub, how=how)


def _clog(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    pair, lasts_ms = draw_pair(stream, options), 10 << stream.below(8)
    if pair is not None:
        yield step(at_ms, "clog", lasts_ms, sender=pair[0], receiver=pair[1])


def _swizzle(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Cut some nodes off one after another, and let them back in another order."""
    numbers = list(range(1, options.brokers + 1))
    chosen = [
        numbers.pop(stream.below(len(numbers))) for _ in range(1 + stream.below(len(numbers)))
    ]
    gap_ms = 20 << stream.below(5)
    begin, end = at_ms, at_ms + gap_ms * len(chosen)
    ends = [end + gap_ms * place for place in range(len(chosen))]
    for number in chosen:
        until = ends.pop(stream.below(len(ends)))
        for pair in ((f"n{number}", "all"), ("all", f"n{number}")):
            yield step(begin, "clog", until - begin, sender=pair[0], receiver=pair[1])
        begin += gap_ms


def _lossy(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    pair = draw_pair(stream, options)
    drop, duplicate = 1 << stream.below(5), stream.below(2) << stream.below(6)
    reorder_ms, lasts_ms = stream.below(2) << stream.below(6), stream.between(20, 1000)
    if pair is not None:
        yield step(
            at_ms, "lossy", lasts_ms, sender=pair[0], receiver=pair[1], drop=drop,
            duplicate=duplicate, reorder_ms=reorder_ms,
        )  # fmt: skip


def _slow_link(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    pair, more_ms = draw_pair(stream, options), 1 << stream.below(8)
    lasts_ms = stream.between(50, 2000)
    if pair is not None:
        yield step(at_ms, "slow-link", lasts_ms, sender=pair[0], receiver=pair[1], ms=more_ms)


def _reset(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    one = 1 + stream.below(options.brokers)
    other = 1 + stream.below(options.brokers)
    if one != other:
        yield step(at_ms, "reset", one=f"n{one}", other=f"n{other}")


def _pause(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Pause one node, or several at a time."""
    node, wide = draw_node(stream, options), stream.chance(1, 4)
    if wide:
        node = draw_side(stream, options)
    yield step(at_ms, "pause", stream.between(20, 900), node=node)


def _stall(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node = draw_node(stream, options)
    yield step(at_ms, "stall", stream.between(20, 700), node=node)


def _trim(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    yield step(at_ms, "trim", partition=stream.below(options.partitions))


def _replay(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    pair, every_ms, lasts_ms = (
        draw_pair(stream, options),
        stream.between(5, 100),
        50 << stream.below(5),
    )
    if pair is not None:
        yield step(at_ms, "replay", lasts_ms, sender=pair[0], receiver=pair[1], ms=every_ms)


def _rolling(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Stop one node after another for a while, sometimes before the last one is back."""
    down_ms, gap_ms = stream.between(20, 400), stream.between(50, 500)
    kind = ("crash", "stop")[stream.below(2)]
    for number in range(1, options.brokers + 1):
        yield step(at_ms, kind, down_ms, node=f"n{number}")
        at_ms += gap_ms


def _swap(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Let power fail everywhere; a part returns and works, then swaps with the rest."""
    numbers = list(range(1, options.brokers + 1))
    size = stream.between(1, max(1, options.brokers - 1))
    first = {numbers[stream.below(len(numbers))] for _ in range(size)}
    work_ms, keep = stream.between(300, 1_200), KEEPS[stream.below(3)]
    for number in numbers:
        down_ms = 50 if number in first else 50 + work_ms
        yield step(at_ms, "power", down_ms, node=f"n{number}", keep=keep)
    for number in sorted(first):
        yield step(at_ms + work_ms, "power", work_ms, node=f"n{number}", keep=keep)


def _stop(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    yield step(at_ms, "stop", stream.between(20, 1_200), node=draw_node(stream, options))


def _membership(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Move partitions, and hand leadership over."""
    numbers = list(range(1, options.brokers + 1))
    partition, node = stream.below(options.partitions), draw_node(stream, options)
    count = options.replication
    if count == 3 and stream.chance(1, 4):
        count = 2
    places = [numbers.pop(stream.below(len(numbers))) for _ in range(count)]
    if stream.chance(1, 2):
        nodes = "+".join(f"n{number}" for number in places)
        yield step(at_ms, "reassign", partition=partition, nodes=nodes)
        if options.profile == WIDE and stream.chance(1, 3):  # during it, on or back
            nodes = "+".join(f"n{number}" for number in [places[-1], *numbers][:count])
            soon_ms = at_ms + (1 << stream.below(9))
            yield step(soon_ms, "reassign", partition=partition, nodes=nodes)
        return
    if stream.chance(1, 2):
        node = f"follower:{partition}"
    yield step(at_ms, "transfer", partition=partition, node=node)


def _topics(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Make, grow and delete topics; one time in three somebody else wants the same a little
    later, which is then so already, or about to be."""
    kind = ("create-topic", "grow-topic", "delete-topic")[stream.below(3)]
    topic, partitions = stream.below(4), stream.below(4)
    another = Stream(options.seed, f"schedule/topics/{at_ms}")
    twice = another.chance(1, 3)
    for when_ms in (at_ms, at_ms + (1 << another.below(6)))[: 1 + twice]:
        if kind == "delete-topic":
            yield step(when_ms, kind, topic=topic)
        else:
            yield step(when_ms, kind, topic=topic, partitions=partitions)


def _hangup(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    yield step(at_ms, "hangup", node=draw_node(stream, options))


def _clock(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Draw a jump, a strobe of jumps, or drift."""
    node, what, size = draw_node(stream, options), stream.below(3), stream.below(30)
    lasts_ms, sign = stream.between(20, 2_000), stream.below(2)
    if what == 0:
        fast = ("fast", "slow")[sign]
        yield step(at_ms, "clock-drift", lasts_ms, node=node, way=fast, permille=1 + 10 * size)
        return
    for beat in range(1 if what == 1 else 8):
        way = ("ahead", "back")[(sign + beat) % 2]
        yield step(at_ms + 20 * beat, "clock-jump", lasts_ms, node=node, way=way, ms=1 << size)


def _wave(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Let a wall clock swing by a millisecond to a week, in 16 ms to half a second."""
    node, ms, period_ms = draw_node(stream, options), 1 << stream.below(30), 16 << stream.below(6)
    lasts_ms = stream.between(100, 2_000)
    yield step(at_ms, "clock-wave", lasts_ms, node=node, ms=ms, period_ms=period_ms)


def _late_timers(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, ms = draw_node(stream, options), 1 << stream.below(7)
    yield step(at_ms, "late-timers", stream.between(100, 2_000), node=node, ms=ms)


def _drop_kind(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Drop all messages of one kind half of the time, else some."""
    pair, what = draw_pair(stream, options), _MESSAGES[stream.below(len(_MESSAGES))]
    drop, lasts_ms = (100, 1 << stream.below(7))[stream.below(2)], stream.between(50, 1_500)
    if pair is not None:
        yield step(
            at_ms, "drop-kind", lasts_ms, sender=pair[0], receiver=pair[1], what=what, drop=drop
        )


def _upgrade(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Upgrade some nodes or all, one after another in any order, and one time in three back again.

    When all of them went up, the feature level may follow. Sometimes it is asked for too early.
    """
    up, to = stream.chance(2, 3), stream.below(2)
    count = min(options.brokers, stream.between(1, options.brokers + 2))
    how, down_ms = ("kill", "stop")[stream.below(2)], stream.between(20, 400)
    gap_ms, raises = stream.between(50, 1_000), stream.below(4)
    numbers = list(range(1, options.brokers + 1))
    nodes = [f"n{numbers.pop(stream.below(len(numbers)))}" for _ in range(count)]
    for node in nodes:
        yield step(at_ms, "upgrade", down_ms, node=node, to=to + 1, how=how)
        at_ms += gap_ms
    if not up:
        for node in nodes:
            yield step(at_ms, "downgrade", down_ms, node=node, to=to, how=how)
            at_ms += gap_ms
    elif raises < (2 if count == options.brokers else 1):
        yield step(at_ms + down_ms, "raise-level", level=level_of(to + 1))


def _late_turn(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Let a process stand still between reading its clock and serving, for up to half a second."""
    node, ms = draw_node(stream, options), 1 << stream.below(10)
    yield step(at_ms, "late-turn", stream.between(20, 1_000), node=node, ms=ms)


def _replay_any(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    pair, of = draw_pair(stream, options), ("any", "ended")[stream.below(2)]
    every_ms, lasts_ms = stream.between(5, 100), 50 << stream.below(5)
    if pair is not None:
        yield step(
            at_ms, "replay-any", lasts_ms, sender=pair[0], receiver=pair[1], of=of, ms=every_ms
        )


_SOURCES: Final[dict[str, Source]] = {
    "late-turn": _late_turn,
    "replay-any": _replay_any,
    "crash": _crash,
    "partition": _partition,
    "reset": _reset,
    "pause": _pause,
    "stall": _stall,
    "one-way": _one_way,
    "shape": _shape,
    "clog": _clog,
    "swizzle": _swizzle,
    "lossy": _lossy,
    "slow-link": _slow_link,
    "rolling": _rolling,
    "swap": _swap,
    "stop": _stop,
    "membership": _membership,
    "topics": _topics,
    "clock": _clock,
    "hangup": _hangup,
    "trim": _trim,
    "replay": _replay,
    "upgrade": _upgrade,
    "drop-kind": _drop_kind,
    "wave": _wave,
    "late-timers": _late_timers,
    **drawing_disks.SOURCES,
}
assert sorted(_SOURCES) == sorted(FAULTS), (sorted(_SOURCES), sorted(FAULTS))
