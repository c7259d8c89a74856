"""Files that no tool should have written: refused with what, on and do, before anything is made of
them. A schedule with brokers 0 was a traceback, one with 2,000 brokers did not end."""

import attrs
import pytest
from raftlog_sim.hunting.shrink import _simpler_options
from raftlog_sim.playing.cases import case_from_text
from raftlog_sim.schedules.bounds import BOUNDS
from raftlog_sim.schedules.options import PROFILES, SimOptions, draw_options, options_from
from raftlog_sim.schedules.schedule import Schedule, schedule_from, schedule_from_text, step
from raftlog_sim.world.releases import RELEASES

from raftlog.base.errors import OperatingError

LARGE = {"brokers": 9, "controllers": 9, "replication": 9, "min_in_sync": 9}
NUMBERS = [each.name for each in attrs.fields(SimOptions) if each.type is int]


def refused(document) -> OperatingError:
    with pytest.raises(OperatingError) as raised:
        options_from(document)
    error = raised.value
    assert error.what
    assert error.on
    assert error.do
    assert len(str(error)) < 1_000
    return error


def test_every_number_has_bounds_and_its_default_lies_within():
    assert sorted(BOUNDS) == sorted(NUMBERS)
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(SimOptions(seed=0), name) <= high, name


@pytest.mark.parametrize("name", NUMBERS)
def test_the_bounds_are_legal_and_one_beyond_is_not(name):
    low, high = BOUNDS[name]
    around = {"seed": 1, **LARGE}
    if name in ("brokers", "controllers", "replication"):
        around |= {"controllers": 1, "replication": 1, "min_in_sync": 1}
    for value in (low, high):
        assert getattr(options_from({**around, "brokers": 9, name: value}), name) == value
    for value in (low - 1, high + 1, -(10**30), 10**4_000):
        assert refused({**around, name: value}).on == name


@pytest.mark.parametrize(
    ("options", "on"),
    [
        ({"brokers": 2_000}, "brokers"),
        ({"brokers": 0}, "brokers"),
        ({"brokers": 1}, "controllers"),
        ({"brokers": 1, "controllers": 1}, "replication"),
        ({"brokers": 3, "replication": 4}, "replication"),
        ({"brokers": 3, "controllers": 5}, "controllers"),
        ({"min_in_sync": 4}, "min_in_sync"),
        ({"brokers": 3, "core": [1, 4]}, "core"),
        ({"core": [0]}, "core"),
        ({"rest": "asleep"}, "rest"),
        ({"rest": ["deaf"]}, "rest"),
        ({"scenario": 3}, "scenario"),
        ({"scenario": "x" * 300}, "scenario"),
        ({"core": [1, 1]}, "core"),
        ({"core": [10**4_000]}, "core"),
        ({"core": [True]}, "core"),
        ({"core": [[1]]}, "core"),
        ({"core": list(range(100_000))}, "core"),
        ({"release": len(RELEASES)}, "release"),
        ({"profile": "storm" * 1_000}, "profile"),
        ({"profile": ["swarm"]}, "profile"),
        ({"tear_bytes": 513}, "tear_bytes"),
        ({"trio": 1}, "trio"),
        ({"sync_us": 1.5}, "sync_us"),
        ({"sync_us": float("inf")}, "sync_us"),
        ({"sync_us": "x" * 10_000}, "sync_us"),
        ({"fault_gaps_ms": {"crash": -1}}, "fault_gaps_ms"),
        ({"fault_gaps_ms": {"crash": 10**12}}, "fault_gaps_ms"),
        ({"fault_gaps_ms": {"x" * 10_000: 1}}, "fault_gaps_ms"),
        ({"fault_gaps_ms": 7}, "fault_gaps_ms"),
        ({"b" * 10_000: 7}, "b" * 80),
    ],
)
def test_what_makes_no_cluster_is_refused(options, on):
    assert refused({"seed": 1, **options}).on == on


@pytest.mark.parametrize(
    "text",
    [
        '{"version":' * 100_000,
        '{"version": 1, "options": {"seed": Infinity}, "steps": []}',
        '{"version": 1, "options": {"seed": 1}, "steps": [{"at_ms": 1, "at": 1, "kind": "all"}]}',
        '{"version": 1, "options": {"seed": 1}, "steps": '
        '[{"at": 1, "kind": "ring", "how": "loud", "for_ms": 2}]}',
        f'{{"version": 1, "options": {{"seed": 1}}, "steps": [{"7," * 100_000}7]}}',
        f'{{"version": {"9" * 4_000}}}',
    ],
)
def test_a_hostile_text_is_refused(text):
    with pytest.raises(OperatingError) as raised:
        schedule_from_text(text)
    assert raised.value.on
    assert raised.value.do
    assert len(str(raised.value)) < 1_000


def test_the_step_that_cannot_be_is_named():
    document = Schedule(SimOptions(seed=1), (step(1, "read", partition=0),)).document()
    document["steps"].append({"at": -5, "kind": "read", "partition": 0})
    with pytest.raises(OperatingError, match=r"at is -5.*step 1: read"):
        schedule_from(document)


@pytest.mark.parametrize(
    "line",
    ["nodes 1000000", "nodes 0", "settle 99999999999", "set batch_bytes -1", "99999999999 heal"],
)
def test_a_hostile_plan_of_guests_is_refused(line):
    with pytest.raises(OperatingError, match="makes no sense"):
        case_from_text(f"subject pysyncobj\n{line}\n")


@pytest.mark.parametrize("profile", PROFILES)
def test_whatever_a_seed_draws_can_be_read_back(profile):
    for seed in range(200):
        options = draw_options(seed, profile)
        assert options_from(options.document()) == options, seed


def test_whatever_a_shrinker_makes_of_options_can_be_read_back():
    """With three brokers, a core of nodes 4 and 5 has no node left."""
    for seed in range(100):
        for simpler in _simpler_options(Schedule(draw_options(seed), ())):
            assert options_from(simpler.options.document()) == simpler.options, seed
