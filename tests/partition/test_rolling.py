"""When segments roll because of their age: by each replica's own monotonic clock, and never without
records."""

import pytest

from raftlog.base.limits import ROLL_MS_MIN, SEGMENT_HEADER_BYTES
from raftlog.base.units import NEVER, millis
from raftlog.partition.config import UNBOUNDED_MS, PartitionConfig
from raftlog.partition.maintenance import rolling
from tests.partition.group import ELECTION, Group

HOUR_MS = 3_600_000


def led_group(**settings):
    group = Group(config=PartitionConfig(**settings))
    group.elect(1)
    return group


def segments(group, number=1):
    return [segment.base_offset for segment in group[number].log.segments]


@pytest.mark.parametrize(
    ("settings", "roll_ms"),
    [
        ({}, UNBOUNDED_MS),
        ({"segment_ms": HOUR_MS}, HOUR_MS),
        ({"segment_ms": HOUR_MS, "retention_ms": 5_000}, 5_000),
        ({"segment_ms": 5_000, "retention_ms": HOUR_MS}, 5_000),
        ({"retention_ms": HOUR_MS}, HOUR_MS),
        ({"segment_ms": 1}, ROLL_MS_MIN),
        ({"retention_ms": 0}, ROLL_MS_MIN),
    ],
)
def test_a_segment_takes_records_no_longer_than_they_are_kept(settings, roll_ms):
    assert PartitionConfig(**settings).roll_ms == roll_ms


def test_every_replica_rolls_its_active_segment_when_it_is_old():
    group = led_group(segment_ms=5_000)
    group.produce(1, b"one")
    group.advance(millis(4_000))
    assert [segments(group, number) for number in (1, 2, 3)] == [[0]] * 3
    group.produce(1, b"two")
    group.advance(millis(1_100))
    assert [segments(group, number) for number in (1, 2, 3)] == [[0, 2]] * 3
    group.produce(1, b"three")
    assert group[1].log.next_offset == 3
    assert segments(group) == [0, 2]


def test_a_segment_without_records_never_rolls_and_nothing_is_due():
    group = led_group(segment_ms=2_000)
    group.produce(1, b"one")
    group.advance(millis(20_000))
    assert [segments(group, number) for number in (1, 2, 3)] == [[0, 1]] * 3
    assert group[1]._upkeep._rolls.deadline == NEVER


def test_no_wall_clock_rolls_a_segment():
    group = led_group(segment_ms=HOUR_MS)
    group.produce(1, b"one")
    group.settle()
    group.wall += 30 * 24 * HOUR_MS
    group.advance(millis(10_000))
    assert segments(group) == [0]


def test_a_lower_bound_acts_on_a_segment_that_is_old_already():
    group = led_group(segment_ms=HOUR_MS)
    group.produce(1, b"one")
    group.advance(millis(10_000))
    group[1].configure(PartitionConfig(segment_ms=5_000), group.now)
    group.settle()
    group.advance(millis(10))
    assert segments(group) == [0, 1]
    assert segments(group, 2) == [0]


def test_what_was_written_before_a_boot_rolls_soon_after_it(monkeypatch):
    """A boot does not know the age of the active segment. A broker that is restarted once a day
    would never roll what may take seven days."""
    monkeypatch.setattr(rolling, "ROLL_AFTER_BOOT_MS_MAX", 5_000)
    group = led_group(segment_ms=HOUR_MS)
    group.produce(1, b"one")
    group.settle()
    group.crash(3)
    group.restart(3)
    group.advance(millis(4_000))
    assert segments(group, 3) == [0]
    group.advance(millis(1_500))
    assert [segments(group, number) for number in (1, 2, 3)] == [[0], [0], [0, 1]]


def test_a_rolled_segment_that_is_empty_survives_a_power_failure():
    group = led_group(segment_ms=2_000)
    group.produce(1, b"one", b"two")
    group.advance(millis(3_000))
    assert segments(group) == [0, 2]
    for number in (1, 2, 3):
        group.crash(number)
    for number in (1, 2, 3):
        group.restart(number)
    group.advance(4 * ELECTION)
    leader = next(number for number in (1, 2, 3) if group[number].is_leader)
    group.produce(leader, b"three")
    group.advance(ELECTION)
    assert [group[number].log.next_offset for number in (1, 2, 3)] == [3, 3, 3]


def test_a_truncation_takes_back_what_lies_around_a_roll():
    """The entries before a roll were never committed: the next leader's take their place."""
    group = led_group(segment_ms=2_000)
    group.produce(1, b"one")
    group.settle()
    group.isolate(1, notice=False)
    group.produce(1, b"lost")
    group.advance(millis(2_500))
    assert segments(group) == [0, 2]
    group.elect_without(1)
    group.heal()
    group.advance(3 * ELECTION)
    leader = next(number for number in (2, 3) if group[number].is_leader)
    group.produce(leader, b"two")
    group.advance(ELECTION)
    assert [group[number].log.next_offset for number in (1, 2, 3)] == [2, 2, 2]
    assert group[1].log.last_chain == group[leader].log.last_chain


def test_a_log_whose_every_entry_is_damaged_has_nothing_to_roll():
    """Seed 4 of the simulator: the only segment was cut on the disk, so that the log came up
    without one, and the look for the active segment's age ended the broker."""
    group = led_group(segment_ms=2_000)
    group.produce(1, b"one")
    group.settle()
    place = group.places[3]
    group.crash(3)
    (name,) = (each for each in place.disk.list(place.spec.path) if each.endswith(".log"))
    place.disk.shorten(f"{place.spec.path}/{name}", SEGMENT_HEADER_BYTES)
    group.restart(3)
    assert not group[3].log.segments
    group.advance(millis(4_000))
    assert [segments(group, number) for number in (1, 2, 3)] == [[0, 1]] * 3
