"""confluent-kafka: `Producer`, `Consumer`, and those that serialize.

A delivery report tells the outcome. librdkafka also reports a record as failed that may be in the
log: one whose acknowledgement was lost times out like one that was never sent. So only two kinds of
errors count as `fail`: those that the client raises before it sends, and those that a broker
returns every time.
"""

import gc
import sys
from collections.abc import Callable
from typing import Any, Final, final

from raftlog.base.errors import LocalMisuse
from raftlog.embed.recording.door import Identify, SeenRecord, identity_of
from raftlog.embed.recording.history import Recording
from raftlog.embed.recording.operations import RecordedCall
from raftlog.embed.recording.wrapper import NO_TRANSACTIONS, ONE_BY_ONE, Recorded, not_recorded

LIBRARY: Final = "confluent_kafka"
DEFINITE: Final = ("_QUEUE_FULL", "_INVALID_ARG", "MSG_SIZE_TOO_LARGE", "INVALID_RECORD")
"""Errors after which no earlier attempt can have been written either."""
_PLAIN: Final = ("topic", "value", "key", "partition", "callback", "on_delivery")
_SERIALIZING: Final = ("topic", "key", "value", "partition", "on_delivery")
_REST: Final = ("timestamp", "headers")
_FROM_CONFIG: Final[Any] = object()

Delivered = Callable[[Any, Any], Any]


@final
class RecordedProducer(Recorded):
    """A `Producer`. `on_delivery` is the callback of its configuration."""

    _raftlog_on_delivery: Delivered | None

    def __init__(
        self,
        original: Any,
        history: Recording,
        identify: Identify,
        on_delivery: Delivered | None = _FROM_CONFIG,
    ) -> None:
        super().__init__(original, history, identify)
        if on_delivery is _FROM_CONFIG:
            _refuse_callbacks(original)
            on_delivery = None
        object.__setattr__(self, "_raftlog_on_delivery", on_delivery)

    def produce(self, *args: Any, **more: Any) -> None:
        """As the original's, recorded."""
        original = self._raftlog_original
        plain = not isinstance(original, getattr(sys.modules[LIBRARY], "SerializingProducer", ()))
        names = (*(_PLAIN if plain else _SERIALIZING), *_REST)
        given = dict(zip(names, args, strict=False))
        if len(args) > len(names) or not given.keys().isdisjoint(more):
            original.produce(*args, **more)  # raises the TypeError of the wrong call
            return
        given.update(more)
        sending = self._sending(
            given.get("topic"),
            _partition(given.get("partition")),
            given.get("key"),
            given.get("value"),
            given.get("headers"),
        )
        if sending is None:
            original.produce(*args, **more)
            return
        topic = given["topic"]
        theirs = given.pop("callback", None) or given.pop("on_delivery", None)
        given.pop("on_delivery", None)
        theirs = theirs or self._raftlog_on_delivery

        def delivered(error: Any, message: Any) -> None:
            _end(sending, topic, error, message)
            if theirs is not None:
                theirs(error, message)

        try:
            original.produce(**given, on_delivery=delivered)
        except BaseException as error:
            # The client took nothing: its queue is full, or an argument is wrong.
            sending.fail(error)
            raise

    produce_batch = not_recorded("Producer.produce_batch", ONE_BY_ONE)
    init_transactions = not_recorded("Producer.init_transactions", NO_TRANSACTIONS)
    begin_transaction = not_recorded("Producer.begin_transaction", NO_TRANSACTIONS)


@final
class RecordedConsumer(Recorded):
    """A `Consumer`."""

    def poll(self, *args: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        return self._read(lambda: self._raftlog_original.poll(*args, **more))

    def consume(self, *args: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        return self._read(lambda: self._raftlog_original.consume(*args, **more))

    def _read(self, call: Callable[[], Any]) -> Any:
        with self._reading() as reading:
            given = call()
            found: dict[str, list[list[Any]]] = {}
            for each in given if isinstance(given, list) else [given]:
                if each is None or each.error() is not None:
                    continue
                topic = each.topic()
                if self._raftlog_history.records(topic):
                    seen = SeenRecord(topic, each.key(), each.value(), each.headers())
                    pair = [each.offset(), identity_of(seen, self._raftlog_identify)]
                    found.setdefault(f"{topic}/{each.partition()}", []).append(pair)
            reading.found = found
        return given

    def seek(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.seek(*args, **more)

    def assign(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.assign(*args, **more)


def _end(sending: RecordedCall, topic: str, error: Any, message: Any) -> None:
    if error is None:
        sending.sent(topic, message.partition(), message.offset())
    elif error.name() in DEFINITE:
        sending.fail(error.str())
    else:
        sending.info(f"{error.name()}: {error.str()}")


def _partition(given: Any) -> int | None:
    return given if isinstance(given, int) else None


def _refuse_callbacks(producer: Any) -> None:
    """Refuse a producer whose configuration may have a delivery callback. librdkafka calls it only
    for records without a callback of their own, and every recorded one has one."""
    held = [
        each for each in gc.get_referents(producer) if callable(each) and not isinstance(each, type)
    ]
    if held:
        raise LocalMisuse(
            "this producer was configured with callbacks, and the recorder cannot see which of "
            "them, if any, is on_delivery",
            on=repr(producer),
            do="hand it over once more: record(producer, history, on_delivery=told), or "
            "on_delivery=None if there is none",
        )
