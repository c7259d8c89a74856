"""A broker's files are for its user alone: directories 0700, files 0600.

The fault: files were made 0644 in directories of 0755, so every user of the machine read all
records and the names of all topics.
"""

import stat
from pathlib import Path

import pytest

import raftlog
from raftlog.client.blocking import BlockingClient
from raftlog.runtime.real_ports import PosixDisk, make_data_directory


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.slow
def test_a_data_directory_of_a_cluster(tmp_path):
    with raftlog.Cluster(brokers=1, directory=tmp_path / "c") as cluster:
        with BlockingClient(cluster.bootstrap_servers) as client:
            client.create_topic("orders", partitions=2, replication_factor=1)
            client.produce("orders", b"secret")
        (format_file,) = (tmp_path / "c").rglob("raftlog.format")
        data = format_file.parent
        assert mode_of(data) == 0o700
        found = sorted(data.rglob("*"))
        assert {each.name for each in found} >= {"groups", "store-0", ".lock"}
        for each in found:
            assert mode_of(each) == (0o700 if each.is_dir() else 0o600), each


def test_every_directory_of_a_path_is_private(tmp_path):
    disk = PosixDisk(str(tmp_path))
    disk.make_dir("groups/a/b")
    disk.make_dir("groups/a/b")
    disk.make_dir("")
    assert [mode_of(tmp_path / name) for name in ("groups", "groups/a", "groups/a/b")] == [
        0o700
    ] * 3


def test_a_directory_of_an_older_release_is_closed(tmp_path):
    data = tmp_path / "data"
    data.mkdir(0o755)
    for name in ("raftlog.format", "store-0", ".lock"):
        (data / name).touch()
    (data / "groups").mkdir()
    assert make_data_directory(str(data))
    assert mode_of(data) == 0o700


@pytest.mark.parametrize("why", ["holds what is not ours", "is sticky"])
def test_a_directory_that_is_not_ours_alone_is_left_as_it_is(tmp_path, why):
    """`log.dirs=/tmp` must not close /tmp."""
    data = tmp_path / "data"
    data.mkdir()
    if why == "is sticky":
        data.chmod(0o1777)
    else:
        data.chmod(0o755)
        (data / "somebody.txt").touch()
    before = mode_of(data)
    assert not make_data_directory(str(data))
    assert mode_of(data) == before


def test_missing_parents_are_made(tmp_path):
    assert make_data_directory(str(tmp_path / "a" / "b" / "data"))
    assert mode_of(tmp_path / "a" / "b" / "data") == 0o700
