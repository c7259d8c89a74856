"""The last read: every topic from its beginning to its end, by a client of raftlog's own."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from raftlog.base.errors import OperatingError
from raftlog.client.blocking import BlockingClient
from raftlog.client.core.asks import EARLIEST, LATEST
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import TopicPartition
from raftlog.embed.recording.door import Identify, SeenRecord, identity_of
from raftlog.embed.recording.operations import Reading, RecordedCall

_POLL_SECONDS: Final = 0.2


def read_everything(
    begin: Callable[[], RecordedCall],
    bootstrap: str,
    topics: Sequence[str],
    acknowledged: Mapping[str, int],
    seconds: float,
    deserialize: Callable[[bytes | None], Any] | None,
    identify: Identify,
) -> int:
    """Read until every acknowledged record and every end is reached. Returns the number of
    records."""
    deadline = time.perf_counter() + seconds
    count = 0
    with BlockingClient(bootstrap) as client:
        first: dict[TopicPartition, Any] = {}
        ends: dict[TopicPartition, int] = {}
        for topic in topics:
            first.update(client.offsets(topic, EARLIEST))
            ends.update(client.offsets(topic, LATEST))
        ends = {place: max(end, acknowledged.get(_key(place), 0)) for place, end in ends.items()}
        at = dict(first)
        client.assign(first)
        while lacking := [place for place, end in ends.items() if at[place] < end]:
            if time.perf_counter() > deadline:
                place = lacking[0]
                raise OperatingError(
                    f"read up to offset {at[place]}, and {_what_lies(place, ends, acknowledged)}; "
                    f"not reached within {seconds:g} s",
                    on=_key(place),
                    do="wait until the cluster is whole (cluster.wait_until_healthy()), then read "
                    "back; if it is whole, acknowledged records are lost",
                )
            with Reading(begin()) as reading:
                count += _one_poll(client, reading, at, deserialize, identify)
    return count


def _one_poll(
    client: BlockingClient,
    reading: Reading,
    at: dict[TopicPartition, Any],
    deserialize: Callable[[bytes | None], Any] | None,
    identify: Identify,
) -> int:
    count = 0
    for piece in client.poll(seconds=_POLL_SECONDS):
        if isinstance(piece, Trouble):
            raise piece.error
        at[piece.place] = piece.next_offset
        for record in piece.records():
            value = record.value if deserialize is None else deserialize(record.value)
            seen = SeenRecord(record.topic, record.key, value, record.headers)
            pair = [record.offset, identity_of(seen, identify)]
            reading.found.setdefault(_key(piece.place), []).append(pair)
            count += 1
    return count


def _what_lies(
    place: TopicPartition, ends: Mapping[TopicPartition, int], acknowledged: Mapping[str, int]
) -> str:
    if acknowledged.get(_key(place), 0) == ends[place]:
        return f"offset {ends[place] - 1} was acknowledged"
    return f"the log ends at {ends[place]}"


def _key(place: TopicPartition) -> str:
    return f"{place.topic}/{place.partition}"
