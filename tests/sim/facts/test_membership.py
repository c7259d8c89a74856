"""Partitions that move, leadership handed over, topics that come and go, graceful stops, and clocks
that are wrong."""

import attrs
import pytest
from raftlog_sim.base.streams import Stream
from raftlog_sim.facts import convergence
from raftlog_sim.facts.convergence import misreported
from raftlog_sim.facts.targets import group_of, leaders_of, log_start_of, resolve
from raftlog_sim.playing import endings
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules import drawing
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import WIDE, SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world.clock import MachineClock, NodeClock

from raftlog.base.ids import NodeId
from raftlog.base.units import NEVER, millis

MOVE, CANCEL = "reassign", "cancel-move"
WRITES = tuple(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 900, 30))


def schedule(*some, **options):
    return Schedule(SimOptions(**{"seed": 31, "safety_ms": 1_000, **options}), (*WRITES, *some))


def until(run, at_ms):
    while run.phase == "set-up":
        run.advance()
    end = run.world.now + millis(at_ms)
    while run.world.now < end and run.advance():
        pass
    return run


def target(run, partition=0):
    image = run.world.running()[0].broker.context.image
    return sorted(replica.node for replica in image.topic("t").partitions[partition].target)


# --- beginnings that go, and what must be true at an instant --------------------------------------


def test_records_are_deleted_and_the_history_knows():
    run = Run(schedule(step(600, "trim", partition=0), segment_bytes=5_500))
    assert run.play() == ""
    assert run.nemesis.done == {"trim": 1}
    assert log_start_of(run.world, "t", 0) > 0
    assert '"retention"' not in run.workload.text.getvalue().partition("\n")[0]


def test_retention_by_size_keeps_what_it_must():
    run = Run(schedule(segment_bytes=5_500, retention_bytes=2_000))
    assert run.play() == ""
    replica = run.world.running()[0].broker.context.replicas[group_of(run.world, "t", 0)]
    assert 0 < log_start_of(run.world, "t", 0) < replica.high_watermark


def test_the_metadata_know_the_membership_of_each_partition():
    run = Run(schedule(step(300, "reassign", partition=0, nodes="n1+n2")))
    assert run.play() == ""
    assert run.onlooker.invariants.checked["membership-reported"] > 0
    running = run.world.running()
    assert set(misreported(running)) == {""}
    context, group = running[0].broker.context, group_of(run.world, "t", 0)
    replicas = [node.broker.context.replicas.get(group) for node in running]
    leader = next(each for each in replicas if each is not None and each.is_leader)
    membership = attrs.evolve(leader.membership, voters=(leader.me,))
    leader.node._state.memberships[-1] = (leader.membership_index, membership)
    assert len([wrong for wrong in misreported(running) if "is reported as" in wrong]) == 1
    assert context.image.topic("t").partitions[0].reported.membership != membership


def test_a_topic_made_on_a_disk_that_is_gone_is_waited_for_by_nobody():
    """Wide seed 9302134: n3 came back with an empty disk, and a topic of two replicas was placed on
    the one before, which the controller still knew. No node ever led it."""
    options = SimOptions(
        seed=9302134, profile="wide", controllers=1, replication=2, min_in_sync=2, safety_ms=4_000
    )
    wiped = step(1_200, "wipe", 10, node="n3")
    made = step(1_800, "create-topic", topic=3, partitions=2)
    run = Run(Schedule(options, (wiped, made)))
    assert run.play() == ""
    nodes = run.world.running()
    partitions = nodes[0].broker.context.image.topic("churn-3").partitions
    never_led = [partition for partition in partitions if partition.reported.term == 0]
    assert [3 in [each.node for each in one.founding] for one in never_led] == [True] * 2
    assert [convergence._is_stillborn(nodes, one) for one in never_led] == [True] * 2
    led = next(partition for partition in partitions if partition not in never_led)
    assert not convergence._is_stillborn(nodes, led)


