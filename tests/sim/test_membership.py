"""Partitions that move, leadership handed over, topics that come and go, graceful stops, clocks
that are wrong, and a core that must do without the rest."""

import attrs
import pytest
from raftlog_sim import convergence, drawing, endings, mutation
from raftlog_sim.clock import MachineClock, NodeClock
from raftlog_sim.convergence import is_converged, is_core, is_core_alive, is_led, misreported
from raftlog_sim.drawing import draw_schedule
from raftlog_sim.loss_faults import empty_disk
from raftlog_sim.options import WIDE, SimOptions, draw_options
from raftlog_sim.schedule import Schedule, step
from raftlog_sim.simulation import Run, simulate
from raftlog_sim.streams import Stream
from raftlog_sim.targets import group_of, leaders_of, log_start_of, resolve
from raftlog_sim.workload import TOPIC
from raftlog_sim.world import seconds

from raftlog.base.ids import METADATA_GROUP, NodeId
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
    the one before, which the controller still knew. Nobody ever led it."""
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


# --- a core without the rest ----------------------------------------------------------------------


def test_a_majority_does_without_the_frozen_rest():
    run = Run(schedule(step(900, "power", node="all", keep="none"), core=(1, 3)))
    phases = []
    while run.advance():
        if run.phase not in phases:
            phases.append(run.phase)
        if run.phase == "core" and is_core_alive(run.world, (1, 3)):
            assert run.world.nodes[NodeId(2)].up is False
    assert phases == ["set-up", "safety", "core", "liveness", "final read"]


@pytest.mark.parametrize("led_by", [1, 2])
@pytest.mark.parametrize("rest", ["deaf", "stalled"])
def test_a_majority_does_without_a_rest_that_is_half_alive(rest, led_by):
    """Whoever led: who hears nobody, and whose disk answers nothing, must not keep the others."""
    leads = step(300, "transfer", partition=0, node=f"n{led_by}")
    run = Run(schedule(leads, core=(1, 3), rest=rest))
    seen = []
    while run.advance():
        if run.phase == "core":
            node = run.world.nodes[NodeId(2)]
            seen.append((node.up, node.stalled, run.world.network.pipe(1, 2).deaf))
    assert run.phase == "over"
    assert run.last_writes.demanded["core"] == {"groups": 2, "records": 1}
    assert set(seen[1:]) == {(True, rest == "stalled", rest == "deaf")}
    node = run.world.nodes[NodeId(2)]
    assert (node.stalled, run.world.network.pipe(1, 2).deaf) == (False, False), "healed in the end"


@pytest.mark.parametrize(("mutant", "rest"), [("10b", "deaf"), ("10c", "stalled")])
def test_leaders_that_stay_are_seen_in_the_core_phase(mutant, rest):
    """Planted bugs that only a scenario caught: all was healed before anybody looked."""
    leads = step(300, "transfer", partition=0, node="n2")
    text = schedule(leads, core=(1, 3), rest=rest).text()
    with mutation.own_process(mutant) as ask:
        said = ask(mutation._replay_here, text)
    wanted = {"deaf": "works", "stalled": "leads what was written to"}[rest]
    assert said == f"liveness: not reached within #.# s: the core (#, #) {wanted}"


def test_what_is_not_enough_is_no_core():
    run = until(Run(schedule()), 100)
    assert is_core(run.world, (1, 2), ())
    assert is_core(run.world, (1, 2, 3), (3,))
    assert not is_core(run.world, (1,), ())
    assert not is_core(run.world, (1, 2), (2,)), "a damaged node does not count"
    assert not is_core(run.world, (1, 9), ())
    skipped = simulate(schedule(core=(1,)))
    assert skipped.failure == ""


def test_who_has_not_caught_up_has_not_converged():
    """Seed 3000879: the one broker had booted, led its metadata group and had committed all of it,
    and had not applied any; the run asked its image for the topic."""
    run = until(
        Run(Schedule(SimOptions(seed=31, brokers=1, controllers=1, replication=1), ())), 300
    )
    (node,) = run.world.running()
    assert is_converged(run.world)
    node.broker.clients.serving = False
    assert not is_converged(run.world)


def test_who_holds_requests_has_not_converged():
    """Seeds 6201660, 6304543: a broker had booted again and all replicas agreed, but the others did
    not know yet that it lives: it held what clients had asked, and the run ended."""
    run = until(Run(schedule()), 300)
    while not is_converged(run.world):
        run.advance()
    node = run.world.nodes[NodeId(2)]
    node.stop_process()
    node.start()
    held = []
    while not is_converged(run.world):
        held.append(node.up and node.broker.context.caught_up and not node.broker.clients.serving)
        run.advance()
    assert any(held)
    assert node.broker.clients.serving


def test_who_has_no_metadata_replica_has_not_converged():
    """Seed 9508106: in the end a controller's replica was being opened again after a failed create;
    the others agreed, and the reboot that followed found one replica more than there had been."""
    run = until(Run(schedule()), 300)
    while not is_converged(run.world):
        run.advance()
    replicas = run.world.nodes[NodeId(3)].broker.context.replicas
    metadata = replicas.pop(METADATA_GROUP)
    assert not is_converged(run.world)
    replicas[METADATA_GROUP] = metadata
    assert is_converged(run.world)


def test_what_is_no_core_is_none_when_all_are_down():
    """Seed 420683: with nobody up the controllers were the only voters that were known."""
    run = until(Run(schedule(controllers=1)), 300)
    for node in run.world.running():
        node.crash()
    assert is_core(run.world, (1, 3), ())
    assert not is_core(run.world, (1, 3), (3,)), "of three voters, one is whole"


def test_who_was_wiped_is_no_voter_of_a_core():
    """Seed 400835: a topic was being made while one of its nodes was wiped and another froze. Its
    one replica that was left could not elect, and the run waited for it."""
    run = until(Run(schedule(controllers=1)), 300)
    world = run.world
    node = world.nodes[NodeId(2)]
    cluster = node.broker.context.cluster
    node.stop_process()
    node.disk = empty_disk(node, cluster)
    world.nodes[NodeId(3)].crash()
    node.start()
    world.run_for(seconds(10))
    assert not is_led(world, TOPIC, 1)
    assert is_core_alive(world, (1, 2)), "of the topic the core has one of three"
    world.nodes[NodeId(3)].start()
    world.run_for(seconds(10))
    assert is_led(world, TOPIC, 1)
    assert is_core_alive(world, (1, 2, 3))


def test_a_move_that_begins_in_the_core_may_need_the_frozen(monkeypatch):
    """Seed 5100282: a move that was asked for before the rest froze began when the core was healed.
    Its leader appended a configuration without itself, and only a frozen node could commit that;
    another node of the core still held the old one, and the run waited for it."""
    run = until(Run(schedule()), 300)
    world = run.world
    group = group_of(world, TOPIC, 0)
    world.nodes[NodeId(2)].crash()
    world.run_for(seconds(10))
    assert is_core_alive(world, (1, 3))
    leads = convergence._leads
    monkeypatch.setattr(
        convergence, "_leads", lambda replica: replica.group != group and leads(replica)
    )
    assert not is_core_alive(world, (1, 3)), "nobody leads, and they could elect"
    state = world.nodes[NodeId(1)].broker.context.replicas[group].node._state
    others = tuple(voter for voter in state.membership.voters if voter.node != 1)
    fewer = attrs.evolve(state.membership, voters=others)
    state.memberships.append((state.membership_index, fewer))
    assert is_core_alive(world, (1, 3)), "of the two that n1 knows of, the core has one"


def test_cores_are_majorities():
    cores = [options.core for options in map(draw_options, range(60)) if options.core]
    assert 10 < len(cores) < 50
    for seed in range(60):
        options = draw_options(seed)
        if options.core:
            assert options.brokers // 2 < len(options.core) < options.brokers


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
