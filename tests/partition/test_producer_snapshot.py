"""Goal: a snapshot is exact, canonical, and refused whenever a byte of it or its place is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.base.limits import PRODUCER_SNAPSHOT_BYTES_MAX, PRODUCERS_MAX
from raftlog.partition.producing.producer_snapshot import digest_of, load_producers, write_producers
from raftlog.partition.producing.producers import SEQUENCES, ProducerState, ProducerTable, Span

spans = st.builds(
    Span,
    st.integers(0, SEQUENCES - 1),
    st.integers(0, SEQUENCES - 1),
    st.integers(0, 2**63 - 1),
)
states = st.builds(
    ProducerState,
    st.integers(0, 2**15 - 1),
    st.lists(spans, min_size=1, max_size=5).map(tuple),
    st.integers(-1, 2**63 - 1),
)


def table_of(producers, clock_ms=-1):
    table = ProducerTable()
    table.load(clock_ms, dict(producers))
    return table


def load(snapshot, group=3, before=9):
    table = table_of({1: ProducerState(0, (Span(0, 0, 0),), 5)}, 17)
    load_producers(table, snapshot, group=group, before=before, error=CorruptData)
    return table


@given(st.dictionaries(st.integers(0, 2**63 - 1), states, max_size=8), st.integers(-1, 2**62))
def test_what_is_written_is_read(producers, clock_ms):
    snapshot = write_producers(table_of(producers, clock_ms), group=3, before=9)
    table = load(snapshot)
    assert table.clock_ms == clock_ms
    assert table.states() == sorted(producers.items())


def test_equal_tables_in_other_order_give_equal_bytes():
    one = ProducerState(0, (Span(0, 0, 0),), 5)
    two = ProducerState(1, (Span(4, 9, 1),), 6)
    first = write_producers(table_of({1: one, 2: two}), group=3, before=9)
    second = write_producers(table_of({2: two, 1: one}), group=3, before=9)
    assert first == second
    assert digest_of(first) == first[-16:]


def test_the_largest_table_fits_its_bound():
    five = tuple(Span(i, i, i) for i in range(5))
    producers = {pid: ProducerState(0, five, 0) for pid in range(PRODUCERS_MAX)}
    snapshot = write_producers(table_of(producers), group=3, before=9)
    assert len(snapshot) <= PRODUCER_SNAPSHOT_BYTES_MAX
    assert len(load(snapshot)) == PRODUCERS_MAX


def sample():
    table = table_of({1: ProducerState(0, (Span(0, 4, 0), Span(5, 5, 5)), 5)}, 44)
    return write_producers(table, group=3, before=9)


def test_every_flipped_byte_is_noticed():
    snapshot = sample()
    for position in range(len(snapshot)):
        bad = bytearray(snapshot)
        bad[position] ^= 0x10
        with pytest.raises(CorruptData):
            load(bytes(bad))


def test_every_truncation_is_noticed():
    snapshot = sample()
    for size in range(len(snapshot)):
        with pytest.raises(CorruptData):
            load(snapshot[:size])


def test_a_longer_one_is_refused():
    with pytest.raises(CorruptData):
        load(sample() + b"\0")
    whole = PRODUCER_SNAPSHOT_BYTES_MAX + 1
    with pytest.raises(CorruptData, match=f"has {whole} bytes"):
        load(bytes(whole))  # before its digest is computed


@pytest.mark.parametrize(("group", "before"), [(4, 9), (3, 8), (3, 10)])
def test_another_place_is_refused(group, before):
    with pytest.raises(CorruptData, match="wanted"):
        load(sample(), group, before)


def resealed(body):
    import hashlib

    return bytes(body) + hashlib.blake2b(bytes(body), digest_size=16).digest()


def test_another_version_is_refused_not_skipped():
    body = bytearray(sample()[:-16])
    body[5] = 2
    with pytest.raises(FutureFormat):
        load(resealed(body))


@pytest.mark.parametrize(
    ("position", "value", "what"),
    [(0, 0, "not a producer snapshot"), (33, 9, "count"), (52, 0, "spans"), (52, 6, "spans")],
)
def test_a_true_digest_does_not_make_bad_content_good(position, value, what):
    body = bytearray(sample()[:-16])
    body[position] = value
    with pytest.raises(CorruptData, match=what):
        load(resealed(body))


def test_a_refused_snapshot_leaves_the_table_alone():
    table = table_of({5: ProducerState(0, (Span(0, 0, 0),), 5)}, 17)
    with pytest.raises(CorruptData):
        load_producers(table, sample()[:-1], group=3, before=9, error=CorruptData)
    assert (table.clock_ms, [pid for pid, _ in table.states()]) == (17, [5])


def test_producers_must_ascend_and_sequences_be_in_range():
    two = {1: ProducerState(0, (Span(0, 0, 0),), 5), 2: ProducerState(0, (Span(0, 0, 0),), 5)}
    body = bytearray(write_producers(table_of(two), group=3, before=9)[:-16])
    body[34 + 7] = 2
    with pytest.raises(CorruptData, match="after"):
        load(resealed(body))
    body = bytearray(sample()[:-16])
    body[53] = 0x80
    with pytest.raises(CorruptData, match="no such sequence"):
        load(resealed(body))
