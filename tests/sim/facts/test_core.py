"""A core that must do without the rest, however the rest has failed; and when a core, or all, have
come to rest."""

import attrs
import pytest
from raftlog_sim.facts import convergence
from raftlog_sim.facts.convergence import is_converged, is_core, is_core_alive, is_led
from raftlog_sim.facts.targets import group_of
from raftlog_sim.faults.loss_faults import empty_disk
from raftlog_sim.hunting import mutation
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.workloads.callers import TOPIC
from raftlog_sim.world.world import seconds

from raftlog.base.ids import METADATA_GROUP, NodeId
from raftlog.base.units import millis
from tests.sim.facts.test_membership import schedule, until


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
    """Node 2 may have led or not. It hears nothing, or its disk answers nothing, and must not delay
    the rest."""
    leads = step(300, "transfer", partition=0, node=f"n{led_by}")
    run = Run(schedule(leads, core=(1, 3), rest=rest))
    seen = []
    while run.advance():
        if run.phase == "core":
            node = run.world.nodes[NodeId(2)]
            deaf = run.world.network.pipe(1, 2).deaf
            if deaf or rest == "stalled":  # deaf once links that were away are back
                seen.append((node.up, node.stalled, deaf))
    assert run.phase == "over"
    assert run.last_writes.demanded["core"] == {"groups": 2, "records": 1}
    assert set(seen[1:]) == {(True, rest == "stalled", rest == "deaf")}
    node = run.world.nodes[NodeId(2)]
    assert (node.stalled, run.world.network.pipe(1, 2).deaf) == (False, False), "healed in the end"


@pytest.mark.parametrize(
    "fault",
    [
        step(900, "stall", 2_000, node="n2"),
        step(900, "pause", 2_000, node="n2"),
        step(900, "crash", 2_000, node="n2"),
    ],
    ids=lambda fault: fault.kind,
)
@pytest.mark.parametrize("rest", ["frozen", "deaf", "stalled"])
def test_who_is_outside_a_core_has_failed_for_ever(rest, fault):
    """Regression (wide seeds 9874340, 9895447): what a step of before had done to it ended in the
    midst of the core phase, and cured it."""
    run = Run(schedule(fault, core=(1, 3), rest=rest, safety_ms=1_000))
    while run.phase != "core":
        run.advance()
    node = run.world.nodes[NodeId(2)]
    stood = (node.up, node.stalled, node.suspended)
    run.world.run_for(millis(3_000))
    assert (node.up, node.stalled, node.suspended) == stood
    assert run.play() == ""
    assert (node.up, node.stalled, node.suspended) == (True, False, False)


@pytest.mark.parametrize("way", ["back", "ahead"])
def test_a_stalled_leader_with_a_wrong_clock_refuses_nothing_for_good(way):
    """It may be asked for the last record, and a wall clock that is wrong makes that final."""
    leads = step(300, "transfer", partition=0, node="n3")
    wrong = step(980, "clock-jump", 2_000, node="n3", way=way, ms=1 << 29)
    result = simulate(schedule(leads, wrong, core=(1, 2), rest="stalled"))
    assert (result.failure, result.core) == ("", "ran")


def test_who_is_deaf_has_links():
    """The links of pairs that had just been cut did not come back, so the others were away and not
    deaf."""
    away = step(900, "partition", 2_000, side="n2", how="loud")
    run = Run(schedule(away, core=(1, 3), rest="deaf"))
    linked = {}
    while run.advance():
        network = run.world.network
        if run.phase == "core" and network.pipe(1, 2).deaf and not linked:
            linked = {pair: pair in network.links for pair in ((1, 2), (2, 3))}
    assert linked == {(1, 2): True, (2, 3): True}


@pytest.mark.parametrize(("mutant", "rest"), [("10b", "deaf"), ("10c", "stalled")])
def test_leaders_that_stay_are_seen_in_the_core_phase(mutant, rest):
    """Planted bugs that only a scenario caught: all was healed before any check looked."""
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
    """Seed 420683: with no node up the controllers were the only voters that were known."""
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
