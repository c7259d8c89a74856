"""PySyncObj as a subject: found guilty from a seed, shrunk, replayed; a calm one is not accused."""

import attrs
import pytest
from raftlog_sim.base.minimise import Effort, minimise, one_by_one, simplify
from raftlog_sim.subjects import is_guest_plan
from raftlog_sim.subjects.guest_plan import GuestPlan, GuestStep, draw_plan, parse
from raftlog_sim.subjects.guest_run import LOST, play
from raftlog_sim.subjects.guest_shrink import shrink
from raftlog_sim.subjects.pysyncobj import GuestSettings

from raftlog.base.errors import OperatingError

GUILTY_SEED = 3


def endless(tries: int = 10_000) -> Effort:
    effort = Effort(out_of_time=lambda: effort.tried >= tries)
    return effort


def test_link_resets_alone_lose_what_was_acknowledged():
    """Finding 2 of the lessons: FIFO links, no kills, no loss but by a broken connection."""
    plan = draw_plan(GUILTY_SEED)
    assert {step.verb for step in plan.steps} <= {
        "write", "cut", "join", "reset", "isolate", "rejoin", "heal",
    }  # fmt: skip
    result = play(plan)
    assert result.failure_class == LOST
    assert {each.name for each in result.verdict().failures()} >= {"lost-write"}


def test_the_guilty_seed_shrinks_to_a_handful_of_steps():
    plan = shrink(draw_plan(GUILTY_SEED), LOST, endless(400))
    assert len(plan.steps) <= 6, plan.text()
    again = play(parse(plan.text()))
    assert again.failure_class == LOST
    story = "\n".join(again.story())
    assert "acknowledged" in story
    assert "are lost" in story


def test_without_faults_nothing_is_lost():
    writes = [GuestStep(2000 + 40 * n, "write", ("leader", f"v{n}", "3")) for n in range(30)]
    result = play(GuestPlan(steps=tuple(writes)))
    assert result.failure == ""
    assert result.acknowledged == result.sent == 90
    assert result.verdict().verdict == "valid"


def test_the_same_plan_gives_the_same_run():
    plan = draw_plan(5)
    assert play(plan).trace_hash == play(plan).trace_hash != play(draw_plan(6)).trace_hash


@pytest.mark.parametrize("profile", ["resets", "kills", "restarts"])
def test_a_plan_is_its_text(profile):
    plan = attrs.evolve(draw_plan(11, profile), story=("one line", "another"))
    assert parse(plan.text()) == plan
    assert is_guest_plan(plan.text())
    assert not is_guest_plan('{"version": 1}')


@pytest.mark.parametrize(
    "line",
    ["100 explode 1", "x write 1 a", "set batch_bytes", "set nothing 3", "nodes many", "100"],
)
def test_a_line_without_sense_is_refused(line):
    with pytest.raises(OperatingError, match="line 2") as caught:
        parse(f"subject pysyncobj\n{line}\n")
    assert "makes no sense" in caught.value.what


def test_steps_must_not_go_back_in_time():
    with pytest.raises(OperatingError, match="makes no sense"):
        parse("subject pysyncobj\n200 heal\n100 heal\n")


def test_settings_are_read_with_their_types():
    plan = parse("subject pysyncobj\nset journal 1\nset batch_bytes 99\n")
    assert plan.settings == GuestSettings(journal=True, batch_bytes=99)


# --- delta debugging itself ---


def minimised(items, fails, effort):
    return minimise(items, one_by_one(fails, effort), effort)


@pytest.mark.parametrize("guilty", [{3}, {0, 19}, {5, 6, 7}, {1, 9, 18}, set()])
def test_only_the_guilty_are_left(guilty):
    found = minimised(range(20), lambda items: guilty <= set(items), endless())
    assert found == sorted(guilty)


def test_alternatives_leave_one_of_them():
    found = minimised(range(16), lambda items: 3 in items or 12 in items, endless())
    assert len(found) == 1


def test_it_stops_when_time_is_out_with_something_that_fails():
    seen = []

    def fails(items):
        seen.append(items)
        return {2, 40} <= set(items)

    found = minimised(range(64), fails, endless(5))
    assert {2, 40} <= set(found)
    assert len(seen) == 5


def test_simplify_takes_the_boldest_first_and_comes_to_an_end():
    first = one_by_one(lambda n: n >= 7, endless())
    assert simplify(100, lambda n: [n // 2, n - 1], first) == 7
