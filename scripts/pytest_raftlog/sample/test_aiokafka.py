"""The fixtures serve asyncio's tests too; `aio` has the cluster's methods to await."""

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


@pytest.mark.asyncio
async def test_a_consumer_reads_what_was_produced(raftlog_cluster, raftlog_topic):
    servers = raftlog_cluster.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(raftlog_topic, b"order")
    assert await raftlog_cluster.aio.leader_of(raftlog_topic) in raftlog_cluster.alive
    consumer = AIOKafkaConsumer(
        raftlog_topic, bootstrap_servers=servers, group_id="shop", auto_offset_reset="earliest"
    )
    async with consumer:
        assert (await consumer.getone()).value == b"order"
