"""The pytest plugin: `raftlog_cluster`, `raftlog_faults`, `raftlog_topic`. The only importer of
pytest.

A conftest.py names it, `pytest_plugins = ["raftlog.embed.pytest_plugin"]`; it is no entry point,
for then pytest would rewrite every assertion of the product. It starts nothing until a test asks.
"""

from collections.abc import Iterator

import pytest

from raftlog.base.arguments import checked
from raftlog.embed.cluster import Cluster


@pytest.fixture(scope="session")
def raftlog_cluster() -> Iterator[Cluster]:
    """A cluster of three brokers in this process, for all tests of the run (of each worker, under
    pytest-xdist). Tests that break brokers start their own."""
    with Cluster(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def raftlog_faults(request: pytest.FixtureRequest, raftlog_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster of the run, for a test that breaks it: after the test all faults are ended,
    brokers that are paused go on and dead ones start. A failed test shows how often each fault was
    used."""
    yield raftlog_cluster
    told = raftlog_cluster.recover()
    if told:
        request.node.add_report_section("teardown", "raftlog faults", told)


@pytest.fixture
def raftlog_topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of the run uses: made of the test's own name."""
    return topic_name(request.node.nodeid)


@checked
def topic_name(node_id: str) -> str:
    """The letters of a test's id that a topic name may hold, shortened, and made unique by what the
    id hashes to under a fixed function."""
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in node_id)
    total = 0
    for byte in node_id.encode("utf-8", "backslashreplace"):
        total = (total * 131 + byte) % (1 << 61)
    return f"{kept[-150:].strip('-')}-{total:x}"
