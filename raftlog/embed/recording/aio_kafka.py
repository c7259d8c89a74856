"""aiokafka: `AIOKafkaProducer` and `AIOKafkaConsumer`."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, final

from raftlog.embed.recording.history import Operation
from raftlog.embed.recording.kafka_python import DEFINITE, UNSURE, found_in
from raftlog.embed.recording.wrapper import (
    NO_TRANSACTIONS,
    ONE_BY_ONE,
    Recorded,
    not_recorded,
)

LIBRARY: Final = "aiokafka"


@final
class RecordedProducer(Recorded):
    """An `AIOKafkaProducer`."""

    async def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
        headers: Any = None,
    ) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._sending(topic, partition, key, value, headers)
        if sending is None:
            return await original.send(topic, value, key, partition, timestamp_ms, headers)
        identity = self._identity(topic, key, value, headers)
        try:
            future = await original.send(topic, value, key, partition, timestamp_ms, headers)
        except BaseException as error:
            # A cancellation may have come after the record was queued.
            if type(error).__name__ in UNSURE or not isinstance(error, Exception):
                sending.info(error)
            else:
                sending.fail(error)
            raise

        def told(done: Any) -> None:
            _end(sending, identity, done)

        def look() -> None:
            if future.done():
                told(future)

        sending.look = look
        # This callback comes first: nothing awaits the future yet.
        future.add_done_callback(told)
        return future

    async def send_and_wait(self, *args: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        return await (await self.send(*args, **more))

    send_batch = not_recorded("AIOKafkaProducer.send_batch", ONE_BY_ONE)
    transaction = not_recorded("AIOKafkaProducer.transaction", NO_TRANSACTIONS)
    begin_transaction = not_recorded("AIOKafkaProducer.begin_transaction", NO_TRANSACTIONS)


@final
class RecordedConsumer(Recorded):
    """An `AIOKafkaConsumer`."""

    async def getone(self, *args: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        return await self._read(
            lambda: self._raftlog_original.getone(*args, **more), lambda given: [given]
        )

    async def getmany(self, *args: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        return await self._read(
            lambda: self._raftlog_original.getmany(*args, **more),
            lambda given: [each for records in given.values() for each in records],
        )

    async def __anext__(self) -> Any:
        return await self._read(lambda: anext(self._raftlog_original), lambda given: [given])

    async def _read(
        self, call: Callable[[], Awaitable[Any]], records: Callable[[Any], list[Any]]
    ) -> Any:
        reading = self._reading()
        try:
            given = await call()
            found = found_in(self, records(given))
        except StopAsyncIteration:
            reading.ok({})
            raise
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given

    def seek(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.seek(*args, **more)

    async def seek_to_beginning(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return await self._raftlog_original.seek_to_beginning(*args, **more)

    async def seek_to_end(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return await self._raftlog_original.seek_to_end(*args, **more)


def _end(sending: Operation, identity: Any, done: Any) -> None:
    if done.cancelled():
        sending.info("the wait was cancelled; the send goes on")
        return
    # `exception()` would mark the error as seen, and asyncio would not tell of one that the
    # application never looked at.
    error = done._exception
    if error is None:
        metadata = done.result()
        offset = getattr(metadata, "offset", None)
        if offset is None or offset < 0:
            sending.info("acknowledged without an offset, as acks=0 is")
        else:
            sending.sent(metadata.topic, metadata.partition, int(offset), identity)
    elif type(error).__name__ in DEFINITE:
        sending.fail(error)
    else:
        sending.info(error)
