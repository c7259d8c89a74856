"""A replica that hears a leader leaves it in peace: the check fails where a leader tells all
followers to campaign, and passes a leader that is cut off."""

from raftlog_sim.checks.hearing_checks import HearingChecks
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import Schedule, step

from raftlog.raft import lease, transfer
from raftlog.raft.messages import TimeoutNow

WRITES = tuple(step(20 * n, "produce", slot=n % 2, partition=0, count=1) for n in range(60))
MOVES = (
    step(300, "elect", node="n1", partition=0),
    step(405, "stop", 200, node="n1"),
    step(800, "stop", 200, node="leader:0"),
)
CASE = Schedule(SimOptions(seed=2, safety_ms=1_600), (*WRITES, *MOVES))


def tell_everybody(monkeypatch):
    """A planted bug: a leader that hands over tells all followers to campaign."""

    def tell(state, to):
        lease.give_up(state)
        for each in state.progress:
            state.send.append(TimeoutNow(state.group, state.me, each, state.term))

    monkeypatch.setattr(transfer, "_tell", tell)


def test_elections_are_looked_at():
    result = simulate(CASE)
    assert result.failure == ""
    assert result.invariants["leader-left-in-peace"]["checked"] > 3


def test_a_follower_that_was_not_to_campaign_is_seen(monkeypatch):
    tell_everybody(monkeypatch)
    assert simulate(CASE).failure_class == "leader-left-in-peace"


def test_nothing_else_sees_it(monkeypatch):
    tell_everybody(monkeypatch)
    monkeypatch.setattr(HearingChecks, "campaigned", lambda *_: "")
    assert simulate(CASE).failure == ""


def test_a_leader_that_is_not_heard_may_be_deposed():
    cut = step(400, "partition", 600, side="n1", how="silent")
    result = simulate(Schedule(CASE.options, (*WRITES, MOVES[0], cut)))
    assert result.failure == ""
    assert result.invariants["elected-by-majority"]["checked"] > 2
