"""A member of the demo's consumer group: `python -m raftlog.cli.demo.group_member SERVERS TOPIC`.

It prints a JSON line for each step:

    {"assigned": [0, 3]}                its partitions, whenever they change
    {"partition": 3, "offsets": [...]}  records that it processed, before it commits them

It reads nothing until a line comes on its standard input, so that the group is whole when the work
begins. It ends when that input ends: with the program that started it.
"""

import json
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

from raftlog.client.blocking_consumer import BlockingConsumer

if TYPE_CHECKING:
    from raftlog.client.core.values import TopicPartition

GROUP: Final = "demo"
SESSION_MS: Final = 6_000
"""The session timeout of a member, Kafka's least: a killed member's partitions wait so long."""
_HEARTBEAT_MS: Final = 1_000
_POLL_SECONDS: Final = 0.1


def main(servers: str, topic: str) -> None:
    """Be a member until the standard input ends."""
    begin = threading.Event()
    threading.Thread(target=_follow_input, args=(begin,), daemon=True).start()
    with BlockingConsumer(
        servers,
        group_id=GROUP,
        client_id="demo-group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
    ) as consumer:
        consumer.subscribe([topic])
        assigned: list[TopicPartition] | None = None
        while True:
            now = consumer.assignment()
            if now != assigned:
                assigned = now
                _say({"assigned": [each.partition for each in assigned]})
            if begin.is_set():
                consumer.resume(*consumer.paused())
            else:
                consumer.pause(*assigned)
            _process(consumer)


def _process(consumer: BlockingConsumer) -> None:
    """Poll once.

    The member commits after it has processed, so it may repeat records, never lose any.
    """
    found = consumer.poll(seconds=_POLL_SECONDS)
    for place, records in found.items():
        _say({"partition": place.partition, "offsets": [each.offset for each in records]})
    if found:
        consumer.commit()


def _say(event: dict[str, object]) -> None:
    print(json.dumps(event), flush=True)


def _follow_input(begin: threading.Event) -> None:
    for _ in sys.stdin:
        begin.set()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
