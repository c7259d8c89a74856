"""The mixin as unittest runs it: one cluster for a class, or one for each test."""

import unittest

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.embed.unittest_mixin import ClusterMixin

pytestmark = pytest.mark.processes


def run(case: type[unittest.TestCase]) -> unittest.TestResult:
    return unittest.defaultTestLoader.loadTestsFromTestCase(case).run(unittest.TestResult())


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", [unittest.TestCase, unittest.IsolatedAsyncioTestCase])
def test_clusters_and_topics(own, kind):
    clusters, topics = [], []

    class Orders(ClusterMixin, kind):
        raftlog_brokers = 1
        raftlog_own_cluster = own

        def use(self):
            clusters.append(self.raftlog_cluster)
            topics.append(self.raftlog_topic)
            with BlockingClient(self.raftlog_cluster.bootstrap_servers) as client:
                client.create_topic(self.raftlog_topic)
                assert client.produce(self.raftlog_topic, b"order").offset == 0

        def test_one(self):
            self.use()

        def test_other(self):
            self.use()

    result = run(Orders)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])
    assert len(set(topics)) == 2
    assert (clusters[0] is clusters[1]) == (not own)
    for cluster in clusters:
        with pytest.raises(Exception, match="not running"):
            _ = cluster.bootstrap_servers
