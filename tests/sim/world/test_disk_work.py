"""Rounds of a simulated machine take time at each step, so that power may fail between a write and
its sync; jobs end in the middle."""

import json
from collections import Counter

import attrs
import pytest
from raftlog_sim.commands.tally import SweepTally
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.world import disk_work
from raftlog_sim.world.disk import Keep

from raftlog.base.ids import NodeId
from raftlog.base.units import millis
from raftlog.broker.events import Job, Persisted, Written
from raftlog.kafka.versions import ApiKey
from raftlog.storage.files import write_whole
from tests.broker.cluster import Cluster


@pytest.fixture
def one():
    """One broker with a topic, whose syncs take 5 ms."""
    cluster = Cluster(brokers=1)
    cluster.world.sync_ns = millis(5)
    cluster.ready()
    cluster.create("orders", 1, 1)
    cluster.put("orders", ["first"])
    cluster.run(1)
    return cluster


def ask_later(cluster, values):
    """A produce request whose answer is not waited for."""
    return cluster.client(1).request(ApiKey.PRODUCE, cluster.produce_body("orders", values), 11)


def until_pending(cluster, node):
    cluster.wait(node.disk.has_pending, 5.0, "something is written and not synced")


def test_a_power_failure_finds_what_is_written_and_not_synced(one):
    """The story: of a hundred power failures none found a pending byte in a named file."""
    node = one.world.nodes[NodeId(1)]
    pending = ask_later(one, ["second"])
    until_pending(one, node)
    assert not pending.done
    node.crash(Keep.NONE)
    node.start()
    assert [value for _, value in one.read_all("orders")] == [b"first"]


def test_what_is_written_and_not_synced_outlives_the_process(one):
    node = one.world.nodes[NodeId(1)]
    ask_later(one, ["second"])
    until_pending(one, node)
    node.stop_process()
    node.start()
    assert [value for _, value in one.read_all("orders")] == [b"first", b"second"]


def events_of(monkeypatch, node):
    seen = []
    deliver = type(node).deliver

    def watched(self, event):
        seen.append((self.world.now, event))
        deliver(self, event)

    monkeypatch.setattr(type(node), "deliver", watched)
    return seen


def test_written_and_persisted_are_a_sync_apart(one, monkeypatch):
    seen = events_of(monkeypatch, one.world.nodes[NodeId(1)])
    one.put("orders", ["second"])
    written = {event.io_id: now for now, event in seen if type(event) is Written}
    durable = {event.io_id: now for now, event in seen if type(event) is Persisted}
    assert durable
    assert all(durable[io_id] - written[io_id] >= millis(5) for io_id in durable)


def test_a_disk_that_stalls_keeps_a_round_between_its_write_and_its_sync(one):
    node = one.world.nodes[NodeId(1)]
    pending = ask_later(one, ["second"])
    until_pending(one, node)
    node.stalled = True
    one.run(0.05)
    assert node.disk.has_pending()
    assert not pending.done
    node.stalled = False
    one.wait(lambda: pending.done, 5.0, "the disk goes on")


def test_rounds_share_their_syncs_where_turns_are_patient(one, monkeypatch):
    shared = []
    performing = disk_work._performing

    def watched(boot, writes, *, inline):
        shared.append(len(writes))
        return performing(boot, writes, inline=inline)

    monkeypatch.setattr(disk_work, "_performing", watched)

    def load():
        shared.clear()
        asked = [ask_later(one, [f"{number}"]) for number in range(5)]
        one.run(0.002)
        asked += [ask_later(one, [f"{number}"]) for number in range(5)]
        one.run(0.001)
        asked += [ask_later(one, [f"{number}"]) for number in range(5)]
        one.wait(lambda: all(each.done for each in asked), 5.0, "all are answered")
        return max(shared)

    assert load() == 1
    one.world.patient = True
    assert load() > 1


def test_no_turn_begins_while_a_round_is_synced_inside_the_last_one(one):
    node = one.world.nodes[NodeId(1)]
    one.world.patient, one.world.sync_ns = True, millis(1)
    ask_later(one, ["second"])
    one.wait(lambda: node.live.inline is not None, 5.0, "a round inside its turn")
    turns = node.turns
    node.deliver_nothing()
    while node.live.inline is not None:
        assert node.turns == turns
        one.world.step()
    one.run(0.001)
    assert node.turns > turns
    assert [value for _, value in one.read_all("orders")] == [b"first", b"second"]


