"""An application that produces with confluent-kafka, under a leader that dies."""

from confluent_kafka import Consumer, Producer

from raftlog import verify


def test_no_order_is_lost(raftlog_own_cluster, raftlog_history):
    cluster = verify.record(raftlog_own_cluster, raftlog_history)
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    producer = Producer({**servers, "enable.idempotence": True})
    producer = verify.record(producer, raftlog_history)
    for number in range(100):
        producer.produce("orders", f"order {number}", key=f"customer {number % 7}")
        if number == 50:
            producer.flush()
            cluster.kill(cluster.leader_of("orders"))
    assert producer.flush() == 0
    raftlog_history.read_back(cluster.bootstrap_servers)


def test_a_consumer_reads_what_was_produced(raftlog_cluster, raftlog_topic):
    servers = {"bootstrap.servers": raftlog_cluster.bootstrap_servers, "log_level": 0}
    producer = Producer(servers)
    producer.produce(raftlog_topic, "order")
    producer.flush()
    consumer = Consumer({**servers, "group.id": "shop", "auto.offset.reset": "earliest"})
    consumer.subscribe([raftlog_topic])
    (message,) = consumer.consume(1, timeout=30)
    assert message.value() == b"order"
    consumer.close()
