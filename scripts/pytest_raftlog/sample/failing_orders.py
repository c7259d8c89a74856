"""Fails, and is run by name only: scripts/wheels looks whether its traces are where pytest says."""

from confluent_kafka import Producer

from raftlog import verify


def test_an_order_that_is_read_by_nobody(raftlog_cluster, raftlog_topic, raftlog_history):
    servers = raftlog_cluster.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    recorded = verify.record(producer, raftlog_history)
    recorded.produce(raftlog_topic, "recorded")
    recorded.flush()
    producer.produce(raftlog_topic, "behind the recorder's back")
    producer.flush()
    raftlog_history.read_back(servers)


def test_dice(raftlog_seed, raftlog_topic):
    raise AssertionError(f"the seed is {raftlog_seed}")