def test_power_fails_in_the_middle_of_a_round_inside_a_turn(one):
    node = one.world.nodes[NodeId(1)]
    one.world.patient, one.world.sync_ns = True, millis(1)
    ask_later(one, ["second"])
    one.wait(lambda: node.live.inline is not None, 5.0, "a round inside its turn")
    until_pending(one, node)
    assert node.live.inline is not None
    node.crash(Keep.NONE)
    node.start()
    assert [value for _, value in one.read_all("orders")] == [b"first"]


def test_a_job_ends_in_the_middle_with_its_process(one):
    """In some of the boots before its first call to the disk, between two, in one, or behind the
    last."""
    node, found = one.world.nodes[NodeId(1)], set()
    for _ in range(120):
        for name in ("other", "other.tmp"):
            if node.disk.exists(name):
                node.disk.remove(name)
        node.live.jobs.append(Job(0, node.directory, write_whole, ("other", b"x" * 2000)))
        disk_work.begin_job(node, node.live)
        node.stop_process()
        there = [name for name in node.disk.list("") if name.startswith("other")]
        found.add((*there, *(len(node.disk.content(name)) for name in there)))
        assert node.disk.crash_at is None
        node.start()
        one.run(0.2)
    assert () in found
    assert ("other", 2000) in found
    torn = [each for each in found if each and each[0] != "other"]
    assert len(torn) > 2


def test_the_last_syncs_come_in_an_order_of_the_seed(one):
    node = one.world.nodes[NodeId(1)]
    chosen = set()
    for _ in range(20):
        one.run(0.001)
        chosen.add(disk_work._choice(node, 3))
    assert chosen == {0, 1, 2}
    assert disk_work._choice(node, 1) == 0


WRITES = tuple(step(20 * n, "produce", slot=0, partition=0, count=3) for n in range(60))
OPTIONS = SimOptions(seed=3, sync_us=1_200, safety_ms=1_500)


@pytest.mark.parametrize("node", ["n2", "leader:0", "all"])
def test_power_waits_for_the_next_write(node):
    """It found something that was written and not synced on every machine that it was for, but
    for those that had nothing to write then."""
    fault = step(602, "power-in-write", 300, node=node, keep="some")
    result = simulate(Schedule(OPTIONS, (*WRITES, fault)))
    assert result.failure == ""
    assert result.faults == {"power-in-write": 1}
    assert result.probes["power-failed-under-a-process"] == (3 if node == "all" else 1)
    assert result.probes["power-failed-before-a-sync"] >= 1


def test_power_does_not_wait_without_end():
    """Where nothing is written it fails at the latest 300 ms later, once."""
    run = Run(Schedule(OPTIONS, (step(600, "power-in-write", 300, node="all", keep="none"),)))
    assert run.play() == ""
    assert run.workload.text.getvalue().count("power-loss") == 3


def test_all_machines_come_back_at_their_own_time():
    back = set()
    for seed in range(3):
        fault = step(601, "power-in-write", 800, node="all", keep="some")
        run = Run(Schedule(attrs.evolve(OPTIONS, seed=seed), (*WRITES, fault)))
        assert run.play() == ""
        lines = [json.loads(line) for line in run.workload.text.getvalue().splitlines()]
        back |= {line["time_ns"] for line in lines if line.get("f") == "restart"}
    assert len(back) == 9


def test_half_of_the_power_failures_under_load_find_something_pending():
    """The power failures are those that seeds draw, while clients write all the time."""
    found = Counter()
    for seed in range(16):
        options = attrs.evolve(OPTIONS, seed=seed, fault_gaps_ms=(("power", 300), ("all", 700)))
        faults = draw_schedule(options).steps
        power = [each for each in faults if each.kind.startswith("power")]
        found.update(simulate(Schedule(options, (*WRITES, *power))).probes)
    assert found["power-failed-under-a-process"] > 50
    share = found["power-failed-before-a-sync"] / found["power-failed-under-a-process"]
    assert share >= 0.5


def test_a_sweep_tells_what_power_found():
    """The story: a hundred power failures were drawn, and none found a pending byte."""
    tally = SweepTally(of_brokers=True, seeds=2)
    assert tally.power_told == ""
    tally.probes["power-failed-under-a-process"] = 6
    tally.probes["power-failed-before-a-sync"] = 4
    tally.probes["torn-tail-cut"] = 2
    assert tally.power_told == (
        "power failed under 6 processes, in 4 of them (67%) between a write and its sync; "
        "2 torn tails cut, 1000 per thousand seeds"
    )
