"""The steps of group members and the faults of their coordinators, drawn before the run.

Each source has a stream of its own, so seeds without members keep all other steps. Seeds of the
profile `groups` are busy: each has members, and most of the further steps too.
"""

from collections.abc import Iterator
from typing import Final

from raftlog_sim.base.streams import Stream
from raftlog_sim.schedules.options import GROUPS, SimOptions
from raftlog_sim.schedules.schedule import Step, step

_MOMENTS: Final = ("joins", "generation", "syncs", "assignment", "commits", "stable")
_REBALANCES: Final = _MOMENTS[:4]
IMPOSTORS: Final = (
    "generations", "strangers", "joins", "twice", "left", "deleter", "vanished-leader",
    "traveller",
)  # fmt: skip
_HOURS_MS: Final = 7_200_000
"""How far a wrong clock is ahead: longer than offsets are kept."""
_TOPICS: Final = 4
_OF_VISITORS: Final = 2
"""The number of the group that has visitors only."""


def draw_group_steps(options: SimOptions) -> Iterator[Step]:
    """Draw the steps of members, of impostors, and of clients that ask for offsets."""
    for slot in range(options.members):
        yield from _member(options, slot)
    if options.members:
        yield from _impostors(options)
        yield from _auditors(options)
    if options.profile == GROUPS:
        yield from _travels(options)
        yield from _visits(options)


def draw_group_faults(options: SimOptions) -> Iterator[Step]:
    """Draw the faults of coordinators; calm seeds have none."""
    if options.members and options.profile != "calm":
        yield from _coordinators_killed(options)
        yield from _coordinators_deposed(options)
        yield from _late_decisions(options)
    if options.profile == GROUPS:
        yield from _rushes(options)
        yield from _wrong_clocks(options)


def _member(options: SimOptions, slot: int) -> Iterator[Step]:
    """Let a member come, stay for a while or to the end, leave or die, and come again."""
    stream = _stream_of(options, slot)
    group, name = _belongs(stream)
    how, at_ms = ("eager", "cooperative")[stream.below(2)], stream.below(400)
    while at_ms < options.safety_ms:
        stays_ms = stream.between(100, 3_000) if stream.chance(2, 3) else 0
        yield step(
            at_ms, "consume", stays_ms, member=slot, group=group, how=how, id=name,
            every_ms=1 << stream.below(7),
        )  # fmt: skip
        end_ms = at_ms + (stays_ms or options.safety_ms)
        if stream.chance(1, 2):
            yield step(stream.between(at_ms, end_ms), "commit", member=slot)
        if stream.chance(1, 3):
            end_ms = stream.between(at_ms, end_ms)
            yield step(end_ms, "die", member=slot)
        at_ms = end_ms + stream.between(1, 600)


def _stream_of(options: SimOptions, slot: int) -> Stream:
    return Stream(options.seed, f"schedule/member/{slot}")


def _belongs(stream: Stream) -> tuple[int, str]:
    """Draw the group of a slot and its kind of id, always first from the slot's stream."""
    group, static = stream.below(2), stream.below(6)
    return group, "static" if static < 2 else "shared" if static == 2 else "dynamic"