@pytest.mark.parametrize("late", ["report", "answer"])
def test_what_is_on_its_way_in_the_end_has_its_time_to_arrive(monkeypatch, late):
    run = until(Run(schedule()), 100)
    missing = [late]
    monkeypatch.setattr(endings, "is_converged", lambda world: True)
    monkeypatch.setattr(endings, "is_told", lambda world: "report" not in missing)
    rest = endings.Rest(run.world, lambda node: "owed" if "answer" in missing else "")
    assert not rest()
    missing.clear()
    assert rest()
    missing.append(late)
    run.world.now += endings.PATIENCE_NS
    assert rest(), "what has not arrived by now is judged as it is"


def test_who_polls_to_the_very_end_is_owed_an_answer(monkeypatch):
    run = until(Run(schedule()), 100)
    monkeypatch.setattr(endings, "is_converged", lambda world: True)
    monkeypatch.setattr(endings, "is_told", lambda world: True)
    assert endings.Rest(run.world, None)()


def test_who_must_lead_and_does_not_fails_the_run():
    good = schedule(step(500, "must-be-led", partition=0, nodes="all"))
    bad = schedule(
        step(400, "crash", 500, node="all"), step(500, "must-be-led", partition=0, nodes="all")
    )
    assert simulate(good).failure == ""
    assert simulate(bad).failure.startswith("liveness: partition 0 is not led by any of")


# --- operators ------------------------------------------------------------------------------------


def test_a_partition_moves_to_other_nodes_while_records_come_in():
    run = Run(schedule(step(100, "reassign", partition=0, nodes="n3+n4+n5"), brokers=5))
    assert run.play() == ""
    assert target(run) == [3, 4, 5]
    assert run.nemesis.done == {"reassign": 1}
    assert len(run.workload.acknowledged) > 20


def test_a_move_that_is_taken_back_leaves_everything_where_it_was():
    moved = step(300, "reassign", partition=0, nodes="n3+n4+n5")
    run = until(Run(schedule(moved, step(301, "cancel-move", partition=0), brokers=5)), 1_000)
    assert target(run) == [1, 2, 3]
    assert run.play() == ""
    assert run.nemesis.done == {"cancel-move": 1, "reassign": 1}
    assert target(run) == [1, 2, 3]


def test_what_does_not_move_is_not_taken_back():
    cancels = [step(300, "cancel-move", partition=number) for number in (0, 7)]
    run = Run(schedule(*cancels))
    assert run.play() == ""
    assert run.nemesis.done == {"cancel-move": 1}, "there is no partition 7"


def test_wide_seeds_take_moves_back_soon_and_draw_all_else_as_before(monkeypatch):
    with_them = [draw_schedule(draw_options(seed, WIDE)).steps for seed in range(60)]
    cancels = 0
    for steps in with_them:
        moves = [(each.at_ms, each.argument("partition")) for each in steps if each.kind == MOVE]
        for each in (each for each in steps if each.kind == CANCEL):
            lags = [each.at_ms - at for at, number in moves if number == each.argument("partition")]
            assert any(1 <= lag <= 512 for lag in lags)
            cancels += 1
    assert cancels > 20
    monkeypatch.setattr(drawing, "_cancels", lambda options, steps: [])
    for seed, steps in enumerate(with_them):
        without = draw_schedule(draw_options(seed, WIDE)).steps
        assert without == tuple(each for each in steps if each.kind != CANCEL)
    swarm = [draw_schedule(draw_options(seed)).steps for seed in range(60)]
    assert not any(each.kind == CANCEL for steps in swarm for each in steps)


def test_moves_may_follow_each_other_amid_crashes():
    result = simulate(
        schedule(
            step(100, "reassign", partition=0, nodes="n3+n4+n5"),
            step(150, "crash", 200, node="leader:0"),
            step(300, "reassign", partition=0, nodes="n1+n2+n5"),
            step(400, "partition", 200, side="leader:0", how="loud"),
            brokers=5,
        )
    )
    assert result.failure == ""


def test_leadership_is_handed_over():
    run = until(Run(schedule()), 100)
    group = group_of(run.world, "t", 0)
    (leader,) = leaders_of(run.world, group)
    heir = next(number for number in (1, 2, 3) if number != leader)
    run = until(Run(schedule(step(100, "transfer", partition=0, node=f"n{heir}"))), 300)
    assert leaders_of(run.world, group) == [heir]
    assert run.play() == ""


