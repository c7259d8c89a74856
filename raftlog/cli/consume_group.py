"""`raftlog consume --group`: one member of a group, which commits the records it has written."""

import sys
from collections.abc import Callable
from typing import NamedTuple, final

import click

from raftlog.cli.connect import PATIENCE, TOPIC_WAIT, reach, run
from raftlog.cli.output.render import progress
from raftlog.client.consumer import Consumer
from raftlog.client.core.asks import EARLIEST, LATEST
from raftlog.client.core.calls import KnowTopic
from raftlog.client.core.values import ConsumedRecord


@final
class StartAt(NamedTuple):
    """The place to begin, by `kind`.

    It is timestamp (a time, or EARLIEST or LATEST), offset, or tail (so many before the end).
    """

    kind: str
    number: int


_RESETS = {EARLIEST: "earliest", LATEST: "latest"}


def consume_group(
    bootstrap: str,
    topic: str,
    group: str,
    start: StartAt,
    count_max: int | None,
    write: Callable[[ConsumedRecord], None],
) -> None:
    """Write the records that the group gives to this member, until Ctrl-C or `count_max`."""
    reset = _RESETS.get(start.number) if start.kind == "timestamp" else None
    if reset is None:
        raise click.UsageError(
            "with --group -o takes beginning or end only; move a group by `raftlog groups "
            "reset-offsets`"
        )

    async def main() -> None:
        await reach(bootstrap)
        async with Consumer(
            bootstrap,
            group_id=group,
            auto_offset_reset=reset,
            topic_wait_ns=TOPIC_WAIT,
            call_timeout_ns=PATIENCE,
        ) as consumer:
            await consumer.ask(KnowTopic(topic))  # else a wrong name would mean a silent wait
            consumer.subscribe([topic])
            await _write(consumer, count_max, write)

    run(main)


async def _write(
    consumer: Consumer, count_max: int | None, write: Callable[[ConsumedRecord], None]
) -> None:
    left = count_max
    with progress("reading", count_max) as advance:
        while left is None or left > 0:
            found = await consumer.poll(max_records=left)
            try:
                for records in found.values():
                    for record in records:
                        write(record)
                        advance(1)
                    left = None if left is None else left - len(records)
            finally:
                sys.stdout.flush()
