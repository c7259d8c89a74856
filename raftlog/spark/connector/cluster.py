"""The driver's questions to the cluster: which partitions exist, and where they begin and end.

A question is repeated as often as fetchOffset.numRetries says. Between questions only the client is
kept. Tasks do not use this module.
"""

import re
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar, final

from raftlog.base.errors import ConfigError, OperatingError, RaftlogError
from raftlog.base.ids import Offset
from raftlog.base.units import millis
from raftlog.client.blocking import BlockingClient
from raftlog.client.core import asks
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.group_asks import OffsetAndMetadata, commit_offsets
from raftlog.client.core.values import TopicPartition
from raftlog.client.system import parse_bootstrap
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.metadata import MetadataResponse, MetadataResponseTopic
from raftlog.spark.connector.offsets import KnownOffsets, TopicPlace, named_places
from raftlog.spark.connector.options import Border, BorderKind, ReadOptions

Result = TypeVar("Result")

TOPIC_WAIT_NS: Final = millis(2_000)
"""How long a question waits for an unknown topic: it may have been created a moment ago."""
REACH_SECONDS: Final = 5.0
"""How long the first broker may take to accept a connection when a query is planned."""
WAITS_SECONDS: Final = (0.1, 0.4, 1.0)
"""The pauses between questions before data loss is reported. A broker that has just started, or
that no longer leads, may only know less than the others."""


@final
class ClusterView:
    """Asks a cluster about the partitions of a query. Open it with `with`; use it from one thread
    at a time."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client = client_of(options)

    def __enter__(self) -> "ClusterView":
        reach(self._options.bootstrap)
        self._client.__enter__()
        return self

    def __exit__(self, *_error: object) -> None:
        self._client.__exit__(None, None, None)

    def close(self) -> None:
        """Close the client."""
        self._client.__exit__(None, None, None)

    def known(self) -> KnownOffsets:
        """The subscribed partitions and their present first and end offsets. `OperatingError` when
        there are none, or the brokers do not answer."""
        topics = self.topics()
        places = sorted(
            TopicPlace(topic.name or "", each.partition_index)
            for topic in topics
            for each in topic.partitions
        )
        places = self._assigned(places)
        ids = {topic.name or "": bytes(topic.topic_id).hex() for topic in topics}
        first = {place: self.offset(place, asks.EARLIEST) for place in places}
        end = {place: self.offset(place, asks.LATEST) for place in places}
        return KnownOffsets({place.topic: ids[place.topic] for place in places}, first, end)

    def topics(self) -> list[MetadataResponseTopic]:
        """The subscribed topics, sorted by name."""
        options = self._options
        if options.pattern is not None:
            everything: MetadataResponse = self._ask(lambda: self._client.ask(asks.metadata()))
            wanted = re.compile(options.pattern)
            return sorted(
                (
                    topic
                    for topic in everything.topics
                    if topic.error_code == 0 and wanted.fullmatch(topic.name or "")
                ),
                key=lambda topic: topic.name or "",
            )
        names = options.subscribe if options.subscribe is not None else tuple(options.assign or ())
        return [self._topic(name) for name in sorted(names)]

    def _topic(self, name: str) -> MetadataResponseTopic:
        try:
            return self._ask(lambda: self._client.describe(name))
        except KafkaError as error:
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise OperatingError(
                    "the topic does not exist", on=name, do=f"raftlog topics create {name}"
                ) from None
            raise

    def _assigned(self, places: list[TopicPlace]) -> list[TopicPlace]:
        if self._options.assign is None:
            return places
        wanted = [
            TopicPlace(topic, partition)
            for topic, partitions in sorted(self._options.assign.items())
            for partition in partitions
        ]
        missing = [str(place) for place in wanted if place not in places]
        if missing:
            raise ConfigError(f"there is no partition {', '.join(missing)}", on="assign")
        return wanted

    def offset(self, place: TopicPlace, timestamp_ms: int) -> int:
        """The first offset at or after a timestamp in Unix milliseconds (-1 when there is none), or
        at EARLIEST or LATEST."""
        at = TopicPartition(*place)
        return self._ask(lambda: self._client.offset(at, timestamp_ms)).offset

    def commit(self, group: str, offsets: Mapping[TopicPlace, int]) -> None:
        """Commit offsets of a group that has no members."""
        wanted = {
            TopicPartition(*place): OffsetAndMetadata(Offset(offset))
            for place, offset in sorted(offsets.items())
        }
        self._client.ask(commit_offsets(group, wanted))

    def by_timestamp(
        self, border: Border, known: KnownOffsets, *, start: bool
    ) -> dict[TopicPlace, int]:
        """The first offset at or after a timestamp in each partition. Without such a record, an end
        is the log's end, and startingOffsetsByTimestampStrategy decides a start."""
        if border.kind is BorderKind.TIMESTAMP:
            asked = dict.fromkeys(sorted(known.end), border.timestamp_ms)
        else:
            asked = named_places(border, known.end)
        found: dict[TopicPlace, int] = {}
        for place, timestamp_ms in asked.items():
            offset = self.offset(place, timestamp_ms)
            if offset < 0:
                if start and not self._options.latest_when_missing:
                    raise OperatingError(
                        f"no record is as young as timestamp {timestamp_ms}",
                        on=str(place),
                        do="set startingOffsetsByTimestampStrategy to latest to begin at the end",
                    )
                offset = known.end[place]
            found[place] = offset
        return found

    def _ask(self, question: Callable[[], Result]) -> Result:
        """Ask up to 1 + fetchOffset.numRetries times; raise the last error."""
        tries = 1 + self._options.fetch_retries
        while True:
            tries -= 1
            try:
                return question()
            except RaftlogError as error:
                if tries == 0 or (isinstance(error, KafkaError) and not error.retriable):
                    raise explained(error, self._options.bootstrap) from error
            time.sleep(self._options.fetch_retry_ms / 1000)


