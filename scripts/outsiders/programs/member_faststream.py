"""A member of a consumer group on FastStream: `member_faststream.py BOOTSTRAP TOPIC GROUP`.

It prints each value on a line of its own, and FastStream commits it after that. It runs until it is
killed.
"""

import asyncio
import logging
import sys

from faststream import AckPolicy
from faststream.kafka import KafkaBroker

SESSION_MILLIS = 6000


async def main():
    bootstrap, topic, group = sys.argv[1:]
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    broker = KafkaBroker(bootstrap.split(","), logger=None)

    @broker.subscriber(
        topic,
        group_id=group,
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK,
        session_timeout_ms=SESSION_MILLIS,
        heartbeat_interval_ms=SESSION_MILLIS // 5,
    )
    async def handle(message: str):
        print(message, flush=True)

    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
