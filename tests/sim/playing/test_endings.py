"""After the end damaged nodes lead and are read, and all nodes boot once more."""

import pytest
from raftlog_sim.playing import endings
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step

from raftlog.base import probes
from raftlog.base.ids import NodeId
from raftlog.base.trace import ListTracer

TWO = NodeId(2)
WRITES = tuple(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 300, 20))


def schedule(**options):
    return Schedule(SimOptions(**{"seed": 3, "safety_ms": 400, **options}), WRITES)


def rotten(tracer=None):
    """A run that has damaged a disk, of which no client has read the rotten place, at its final
    read; and the damaged file."""
    probes.reset()
    run = Run(schedule(value_bytes=3_000, segment_bytes=20_000), tracer=tracer)
    atlas = run.nemesis.atlas
    atlas.damaged[TWO] = atlas.unaware[TWO] = None
    while run.phase != "final read":
        run.advance()
    disk = run.world.nodes[TWO].disk
    path = next(p for p in disk.paths() if p.endswith(".log") and "-0-0/" not in p)
    disk.flip_bit(path, 9_000)
    return run, path


def test_damage_and_healing_name_the_file():
    tracer = ListTracer()
    run, path = rotten(tracer)
    while run.advance():
        continue
    told = {
        name: dict(fields)
        for name, _, fields in tracer.events
        if name in ("replica-damaged", "healed")
    }
    assert path in told["replica-damaged"]["why"]
    assert path in told["healed"]["damage"]


def test_who_was_damaged_leads_and_is_read_and_repaired():
    run, led = rotten()[0], 0
    while run.advance():
        led += run.phase == "read from each" and endings.leads(run.world, TWO, 1)
    assert led > 0
    assert run.lost() == ""
    found = probes.fired()
    assert found["damage-found-by-a-read"] == found["damaged-replica-healed"] == 1


@pytest.mark.parametrize("kind", endings.REBOOTS)
def test_all_is_as_it_was_after_a_reboot(kind, monkeypatch):
    monkeypatch.setattr(endings, "REBOOTS", (kind,))
    run = Run(schedule(reboot=True, value_bytes=3_000))
    phases = []
    while run.advance():
        if run.phase not in phases:
            phases.append(run.phase)
    assert phases[-1] == "reboot"
    assert all(node.boots == 2 for node in run.world.nodes.values())
    assert run.lost() == ""
    assert run.onlooker.invariants.checked["same-after-reboot"] == 1


def test_a_seed_reboots_in_every_way_in_turn():
    run = Run(schedule(reboot=True))
    assert run.play() == ""
    assert all(node.boots == 4 for node in run.world.nodes.values())
    assert run.onlooker.invariants.checked["same-after-reboot"] == len(endings.REBOOTS) == 3
    run = Run(schedule())
    assert run.play() == ""
    assert run.onlooker.invariants.checked["same-after-reboot"] == 0


def test_in_a_third_of_the_seeds_everybody_leads_and_is_read_from():
    runs = [Run(schedule(seed=seed)) for seed in range(60)]
    read = [tuple(endings.read_last(run.world, {TWO: None})) for run in runs]
    assert set(read) == {(TWO,), tuple(runs[0].world.nodes)}
    assert 10 <= read.count((TWO,)) <= 50
    run, led = runs[next(number for number, each in enumerate(read) if len(each) > 1)], set()
    while run.advance():
        if run.phase == "read from each":
            led |= {each for each in run.world.nodes if endings.leads(run.world, each, 1)}
    assert led == {*run.world.nodes}
    assert run.lost() == ""


def test_what_a_reboot_loses(monkeypatch):
    run = Run(schedule())
    assert run.play() == ""
    before = endings.standings(run.world)
    assert endings.lost_by_reboot(before, before) == ""
    key = next(each for each in before if each[1])
    grown = before[key]._replace(log_start=before[key].log_start + 1)
    assert endings.lost_by_reboot(before, {**before, key: grown}) == ""
    assert endings.lost_by_reboot({**before, key: grown}, before)
    for field in ("next_offset", "members", "producers"):
        other = before[key]._replace(**{field: None})
        assert endings.lost_by_reboot(before, {**before, key: other}), field
    assert endings.lost_by_reboot(before, {})
    led = {key: before[key]._replace(goes_on=True)}
    more = led[key]._replace(next_offset=led[key].next_offset + 1)
    assert endings.lost_by_reboot(led, {key: more}) == "", "sessions of groups have ended"
    assert endings.lost_by_reboot({key: more}, led)
    monkeypatch.setattr(endings, "standings", lambda world: {key: len(world.running())})
    monkeypatch.setattr(endings, "lost_by_reboot", lambda *_: "something")
    assert simulate(schedule(reboot=True)).failure_class == "same-after-reboot"


def test_what_was_reached_since_the_last_look_counts_when_nothing_else_happens():
    """Regression: all had stopped within a millisecond of the last look, and the run was stuck."""
    run = Run(schedule())
    while run.phase != "liveness":
        run.advance()
    answers = iter([False, True])
    goal = run._goal
    run._goal = goal._replace(reached=lambda: next(answers), look_ms=1)
    run._look_at = 0
    for node in run.world.nodes.values():
        node.stop_process()
    assert not run.look()
    run._deadline = run.world.now
    run.world._heap.clear()
    run.advance()
    assert run._goal is not goal
    assert list(answers) == []


def test_the_last_reader_waits_until_every_partition_is_led(monkeypatch):
    """A leadership on its way between two brokers was told as an exception of the simulator."""
    unled, ends = [3], Run._ends

    def later(run):
        if run.phase == "final read" and unled[0]:
            unled[0] -= 1
            return {}
        return ends(run)

    monkeypatch.setattr(Run, "_ends", later)
    assert simulate(schedule()).failure == ""
    assert unled == [0]


def test_a_partition_that_nobody_leads_in_the_end_fails_by_liveness(monkeypatch):
    monkeypatch.setattr(Run, "_ends", lambda run: {})
    assert "every partition is led" in simulate(schedule()).failure
