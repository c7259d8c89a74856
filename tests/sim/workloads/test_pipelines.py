"""Plain producers that do not wait: their requests share turns, and their answers come in order."""

import json
from collections import Counter

import attrs
import pytest
from raftlog_sim.playing.simulation import simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions, draw_options
from raftlog_sim.schedules.schedule import Schedule, step
from raftlog_sim.workloads.pipelines import PIPELINE
from raftlog_sim.world.driver import _Wire

from raftlog.client.core.values import Frame

BURSTS = (
    step(100, "pipeline", slot=0, partition=0, count=4, acks="all"),
    step(300, "pipeline", slot=0, partition=0, count=60, acks="all"),
    step(400, "pipeline", slot=0, partition=0, count=20, acks="leader"),
)


def played(*steps, **options):
    result = simulate(Schedule(SimOptions(seed=5, safety_ms=1_500, **options), steps))
    assert result.failure == ""
    return result


def ends(result):
    """How sends of pipelines ended."""
    rows = [json.loads(line) for line in result.history.splitlines()]
    sent = [row for row in rows if row.get("f") == "send" and row["process"] >= PIPELINE]
    return Counter(row["type"] for row in sent)


@pytest.mark.parametrize("options", [{}, {"tight": True}, {"patient": True}, {"trio": True}])
def test_bursts_share_turns_and_every_record_is_acknowledged(options):
    result = played(*BURSTS, **options)
    assert result.probes["produce-run"] >= 3
    records = sum(1 + number % 3 for number in range(84))
    assert ends(result) == {"invoke": records, "ok": records}
    assert result.acknowledged == records


def test_large_records_come_one_a_batch():
    result = played(*BURSTS[:1], value_bytes=20_000, segment_bytes=26_000)
    assert ends(result) == {"invoke": 4, "ok": 4}


def test_a_cut_off_leader_leaves_unknown_ends_and_a_new_client_goes_on():
    cut = step(301, "partition", 700, side="leader:0", how="silent")
    late = step(1_300, "pipeline", slot=0, partition=0, count=10, acks="all")
    result = played(*BURSTS[:2], cut, late)
    assert result.probes["produce-left-undecided"] >= 1
    found = ends(result)
    assert found["info"] > 20
    assert found["ok"] >= 8 + 19, "the first burst and the late one"


def test_pipelines_are_drawn_from_a_stream_of_their_own():
    """Seeds that had none before keep every other draw."""
    some = [options for seed in range(40) if (options := draw_options(seed)).pipelines]
    assert 5 <= len(some) <= 25
    for options in some[:5]:
        steps = draw_schedule(options).steps
        without = draw_schedule(attrs.evolve(options, pipelines=0)).steps
        assert tuple(each for each in steps if each.kind != "pipeline") == without
        assert len(without) < len(steps)


def test_answers_reach_a_client_in_the_order_of_its_requests():
    """They left when they were decided: a client with two requests under way read the answer of
    the second one as that of the first."""
    heard = []

    class Driver:
        def later(self, delay_ns, event):
            heard.append(event)

    wire = _Wire(Driver(), 7, node=None)
    wire.answered(1, b"\0\0\0\1b")
    assert heard == []
    wire.answered(2, None)
    wire.answered(0, b"\0\0\0\1a")
    wire.answered(3, b"\0\0\0\1d")
    assert heard == [Frame(7, b"a"), Frame(7, b"b"), Frame(7, b"d")]
