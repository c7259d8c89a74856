"""A cluster that has elected and converged must also commit: the core alone, the healed cluster,
and all nodes after each last reboot."""

import json

import pytest
from raftlog_sim.facts.convergence import is_core_alive
from raftlog_sim.faults.atlas import Atlas
from raftlog_sim.playing import endings, last_writes
from raftlog_sim.playing.last_writes import LAST_WRITER, NO_MAJORITY, TOO_FEW
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import STALLED, SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step

from raftlog.kafka.error_codes import ErrorCode
from raftlog.partition.replica import PartitionReplica

WRITES = tuple(step(at, "produce", slot=0, partition=0, count=2) for at in range(0, 300, 20))
ONE = {"groups": 2, "records": 1}
"""The demands of the metadata and of a topic with one partition."""


def schedule(*steps, **options):
    values = {"seed": 3, "safety_ms": 400, "partitions": 1, **options}
    return Schedule(SimOptions(**values), (*WRITES, *steps))


def until(run, phase):
    while run.phase != phase:
        assert run.advance()
    return run


def refusing(monkeypatch, code, times=1 << 30):
    """From now on brokers refuse to take records, so many times."""
    asked, produces = [], PartitionReplica.produces

    def refuse(replica, now):
        asked.append(now)
        return code if len(asked) <= times else produces(replica, now)

    monkeypatch.setattr(PartitionReplica, "produces", refuse)


def sends(text, kind):
    """Process and value of each send of these that ended so."""
    rows = [json.loads(line) for line in text.splitlines()[1:]]
    return [
        (row["process"], row["value"])
        for row in rows
        if row["type"] == kind
        and row["f"] == "send"
        and row["process"] in range(LAST_WRITER, LAST_WRITER + 1_000)
    ]


# --- what is demanded -----------------------------------------------------------------------------


@pytest.mark.parametrize("trio", [False, True])
def test_a_record_is_demanded_of_the_core_of_all_and_after_each_reboot(trio):
    """None of them counts as what the schedule sent; all of them are judged."""
    result = simulate(schedule(core=(1, 3), reboot=True, trio=trio))
    assert result.failure == ""
    assert result.core == "ran"
    thrice = {name: count * len(endings.REBOOTS) for name, count in ONE.items()}
    assert result.demanded == {"core": ONE, "liveness": ONE, "reboot": thrice}
    assert (result.sent, result.acknowledged, result.unknown) == (30, 30, 0)
    assert [value for _, value in sends(result.history, "invoke")] == ["w0", "w1", "w2", "w3", "w4"]
    assert [value for _, (_, value) in sends(result.history, "ok")] == [
        f"w{number}" for number in range(5)
    ]
    assert result.document()["demanded"] == result.demanded
    assert result.document()["core"] == "ran"
    assert result.history.count('"w4"') == 3, "sent, acknowledged, read"


def test_it_is_demanded_in_every_partition():
    result = simulate(schedule(partitions=3))
    assert result.failure == ""
    assert result.demanded == {"liveness": {"groups": 4, "records": 3}}
    assert len(sends(result.history, "ok")) == 3


def test_the_same_seed_demands_the_same_at_the_same_time():
    one, two = simulate(schedule(core=(1, 2))), simulate(schedule(core=(1, 2)))
    assert (one.trace_hash, one.history) == (two.trace_hash, two.history)


def test_a_core_that_has_only_just_booted_is_not_alive_yet():
    """Regression (swarm seed 6): it had opened no replica but a lone one of the metadata, and no
    group lacked a leader, for it knew of none."""
    run = until(Run(schedule(step(390, "power", node="all", keep="none"), core=(1, 3))), "core")
    assert not any(is_core_alive(run.world, (node,)) for node in run.world.nodes)
    assert run.play() == ""
    assert run.last_writes.demanded["core"] == ONE


# --- who refuses ----------------------------------------------------------------------------------


@pytest.mark.parametrize("trio", [False, True])
@pytest.mark.parametrize("phase", ["core", "liveness", "reboot"])
def test_who_elects_and_converges_and_refuses_everything_fails(monkeypatch, phase, trio):
    """The hole that these records close: nothing was written when all faults were over."""
    look, phases = Run.look, []

    def watched(run):
        if run.phase == phase and not phases:
            phases.append(phase)
            refusing(monkeypatch, ErrorCode.NOT_ENOUGH_REPLICAS)
        return look(run)

    monkeypatch.setattr(Run, "look", watched)
    result = simulate(schedule(core=(1, 2), reboot=True, trio=trio), liveness_seconds=9)
    assert result.phase == phase
    assert result.failure.startswith(
        "liveness: not reached within 9.0 s: all committed a record; partition 0 refused: "
    )
    assert "NOT_ENOUGH_REPLICAS" in result.failure


