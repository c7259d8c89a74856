"""A crash at every changing disk call, in the live world: one story per kind of file.

The machine stops at the n-th call after a moment, whole or in the middle of a write. It keeps none,
some or all of its unsynced bytes. Then it comes back, and all that a run demands must hold. A run
without a crash says how many calls there are. `tests/storage/test_crash_points.py` does the same to
storage alone, faster and closer.
"""

import pytest
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step

from raftlog.base.ids import NodeId
from raftlog.base.units import millis

KEEPS = ("none", "some", "all")
SAMPLE = 4
"""Points of each story in a quick run; a soak strikes them all."""


def produce(at_ms, count, slot=0):
    return step(at_ms, "produce", slot=slot, partition=0, count=count)


def story(node, begin_ms, end_ms, *steps, **options):
    """Returns a story, and the window in which that node's calls are struck."""
    values = {"seed": 11, "safety_ms": 1_500, "segment_bytes": 5_500, **options}
    return node, begin_ms, end_ms, Schedule(SimOptions(**values), steps)


LEADS = step(50, "elect", node="n1", partition=0)
STORIES = {
    "segments that roll, indexes, producer snapshots": story(
        2, 200, 400, LEADS, produce(200, 30), produce(200, 20, slot=1)
    ),
    "the store, generation after generation": story(
        2, 200, 500, LEADS, produce(200, 30), segment_bytes=65_536, store_bytes=8_192
    ),
    "a truncation": story(
        1, 600, 900, LEADS, produce(100, 2), step(200, "partition", 400, side="n1", how="silent"),
        *(produce(201, 2, slot) for slot in range(1, 8)), produce(650, 4),
    ),
    "a log start, segments removed": story(
        2, 500, 800, LEADS, produce(100, 60), step(500, "trim", partition=0), produce(600, 10)
    ),
    "an install": story(
        3, 801, 1_300, LEADS, step(100, "crash", 700, node="n3"), produce(120, 60),
        step(600, "trim", partition=0), produce(1_000, 10),
    ),
    "the metadata image snapshot, and the log cut short behind it": story(
        1, 220, 450,
        *(step(at, "create-topic", topic=at // 100, partitions=1) for at in range(200, 500, 100)),
        step(550, "delete-topic", topic=2), produce(210, 10), snapshot_every=4,
    ),
    "a replica that is created": story(
        4, 300, 800, produce(100, 10), step(300, "reassign", partition=0, nodes="n1+n2+n4"),
        brokers=5,
    ),
}  # fmt: skip


def calls_of(name):
    """How many changing calls the node makes in its window."""
    node, begin_ms, end_ms, schedule = STORIES[name]
    run, counts = Run(schedule), []
    while run.phase == "set-up":
        run.advance()
    start = run.world.now
    for at_ms in (begin_ms, end_ms):
        while run.world.now < start + millis(at_ms):
            assert run.advance(), name
        counts.append(run.world.nodes[NodeId(node)].disk.mutations)
    return counts[1] - counts[0]


def crash(name, calls, keep, tear, kind="crash-at"):
    node, begin_ms, _, schedule = STORIES[name]
    more = {} if kind == "kill-at" else {"keep": keep}
    fault = step(begin_ms, kind, node=f"n{node}", calls=calls, tear=tear, **more)
    result = simulate(schedule.with_steps((*schedule.steps, fault)))
    assert result.failure == "", f"{name}: call {calls}, keep {keep}, tear {tear}"
    assert result.faults[kind] == 1


@pytest.mark.parametrize("name", STORIES)
def test_a_crash_at_some_calls_is_survived(name):
    total = calls_of(name)
    assert total > SAMPLE, name
    for number in range(SAMPLE):
        calls = (2 * number + 1) * total // (2 * SAMPLE)
        crash(name, calls, KEEPS[number % len(KEEPS)], ("no", "yes")[number % 2])


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("name", STORIES)
def test_a_crash_at_every_call_is_survived(name, keep):
    for calls in range(calls_of(name)):
        crash(name, calls, keep, ("no", "yes")[(calls + KEEPS.index(keep)) % 2])


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", STORIES)
def test_a_kill_between_any_write_and_its_sync_is_survived(name):
    for calls in range(calls_of(name)):
        crash(name, calls, "all", ("no", "yes")[calls % 2], kind="kill-at")
