"""Faults of disks, drawn before the run. Each source has a stream of its own, see `drawing`."""

from collections.abc import Callable, Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.drawing_targets import KEEPS, draw_node, draw_victim
from raftlog_sim.schedules.options import WIDE, SimOptions
from raftlog_sim.schedules.schedule import Step, step

_CALLS: Final = ("open", "create", "read", "write", "truncate", "rename", "remove", "list")
_CHANGING: Final = ("create", "write", "truncate", "rename", "remove")
_ROTS: Final = ("flip", "zero", "alien", "unreadable", "twin")
_WIDE_ROTS: Final = (*_ROTS, "base-offset")


def _power(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, keep = draw_node(stream, options), KEEPS[stream.below(3)]
    yield step(at_ms, _power_kind(options, at_ms), stream.between(10, 1200), node=node, keep=keep)


def _power_kind(options: SimOptions, at_ms: int) -> str:
    """Draw the kind of power failure; three in four wait for a write.

    The stream is one of its own, so all other draws stay as they were without it.
    """
    draws = Stream(options.seed, f"schedule/power-in-write/{at_ms}")
    return "power-in-write" if draws.chance(3, 4) else "power"


def _all(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Let power fail everywhere at once; some nodes come back early, some late.

    Or power fails with a write that one node has not synced. Each node then loses other parts of
    its unsynced bytes.
    """
    in_write = _power_kind(options, at_ms)
    if in_write != "power":
        keep = ("none", "some", "some", "some")[
            Stream(options.seed, f"{in_write}/{at_ms}").below(4)
        ]
        yield step(at_ms, in_write, stream.between(10, 1200), node="all", keep=keep)
        return
    for number in range(1, options.brokers + 1):
        keep, down_ms = KEEPS[stream.below(3)], stream.between(10, 1200)
        yield step(at_ms, "power", down_ms, node=f"n{number}", keep=keep)


def _disk_error(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, call = draw_node(stream, options), _CALLS[stream.below(len(_CALLS))]
    yield step(at_ms, "disk-error", node=node, call=call, count=1 << stream.below(4))


def _late_error(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, call = draw_node(stream, options), _CHANGING[stream.below(len(_CHANGING))]
    yield step(at_ms, "late-error", node=node, call=call, count=1 << stream.below(3))


def _failed_sync(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    yield step(at_ms, "failed-sync", node=draw_victim(stream, options))


def _failed_name_sync(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, call = draw_victim(stream, options), ("dir", "dir", "all")[stream.below(3)]
    yield step(at_ms, "failed-name-sync", node=node, call=call)


def _misdirect(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    to = ("batch", "bytes", "index", "snapshot")[stream.below(4)]
    yield step(at_ms, "misdirect", node=draw_victim(stream, options), to=to)


def _disk_full(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, room = draw_node(stream, options), stream.below(2) << stream.below(16)
    yield step(at_ms, "disk-full", stream.between(50, 1500), node=node, bytes=room)


def _slow_disk(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, more_ms = draw_node(stream, options), 1 << stream.below(8)
    yield step(at_ms, "slow-disk", stream.between(50, 1500), node=node, ms=more_ms)


def _crash_at(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, keep, calls = draw_node(stream, options), KEEPS[stream.below(3)], stream.below(12)
    tear = ("no", "yes")[stream.below(2)]
    yield step(at_ms, "crash-at", node=node, calls=calls, keep=keep, tear=tear)


def _kill_at(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, calls, tear = draw_node(stream, options), stream.below(12), ("no", "yes")[stream.below(2)]
    yield step(at_ms, "kill-at", node=node, calls=calls, tear=tear)


def _old_disk(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Copy a disk, and put the copy in the place of the original after some boots.

    It waits until all others know of those boots. So it is drawn for the middle of the run,
    whenever its turn is.
    """
    node, at_ms = draw_victim(stream, options), at_ms % (options.safety_ms // 2)
    at_ms += options.safety_ms // 4
    yield step(at_ms // 8, "image", node=node)
    for part in range(2, 8):
        yield step(at_ms * part // 8, "crash", stream.between(10, 30), node=node)
    yield step(at_ms, "old-disk", stream.between(50, 1000), node=node)


def _rot(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node = draw_victim(stream, options)
    file = ("segment", "segment", "header", "index", "snapshot", "store")[stream.below(6)]
    ways = _WIDE_ROTS if options.profile == WIDE else _ROTS
    yield step(at_ms, "rot", node=node, file=file, how=ways[stream.below(len(ways))])


def _decay(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Let a file end early, or give some of its sectors their content of a while ago."""
    node, later_ms = draw_victim(stream, options), stream.between(50, 1_500)
    file = ("segment", "segment", "segment", "index", "snapshot", "store")[stream.below(6)]
    if file == "store" or stream.chance(1, 2):
        yield step(at_ms, "remember", node=node)
        yield step(at_ms + later_ms, "rot", node=node, file=file, how="old-chunk")
    else:
        yield step(at_ms, "rot", node=node, file=file, how="cut")


def _wipe(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    yield step(at_ms, "wipe", stream.between(50, 1500), node=draw_victim(stream, options))


def _lose_replica(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    node, partition = draw_victim(stream, options), stream.below(options.partitions)
    down_ms = stream.between(50, 1500)
    if stream.chance(1, 4):
        yield step(at_ms, "lose-metadata", down_ms, node=node)
    else:
        yield step(at_ms, "lose-replica", down_ms, node=node, partition=partition)


def _lost_file(stream: Stream, options: SimOptions, at_ms: int) -> Iterator[Step]:
    """Bring a machine back without a segment, or without both copies of a header."""
    node, down_ms = draw_victim(stream, options), stream.between(20, 600)
    file, how = (("segment", "gone"), ("headers", "zero"))[stream.below(2)]
    yield step(at_ms, "crash", down_ms, node=node)
    yield step(at_ms + 5, "rot", node=node, file=file, how=how)


SOURCES: Final[dict[str, Callable[[Stream, SimOptions, int], Iterator[Step]]]] = {
    "power": _power,
    "all": _all,
    "disk-error": _disk_error,
    "failed-sync": _failed_sync,
    "failed-name-sync": _failed_name_sync,
    "misdirect": _misdirect,
    "disk-full": _disk_full,
    "slow-disk": _slow_disk,
    "crash-at": _crash_at,
    "rot": _rot,
    "wipe": _wipe,
    "lose-replica": _lose_replica,
    "kill-at": _kill_at,
    "old-disk": _old_disk,
    "lost-file": _lost_file,
    "decay": _decay,
    "late-error": _late_error,
}
