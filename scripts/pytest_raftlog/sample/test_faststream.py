"""An application of FastStream, on real brokers in place of its own."""

import pytest
from faststream.kafka import KafkaBroker

from raftlog.embed.faststream_broker import RaftlogTestBroker

broker = KafkaBroker("kafka.example:9092")


@broker.subscriber("orders-in", group_id="shop", auto_offset_reset="earliest")
@broker.publisher("orders-out")
async def handle(body: str) -> str:
    return body.upper()


@pytest.mark.asyncio
async def test_orders(raftlog_cluster):
    async with RaftlogTestBroker(broker, cluster=raftlog_cluster) as running:
        await running.publish("order", "orders-in")
        await handle.wait_call(timeout=30)
        handle.mock.assert_called_once_with("order")
