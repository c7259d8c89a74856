"""kafka-python: `KafkaProducer` and `KafkaConsumer`.

The future of a send tells the outcome. Its callbacks run in the sender's thread, a moment before or
after `get` returns in the application's; `Operation.look` asks the future itself at the end.
"""

from typing import Any, Final, final

from raftlog.embed.recording.door import SeenRecord, identity_of
from raftlog.embed.recording.history import Operation
from raftlog.embed.recording.wrapper import NO_TRANSACTIONS, Recorded, not_recorded

LIBRARY: Final = "kafka"
DEFINITE: Final = ("MessageSizeTooLargeError", "RecordListTooLargeError", "InvalidRecordError")
"""Errors of which no earlier attempt can have been written."""
UNSURE: Final = ("KafkaTimeoutError", "KafkaConnectionError", "RequestTimedOutError")
"""Raised by `send` itself they are not called refusals, though the record was not taken yet."""


@final
class RecordedProducer(Recorded):
    """A `KafkaProducer`."""

    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
    ) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._sending(topic, partition, key, value, headers)
        if sending is None:
            return original.send(topic, value, key, headers, partition, timestamp_ms)
        identity = self._identity(topic, key, value, headers)
        try:
            future = original.send(topic, value, key, headers, partition, timestamp_ms)
        except BaseException as error:
            if type(error).__name__ in UNSURE or not isinstance(error, Exception):
                sending.info(error)
            else:
                sending.fail(error)
            raise

        def told(metadata: Any) -> None:
            _sent(sending, identity, metadata)

        def failed(error: Any) -> None:
            _failed(sending, error)

        def look() -> None:
            if future.is_done:
                if future.succeeded():
                    told(future.value)
                else:
                    failed(future.exception)

        sending.look = look
        future.add_callback(told)
        future.add_errback(failed)
        return future

    init_transactions = not_recorded("KafkaProducer.init_transactions", NO_TRANSACTIONS)
    begin_transaction = not_recorded("KafkaProducer.begin_transaction", NO_TRANSACTIONS)


@final
class RecordedConsumer(Recorded):
    """A `KafkaConsumer`."""

    def poll(self, *args: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        reading = self._reading()
        try:
            given = self._raftlog_original.poll(*args, **more)
            found = self._found([each for records in given.values() for each in records])
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given

    def __next__(self) -> Any:
        reading = self._reading()
        try:
            given = next(self._raftlog_original)
            found = self._found([given])
        except StopIteration:
            reading.ok({})
            raise
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given

    def _found(self, records: list[Any]) -> dict[str, list[list[Any]]]:
        return found_in(self, records)

    def seek(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.seek(*args, **more)

    def seek_to_beginning(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.seek_to_beginning(*args, **more)

    def seek_to_end(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.seek_to_end(*args, **more)


def found_in(consumer: Recorded, records: list[Any]) -> dict[str, list[list[Any]]]:
    """What a poll found, as the history has it. The records of this library, of aiokafka and of
    raftlog have the same names for what they are made of."""
    found: dict[str, list[list[Any]]] = {}
    for each in records:
        if consumer._raftlog_history.records(each.topic):
            seen = SeenRecord(each.topic, each.key, each.value, each.headers)
            pair = [int(each.offset), identity_of(seen, consumer._raftlog_identify)]
            found.setdefault(f"{each.topic}/{each.partition}", []).append(pair)
    return found


def _sent(sending: Operation, identity: Any, metadata: Any) -> None:
    if metadata.offset is None or metadata.offset < 0:
        sending.info("acknowledged without an offset, as acks=0 is")
    else:
        sending.sent(metadata.topic, metadata.partition, int(metadata.offset), identity)


def _failed(sending: Operation, error: Any) -> None:
    if type(error).__name__ in DEFINITE:
        sending.fail(error)
    else:
        sending.info(error)
