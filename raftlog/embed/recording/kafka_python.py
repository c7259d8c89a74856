"""kafka-python: `KafkaProducer` and `KafkaConsumer`.

The future of a send tells the outcome. Its callbacks run in the sender's thread, a moment before or
after `get` returns in the application's thread. So `RecordedCall.look` asks the future itself at
the end.
"""

from itertools import chain
from typing import Any, Final, final

from raftlog.embed.recording.door import SeenRecord, identity_of
from raftlog.embed.recording.operations import RecordedCall
from raftlog.embed.recording.wrapper import NO_TRANSACTIONS, Recorded, not_recorded

LIBRARY: Final = "kafka"
DEFINITE: Final = ("MessageSizeTooLargeError", "RecordListTooLargeError", "InvalidRecordError")
"""Errors after which no earlier attempt can have been written either."""
UNSURE: Final = ("KafkaTimeoutError", "KafkaConnectionError", "RequestTimedOutError")
"""Errors that do not count as refusals even when `send` itself raises them, before it took the
record."""


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
        try:
            future = original.send(topic, value, key, headers, partition, timestamp_ms)
        except BaseException as error:
            if type(error).__name__ in UNSURE or not isinstance(error, Exception):
                sending.info(error)
            else:
                sending.fail(error)
            raise

        def told(metadata: Any) -> None:
            sending.sent(metadata.topic, metadata.partition, metadata.offset)

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
        with self._reading() as reading:
            given = self._raftlog_original.poll(*args, **more)
            reading.found = found_in(self, *given.values())
        return given

    def __next__(self) -> Any:
        with self._reading() as reading:
            given = next(self._raftlog_original)
            reading.found = found_in(self, [given])
        return given

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


def found_in(consumer: Recorded, *lists: list[Any]) -> dict[str, list[list[Any]]]:
    """The records that a poll found, in the history's form. kafka-python, aiokafka and raftlog use
    the same names for a record's fields."""
    found: dict[str, list[list[Any]]] = {}
    for each in chain.from_iterable(lists):
        if consumer._raftlog_history.records(each.topic):
            seen = SeenRecord(each.topic, each.key, each.value, each.headers)
            pair = [int(each.offset), identity_of(seen, consumer._raftlog_identify)]
            found.setdefault(f"{each.topic}/{each.partition}", []).append(pair)
    return found


def _failed(sending: RecordedCall, error: Any) -> None:
    if type(error).__name__ in DEFINITE:
        sending.fail(error)
    else:
        sending.info(error)
