"""raftlog's own clients, blocking and trio's: `BlockingClient`, `BlockingConsumer`, `Client`,
`Consumer`.

Their errors say what happened: `OutcomeUnknown` may have been written, every other error of a send
was not.
"""

from collections.abc import Callable
from typing import Any, final

from raftlog.base.errors import RaftlogError
from raftlog.client.core.errors import ConnectionLost, OutcomeUnknown
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import RecordPosition
from raftlog.embed.recording.history import Operation
from raftlog.embed.recording.kafka_python import found_in
from raftlog.embed.recording.wrapper import Recorded


class _RecordedSender(Recorded):
    """What both clients share."""

    def _told(
        self, sending: Operation, identity: Any, then: Callable[[Any], Any] | None
    ) -> Callable[[Any], None]:
        def told(outcome: RecordPosition | RaftlogError) -> None:
            self._end(sending, identity, outcome)
            if then is not None:
                then(outcome)
            elif isinstance(outcome, RaftlogError):
                # The client keeps what a `then` raises for the next `flush`, where it also raises
                # the error of a record that was sent without `then`.
                raise outcome

        return told

    def _end(self, sending: Operation, identity: Any, outcome: Any) -> None:
        if isinstance(outcome, RecordPosition) and outcome.offset < 0:
            sending.info("acknowledged without an offset, as acks=0 is")
        elif isinstance(outcome, RecordPosition):
            topic = sending.key.rpartition("/")[0]
            sending.sent(topic, outcome.partition, int(outcome.offset), identity)
        elif isinstance(outcome, OutcomeUnknown | ConnectionLost) or not isinstance(
            outcome, RaftlogError
        ):
            sending.info(outcome)
        else:
            sending.fail(outcome)

    def _found_pieces(self, pieces: list[Any]) -> dict[str, list[list[Any]]]:
        whole = [piece for piece in pieces if not isinstance(piece, Trouble)]
        return found_in(self, [each for piece in whole for each in piece.records()])


@final
class RecordedBlockingClient(_RecordedSender):
    """A `BlockingClient`."""

    def produce(self, topic: Any, value: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._sending(
            topic, more.get("partition"), more.get("key"), value, more.get("headers")
        )
        if sending is None:
            return original.produce(topic, value, **more)
        identity = self._identity(topic, more.get("key"), value, more.get("headers"))
        try:
            position = original.produce(topic, value, **more)
        except BaseException as error:
            self._end(sending, identity, error)
            raise
        self._end(sending, identity, position)
        return position

    def send_soon(self, topic: Any, value: Any, **more: Any) -> None:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._sending(
            topic, more.get("partition"), more.get("key"), value, more.get("headers")
        )
        if sending is None:
            original.send_soon(topic, value, **more)
            return
        identity = self._identity(topic, more.get("key"), value, more.get("headers"))
        then = self._told(sending, identity, more.pop("then", None))
        try:
            original.send_soon(topic, value, **more, then=then)
        except BaseException as error:
            self._end(sending, identity, error)
            raise

    def poll(self, **more: Any) -> Any:
        """As the original's, recorded."""
        reading = self._reading()
        try:
            given = self._raftlog_original.poll(**more)
            found = self._found_pieces(given)
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given


@final
class RecordedClient(_RecordedSender):
    """A `Client`."""

    async def produce(self, topic: Any, value: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._sending(
            topic, more.get("partition"), more.get("key"), value, more.get("headers")
        )
        if sending is None:
            return await original.produce(topic, value, **more)
        identity = self._identity(topic, more.get("key"), value, more.get("headers"))
        try:
            position = await original.produce(topic, value, **more)
        except BaseException as error:
            self._end(sending, identity, error)
            raise
        self._end(sending, identity, position)
        return position

    async def send_soon(self, topic: Any, value: Any, **more: Any) -> Any:
        """As the original's, recorded."""
        original = self._raftlog_original
        sending = self._sending(
            topic, more.get("partition"), more.get("key"), value, more.get("headers")
        )
        if sending is None:
            return await original.send_soon(topic, value, **more)
        identity = self._identity(topic, more.get("key"), value, more.get("headers"))
        if more.get("then") is not None:
            more["then"] = self._told(sending, identity, more["then"])
        try:
            sent = await original.send_soon(topic, value, **more)
        except BaseException as error:
            self._end(sending, identity, error)
            raise

        def look() -> None:
            if sent.settled:
                error = sent.batch.error
                self._end(sending, identity, sent.position() if error is None else error)

        # A `then` of ours would hide an error from `flush`: the handle is looked at instead.
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
        reading = self._reading()
        try:
            given = await self._raftlog_original.poll(**more)
            found = self._found_pieces(given)
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given


@final
class RecordedBlockingConsumer(Recorded):
    """A `BlockingConsumer`."""

    def poll(self, **more: Any) -> Any:
        """As the original's, recorded."""
        reading = self._reading()
        try:
            given = self._raftlog_original.poll(**more)
            found = found_in(self, [each for records in given.values() for each in records])
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given

    def __iter__(self) -> Any:
        records = iter(self._raftlog_original)
        while True:
            reading = self._reading()
            try:
                given = next(records)
                found = found_in(self, [given])
            except BaseException as error:
                reading.info(error)
                raise
            reading.ok(found)
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
        reading = self._reading()
        try:
            given = await self._raftlog_original.poll(**more)
            found = found_in(self, [each for records in given.values() for each in records])
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given

    async def __anext__(self) -> Any:
        reading = self._reading()
        try:
            given = await anext(self._raftlog_original)
            found = found_in(self, [given])
        except BaseException as error:
            reading.info(error)
            raise
        reading.ok(found)
        return given

    def seek(self, *args: Any, **more: Any) -> Any:
        """As the original's."""
        self._seek()
        return self._raftlog_original.seek(*args, **more)
