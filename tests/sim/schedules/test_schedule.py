"""A run as data: what the document form accepts and refuses, and that any part of a schedule is a
legal run."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raftlog_sim.facts.targets import resolve
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.drawing import draw_schedule
from raftlog_sim.schedules.options import SimOptions, draw_options, options_from
from raftlog_sim.schedules.schedule import (
    Schedule,
    is_target,
    schedule_from,
    schedule_from_text,
    step,
)
from raftlog_sim.schedules.step_kinds import KINDS

from raftlog.base.errors import OperatingError
from raftlog.base.ids import METADATA_GROUP

READS = {"at": 1, "kind": "reads", "partition": 0, "count": 999, "every_ms": 999}
TARGETS = st.sampled_from(
    ["n1", "n12", "leader:0", "follower:2", "controller", "most-led", "all", "n1+n3"]
)


@st.composite
def steps(draw):
    kind = draw(st.sampled_from(sorted(KINDS)))
    arguments = {}
    for name, form in KINDS[kind].arguments:
        if form in ("small", "int"):
            arguments[name] = draw(st.integers(0, 999))
        elif form == "nodes":
            arguments[name] = draw(TARGETS)
        else:
            arguments[name] = draw(st.sampled_from(form.split("|")))
    lasts = draw(st.integers(0, 5_000)) if KINDS[kind].lasts else 0
    return step(draw(st.integers(0, 9_000)), kind, lasts, **arguments)


@given(st.lists(steps(), max_size=8), st.integers(0, 1 << 60))
def test_a_schedule_comes_back_from_its_text_as_it_was(some, seed):
    schedule = Schedule(SimOptions(seed=seed), tuple(some))
    again = schedule_from_text(schedule.text())
    assert again == schedule
    assert again.text() == schedule.text()
    assert schedule_from(json.loads(json.dumps(schedule.document()))) == schedule


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_schedule_comes_back_too_and_is_drawn_alike_again(seed):
    schedule = draw_schedule(draw_options(seed))
    assert schedule_from_text(schedule.text()) == schedule
    assert draw_schedule(draw_options(seed)) == schedule
    assert all(each.at_ms < schedule.options.safety_ms for each in schedule.steps)


def test_a_source_that_is_off_leaves_the_others_as_they_are():
    options = attrs.evolve(
        draw_options(1), brokers=3, fault_gaps_ms=(("crash", 300), ("pause", 300))
    )
    both = draw_schedule(options).steps
    only = draw_schedule(attrs.evolve(options, fault_gaps_ms=(("pause", 300),))).steps
    assert [each for each in both if each.kind != "crash"] == list(only)


def test_steps_are_kept_by_their_instants():
    late, early = step(9, "pause", 1, node="n1"), step(2, "pause", 1, node="n1")
    schedule = Schedule(SimOptions(seed=1), (late, early))
    assert schedule.steps == (early, late)
    assert schedule.with_steps([late]).steps == (late,)


def good():
    return Schedule(SimOptions(seed=1), (step(5, "power", 9, node="n1", keep="none"),)).document()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(version=2), "version 2 is not 1"),
        (lambda d: d.pop("version"), "version None"),
        (lambda d: d.update(more=1), "unknown member 'more'"),
        (lambda d: d.update(steps={}), "steps are a list"),
        (lambda d: d.update(steps=[1]), "a step is an object"),
        (lambda d: d.update(options=[]), "options are an object"),
        (lambda d: d["options"].update(brookers=3), "no such option"),
        (lambda d: d["options"].update(brokers="3"), "not a value"),
        (lambda d: d["options"].update(brokers=-1), "-1 is out of bounds"),
        (lambda d: d["options"].update(encode=1), "not a value"),
        (lambda d: d["options"].update(fault_gaps_ms={"floods": 1}), "not a gap"),
        (lambda d: d["options"].update(fault_gaps_ms=[]), "kinds and gaps"),
        (lambda d: d["steps"][0].update(kind="quake"), "no such kind"),
        (lambda d: d["steps"][0].update(kind=7), "a step has a kind"),
        (lambda d: d["steps"][0].update(kind="produce"), "it takes"),
        (lambda d: d["steps"][0].update(wind=1), "it takes"),
        (lambda d: d["steps"][0].pop("keep"), "it takes"),
        (lambda d: d["steps"][0].pop("at"), "at is -1"),
        (lambda d: d["steps"][0].update(at=1.5), "at is 1.5"),
        (lambda d: d["steps"][0].update({"for": True}), "for is True"),
        (lambda d: d["steps"][0].update(keep="most"), "keep is 'most'"),
        (lambda d: d["steps"][0].update(node="n0"), "node is 'n0'"),
        (lambda d: d["steps"][0].update(node=1), "node is 1"),
        (lambda d: d.update(steps=[READS] * 101), "load and reads stand for 100899 steps"),
    ],
)
def test_what_is_not_understood_is_refused(change, words):
    document = good()
    change(document)
    with pytest.raises(OperatingError, match=words):
        schedule_from(document)


def test_what_is_not_json_or_not_a_schedule_is_refused():
    for text in ("", "[", "[]", "3"):
        with pytest.raises(OperatingError):
            schedule_from_text(text)
    with pytest.raises(OperatingError, match="does not last"):
        step(1, "read", 5, partition=0)
    with pytest.raises(OperatingError, match="not an integer from 0 to 999"):
        step(1, "read", partition=1_000)


def test_targets():
    for text in (
        "n1",
        "n999",
        "leader:0",
        "follower:12",
        "controller",
        "all",
        "n1+leader:0+n3",
        "most-led",
    ):
        assert is_target(text), text
    for text in (
        "",
        "n0",
        "n1000",
        "1",
        "leader",
        "leader:",
        "leader:-1",
        "n1+",
        "+n1",
        "n1,n2",
        "most",
    ):
        assert not is_target(text), text


def test_who_leads_the_most_is_looked_up_when_a_step_strikes():
    moves = [step(40, "transfer", partition=number, node="n3") for number in range(3)]
    run = Run(small(*moves, step(200, "crash", 50, node="most-led"), partitions=3))
    named = {}
    while run.advance() and run.phase != "over":
        replicas = [node.broker.context.replicas.values() for node in run.world.running()]
        led = [sum(r.node.leading and r.group != METADATA_GROUP for r in each) for each in replicas]
        if run.phase == "safety" and len(led) == 3 and sum(led) == 3 and max(led) >= 2:
            named[tuple(led)] = resolve(run.world, "most-led", "t")
    assert named[0, 0, 3] == (3,)
    assert all(numbers == (led.index(max(led)) + 1,) for led, numbers in named.items())
    (killed,) = [line for line in run.result("", None).history.splitlines() if '"kill"' in line]
    assert "n3" in killed
    for node in run.world.running():
        node.stop_process()
    assert resolve(run.world, "most-led", "t") == ()


def test_options_left_out_have_their_defaults():
    assert options_from({"seed": 3}) == SimOptions(seed=3)
    assert options_from({"seed": 3, "brokers": 5}).brokers == 5
    with pytest.raises(OperatingError):
        options_from({"brokers": 5})


# --- runs -----------------------------------------------------------------------------------------


def small(*some, **options):
    values = {"seed": 11, "safety_ms": 400, "partitions": 1, **options}
    return Schedule(SimOptions(**values), some)


def test_a_schedule_without_steps_is_a_run():
    result = simulate(small())
    assert (result.failure, result.phase, result.sent, result.faults) == ("", "over", 0, {})


def test_steps_do_what_they_say():
    result = simulate(
        small(
            step(10, "produce", slot=0, partition=0, count=4),
            step(60, "crash", 100, node="leader:0"),
            step(70, "produce", slot=1, partition=0, count=3),
            step(300, "read", partition=0),
        )
    )
    assert result.failure == ""
    assert result.faults == {"crash": 1}
    assert (result.sent, result.acknowledged) == (7, 7)


def test_who_is_not_there_or_already_struck_is_left():
    result = simulate(
        small(
            step(10, "crash", 300, node="n2"),
            step(20, "crash", 10, node="n2"),
            step(30, "crash", 10, node="n77"),
            step(40, "partition", 10, side="all", how="loud"),
            step(50, "reset", one="n1", other="n1"),
            step(60, "produce", slot=0, partition=5, count=1),
            step(70, "pause", 100, node="n2"),
        )
    )
    assert result.failure == ""
    assert result.faults == {"crash": 1}
    assert result.sent == 0


def test_a_step_that_has_no_end_lasts_until_all_is_healed():
    result = simulate(small(step(10, "power", node="n1", keep="none")))
    assert result.failure == ""
    assert '"f":"restart"' in result.history.replace(" ", "")


def test_a_step_after_the_end_of_the_safety_phase_does_nothing():
    result = simulate(small(step(400, "crash", 10, node="n1")))
    assert result.faults == {}


def test_overlapping_partitions_end_each_on_its_own():
    run = Run(
        small(
            step(10, "partition", 100, side="n1", how="loud"),
            step(20, "partition", 300, side="n1", how="loud"),
            step(30, "partition", 20, side="n2", how="loud"),
        )
    )
    seen = set()
    while run.advance():
        seen.add(tuple(sorted(run.world.network.cut.items())))
    assert ((((1, 2), 3), ((1, 3), 2), ((2, 3), 1))) in seen
    assert ((((1, 2), 1), ((1, 3), 1))) in seen
    assert () in seen


def test_any_part_of_a_schedule_is_a_legal_run():
    options = attrs.evolve(draw_options(3), safety_ms=500, brokers=3, replication=3)
    whole = draw_schedule(options)
    for part in (whole.steps[::2], whole.steps[1::2], whole.steps[: len(whole.steps) // 3]):
        assert simulate(whole.with_steps(part)).failure == ""


def test_a_run_from_its_document_is_the_same_run():
    schedule = draw_schedule(attrs.evolve(draw_options(12), safety_ms=400))
    one, two = simulate(schedule), simulate(schedule_from_text(schedule.text()))
    assert one.trace_hash == two.trace_hash
    assert one.history == two.history
    assert one.schedule == schedule


def test_a_watcher_sees_every_turn():
    seen = []
    result = simulate(small(step(5, "produce", slot=0, partition=0, count=1)), watch=seen.append)
    assert [turn.number for turn in seen] == list(range(1, result.turns + 1))
    assert seen[-1].events_so_far == result.events
    assert {turn.node.number for turn in seen} == {1, 2, 3}


def test_a_debugger_can_stop_anywhere_and_go_on():
    schedule = small(step(5, "produce", slot=0, partition=0, count=2))
    run = Run(schedule)
    for _ in range(200):
        assert run.advance()
    assert run.phase in ("set-up", "safety")
    assert run.play() == ""
    assert run.result("", None).trace_hash == simulate(schedule).trace_hash


def test_what_a_broker_raises_is_a_finding_with_its_place(monkeypatch):
    from raftlog.broker.broker import Broker

    def broken(self, events, now, wall):
        raise KeyError("lost")

    monkeypatch.setattr(Broker, "handle", broken)
    result = simulate(small())
    assert result.failure_class == "exception"
    assert "KeyError" in result.failure
    assert "test_schedule.py" in result.failure
