"""One member of a consumer group, as a program: `group_member.py CLIENT SETTINGS`.

It subscribes, polls, commits what it has processed, and writes a line of JSON before and after each
thing it does, with the instant on the machine's monotonic clock:

    {"ns": 17, "who": "commit", "type": "invoke", "f": "offset_commit", "value": ["g", {"t/0": 5}],
     "generation": 3}

Polled records count as processed once their line is written; only then may they be committed. `who`
is poll, told or commit: each has one operation open at a time. A commit that was not accepted is
`info`: an earlier try may have been. At the end of its input it leaves the group. It may be killed.
"""

import asyncio
import contextlib
import json
import logging
import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import final

POLL_SECONDS = 0.1
RECORDS_MAX = 50
COMMITS = 0.6  # of the polls with records: a commit follows
CALL_SECONDS = 5.0


class Member(ABC):
    """The part that all clients share: the owned partitions, the processed offsets, and the
    lines."""

    def __init__(self, settings):
        self.settings = settings
        self.topic, self.group = settings["topic"], settings["group"]
        self.dice = random.Random(settings["seed"])
        self.owned = {}
        """Partition -> how far it was processed, or None."""
        self.committed = {}
        self.polled_ns, self.committing = 0, False
        self.lock = threading.Lock()
        self.leaving = threading.Event()
        threading.Thread(target=self.wait_for_the_end, daemon=True).start()

    def wait_for_the_end(self):
        sys.stdin.read()
        self.leaving.set()

    @abstractmethod
    def generation(self):
        """The client's generation now; None where it has none."""

    def say(self, who, kind, f, value, at_ns=None, error=None):
        """Write a line: the operation of `who` begins or ends now, or at `at_ns`."""
        generation = self.generation()
        line = {"ns": at_ns or time.monotonic_ns(), "who": who, "type": kind, "f": f}
        line |= {"value": value, "generation": generation}
        if error is not None:
            line["error"] = repr(error)[:200]
        with self.lock:
            text = json.dumps(line).encode() + b"\n"
            while text:  # at once, so that a killed program has said what it did
                text = text[os.write(sys.stdout.fileno(), text) :]

    # --- partitions -------------------------------------------------------------------------------

    def assigned(self, partitions):
        value = ["assigned", [f"{self.topic}/{number}" for number in partitions]]
        self.say("told", "invoke", "rebalance", value)
        self.owned |= dict.fromkeys(partitions)
        self.say("told", "ok", "rebalance", None)

    def gave_up(self, what, partitions):
        """The client told of partitions that it does not own any more."""
        value = [what, [f"{self.topic}/{number}" for number in partitions]]
        self.say("told", "invoke", "rebalance", value)
        for number in partitions:
            self.owned.pop(number, None)
            self.committed.pop(number, None)
        self.say("told", "ok", "rebalance", None)

    def to_commit(self, partitions=None):
        """Partition -> offset of what was processed and not committed."""
        return {
            number: at
            for number, at in self.owned.items()
            if at is not None
            and at != self.committed.get(number)
            and (partitions is None or number in partitions)
        }

    # --- records and commits ----------------------------------------------------------------------

    def polling(self):
        self.polled_ns = time.monotonic_ns()

    def processed(self, found):
        """`found`: partition -> [[offset, value], ...]."""
        found = {number: pairs for number, pairs in found.items() if pairs}
        if not found:
            return
        self.say("poll", "invoke", "poll", None, self.polled_ns)
        value = {f"{self.topic}/{number}": pairs for number, pairs in found.items()}
        self.say("poll", "ok", "poll", value)
        for number, pairs in found.items():
            if number in self.owned:
                self.owned[number] = pairs[-1][0] + 1

    def wants_commit(self):
        return self.dice.random() < COMMITS and bool(self.to_commit())

    def call_commit(self, offsets):
        if self.committing:  # a client gave it up without a word: it may have happened
            self.commit_ended({}, "the client went on")
        self.committing = True
        named = {f"{self.topic}/{number}": at for number, at in offsets.items()}
        self.say("commit", "invoke", "offset_commit", [self.group, named])

    def commit_ended(self, offsets, error):
        if not self.committing:
            return
        self.committing = False
        if error is None:
            self.say("commit", "ok", "offset_commit", None)
            self.committed |= {n: at for n, at in offsets.items() if n in self.owned}
        else:
            self.say("commit", "info", "offset_commit", None, error=error)


def by_partition(batches):
    """The result of a poll of the Python clients: place -> records."""
    return {
        place.partition: [[each.offset, each.value.decode()] for each in records]
        for place, records in batches.items()
    }


# --- librdkafka -----------------------------------------------------------------------------------


