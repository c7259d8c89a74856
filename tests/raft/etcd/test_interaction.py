"""Semantic replays (grade G2) of etcd-io/raft's interaction files;
docs/internals/etcd_conformance.md lists what is compared, and the files that are left out with
the rule that differs."""

import pytest

from tests.raft.etcd.reading import HERE
from tests.raft.etcd.replay import replay

TRANSCRIPTS = sorted((HERE / "interaction").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_replay(path):
    assert replay(path) > 0


def test_at_least_22_of_28_are_replayed():
    assert len(TRANSCRIPTS) >= 22
