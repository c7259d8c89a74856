"""aiokafka: `AIOKafkaProducer` and `AIOKafkaConsumer`."""

from typing import Any, Final, final

from raftlog.embed.recording.kafka_python import DEFINITE, UNSURE, found_in
from raftlog.embed.recording.operations import RecordedCall
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
        try:
            future = await original.send(topic, value, key, partition, timestamp_ms, headers)
        except BaseException as error:
            # A timeout or a cancellation may come after the record was queued, so the outcome is
            # unknown.
            if type(error).__name__ in UNSURE or not isinstance(error, Exception):
                sending.info(error)
            else:
                sending.fail(error)
            raise

        def told(done: Any) -> None:
            _end(sending, done)

        def look() -> None:
            if future.done():
                told(future)

        sending.look = look
        # Added before the application awaits the future, so this callback runs first.
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
        with self._reading() as reading:
            given = await self._raftlog_original.getone(*args, **more)
            reading.found = found_in(self, [given])
        return given

    async def getmany(self, *args: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        with self._reading() as reading:
            given = await self._raftlog_original.getmany(*args, **more)
            reading.found = found_in(self, *given.values())
        return given

    async def __anext__(self) -> Any:
        with self._reading() as reading:
            given = await anext(self._raftlog_original)
            reading.found = found_in(self, [given])
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


def _end(sending: RecordedCall, done: Any) -> None:
    if done.cancelled():
        sending.info("the wait was cancelled; the send goes on")
        return
    # `exception()` would mark the error as seen. asyncio would then not report an error that the
    # application never looked at.
    error = done._exception
    if error is None:
        # With acks=0 there may be no metadata at all.
        if (metadata := done.result()) is None:
            sending.info("acknowledged without metadata, as acks=0 is")
        else:
            sending.sent(metadata.topic, metadata.partition, metadata.offset)
    elif type(error).__name__ in DEFINITE:
        sending.fail(error)
    else:
        sending.info(error)