def test_what_no_attempt_will_change_ends_the_run_at_once(monkeypatch):
    run = until(Run(schedule()), "liveness")
    refusing(monkeypatch, ErrorCode.POLICY_VIOLATION)
    began = run.world.now
    failure = run.play()
    assert failure.startswith("liveness: partition 0 refused a record for good: POLICY_VIOLATION")
    assert run.world.now - began < 1_000_000_000


def test_what_may_pass_is_tried_until_it_has_passed(monkeypatch):
    """Longer than one record is given by the client: the next attempt is another record."""
    run = until(Run(schedule()), "liveness")
    refusing(monkeypatch, ErrorCode.NOT_ENOUGH_REPLICAS, times=12)
    assert run.play() == ""
    text = run.workload.text.getvalue()
    assert len(sends(text, "fail")) >= 1
    assert len(sends(text, "ok")) == 1
    assert len({value for _, value in sends(text, "invoke")}) == run.last_writes.sent > 1
    assert run.last_writes.demanded == {"liveness": ONE}


# --- of whom nothing is demanded ------------------------------------------------------------------


def test_a_partition_that_the_core_lost_the_majority_of_is_let_go(monkeypatch):
    """A move to the frozen that was asked for before may begin in the midst of it."""
    run = until(Run(schedule(core=(1, 2), partitions=2)), "core")
    while not run.last_writes.sent:
        run.advance()
    monkeypatch.setattr(last_writes, "able_groups", lambda *_: {0: 2})
    while run.phase == "core":
        run.advance()
    monkeypatch.undo()
    assert run.play() == ""
    assert run.last_writes.demanded["core"] == {"groups": 3, "records": 0, NO_MAJORITY: 2}
    assert run.last_writes.demanded["liveness"] == {"groups": 3, "records": 2}


def test_all_nodes_together_are_a_majority_or_something_is_lost(monkeypatch):
    run = until(Run(schedule()), "liveness")
    while not run.last_writes.sent:
        run.advance()
    monkeypatch.setattr(last_writes, "able_groups", lambda *_: {0: 3})
    assert run.play() == "liveness: partition 0 has lost the majority of its voters"


def test_a_core_that_has_only_just_booted_is_asked_as_soon_as_it_knows_its_groups():
    """Regression (wide seed 9820110): no node knew of a group when the core was asked, no record
    was demanded, and so it had to lead nothing."""
    down = step(390, "power", node="all", keep="none")
    result = simulate(schedule(down, core=(1, 3), rest=STALLED))
    assert (result.failure, result.core) == ("", "ran")
    assert result.demanded["core"] == ONE


def test_a_partition_with_fewer_voters_than_min_in_sync_asks_is_left():
    moved = step(100, "reassign", partition=0, nodes="n2")
    result = simulate(schedule(moved, partitions=2, min_in_sync=2, safety_ms=1_000))
    assert result.failure == ""
    assert result.demanded == {"liveness": {"groups": 3, "records": 1, TOO_FEW: 1}}


def test_it_is_told_why_no_core_did_alone(monkeypatch):
    assert simulate(schedule()).core == "not drawn"
    cut = step(100, "must-be-led", partition=0, nodes="n1+n2+n3")
    down = step(50, "crash", 300, node="all")
    assert simulate(schedule(down, cut, core=(1, 2))).core == "not reached"
    monkeypatch.setattr(Atlas, "is_core", lambda *_: False)
    result = simulate(schedule(core=(1, 2)))
    assert (result.failure, result.core) == ("", "not enough is left")
    assert "core" not in result.demanded


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "seed"), [("swarm", 6), ("wide", 1), ("trio", 8)])
def test_drawn_cores_commit_in_every_partition(profile, seed):
    """Regression: these had opened nothing yet, or a wall clock was put right and then wrong."""
    options = draw_options(seed, profile)
    result = simulate(options)
    assert (result.failure, result.core) == ("", "ran")
    assert result.demanded["core"]["records"] == options.partitions