def explained(error: RaftlogError, bootstrap: str) -> RaftlogError:
    """The error to raise. A broker's refusal stays as it is; an error without an answer names the
    bootstrap addresses."""
    if isinstance(error, KafkaError):
        return error
    return OperatingError(
        f"the brokers do not answer: {error.what}",
        on=bootstrap,
        do="check kafka.bootstrap.servers and that the brokers run",
    )


def reach(bootstrap: str) -> None:
    """Wait until one bootstrap address accepts a connection; `OperatingError` when none does within
    `REACH_SECONDS`. Without this check, a wrong address would be retried for minutes."""
    addresses = parse_bootstrap(bootstrap)
    deadline = time.monotonic() + REACH_SECONDS  # noqa: TID251 - queries are planned in real time
    why = ""
    while True:
        for address in addresses:
            try:
                socket.create_connection(address, timeout=REACH_SECONDS / len(addresses)).close()
            except OSError as error:
                why = f"{address[0]}:{address[1]}: {error.strerror or error}"
            else:
                return
        if time.monotonic() > deadline:  # noqa: TID251
            raise OperatingError(
                f"no broker accepts a connection, {why}",
                on=bootstrap,
                do="start a cluster with `raftlog up`, or name one that runs by "
                "kafka.bootstrap.servers",
            )
        time.sleep(WAITS_SECONDS[0])


def client_of(options: ReadOptions) -> BlockingClient:
    """A client for the driver or a task, with the timeouts of the options."""
    request_ns = millis(options.request_timeout_ms)
    return BlockingClient(
        options.bootstrap,
        client_id=options.client_id,
        call_timeout_ns=request_ns,
        request_timeout_ns=request_ns,
        topic_wait_ns=TOPIC_WAIT_NS,
        fetch_bytes=options.fetch_bytes,
        fetch_partition_bytes=options.partition_bytes,
        buffered_bytes=3 * options.partition_bytes,
    )


def topic_id_of(client: BlockingClient, topic: str) -> str | None:
    """The present id of a topic, 32 hex digits; None when it does not exist."""
    try:
        return bytes(client.describe(topic).topic_id).hex()
    except KafkaError as error:
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return None
        raise


def places_text(places: Iterable[TopicPlace]) -> str:
    """The first few partitions as text, for messages."""
    found = sorted(places)
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return ", ".join(map(str, found[:5])) + more
