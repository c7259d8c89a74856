"""Refusals of `raftlog recover`, and its words about a directory that needs nothing."""

from raftlog.runtime.local import cluster as local_cluster


def test_a_directory_that_is_none_is_refused(raftlog, tmp_path):
    ran = raftlog("recover", tmp_path / "nowhere", "--format", "json")
    assert (ran.code, ran.json_error["what"]) == (1, "no such directory")
    ran = raftlog("recover", tmp_path, "--format", "json")
    assert (ran.code, ran.json_error["what"]) == (1, "not a data directory")


def test_a_node_must_be_a_number(raftlog, tmp_path):
    assert raftlog("recover", tmp_path, "--lost", "one").code == 64


def test_a_founder_that_never_ran_needs_nothing(raftlog, tmp_path):
    cluster = local_cluster.found(tmp_path / "cluster", brokers=3)
    path = cluster.data_path(1)
    ran = raftlog("recover", path, "--lost", "2", "--format", "json")
    assert (ran.code, ran.json["groups"], ran.json["carried_out"]) == (0, [], False)
    ran = raftlog("recover", path, "--lost", "1")
    assert ran.code == 1
    assert "name the nodes whose disks are gone" in ran.err
