"""The blocking consumer: the trio consumer in a thread of its own, with the same methods.

    with BlockingConsumer("localhost:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.topic, record.partition, record.offset, record.value)

Its heartbeats go on while the user works on records. Threads may share it, but only one may poll at
a time. A listener's methods are called in the consumer's thread and must not call the consumer.
"""

import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, final

import trio

from raftlog.base.arguments import checked
from raftlog.base.errors import LocalMisuse, OperatingError
from raftlog.base.ids import Offset
from raftlog.client import system
from raftlog.client.consumer import Consumer, RecordCount, Records
from raftlog.client.core.arguments import LookedUp, OffsetFrom, Seconds, TopicName
from raftlog.client.core.client import Call
from raftlog.client.core.group_asks import OffsetAndMetadata
from raftlog.client.core.results import OffsetAt
from raftlog.client.core.values import ClientOptions, ConsumedRecord, TopicPartition

Result = TypeVar("Result")


@final
class BlockingConsumer:
    """See the module. Options as for `Consumer`."""

    @checked
    def __init__(
        self, bootstrap: str = "", *, options: ClientOptions | None = None, **more: Any
    ) -> None:
        self._consumer = Consumer(bootstrap, options=options, **more)
        self._thread = threading.Thread(target=self._run, name="raftlog consumer", daemon=True)
        self._started = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._closing: trio.Event | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """`close`; after an error nothing is committed."""
        del kind, trace
        try:
            with contextlib.suppress(OperatingError):  # its thread has ended: its error comes below
                self.close(autocommit=error is None)
        finally:
            self._end()
        if error is None and self._error is not None:
            raise self._error

    def _end(self) -> None:
        token, closing = self._token, self._closing
        if token is not None and closing is not None:
            with contextlib.suppress(trio.RunFinishedError):
                token.run_sync_soon(closing.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._closing = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with self._consumer:
            self._started.set()
            await self._closing.wait()

    def _call(self, function: Callable[..., Awaitable[Result]], *args: object) -> Result:
        """Run in the consumer's thread; its result, or what it raised."""
        if self._token is None:
            raise LocalMisuse(
                "the consumer is not open", do="with BlockingConsumer(...) as consumer"
            )
        system.refuse_inside_trio("BlockingConsumer", "use raftlog.client.consumer.Consumer there")
        try:
            return trio.from_thread.run(function, *args, trio_token=self._token)
        except (trio.RunFinishedError, trio.Cancelled):
            why = f": {self._error}" if self._error is not None else ""
            raise OperatingError(f"the consumer is closed{why}") from None

    def _do(self, function: Callable[..., Result], *args: object) -> Result:
        async def run() -> Result:
            return function(*args)

        return self._call(run)

    @checked
    def close(self, *, autocommit: bool = True) -> None:
        """`Consumer.close`."""
        self._call(partial(self._consumer.close, autocommit=autocommit))

    # --- what to read -----------------------------------------------------------------------------

    @checked
    def subscribe(self, topics: Sequence[TopicName], *, listener: object | None = None) -> None:
        """`Consumer.subscribe`."""
        self._do(partial(self._consumer.subscribe, topics, listener=listener))

    def subscription(self) -> list[str]:
        """`Consumer.subscription`."""
        return self._do(self._consumer.subscription)

    def unsubscribe(self) -> None:
        """`Consumer.unsubscribe`."""
        self._do(self._consumer.unsubscribe)

    @checked
    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """`Consumer.assign`."""
        self._do(self._consumer.assign, partitions)

    def assignment(self) -> list[TopicPartition]:
        """`Consumer.assignment`."""
        return self._do(self._consumer.assignment)

    # --- records and commits ----------------------------------------------------------------------

    @checked
    def poll(self, *, seconds: Seconds = 1.0, max_records: RecordCount | None = None) -> Records:
        """`Consumer.poll`."""
        return self._call(partial(self._consumer.poll, seconds=seconds, max_records=max_records))

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Each record; waits for the next without end."""
        while True:
            yield self._call(self._consumer.__anext__)

    @checked
    def commit(
        self, offsets: Mapping[TopicPartition, OffsetFrom | OffsetAndMetadata] | None = None
    ) -> None:
        """`Consumer.commit`."""
        self._call(self._consumer.commit, offsets)

    @checked
    def committed(self, place: TopicPartition) -> OffsetAndMetadata | None:
        """`Consumer.committed`."""
        return self._call(self._consumer.committed, place)

    # --- positions --------------------------------------------------------------------------------

    @checked
    def position(self, place: TopicPartition) -> Offset:
        """`Consumer.position`."""
        return self._call(self._consumer.position, place)

    @checked
    def seek(self, place: TopicPartition, offset: OffsetFrom) -> None:
        """`Consumer.seek`."""
        self._do(self._consumer.seek, place, offset)

    def seek_to_beginning(self, *places: TopicPartition) -> None:
        """`Consumer.seek_to_beginning`."""
        self._do(self._consumer.seek_to_beginning, *places)

    def seek_to_end(self, *places: TopicPartition) -> None:
        """`Consumer.seek_to_end`."""
        self._do(self._consumer.seek_to_end, *places)

    def pause(self, *places: TopicPartition) -> None:
        """`Consumer.pause`."""
        self._do(self._consumer.pause, *places)

    def resume(self, *places: TopicPartition) -> None:
        """`Consumer.resume`."""
        self._do(self._consumer.resume, *places)

    def paused(self) -> list[TopicPartition]:
        """`Consumer.paused`."""
        return self._do(self._consumer.paused)

    @checked
    def beginning_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """`Consumer.beginning_offsets`."""
        return self._call(self._consumer.beginning_offsets, places)

    @checked
    def end_offsets(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """`Consumer.end_offsets`."""
        return self._call(self._consumer.end_offsets, places)

    @checked
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, LookedUp]
    ) -> dict[TopicPartition, OffsetAt | None]:
        """`Consumer.offsets_for_times`."""
        return self._call(self._consumer.offsets_for_times, timestamps)

    @checked
    def ask(self, request: Call) -> Any:
        """`Client.ask`."""
        return self._call(self._consumer.ask, request)