def _impostors(options: SimOptions) -> Iterator[Step]:
    """Draw impostors: in half of the seeds with members, and in all busy ones."""
    stream = Stream(options.seed, "schedule/impostor")
    gap_ms = 200 << stream.below(4)
    at_ms = stream.below(gap_ms) if stream.chance(1, 2) or _is_busy(options) else options.safety_ms
    while at_ms < options.safety_ms:
        what = IMPOSTORS[stream.below(len(IMPOSTORS))]
        yield step(at_ms, "impostor", group=stream.below(2), what=what)
        at_ms += stream.between(gap_ms // 2, gap_ms * 2)


def _auditors(options: SimOptions) -> Iterator[Step]:
    stream = Stream(options.seed, "schedule/committed")
    at_ms = stream.below(400)
    while at_ms < options.safety_ms:
        yield step(at_ms, "committed", group=stream.below(2))
        at_ms += stream.between(50, 400)


def _coordinators_killed(options: SimOptions) -> Iterator[Step]:
    """Kill coordinators now and then, at any moment of a rebalance, in half of the seeds with
    members."""
    stream = Stream(options.seed, "schedule/kill-coordinator")
    gap_ms = 300 << stream.below(4)
    at_ms = stream.below(gap_ms) if stream.chance(1, 2) else options.safety_ms
    while at_ms < options.safety_ms:
        when, group = _MOMENTS[stream.below(len(_MOMENTS))], stream.below(2)
        yield step(at_ms, "kill-coordinator", stream.between(10, 800), group=group, when=when)
        at_ms += stream.between(gap_ms // 2, gap_ms * 2)


def _coordinators_deposed(options: SimOptions) -> Iterator[Step]:
    """Depose coordinators in a quarter of the seeds with members, and in half of the busy ones.

    A coordinator is cut off and stands still for longer than it takes to elect another. When it
    goes on, it must not answer from its old state.
    """
    stream = Stream(options.seed, "schedule/deposed-coordinator")
    at_ms = (
        stream.between(300, 2_000) if stream.chance(1 + _is_busy(options), 4) else options.safety_ms
    )
    while at_ms < options.safety_ms:
        group, still_ms = stream.below(2), stream.between(3, 9) * options.election_ms
        coordinator = f"coordinator:{group}"
        yield step(at_ms, "partition", still_ms + 600, side=coordinator, how="silent")
        yield step(at_ms + 2, "pause", still_ms, node=coordinator)
        for early_ms in (40, 10, 2, 0, -1, -2):
            yield step(at_ms + 2 + still_ms - early_ms, "committed", group=group)
        at_ms += still_ms + stream.between(1_000, 4_000)


def _late_decisions(options: SimOptions) -> Iterator[Step]:
    """Let what a rebalance writes be decided late, when the group is in the next one. In a quarter
    of the seeds with members, and in half of the busy ones.

    The coordinator is cut off from the other brokers for less than an election. Newcomers reach it,
    one after another.
    """
    stream = Stream(options.seed, "schedule/late-decision")
    on, at_ms = stream.chance(1 + _is_busy(options), 4), stream.between(300, 1_500)
    while on and at_ms < options.safety_ms:
        group, when = stream.below(2), ("generation", "assignment")[stream.below(2)]
        lasts_ms = stream.between(options.election_ms // 3, options.election_ms)
        yield step(at_ms, "cut-coordinator", lasts_ms, group=group, when=when)
        for newcomer in range(2):
            come_ms, stays_ms = at_ms + newcomer * stream.between(10, 120), stream.between(200, 900)
            yield step(
                come_ms, "consume", stays_ms, member=options.members + 2 + newcomer, group=group,
                how="eager", id="dynamic", every_ms=5,
            )  # fmt: skip
        at_ms += stream.between(1_200, 3_000)


# --- busy seeds -----------------------------------------------------------------------------------


def _is_busy(options: SimOptions) -> bool:
    return options.profile == GROUPS


def _rushes(options: SimOptions) -> Iterator[Step]:
    """Strike a rebalance hard: a member joins, and the coordinator is killed or cut off in the
    rebalance.

    Members of the group die too, and some of them are soon back.
    """
    stream = Stream(options.seed, "schedule/rush")
    at_ms = stream.between(200, 1_200)
    while at_ms < options.safety_ms:
        group, newcomer = stream.below(2), ("dynamic", "static")[stream.below(2)]
        yield step(
            at_ms, "consume", stream.between(100, 1_500), member=options.members, group=group,
            how="eager", id=newcomer, every_ms=5,
        )  # fmt: skip
        yield from _struck(stream, group, at_ms + 1 + stream.below(4))
        all_die = stream.chance(1, 4)
        for slot in range(options.members):
            belongs_to, name = _belongs(_stream_of(options, slot))
            dies, is_back = stream.chance(1, 3) or all_die, stream.chance(2, 3)
            dies_ms, back_ms = at_ms + stream.between(10, 80), 2 << stream.below(10)
            if belongs_to == group and dies:
                yield step(dies_ms, "die", member=slot)
            if belongs_to == group and dies and is_back:
                yield step(
                    dies_ms + back_ms, "consume", member=slot, group=group, how="eager", id=name,
                    every_ms=5,
                )  # fmt: skip
        at_ms += stream.between(600, 2_400)


def _struck(stream: Stream, group: int, at_ms: int) -> Iterator[Step]:
    """Strike a coordinator: kill it in the coming rebalance, cut it off while clients hear it, or
    neither."""
    what, when = stream.below(4), _REBALANCES[stream.below(len(_REBALANCES))]
    lasts_ms = stream.between(100, 1_500)
    if what < 2:
        yield step(at_ms, "kill-coordinator", lasts_ms, group=group, when=when)
    elif what == 2:
        side = f"coordinator:{group}"
        yield step(at_ms, "partition", lasts_ms, side=side, how="silent")


def _wrong_clocks(options: SimOptions) -> Iterator[Step]:
    """Set the coordinator's wall clock hours ahead, in half of the busy seeds."""
    stream = Stream(options.seed, "schedule/clock-of-a-coordinator")
    at_ms = stream.between(400, 2_000) if stream.chance(1, 2) else options.safety_ms
    while at_ms < options.safety_ms:
        node, lasts_ms = f"coordinator:{stream.below(2)}", stream.between(300, 1_500)
        yield step(at_ms, "clock-jump", lasts_ms, node=node, way="ahead", ms=_HOURS_MS)
        at_ms += stream.between(400, 2_000)


def _visits(options: SimOptions) -> Iterator[Step]:
    """Let a program be the only member of its group, and leave, in half of the busy seeds.

    No member then keeps the offsets of that group, while its coordinator's clock is hours ahead.
    """
    stream = Stream(options.seed, "schedule/visit")
    at_ms = stream.between(50, 600) if stream.chance(1, 2) else options.safety_ms
    while at_ms < options.safety_ms:
        stays_ms = stream.between(300, 1_200)
        yield step(
            at_ms, "consume", stays_ms, member=options.members + 1, group=_OF_VISITORS,
            how="eager", id="dynamic", every_ms=5,
        )  # fmt: skip
        at_ms += stays_ms + stream.between(100, 600)
        node, lasts_ms = f"coordinator:{_OF_VISITORS}", stream.between(300, 900)
        yield step(at_ms, "clock-jump", lasts_ms, node=node, way="ahead", ms=_HOURS_MS)
        yield step(at_ms + lasts_ms, "committed", group=_OF_VISITORS)
        at_ms += lasts_ms + stream.between(50, 600)


def _travels(options: SimOptions) -> Iterator[Step]:
    """Let a program commit for topics that come and go, in half of the busy seeds."""
    stream = Stream(options.seed, "schedule/travel")
    at_ms = stream.between(100, 1_000) if stream.chance(1, 2) else options.safety_ms
    while at_ms < options.safety_ms:
        topic, group = stream.below(_TOPICS), stream.below(2)
        yield step(at_ms, "create-topic", topic=topic, partitions=stream.below(3))
        for _ in range(2):
            at_ms += stream.between(50, 300)
            yield step(at_ms, "impostor", group=group, what="traveller")
        at_ms += stream.between(20, 300)
        yield step(at_ms, "delete-topic", topic=topic)
        at_ms += stream.between(100, 800)
