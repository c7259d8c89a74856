"""A shrinker's candidates are smaller, and legal."""

from raftlog_sim.base.minimise import Effort, one_by_one, simplify
from raftlog_sim.hunting.shrink import _drawn_parts, _joined, _parts, _simpler, _steady
from raftlog_sim.playing.simulation import Run, simulate
from raftlog_sim.schedules.options import SimOptions
from raftlog_sim.schedules.schedule import SMALL_MAX, Schedule, schedule_from_text, step

STALL = step(400, "stall", 150, node="n1")


def bursts(*counts, slot=0, kind="produce", **more):
    return [
        step(10 * at, kind, slot=slot, partition=0, count=count, **more)
        for at, count in enumerate(counts)
    ]


def schedule_of(*steps):
    return Schedule(SimOptions(seed=1), ()).with_steps(steps)


def counts_of(schedule, slot=0):
    return [
        one.argument("count")
        for one in schedule.steps
        if one.kind == "produce" and one.argument("slot") == slot
    ]


def test_what_a_producer_sends_is_tried_in_one_burst_then_in_pairs():
    schedule = schedule_of(*bursts(1, 2, 4), STALL)
    assert [counts_of(one) for one in _joined(schedule)] == [[7], [3, 4], [1, 6]]
    assert all(STALL in one.steps for one in _joined(schedule))


def test_bursts_of_two_producers_or_of_two_kinds_stay_apart():
    acks = {"all": bursts(5, kind="pipeline", acks="all")[0]}
    acks["leader"] = bursts(5, kind="pipeline", acks="leader")[0]
    schedule = schedule_of(*bursts(1), *bursts(1, slot=1), *acks.values())
    assert list(_joined(schedule)) == []


def test_a_joined_burst_is_a_legal_one():
    (joined,) = _joined(schedule_of(*bursts(600, 600)))
    assert counts_of(joined) == [SMALL_MAX]
    assert schedule_from_text(joined.text()) == joined


def test_a_failure_that_takes_many_records_becomes_few_steps():
    """Mutant 13 in seed 3: a stalled disk and forty records, in twelve bursts."""

    def fails(schedule):
        return sum(map(int, counts_of(schedule))) >= 20 and STALL in schedule.steps

    schedule = schedule_of(*bursts(*[4] * 12), STALL)
    first = one_by_one(fails, Effort(lambda: False))
    found = simplify(schedule, lambda one: list(_simpler(one)), first)
    assert len(found.steps) == 2
    assert counts_of(found) == [24]


def test_what_producers_send_in_many_steps_is_tried_as_a_load_under_some_seeds():
    one, other = bursts(1, 2, 4, 1), bursts(3, 3, 3, 3, slot=1)
    schedule = schedule_of(*sorted([*one, *other]), STALL)
    steady = list(_steady(schedule, 3))
    assert len({each.options.seed for each in steady}) == 3
    assert steady[0].options.seed == schedule.options.seed
    for each in steady:
        assert [str(found) for found in each.steps] == [
            "0 load slot=1 partition=0 count=12 every_ms=2",
            "0 load slot=0 partition=0 count=8 every_ms=3",
            str(STALL),
        ]
        assert schedule_from_text(each.text()) == each


def test_few_steps_stay_as_they_are():
    assert list(_steady(schedule_of(*bursts(1, 2, 4), STALL), 3)) == []


class Luck:
    """Fails where the stall is left and the seed is one in five, but for the original."""

    first = staticmethod(
        one_by_one(
            lambda schedule: STALL in schedule.steps and schedule.options.seed % 5 == 2,
            Effort(lambda: False),
        )
    )


def test_what_hangs_on_an_instant_is_tried_in_parts_under_other_seeds():
    schedule = schedule_of(*bursts(*[1] * 39), STALL)
    found = _drawn_parts(schedule, Luck())
    assert STALL in found.steps
    assert len(found.steps) <= 10
    assert set(found.steps) <= set(schedule.steps)
    assert found.options.seed % 5 == 2
    assert found == _drawn_parts(schedule, Luck())


def test_parts_are_smaller_and_few_steps_are_not_left_out_by_luck():
    schedule = schedule_of(*bursts(*[1] * 39), STALL)
    parts = list(_parts(schedule))
    assert all(len(part.steps) < 40 for part in parts)
    assert [part.options.seed for part in parts[:1]] == [schedule.options.seed]
    few = schedule_of(*bursts(*[1] * 9), STALL)
    assert _drawn_parts(few, Luck()) == few


def test_many_reads_of_a_partition_become_one_step():
    reads = [step(100 + 40 * number, "read", partition=0) for number in range(6)]
    lonely = step(110, "read", partition=1)
    schedule = schedule_of(*bursts(*[1] * 6), *reads, lonely)
    both, produced = (found.steps for found in _steady(schedule, 1))
    assert step(100, "reads", partition=0, count=6, every_ms=33) in both
    assert lonely in both
    assert [each.kind for each in both].count("load") == 1
    assert [each.kind for each in produced].count("load") == 1
    assert set(reads) <= set(produced)
    assert list(_steady(schedule_of(*reads[:3]), 1)) == []


def test_reads_are_polls_one_after_another_until_clients_stop():
    options = SimOptions(seed=5, safety_ms=600)
    polls = {}
    for name, end in (("few", 5), ("more", 40), ("late", 400)):
        reads = step(100, "reads", partition=0, count=end, every_ms=10)
        run = Run(Schedule(options, (reads,)))
        assert run.play() == ""
        polls[name] = sum(reader.polls for reader in run.workload._readers)
    assert 1 <= polls["few"] <= 5 < polls["more"] <= 40
    assert polls["late"] <= 60


def test_a_load_is_a_record_at_a_time_until_clients_stop():
    options = SimOptions(seed=5, safety_ms=600)
    load = step(100, "load", slot=0, partition=0, count=20, every_ms=10)
    found = simulate(Schedule(options, (load,)))
    assert (found.failure, found.sent, found.acknowledged) == ("", 20, 20)
    late = step(500, "load", slot=0, partition=0, count=20, every_ms=50)
    found = simulate(Schedule(options, (late,)))
    assert found.failure == ""
    assert 1 <= found.sent <= 3
