"""The blocking consumer: the trio consumer in a thread of its own, with the same methods.

    with BlockingConsumer("localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

Heartbeats go on while the user works on records. Threads may share a consumer, but only one may
poll at a time. A listener's methods run in the consumer's thread and must not call the consumer.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, final

from raftlog.base.arguments import checked
from raftlog.base.errors import OperatingError
from raftlog.base.ids import Offset
from raftlog.client.consumer import Consumer, RecordCount, Records
from raftlog.client.core.arguments import LookedUp, OffsetFrom, Seconds, TopicName
from raftlog.client.core.calls import Call
from raftlog.client.core.group_asks import OffsetAndMetadata
from raftlog.client.core.results import OffsetAt
from raftlog.client.core.values import ClientOptions, ConsumedRecord, TopicPartition
from raftlog.client.trio_thread import TrioThread

Result = TypeVar("Result")


@final
class BlockingConsumer:
    """A Kafka consumer whose methods block; its options are those of `Consumer`."""

    @checked
    def __init__(
        self, bootstrap: str = "", *, options: ClientOptions | None = None, **more: Any
    ) -> None:
        self._consumer = Consumer(bootstrap, options=options, **more)
        self._thread = TrioThread(
            self._consumer,
            name="consumer",
            face="BlockingConsumer",
            instead="use raftlog.client.consumer.Consumer there",
        )

    def __enter__(self) -> Self:
        self._thread.begin()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Call `close`. After an error in the block nothing is committed. A process that was forked
        inside the block leaves the consumer to its parent."""
        del kind, trace
        if self._thread.forked:
            return
        try:
            # the thread has ended; its error is raised below
            with contextlib.suppress(OperatingError):
                self.close(autocommit=error is None)
        finally:
            self._thread.end()
        if error is None and self._thread.error is not None:
            raise self._thread.error

    @checked
    def close(self, *, autocommit: bool = True) -> None:
        """`Consumer.close`."""
        self._thread.call(partial(self._consumer.close, autocommit=autocommit))

    # --- what to read -----------------------------------------------------------------------------

    @checked
    def subscribe(
        self,
        topics: Sequence[TopicName] = (),
        *,
        pattern: str | None = None,
        listener: object | None = None,
    ) -> None:
        """`Consumer.subscribe`."""
        self._thread.do(
            partial(self._consumer.subscribe, topics, pattern=pattern, listener=listener)
        )

    def subscription(self) -> list[str]:
        """`Consumer.subscription`."""
        return self._thread.do(self._consumer.subscription)

    def unsubscribe(self) -> None:
        """`Consumer.unsubscribe`."""
        self._thread.do(self._consumer.unsubscribe)

    @checked
    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """`Consumer.assign`."""
        self._thread.do(self._consumer.assign, partitions)

    def assignment(self) -> list[TopicPartition]:
        """`Consumer.assignment`."""
        return self._thread.do(self._consumer.assignment)

    # --- records and commits ----------------------------------------------------------------------

    @checked
    def poll(self, *, seconds: Seconds = 1.0, max_records: RecordCount | None = None) -> Records:
        """`Consumer.poll`."""
        return self._thread.call(
            partial(self._consumer.poll, seconds=seconds, max_records=max_records)
        )

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Iterate over the records. It waits for the next one without a limit."""
        while True:
            yield self._thread.call(self._consumer.__anext__)

    @checked
    def commit(
        self, offsets: Mapping[TopicPartition, OffsetFrom | OffsetAndMetadata] | None = None
    ) -> None:
        """`Consumer.commit`."""
        self._thread.call(self._consumer.commit, offsets)

    @checked
    def committed(self, place: TopicPartition) -> OffsetAndMetadata | None:
        """`Consumer.committed`."""
        return self._thread.call(self._consumer.committed, place)

    # --- positions --------------------------------------------------------------------------------

    @checked
    def position(self, place: TopicPartition) -> Offset:
        """`Consumer.position`."""
        return self._thread.call(self._consumer.position, place)

    @checked
    def seek(self, place: TopicPartition, offset: OffsetFrom) -> None:
        """`Consumer.seek`."""
        self._thread.do(self._consumer.seek, place, offset)

    def seek_to_beginning(self, *places: TopicPartition) -> None:
        """`Consumer.seek_to_beginning`."""
        self._thread.do(self._consumer.seek_to_beginning, *places)

    def seek_to_end(self, *places: TopicPartition) -> None:
        """`Consumer.seek_to_end`."""
        self._thread.do(self._consumer.seek_to_end, *places)

    def pause(self, *places: TopicPartition) -> None:
        """`Consumer.pause`."""
        self._thread.do(self._consumer.pause, *places)

    def resume(self, *places: TopicPartition) -> None:
        """`Consumer.resume`."""
        self._thread.do(self._consumer.resume, *places)

    def paused(self) -> list[TopicPartition]:
        """`Consumer.paused`."""
        return self._thread.do(self._consumer.paused)

    @checked
    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """`Consumer.beginning_offsets`."""
        return self._thread.call(self._consumer.beginning_offsets, places)

    @checked
    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """`Consumer.end_offsets`."""
        return self._thread.call(self._consumer.end_offsets, places)

    @checked
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, LookedUp]
    ) -> dict[TopicPartition, OffsetAt | None]:
        """`Consumer.offsets_for_times`."""
        return self._thread.call(self._consumer.offsets_for_times, timestamps)

    @checked
    def ask(self, request: Call) -> Any:
        """`Client.ask`."""
        return self._thread.call(self._consumer.ask, request)
