from kafka import KafkaConsumer, KafkaProducer


def test_a_consumer_reads_what_was_produced(raftlog_cluster, raftlog_topic):
    servers = raftlog_cluster.bootstrap_servers.split(",")
    with KafkaProducer(bootstrap_servers=servers) as producer:
        assert producer.send(raftlog_topic, b"order").get(timeout=30).offset == 0
    consumer = KafkaConsumer(
        raftlog_topic,
        bootstrap_servers=servers,
        group_id="shop",
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
    )
    assert next(consumer).value == b"order"
    consumer.close()
