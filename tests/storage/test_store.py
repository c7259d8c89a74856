"""StoreImage: urgent records at once, marks on the next round that has them or in time."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData
from raftlog.base.ids import ReplicaId
from raftlog.base.units import NEVER
from raftlog.storage.directories.data_dir import DirectoryImage
from raftlog.storage.directories.store import MARK_DELAY_NS, StoreImage
from raftlog.storage.directories.store_records import (
    StoreState,
    boot_record,
    hard_state_record,
    mark_record,
    promise_record,
    register_record,
    unregister_record,
)
from raftlog.storage.replica import Mark, Registration
from tests.storage.making import IDENTITY, ME, OTHER

HERE = Registration(ME, "groups/x-0-5")


IMAGE = DirectoryImage(identity=IDENTITY, boot=1, registrations={}, hard_states={}, marks={})


def image():
    store = StoreImage(IMAGE)
    store.register(1, HERE)
    store.register(2, HERE)
    return store


def mark(group=1, index=5, commit=3):
    return Mark(group, 1, 4096 + index, index, 1, 99, commit)


def test_marks_wait_for_a_round_with_urgent_records():
    store = image()
    store.note_mark(mark(), 1000)
    assert store.deadline == 1000 + MARK_DELAY_NS
    assert store.take_records([], 1000) == []
    urgent = store.set_hard_state(1, HardState(2, ME))
    assert store.take_records([urgent], 1001) == [urgent, mark_record(mark())]
    assert store.deadline == NEVER
    assert store.take_records([], 10**12) == []


def test_marks_wait_no_longer_than_their_time():
    store = image()
    store.note_mark(mark(), 1000)
    store.note_mark(mark(2), 2000)
    assert store.deadline == 1000 + MARK_DELAY_NS
    assert store.take_records([], store.deadline - 1) == []
    assert store.take_records([], store.deadline) == [mark_record(mark()), mark_record(mark(2))]


def test_only_the_newest_mark_of_a_group_is_written_and_none_twice():
    store = image()
    store.note_mark(mark(index=5), 0)
    store.note_mark(mark(index=6), 0)
    assert store.take_records([], NEVER) == [mark_record(mark(index=6))]
    store.note_mark(mark(index=6), 5)
    assert store.deadline == NEVER
    store.note_mark(None, 5)
    assert store.deadline == NEVER


def booted(promised_ns, lease_ns):
    """A store whose directory has promised that; voters of this boot promise for `lease_ns`."""
    return StoreImage(attrs.evolve(IMAGE, promised_ns=promised_ns, lease_ns=lease_ns))


@pytest.mark.parametrize("lease_ns", [0, 200])
def test_longer_promises_of_earlier_boots_are_stored_until_they_are_over(lease_ns):
    store = booted(500, lease_ns)
    store.register(1, HERE)
    for index, now in ((5, 10**6), (6, 10**6 + 499)):
        store.note_mark(mark(index=index), 0)
        assert store.take_records([b"urgent"], now) == [b"urgent", mark_record(mark(index=index))]
    store.note_mark(mark(index=7), 0)
    over = [mark_record(mark(index=7)), promise_record(lease_ns)]
    assert store.take_records([], NEVER) == over
    store.note_mark(mark(index=8), 0)
    assert store.take_records([], NEVER) == [mark_record(mark(index=8))]


def test_promises_of_earlier_boots_end_on_a_broker_that_writes_nothing():
    store = booted(500, 0)
    assert store.take_records([], 10**6) == []
    assert store.deadline == 10**6 + 500
    store.note_mark(mark(), 10**6)
    assert store.take_records([], 10**6 + 499) == []
    assert store.take_records([], 10**6 + 500) == [promise_record(0)]
    assert store.deadline == NEVER


def test_promises_as_long_as_ours_stay():
    store = booted(500, 500)
    store.register(1, HERE)
    for index in (5, 6):
        store.note_mark(mark(index=index), 0)
        assert store.take_records([], NEVER) == [mark_record(mark(index=index))]


def test_an_unregistered_group_has_no_mark():
    store = image()
    store.note_mark(mark(), 0)
    assert store.unregister(1) == unregister_record(1)
    assert store.take_records([], NEVER) == []
    store.note_mark(mark(), 0)
    assert store.deadline == NEVER


def test_a_new_registration_forgets_the_old_ones_promises_and_goes_on_in_its_term():
    store, successor = image(), Registration(OTHER, "groups/y")
    store.set_hard_state(1, HardState(7, ME))
    store.note_mark(mark(), 0)
    records = store.register(1, successor)
    assert records == [register_record(1, successor), hard_state_record(1, HardState(7, None))]
    assert store.registrations[1] == successor
    assert store.hard_states[1] == HardState(7, None)
    assert 1 not in store.marks
    read = StoreState()
    for record in [hard_state_record(1, HardState(7, ME)), *records]:
        read.apply(record, "store")
    assert (read.registrations[1], read.hard_states[1]) == (successor, HardState(7, None))


def test_a_replica_without_a_term_leaves_none_to_its_successor():
    store, successor = image(), Registration(OTHER, "groups/y")
    assert store.register(1, successor) == [register_record(1, successor)]
    assert 1 not in store.hard_states


def test_terms_never_fall_and_votes_never_change():
    store = image()
    store.set_hard_state(1, HardState(7, None))
    store.set_hard_state(1, HardState(7, ME))
    store.set_hard_state(1, HardState(7, ME))
    with pytest.raises(AssertionError):
        store.set_hard_state(1, HardState(7, OTHER))
    with pytest.raises(AssertionError):
        store.set_hard_state(1, HardState(6, ME))
    with pytest.raises(AssertionError):
        store.set_hard_state(1, HardState(7, None))
    store.set_hard_state(1, HardState(8, OTHER))


U64 = st.integers(0, 2**64 - 1)
GROUPS = st.integers(1, 4)
REPLICAS = st.builds(ReplicaId, st.integers(0, 2**31 - 1), U64, U64)
RECORDS = st.one_of(
    st.builds(register_record, GROUPS, st.builds(Registration, REPLICAS, st.text(max_size=9))),
    st.builds(unregister_record, GROUPS),
    st.builds(
        lambda group, *rest: mark_record(Mark(group, *rest, 0)),
        GROUPS, U64, U64, U64, st.integers(0, 2**31 - 1), U64,
    ),
)  # fmt: skip


@given(st.lists(RECORDS, max_size=20))
def test_an_image_says_the_same_as_the_records(records):
    state = StoreState()
    for term, record in enumerate(records):
        state.apply(record, "test")
        state.apply(hard_state_record(term % 4 + 1, HardState(term, ME)), "test")
        state.apply(boot_record(term), "test")
    again = StoreState()
    for record in state.records():
        again.apply(record, "test")
    assert (again.boot, again.registrations) == (state.boot, state.registrations)
    assert (again.hard_states, again.marks) == (state.hard_states, state.marks)


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"\x00",
        b"\x06",
        boot_record(5)[:-1],
        boot_record(5) + b"x",
        hard_state_record(1, HardState(3, ME))[:-1],
        hard_state_record(1, HardState(3, None))[:-1] + b"\x02",
        register_record(1, HERE)[:-1],
        mark_record(mark())[:-1],
    ],
)
def test_what_no_release_wrote_is_damage(record):
    with pytest.raises(CorruptData):
        StoreState().apply(record, "test")


def test_falling_numbers_are_damage():
    state = StoreState()
    state.apply(boot_record(5), "test")
    state.apply(hard_state_record(1, HardState(3, ME)), "test")
    with pytest.raises(CorruptData, match="boot number 4"):
        state.apply(boot_record(4), "test")
    with pytest.raises(CorruptData, match="term 2 after 3"):
        state.apply(hard_state_record(1, HardState(2, ME)), "test")


@given(st.binary(max_size=60))
def test_rubbish_is_only_ever_damage(data):
    try:
        StoreState().apply(data, "test")
    except CorruptData:
        return
    assert data
