"""Borders, ranges and shares, without a cluster and without Spark."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.errors import ConfigError, OperatingError
from raftlog.spark.connector.offsets import (
    TASKS_MAX,
    KnownOffsets,
    Range,
    TopicPlace,
    admit,
    check_batch,
    given_offsets,
    parse_stream_offset,
    ranges,
    stream_offset,
)
from raftlog.spark.connector.options import Border, BorderKind

A0, A1, B0 = TopicPlace("a", 0), TopicPlace("a", 1), TopicPlace("b", 0)
KNOWN = KnownOffsets({"a": "1" * 32, "b": "2" * 32}, {A0: 2, A1: 0, B0: 5}, {A0: 10, A1: 0, B0: 9})

sizes = st.dictionaries(
    st.builds(TopicPlace, st.sampled_from("abc"), st.integers(0, 5)),
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)),
    min_size=1,
)


def borders(found):
    start = {place: low for place, (low, _) in found.items()}
    end = {place: low + size for place, (low, size) in found.items()}
    return start, end, {place.topic: "0" * 32 for place in found}


def test_named_borders():
    border = Border(
        kind=BorderKind.OFFSETS,
        option="startingOffsets",
        by_place={"a": {0: -2, 1: -1}, "b": {0: 7}},
    )
    assert given_offsets(border, KNOWN) == {A0: 2, A1: 0, B0: 7}
    assert given_offsets(Border(kind=BorderKind.EARLIEST, option=""), KNOWN) == KNOWN.first
    assert given_offsets(Border(kind=BorderKind.LATEST, option=""), KNOWN) == KNOWN.end


@pytest.mark.parametrize(
    ("by_place", "said"),
    [
        ({"a": {0: 1, 1: 1}}, "missing: b-0"),
        ({"a": {0: 1, 1: 1, 2: 1}, "b": {0: 1}}, "not read: a-2"),
    ],
)
def test_borders_name_what_is_read_and_nothing_else(by_place, said):
    border = Border(kind=BorderKind.OFFSETS, option="startingOffsets", by_place=by_place)
    with pytest.raises(ConfigError, match=said):
        given_offsets(border, KNOWN)


def test_a_batch_outside_of_the_log_is_refused():
    with pytest.raises(OperatingError, match="behind the end"):
        check_batch({A0: 9}, {A0: 8}, KNOWN)
    with pytest.raises(OperatingError, match="out of range: the log ends at 10"):
        check_batch({A0: 9}, {A0: 11}, KNOWN)
    check_batch({A0: 9}, {A0: 10}, KNOWN)


@given(sizes, st.none() | st.integers(1, 40), st.none() | st.integers(1, 10**5))
def test_ranges_cover_each_offset_once(found, partitions_min, records_max):
    start, end, ids = borders(found)
    if records_max is not None:
        end = {place: min(high, start[place] + 50 * records_max) for place, high in end.items()}
    cut = ranges(start, end, ids, partitions_min=partitions_min, records_max=records_max)
    assert all(each.size > 0 for each in cut)
    for place in end:
        mine = [each for each in cut if each.place == place]
        at = start[place]
        for each in mine:
            assert each.start == at
            at = each.stop
        assert at == end[place] or (not mine and start[place] == end[place])
    if records_max is not None:
        assert all(each.size <= records_max for each in cut)


def test_the_least_number_of_partitions_is_shared_by_size():
    cut = ranges({A0: 0, A1: 0}, {A0: 900, A1: 100}, {"a": "x"}, partitions_min=10)
    assert len([each for each in cut if each.place == A0]) == 9
    assert cut[-1] == Range(A1, "x", 0, 100)


def test_there_are_never_more_tasks_than_records():
    cut = ranges({A0: 0, A1: 0}, {A0: 3, A1: 2}, {"a": "x"}, partitions_min=1_000_000_000)
    assert [each.size for each in cut] == [1] * 5


def test_tasks_are_bounded():
    """A wish for more tasks gives way; a limit that cannot be kept is refused."""
    huge = {A0: 10**12}
    cut = ranges({A0: 0}, huge, {"a": "x"}, partitions_min=1_000_000_000)
    assert len(cut) == TASKS_MAX
    assert sum(each.size for each in cut) == 10**12
    with pytest.raises(OperatingError, match="1000000000 tasks; at most 100000 are allowed"):
        ranges({A0: 0}, huge, {"a": "x"}, records_max=1000)


@given(sizes, st.integers(1, 10**6))
def test_a_trigger_takes_its_share_and_starves_nobody(found, rows_max):
    start, end, _ = borders(found)
    taken = admit(start, end, rows_max)
    rows = sum(taken[place] - start[place] for place in end)
    waiting = [place for place in end if end[place] > start[place]]
    assert rows <= rows_max + len(waiting)
    for place in end:
        assert start[place] <= taken[place] <= end[place]
        assert (taken[place] > start[place]) == (place in waiting)


def test_an_offset_never_goes_back():
    assert admit({A0: 9}, {A0: 3}, None) == {A0: 9}
    assert admit({A0: 9, A1: 0}, {A0: 3, A1: 50}, 10) == {A0: 9, A1: 10}


@given(sizes)
def test_a_streams_offset_survives_the_checkpoint(found):
    start, _, ids = borders(found)
    text = json.dumps(stream_offset(start, ids))
    assert parse_stream_offset(json.loads(text)) == (start, ids)
    again = dict(reversed(start.items()))
    assert json.dumps(stream_offset(again, ids)) == text


@pytest.mark.parametrize("document", [{"a": {"0": 5}}, {"a": 5}, [], {"a": {"id": "x"}}, None])
def test_another_sources_checkpoint_is_refused(document):
    with pytest.raises(OperatingError, match="not one of ours"):
        parse_stream_offset(document)