def test_a_stopped_broker_leaves_by_itself_and_comes_back():
    run = until(Run(schedule(step(100, "stop", 700, node="n2"))), 600)
    assert not run.world.nodes[NodeId(2)].up
    assert run.play() == ""
    assert run.world.nodes[NodeId(2)].boots == 2


def test_topics_come_grow_and_go():
    run = Run(
        schedule(
            step(50, "create-topic", topic=0, partitions=1),
            step(60, "create-topic", topic=1, partitions=0),
            step(300, "grow-topic", topic=0, partitions=3),
            step(500, "delete-topic", topic=1),
        )
    )
    assert run.play() == ""
    image = run.world.running()[0].broker.context.image
    assert len(image.topic("churn-0").partitions) == 4
    assert image.topic("churn-1") is None
    for node in run.world.running():
        assert len(node.broker.context.replicas) == 6, "group 0, t and four of churn-0"


def test_what_cannot_be_done_is_left():
    result = simulate(
        schedule(
            step(10, "reassign", partition=7, nodes="n1"),
            step(10, "reassign", partition=0, nodes="n9"),
            step(10, "transfer", partition=0, node="n9"),
            step(10, "transfer", partition=7, node="n1"),
            step(10, "delete-topic", topic=3),
            step(10, "grow-topic", topic=3, partitions=3),
        )
    )
    assert result.failure == ""
    assert set(result.faults) == {"delete-topic", "grow-topic"}


# --- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ppm", [0, 1_000, -1_000, 300_000, -800_000, 3_000_000])
def test_a_drifting_clock_never_goes_back_and_finds_its_instants(ppm):
    machine = MachineClock()
    clock = NodeClock.drawn(Stream(1, "clock"), machine)
    first = clock.now(0)
    machine.drift_ppm = ppm
    seen = [clock.now(at) for at in range(1_000, 2_000_000, 7_919)]
    assert first < seen[0]
    assert seen == sorted(seen)
    for wanted in (seen[0] + 1, seen[5] + 12_345, seen[-1]):
        at = clock.world(wanted)
        assert clock.now(at) >= wanted
        assert clock.now(at - 1) < wanted or ppm > 0
    assert clock.world(NEVER) is None


def test_a_change_of_rate_does_not_move_the_clock():
    machine = MachineClock()
    clock = NodeClock.drawn(Stream(1, "clock"), machine)
    before = clock.now(10**9)
    machine.drift_ppm = -500_000
    assert clock.now(10**9) == before
    assert clock.now(10**9 + 1_000) == before + 500


def test_wall_clocks_stay_wrong_over_a_boot_until_the_step_ends():
    run = until(
        Run(
            schedule(
                step(50, "clock-jump", 300, node="n2", way="ahead", ms=86_400_000),
                step(100, "crash", 50, node="n2"),
            )
        ),
        200,
    )
    node = run.world.nodes[NodeId(2)]
    assert node.boots == 2
    assert node.machine.skew_ms == 86_400_000
    until(run, 200)
    assert node.machine.skew_ms == 0
    assert run.play() == ""


@pytest.mark.parametrize("way", ["fast", "slow"])
def test_clocks_that_run_fast_or_slow(way):
    result = simulate(
        schedule(
            step(50, "clock-drift", 600, node="leader:0", way=way, permille=300),
            step(60, "clock-drift", 600, node="follower:0", way="slow", permille=200),
        )
    )
    assert result.failure == ""


# --- targets --------------------------------------------------------------------------------------


def test_targets_are_looked_up_when_they_are_needed():
    run = until(Run(schedule()), 100)
    world, group = run.world, group_of(run.world, "t", 0)
    (leader,) = leaders_of(world, group)
    assert resolve(world, "leader:0", "t") == (leader,)
    assert resolve(world, "follower:0", "t")[0] != leader
    assert resolve(world, "n3+n1+n9", "t") == (1, 3)
    assert resolve(world, "all", "t") == (1, 2, 3)
    assert len(resolve(world, "controller", "t")) == 1
    assert resolve(world, "leader:9", "t") == ()
    world.nodes[leader].stop_process()
    assert resolve(world, "leader:0", "t") == ()
