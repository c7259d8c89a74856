"""A cluster for unittest.

class OrdersTest(ClusterMixin, unittest.TestCase):
    def test_orders(self):
        shop = Shop(self.raftlog_cluster.bootstrap_servers, topic=self.raftlog_topic)
"""

from typing import TYPE_CHECKING, ClassVar

from raftlog.embed.cluster import Cluster
from raftlog.embed.test_names import topic_name

if TYPE_CHECKING:
    import unittest

    _Base = unittest.TestCase
else:
    _Base = object


class ClusterMixin(_Base):
    """A mixin for unittest: write it before `TestCase` or `IsolatedAsyncioTestCase` in the list of
    bases.

    `raftlog_cluster` is a cluster of `raftlog_brokers` brokers for all tests of the class.
    `raftlog_topic` is the name of a topic that no other test uses. With `raftlog_own_cluster =
    True` each test has a cluster of its own, which it may break."""

    raftlog_brokers: ClassVar[int] = 3
    raftlog_own_cluster: ClassVar[bool] = False
    raftlog_cluster: Cluster
    raftlog_topic: str

    @classmethod
    def setUpClass(cls) -> None:
        """Start the cluster of the class, unless each test has its own."""
        super().setUpClass()
        if not cls.raftlog_own_cluster:
            cls.raftlog_cluster = cls.enterClassContext(Cluster(cls.raftlog_brokers))

    def setUp(self) -> None:
        """Name the test's topic; start the test's own cluster if it has one."""
        super().setUp()
        if self.raftlog_own_cluster:
            self.raftlog_cluster = self.enterContext(Cluster(self.raftlog_brokers))
        self.raftlog_topic = topic_name(self.id())
