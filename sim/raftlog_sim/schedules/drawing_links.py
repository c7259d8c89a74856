"""Faults of links between brokers in trio mode, drawn before the run.

A relay strikes sealed frames, and peers lie in handshakes. Each has a stream of its own, so all
other steps stay as they were without it.
"""

from collections.abc import Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.drawing_targets import draw_node, draw_pair, drawn_instants
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Step, step

_WAYS: Final = (
    "flip", "damage", "repeat", "drop", "swap", "cut", "truncate", "reflect", "old", "any",
)  # fmt: skip
_LIES: Final = ("other-cluster", "other-directory", "old-life", "old-life", "old-handshake")


def links_are_struck(options: SimOptions) -> Iterator[Step]:
    """Every kind of harm to links; nothing where there are none."""
    if options.brokers > 1:
        yield from _relays(options)
        yield from _lies(options)
        yield from _diversions(options)


def _relays(options: SimOptions) -> Iterator[Step]:
    stream = Stream(options.seed, "schedule/relay")
    gap_ms = 100 << stream.below(4)
    first_ms = stream.between(gap_ms // 2, gap_ms * 2)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        pair, what = draw_pair(stream, options), _WAYS[stream.below(len(_WAYS))]
        one_in, lasts_ms = 1 << stream.below(7), stream.between(20, 600)
        if pair is not None:
            sender, receiver = pair
            yield step(
                at_ms, "relay", lasts_ms, sender=sender, receiver=receiver, what=what, one_in=one_in
            )


def _lies(options: SimOptions) -> Iterator[Step]:
    stream = Stream(options.seed, "schedule/lie")
    gap_ms = 200 << stream.below(4)
    first_ms = stream.between(gap_ms // 2, gap_ms * 2)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        node, peer = draw_node(stream, options), draw_node(stream, options)
        what, lasts_ms = _LIES[stream.below(len(_LIES))], stream.between(20, 500)
        yield step(at_ms, "lie", lasts_ms, node=node, peer=peer, what=what)


def _diversions(options: SimOptions) -> Iterator[Step]:
    stream = Stream(options.seed, "schedule/divert")
    gap_ms = 400 << stream.below(4)
    first_ms = stream.between(gap_ms // 2, gap_ms * 2)
    for at_ms in drawn_instants(stream, first_ms, gap_ms, options.safety_ms):
        node, to = draw_node(stream, options), draw_node(stream, options)
        yield step(at_ms, "divert", stream.between(50, 600), node=node, to=to)
