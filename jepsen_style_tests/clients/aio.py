"""aiokafka, its event loop in a thread of its own."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from jepsen_style_tests.clients.face import ClientSettings, Done, Found, Unknown, gathered

NAME: Final = "aiokafka"
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
CLOSE_SECONDS: Final = 2.0
_Result = TypeVar("_Result")


@final
class AioClient:
    """A `face.Client`."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aio", daemon=True)
        self._thread.start()
        self._producer: Any = None
        self._consumer: Any = None
        self._waiting: set[asyncio.Task[Any]] = set()
        try:
            self._run(self._open(), 4 * settings.seconds)
        except Unknown:
            self.close()
            raise

    async def _open(self) -> None:
        settings = self._settings
        shared: dict[str, Any] = {
            "bootstrap_servers": settings.bootstrap,
            "request_timeout_ms": int(settings.request_seconds * 1000),
            "metadata_max_age_ms": 2000,
        }
        # Without idempotence aiokafka retries all the same, and may then double a record.
        self._producer = AIOKafkaProducer(acks="all", enable_idempotence=True, **shared)
        self._consumer = AIOKafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_max_wait_ms=50,
            **shared,
        )
        await self._producer.start()
        await self._consumer.start()

    def _run(self, work: Awaitable[_Result], seconds: float) -> _Result:
        async def bounded() -> _Result:
            return await asyncio.wait_for(work, seconds)

        try:
            return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()
        except (KafkaError, TimeoutError, OSError, ValueError) as error:
            raise Unknown(repr(error)) from error

    def send(self, topic: str, partition: int, value: str) -> int:
        found = self._run(self._put(topic, partition, value), self._settings.seconds)
        return int(found.offset)

    async def _put(self, topic: str, partition: int, value: str) -> Any:
        # A producer whose send was cancelled half way is not what is tested here: the wait may end,
        # the send goes on.
        sending = asyncio.ensure_future(
            self._producer.send_and_wait(topic, value.encode(), partition=partition)
        )
        sending.add_done_callback(_seen)
        return await asyncio.shield(sending)

    def send_soon(self, topic: str, partition: int, value: str, done: Done) -> None:
        self._loop.call_soon_threadsafe(partial(self._launch, topic, partition, value, done))

    def _launch(self, topic: str, partition: int, value: str, done: Done) -> None:
        task = self._loop.create_task(self._tell(topic, partition, value, done))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _tell(self, topic: str, partition: int, value: str, done: Done) -> None:
        try:
            async with asyncio.timeout(2 * self._settings.seconds):
                found = await self._put(topic, partition, value)
        except (KafkaError, TimeoutError, OSError) as error:
            done(None, Unknown(repr(error)))
        else:
            done(int(found.offset), None)

    def settle(self, seconds: float) -> None:
        async def wait() -> None:
            if self._waiting:
                await asyncio.wait(list(self._waiting), timeout=seconds)

        self._run(wait(), seconds + self._settings.seconds)

    def assign(self, positions: Mapping[tuple[str, int], int]) -> None:
        async def go() -> None:
            self._consumer.assign([TopicPartition(*place) for place in positions])
            for place, offset in positions.items():
                self._consumer.seek(TopicPartition(*place), offset)

        self._run(go(), self._settings.seconds)

    def poll(self, seconds: float) -> Found:
        batches = self._run(
            self._consumer.getmany(timeout_ms=int(seconds * 1000)), self._settings.seconds
        )
        return gathered(
            [
                (place.topic, place.partition, each.offset, each.value)
                for place, records in batches.items()
                for each in records
            ]
        )

    def end(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        found = self._run(self._consumer.end_offsets([place]), self._settings.seconds)
        return int(found[place])

    def close(self) -> None:
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        """Stop both sides; what does not stop in time is cancelled."""
        for each in (self._producer, self._consumer):
            if each is not None:
                await asyncio.wait([asyncio.ensure_future(each.stop())], timeout=CLOSE_SECONDS)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)


def _seen(sending: "asyncio.Future[Any]") -> None:
    """Look at the error of a send that nobody waits for any more, or asyncio prints it."""
    if not sending.cancelled():
        sending.exception()