@final
class Confluent(Member):
    def run(self):
        """Consume until the input ends."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        settings = self.settings
        self.gathered, self.closing, self.consumer = {}, False, None
        self.place, self.failure = TopicPartition, KafkaException
        configs = {
            "bootstrap.servers": settings["bootstrap"],
            "log_level": 0,
            "group.id": self.group,
            "partition.assignment.strategy": settings["strategy"],
            "session.timeout.ms": settings["session_ms"],
            "heartbeat.interval.ms": settings["session_ms"] // 5,
            "max.poll.interval.ms": settings["poll_interval_ms"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        if settings["instance"]:
            configs["group.instance.id"] = settings["instance"]
        self.consumer = consumer = Consumer(configs)
        consumer.subscribe(
            [self.topic], on_assign=self.on_assign, on_revoke=self.on_revoke, on_lost=self.on_lost
        )
        while not self.leaving.is_set():
            self.polling()
            self.take(consumer.poll(POLL_SECONDS))
            for _ in range(RECORDS_MAX):
                message = consumer.poll(0)
                if message is None:
                    break
                self.take(message)
            self.flush()
            if self.wants_commit():
                self.commit(self.to_commit())
        self.commit(self.to_commit())
        self.closing = True
        # Once in 27 runs its close lost an error of its own; the member has said all that it did.
        with contextlib.suppress(SystemError):
            consumer.close()

    def generation(self):
        # librdkafka tells it in the metadata for transactions only, and not inside of its close.
        if self.consumer is None or self.closing:
            return None
        told = self.consumer.consumer_group_metadata()
        found = int.from_bytes(told[7:11], sys.byteorder, signed=True) if told else -1
        return found if found >= 0 else None

    def take(self, message):
        if message is not None and message.error() is None:
            pairs = self.gathered.setdefault(message.partition(), [])
            pairs.append([message.offset(), message.value().decode()])

    def flush(self):
        gathered, self.gathered = self.gathered, {}
        self.processed(gathered)

    def commit(self, offsets):
        """Commit these offsets, partition -> offset, and say what came of it."""
        if not offsets:
            return
        self.call_commit(offsets)
        places = [self.place(self.topic, number, at) for number, at in offsets.items()]
        error = None
        try:
            for each in self.consumer.commit(offsets=places, asynchronous=False):
                error = error or each.error
        except self.failure as failed:
            error = failed
        self.commit_ended(offsets, error)

    def on_assign(self, consumer, places):
        self.flush()
        self.assigned([place.partition for place in places])
        self.polling()

    def on_revoke(self, consumer, places):
        self.flush()
        partitions = [place.partition for place in places]
        if not self.closing:  # a commit inside of close is not heard any more
            self.commit(self.to_commit(partitions))
        self.gave_up("revoked", partitions)
        self.polling()

    def on_lost(self, consumer, places):
        self.flush()
        self.gave_up("lost", [place.partition for place in places])
        self.polling()


# --- kafka-python ---------------------------------------------------------------------------------


@final
class KafkaPython(Member):
    def run(self):
        """Consume until the input ends."""
        import kafka
        from kafka.errors import KafkaError

        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        settings, member = self.settings, self
        self.consumer = None
        self.place, self.offset = kafka.TopicPartition, kafka.OffsetAndMetadata
        self.failure = KafkaError

        @final
        class Listener(kafka.ConsumerRebalanceListener):
            def on_partitions_revoked(self, revoked):
                member.gave_up("revoked", sorted(place.partition for place in revoked))

            def on_partitions_assigned(self, assigned):
                member.assigned(sorted(place.partition for place in assigned))

            def on_partitions_lost(self, lost):
                member.gave_up("lost", sorted(place.partition for place in lost))

        self.consumer = consumer = kafka.KafkaConsumer(
            bootstrap_servers=settings["bootstrap"].split(","),
            group_id=self.group,
            group_instance_id=settings["instance"],
            partition_assignment_strategy=[strategy_of(settings["strategy"])],
            session_timeout_ms=settings["session_ms"],
            heartbeat_interval_ms=settings["session_ms"] // 5,
            max_poll_interval_ms=settings["poll_interval_ms"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            request_timeout_ms=settings["poll_interval_ms"] + 2000,
        )
        consumer.subscribe([self.topic], listener=Listener())
        while not self.leaving.is_set():
            self.polling()
            try:
                batches = consumer.poll(timeout_ms=int(POLL_SECONDS * 1000))
            except KafkaError:
                continue
            self.processed(by_partition(batches))
            if self.wants_commit():
                self.commit(self.to_commit())
        self.commit(self.to_commit())
        consumer.close(autocommit=False)

    def generation(self):
        if self.consumer is None:
            return None
        found = self.consumer.group_metadata().generation_id
        return found if found >= 0 else None

    def commit(self, offsets):
        """Commit these offsets, partition -> offset, and say what came of it."""
        if not offsets:
            return
        self.call_commit(offsets)
        places = {
            self.place(self.topic, number): self.offset(at, "", -1)
            for number, at in offsets.items()
        }
        error = None
        try:
            self.consumer.commit(places, timeout_ms=int(CALL_SECONDS * 1000))
        except self.failure as failed:
            error = failed
        self.commit_ended(offsets, error)


def strategy_of(name):
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor

    return {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}[name]


# --- aiokafka -------------------------------------------------------------------------------------


@final
class AioKafka(Member):
    consumer = None

    def run(self):
        asyncio.run(self.consume())

    async def consume(self):
        """Consume until the input ends."""
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.errors import KafkaError

        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        settings, member = self.settings, self
        self.place, self.failure = TopicPartition, KafkaError

        @final
        class Listener(ConsumerRebalanceListener):
            async def on_partitions_revoked(self, revoked):
                member.gave_up("revoked", sorted(place.partition for place in revoked))

            async def on_partitions_assigned(self, assigned):
                member.assigned(sorted(place.partition for place in assigned))

        consumer = AIOKafkaConsumer(
            bootstrap_servers=settings["bootstrap"],
            group_id=self.group,
            group_instance_id=settings["instance"],
            partition_assignment_strategy=[RangePartitionAssignor],
            session_timeout_ms=settings["session_ms"],
            heartbeat_interval_ms=settings["session_ms"] // 5,
            max_poll_interval_ms=settings["poll_interval_ms"],
            rebalance_timeout_ms=settings["poll_interval_ms"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=50,
            max_poll_records=RECORDS_MAX,
            request_timeout_ms=settings["poll_interval_ms"] + 2000,
        )
        consumer.subscribe([self.topic], listener=Listener())
        self.consumer = consumer
        await started(consumer, self.leaving)
        while not self.leaving.is_set():
            self.polling()
            batches = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000))
            self.processed(by_partition(batches))
            if self.wants_commit():
                await self.commit(self.to_commit())
        await self.commit(self.to_commit())
        # aiokafka cancels its own fetches, and may then raise what they say.
        await asyncio.wait([asyncio.ensure_future(consumer.stop())], timeout=CALL_SECONDS)

    def generation(self):
        coordinator = self.consumer and self.consumer._coordinator
        return coordinator.generation if coordinator and coordinator.generation >= 0 else None

    async def commit(self, offsets):
        """Commit these offsets, partition -> offset, and say what came of it."""
        if not offsets:
            return
        self.call_commit(offsets)
        places = {self.place(self.topic, number): at for number, at in offsets.items()}
        error = None
        try:
            await asyncio.wait_for(self.consumer.commit(places), CALL_SECONDS)
        except (self.failure, TimeoutError) as failed:
            error = failed
        self.commit_ended(offsets, error)


async def started(consumer, leaving):
    """Start it; brokers may be gone for a while."""
    from aiokafka.errors import KafkaError

    while not leaving.is_set():
        try:
            await consumer.start()
        except KafkaError:
            await asyncio.sleep(0.2)
        else:
            return


# --- raftlog's own --------------------------------------------------------------------------------


@final
class Raftlog(Member):
    def run(self):
        import trio

        trio.run(self.consume)

    async def consume(self):
        """Consume until the input ends."""
        import trio

        from raftlog.base.errors import RaftlogError
        from raftlog.client.consumer import Consumer
        from raftlog.client.core.values import TopicPartition

        settings, member = self.settings, self
        self.consumer, self.place, self.failure = None, TopicPartition, RaftlogError

        @final
        class Listener:
            async def on_partitions_revoked(self, places):
                partitions = [place.partition for place in places]
                await member.commit(member.to_commit(partitions))
                member.gave_up("revoked", partitions)

            def on_partitions_assigned(self, places):
                member.assigned([place.partition for place in places])

            def on_partitions_lost(self, places):
                member.gave_up("lost", [place.partition for place in places])

        async with Consumer(
            settings["bootstrap"],
            group_id=self.group,
            group_instance_id=settings["instance"],
            partition_assignment_strategy=settings["strategy"],
            session_timeout_ms=settings["session_ms"],
            heartbeat_interval_ms=settings["session_ms"] // 5,
            max_poll_interval_ms=settings["poll_interval_ms"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=RECORDS_MAX,
        ) as consumer:
            self.consumer = consumer
            consumer.subscribe([self.topic], listener=Listener())
            while not self.leaving.is_set():
                self.polling()
                try:
                    batches = await consumer.poll(seconds=POLL_SECONDS)
                except RaftlogError:
                    await trio.sleep(POLL_SECONDS)
                    continue
                self.processed(by_partition(batches))
                if self.wants_commit():
                    await self.commit(self.to_commit())
            await self.commit(self.to_commit())

    def generation(self):
        if self.consumer is None:
            return None
        found = self.consumer._core.membership.identity.generation
        return found if found >= 0 else None

    async def commit(self, offsets):
        """Commit these offsets, partition -> offset, and say what came of it."""
        if not offsets:
            return
        import trio

        self.call_commit(offsets)
        error = None
        try:
            with trio.fail_after(CALL_SECONDS):
                await self.consumer.commit(
                    {self.place(self.topic, number): at for number, at in offsets.items()}
                )
        except (self.failure, trio.TooSlowError) as failed:
            error = failed
        self.commit_ended(offsets, error)


CLIENTS = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "raftlog": Raftlog,
}


if __name__ == "__main__":
    CLIENTS[sys.argv[1]](json.loads(sys.argv[2])).run()
