"""File names: they sort by place, and only what we write ourselves is taken for ours."""

import pytest

from raftlog.storage.replica import (
    LogOptions,
    index_name,
    parse_segment_name,
    parse_snapshot_name,
    replica_path,
    segment_name,
    snapshot_name,
)


@pytest.mark.parametrize(("index", "sequence"), [(1, 1), (10**19, 10**9), (0, 0)])
def test_names_round_trip(index, sequence):
    assert parse_segment_name(segment_name(index, sequence)) == (index, sequence)
    assert parse_snapshot_name(snapshot_name(index)) == index


def test_names_sort_by_place():
    names = [segment_name(index, 1) for index in (9, 10, 99, 100, 10**15)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "head",
        "1-1.log",
        segment_name(1, 1) + ".tmp",
        segment_name(1, 1)[:-4],
        index_name(segment_name(1, 1)),
        "0000000000000000001x-0000000001.log",
        "00000000000000000001_0000000001.log",
        "+0000000000000000001-0000000001.log",
        "\u0660000000000000000001-0000000001.log",
    ],
)
def test_other_names_are_not_ours(name):
    assert parse_segment_name(name) is None
    assert parse_snapshot_name(name) is None


def test_directories_are_named_by_id_and_epoch():
    assert replica_path(b"\xab" * 16, 3, 9) == "groups/" + "ab" * 16 + "-3-9"


def test_index_interval_follows_the_segment():
    assert LogOptions(segment_bytes=1 << 30).interval_bytes == 1 << 17
    assert LogOptions(segment_bytes=1 << 16).interval_bytes == 1 << 15
    assert LogOptions(index_interval_bytes=7).interval_bytes == 7
