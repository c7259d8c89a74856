"""Points, cuts and the index file, against plain lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import EntryKind
from raftlog.base.errors import CorruptData
from raftlog.storage.segments.sparse_index import (
    ControlRow,
    IndexFile,
    Point,
    SegmentIndex,
    TermRow,
    read_index_file,
    write_index_file,
)

POINTS = [Point(10 * n, 100 * n, 4096 + 500 * n, 7 * n, 50 * n) for n in range(1, 6)]


def made(points=POINTS):
    index = SegmentIndex(500)
    for point in points:
        index.add_point(point)
    return index


@given(st.integers(0, 8000))
def test_look_ups(value):
    index = made()

    def last(field):
        below = [point for point in POINTS if getattr(point, field) <= value]
        return below[-1] if below else None

    assert index.at_or_below_offset(value) == last("offset")
    assert index.at_or_below_index(value) == last("raft_index")
    assert index.at_or_below_position(value) == last("position")
    beyond = [point for point in POINTS if point.position > value]
    assert index.after(value) == (beyond[0] if beyond else None)


def test_between_gives_two_points_behind_the_reach():
    index = made()
    assert index.between(4096, 4096 + 1000) == tuple(POINTS[:4])
    assert index.between(4096 + 1000, 4096 + 1000) == tuple(POINTS[2:4])
    assert index.between(9000, 9999) == ()


@given(st.integers(0, 60))
def test_cut_keeps_the_place_at_the_cut(raft_index):
    index = made()
    index.controls = [ControlRow(n, 0, 1, EntryKind.MARKER, 0) for n in (5, 15, 25)]
    index.terms = [TermRow(n, n, n) for n in (5, 15, 25)]
    index.cut(raft_index)
    assert index.points() == [point for point in POINTS if point.raft_index <= raft_index]
    assert [row.raft_index for row in index.controls] == [n for n in (5, 15, 25) if n < raft_index]
    assert [row.raft_index for row in index.terms] == [n for n in (5, 15, 25) if n < raft_index]


def file():
    index = made()
    index.controls = [ControlRow(12, 4700, 90, EntryKind.MEMBERSHIP, 130)]
    index.terms = [TermRow(4, 12, 130)]
    index.tail = 300
    return IndexFile(7, 3, 5, Point(60, 600, 9000, 99, 300), index)


def test_file_round_trip():
    data = write_index_file(file())
    back = read_index_file(data, 500, "test")
    assert back[:4] == file()[:4]
    assert back.sparse.points() == POINTS
    assert back.sparse.controls == file().sparse.controls
    assert back.sparse.terms == file().sparse.terms
    assert back.sparse.tail == back.sparse.largest() == 300


def test_every_change_of_the_file_is_noticed():
    data = write_index_file(file())
    for position in range(len(data)):
        rotten = bytearray(data)
        rotten[position] ^= 1
        with pytest.raises(CorruptData):
            read_index_file(rotten, 500, "test")
        with pytest.raises(CorruptData):
            read_index_file(data[:position], 500, "test")


@given(st.binary(max_size=200))
def test_rubbish(data):
    with pytest.raises(CorruptData):
        read_index_file(data, 500, "test")
