"""One cluster of three real brokers for all tests that do not break it."""

import pytest

from raftlog.runtime.local import cluster as local_cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    running = local_cluster.found(tmp_path_factory.mktemp("cluster"), brokers=3)
    try:
        running.start_all()
        yield running
    finally:
        running.stop()
