import unittest

from confluent_kafka import Producer

from raftlog.embed.unittest_mixin import ClusterMixin


class OrdersTest(ClusterMixin, unittest.TestCase):
    raftlog_brokers = 1

    def test_produce(self):
        servers = self.raftlog_cluster.bootstrap_servers
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        told = []
        producer.produce(self.raftlog_topic, "order", on_delivery=lambda *each: told.append(each))
        producer.flush()
        ((error, message),) = told
        self.assertIsNone(error)
        self.assertEqual(message.offset(), 0)
