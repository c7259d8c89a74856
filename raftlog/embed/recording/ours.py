"""raftlog's own clients, blocking and trio's: `BlockingClient`, `BlockingConsumer`, `Client`,
`Consumer`.

Their errors are exact: after `OutcomeUnknown` the record may be written, after any other error of a
send it is not.
"""

from collections.abc import Callable
from typing import Any, final

from raftlog.base.errors import RaftlogError
from raftlog.client.core.errors import ConnectionLost, OutcomeUnknown
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import RecordPosition
from raftlog.embed.recording.kafka_python import found_in
from raftlog.embed.recording.operations import RecordedCall
from raftlog.embed.recording.wrapper import Recorded


class _RecordedSender(Recorded):
    """The base of both recorded clients."""

    def _begun(self, topic: Any, value: Any, more: dict[str, Any]) -> RecordedCall | None:
        return self._sending(
            topic, more.get("partition"), more.get("key"), value, more.get("headers")
        )

    def _told(
        self, sending: RecordedCall, then: Callable[[Any], Any] | None
    ) -> Callable[[Any], None]:
        def told(outcome: RecordPosition | RaftlogError) -> None:
            _end(sending, outcome)
            if then is not None:
                then(outcome)
            elif isinstance(outcome, RaftlogError):
                # The application gave no `then`, so its `flush` must raise this error. The client
                # lets the next `flush` raise what a `then` raised.
                raise outcome

        return told

    def _found_pieces(self, pieces: list[Any]) -> dict[str, list[list[Any]]]:
        whole = [piece for piece in pieces if not isinstance(piece, Trouble)]
        return found_in(self, *(piece.records() for piece in whole))


@final
class RecordedBlockingClient(_RecordedSender):
    """A `BlockingClient`."""

    def produce(self, topic: Any, value: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._begun(topic, value, more)
        if sending is None:
            return original.produce(topic, value, **more)
        try:
            position = original.produce(topic, value, **more)
        except BaseException as error:
            _end(sending, error)
            raise
        _end(sending, position)
        return position

    def send_soon(self, topic: Any, value: Any, **more: Any) -> None:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._begun(topic, value, more)
        if sending is None:
            original.send_soon(topic, value, **more)
            return
        then = self._told(sending, more.pop("then", None))
        try:
            original.send_soon(topic, value, **more, then=then)
        except BaseException as error:
            _end(sending, error)
            raise

    def poll(self, **more: Any) -> Any:
        """As the original's, recorded."""
        with self._reading() as reading:
            given = self._raftlog_original.poll(**more)
            reading.found = self._found_pieces(given)
        return given


@final
class RecordedClient(_RecordedSender):
    """A `Client`."""

    async def produce(self, topic: Any, value: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._begun(topic, value, more)
        if sending is None:
            return await original.produce(topic, value, **more)
        try:
            position = await original.produce(topic, value, **more)
        except BaseException as error:
            _end(sending, error)
            raise
        _end(sending, position)
        return position

    async def send_soon(self, topic: Any, value: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._begun(topic, value, more)
        if sending is None:
            return await original.send_soon(topic, value, **more)
        if more.get("then") is not None:
            more["then"] = self._told(sending, more["then"])
        try:
            sent = await original.send_soon(topic, value, **more)
        except BaseException as error:
            _end(sending, error)
            raise

        def look() -> None:
            if sent.settled:
                error = sent.batch.error
                _end(sending, sent.position() if error is None else error)

        # A `then` added here would hide an error from `flush`. So the recorder looks at the handle.
        sending.look = look
        return sent

    async def wait(self, sent: Any) -> Any:
        """As the original's; it ends what was recorded."""
        try:
            return await self._raftlog_original.wait(sent)
        finally:
            self._raftlog_history.look(self._raftlog_seats)

    async def flush(self) -> None:
        """As the original's; it ends what was recorded."""
        try:
            await self._raftlog_original.flush()
        finally:
            self._raftlog_history.look(self._raftlog_seats)

    async def poll(self, **more: Any) -> Any:
        """As the original's, recorded."""
        with self._reading() as reading:
            given = await self._raftlog_original.poll(**more)
            reading.found = self._found_pieces(given)
        return given


@final
class RecordedBlockingConsumer(Recorded):
    """A `BlockingConsumer`."""

    def poll(self, **more: Any) -> Any:
        """As the original's, recorded."""
        with self._reading() as reading:
            given = self._raftlog_original.poll(**more)
            reading.found = found_in(self, *given.values())
        return given

    def __iter__(self) -> Any:
        records = iter(self._raftlog_original)
        while True:
            with self._reading() as reading:
                given = next(records)
                reading.found = found_in(self, [given])
            yield given

    def seek(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.seek(*args, **more)


@final
class RecordedConsumer(Recorded):
    """A `Consumer`."""

    async def poll(self, **more: Any) -> Any:
        """As the original's, recorded."""
        with self._reading() as reading:
            given = await self._raftlog_original.poll(**more)
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


def _end(sending: RecordedCall, outcome: Any) -> None:
    if isinstance(outcome, RecordPosition):
        topic = sending.key.rpartition("/")[0]
        sending.sent(topic, outcome.partition, outcome.offset)
    elif isinstance(outcome, OutcomeUnknown | ConnectionLost) or not isinstance(
        outcome, RaftlogError
    ):
        sending.info(outcome)
    else:
        sending.fail(outcome)
