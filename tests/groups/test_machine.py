import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData
from raftlog.base.ids import Offset, RaftIndex
from raftlog.groups.machine import MAGIC, GroupsMachine
from raftlog.groups.records import floor_record, group_record, offset_record
from raftlog.groups.stored import StoredGroup, StoredOffset
from tests.groups.feeding import batch_of, feed, machine_of
from tests.groups.strategies import records

EMPTY = StoredGroup("consumer", 3, None, None, 77)
AT_5 = StoredOffset(5, 1, "note", 100)


def test_the_last_record_of_a_key_wins_and_a_null_value_removes_it():
    machine = machine_of(
        [
            offset_record("g", "t", 0, AT_5),
            offset_record("g", "t", 0, AT_5._replace(offset=6)),
            offset_record("g", "t", 1, AT_5),
            offset_record("g", "t", 1, None),
            group_record("g", EMPTY),
        ]
    )
    assert machine.offset("g", "t", 0) == AT_5._replace(offset=6)
    assert machine.offset_keys("g") == [("t", 0)]
    assert machine.group("g") == EMPTY
    assert machine.group_ids() == ["g"]


def test_a_group_exists_while_a_record_or_an_offset_of_it_does():
    machine = machine_of([offset_record("simple", "t", 0, AT_5)])
    assert machine.knows("simple")
    assert machine.group("simple") is None
    feed(machine, offset_record("simple", "t", 0, None))
    assert not machine.knows("simple")
    assert machine.digest() == GroupsMachine().digest()
    assert machine.state_bytes == 0


def test_the_floor_is_the_larger_of_the_two_records():
    machine = machine_of([floor_record("g", 7), group_record("g", EMPTY)])
    assert machine.generation_floor("g") == 7
    feed(machine, group_record("g", EMPTY._replace(generation=9)))
    assert machine.generation_floor("g") == 9
    assert machine.generation_floor("unknown") == 0


@given(st.lists(records, max_size=12))
def test_a_snapshot_restores_to_the_same_state_and_bytes(written):
    machine = machine_of(written)
    other = feed(GroupsMachine(), floor_record("other", 1))
    other.restore(machine.snapshot())
    assert other.snapshot() == machine.snapshot()
    assert other.digest() == machine.digest()
    assert other.state_bytes == machine.state_bytes
    assert other.group_ids() == machine.group_ids()


@given(st.lists(records, max_size=12), st.lists(records, max_size=12), st.lists(records))
def test_a_frozen_state_is_changed_by_nothing_that_is_applied_later(first, second, third):
    machine = machine_of(first)
    once, before = machine.frozen(), machine.snapshot()
    feed(machine, *second)
    twice, between = machine.frozen(), machine.snapshot()
    feed(machine, *third)
    assert (once.make(), twice.make()) == (before, between)
    assert (once.size, twice.size) == (len(before), len(between))
    assert machine.snapshot() == machine_of([*first, *second, *third]).snapshot()


@given(st.lists(records, max_size=12), st.data())
def test_a_compacted_prefix_gives_the_same_state_and_digest(written, data):
    """Compaction keeps the last record of each key of a prefix, and may drop tombstones that
    nothing older stands before."""
    cut = data.draw(st.integers(0, len(written)))
    last = {record.key: place for place, record in enumerate(written[:cut])}
    kept = [record for place, record in enumerate(written[:cut]) if last[record.key] == place]
    kept = [record for record in kept if record.value is not None or data.draw(st.booleans())]
    compacted, whole = machine_of(kept + written[cut:]), machine_of(written)
    assert compacted.snapshot() == whole.snapshot()
    assert compacted.digest() == whole.digest()


@given(st.lists(records, min_size=1, max_size=8))
def test_a_batch_says_what_its_records_say_one_by_one(written):
    assert feed(GroupsMachine(), *written).snapshot() == machine_of(written).snapshot()
    again = feed(feed(GroupsMachine(), *written), *written)
    assert again.digest() == machine_of(written).digest()


@given(st.lists(records, max_size=6), st.lists(records, max_size=6))
def test_different_states_have_different_digests(some, others):
    one, two = machine_of(some), machine_of(others)
    assert (one.digest() == two.digest()) == (one.snapshot() == two.snapshot())


def test_batches_that_are_not_ours_are_passed_over():
    machine = machine_of([group_record("g", EMPTY)])
    before = machine.snapshot()
    record = group_record("g", None)
    staged = batch_of(
        [record], transactional=True, producer_id=1, producer_epoch=0, base_sequence=0
    )
    machine.apply(staged, Offset(0), RaftIndex(2))
    unreadable = bytearray(batch_of([record]))
    unreadable[61:] = b"\xff" * (len(unreadable) - 61)
    machine.apply(bytes(unreadable), Offset(0), RaftIndex(3))
    assert machine.snapshot() == before


@given(st.binary(max_size=80), st.integers(1, 5))
def test_any_record_bytes_leave_a_machine_that_still_snapshots(body, count):
    batch = bytearray(batch_of([offset_record("g", "t", 0, AT_5)] * count))
    batch[61 : 61 + len(body)] = body[: len(batch) - 61]
    machine = GroupsMachine()
    machine.apply(bytes(batch), Offset(0), RaftIndex(1))
    fresh = GroupsMachine()
    fresh.restore(machine.snapshot())
    assert fresh.digest() == machine.digest()


def test_what_is_no_snapshot_is_refused_and_changes_nothing():
    machine = machine_of([group_record("g", EMPTY), offset_record("g", "t", 0, AT_5)])
    good, digest = machine.snapshot(), machine.digest()
    wrong = [b"", MAGIC, b"x" + good[1:], good + b"\x00", good[:-1]]
    wrong += [good[: len(MAGIC)] + b"\xff" * 4 + good[len(MAGIC) + 4 :]]
    for body in wrong:
        with pytest.raises(CorruptData):
            machine.restore(body)
    assert (machine.snapshot(), machine.digest()) == (good, digest)


def test_a_snapshot_in_another_order_is_refused():
    one = machine_of([floor_record("a", 1), floor_record("b", 2)]).snapshot()
    entry = len(machine_of([floor_record("a", 1)]).snapshot()) - len(GroupsMachine().snapshot())
    begin = len(MAGIC) + 8
    swapped = one[:begin] + one[begin + entry : begin + 2 * entry] + one[begin : begin + entry]
    with pytest.raises(CorruptData, match="order"):
        GroupsMachine().restore(swapped + one[begin + 2 * entry :])
