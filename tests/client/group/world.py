"""Several consumers, each with its own client core, one fake cluster, one virtual time."""

from typing import Any

import attrs

from raftlog.base.units import NEVER, millis
from raftlog.client.core.group.consumer import GroupConsumer, PartitionChange
from raftlog.client.core.group.membership import Phase
from raftlog.client.core.group.options import ConsumerOptions
from raftlog.client.core.values import ClientOptions, TopicPartition
from tests.client.fake_cluster import HOST, START, FakeCluster
from tests.client.group.fake_groups import FakeGroups
from tests.client.harness import Harness
from tests.client.test_fetcher import fill


@attrs.define(eq=False)
class Reader:
    """A consumer that polls all the time, unless it is told to be busy."""

    harness: Harness
    consumer: GroupConsumer
    busy: bool = False
    records: list[Any] = attrs.Factory(list)
    notices: list[tuple[str, list[str]]] = attrs.Factory(list)
    errors: list[Exception] = attrs.Factory(list)
    records_max: int = 500

    def places(self) -> list[str]:
        return [str(each) for each in self.consumer.positions.places()]

    def act(self) -> None:
        """Do what a user's loop does between two turns."""
        if self.busy:
            return
        consumer = self.consumer
        consumer.poll_begin()
        while consumer.notice is not None:
            change, places = consumer.notice
            self.notices.append((change.value, [str(each) for each in places]))
            consumer.notice_done()
        try:
            for records in consumer.take(self.records_max).values():
                self.records += records
        except Exception as error:  # the test looks at it
            self.errors.append(error)

    def begin_work(self) -> None:
        """No poll from now on."""
        self.busy = True
        self.consumer.poll_end()
        self.harness.turn()

    def end_work(self) -> None:
        self.busy = False

    def told(self, change: PartitionChange) -> list[list[str]]:
        return [places for kind, places in self.notices if kind == change.value]


@attrs.define(eq=False)
class World:
    cluster: FakeCluster = attrs.Factory(FakeCluster)
    groups: FakeGroups = attrs.field(init=False)
    readers: list[Reader] = attrs.Factory(list)
    now: int = START
    latency_ns: int = millis(1)

    def __attrs_post_init__(self) -> None:
        self.groups = FakeGroups(self.cluster)
        self.cluster.groups = self.groups

    def reader(
        self,
        *topics: str,
        client: dict[str, Any] | None = None,
        records_max: int = 500,
        **more: Any,
    ) -> Reader:
        options = ClientOptions(
            bootstrap=((HOST, 9001), (HOST, 9002)), **{"fetch_wait_ms": 0, **(client or {})}
        )
        harness = Harness(self.cluster, options, self.latency_ns, now=self.now)
        harness.turn()
        settings = {
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 100,
            "session_timeout_ms": 6000,
            **more,
        }
        consumer = harness.core.open_consumer(ConsumerOptions(**settings))
        reader = Reader(harness, consumer, records_max=records_max)
        if topics:
            consumer.subscribe(topics)
        self.readers.append(reader)
        harness.turn()
        return reader

    def kill(self, reader: Reader) -> None:
        """The process of this consumer is gone; the coordinator does not know yet."""
        self.readers.remove(reader)

    def _due(self, reader: Reader) -> int:
        harness = reader.harness
        return min(harness._heap[0][0] if harness._heap else NEVER, harness.wake_at)

    def step(self) -> None:
        reader = min(self.readers, key=self._due)
        due = self._due(reader)
        self.now = max(self.now, min(due, self.now + millis(50)))
        for each in self.readers:
            each.harness.now = max(each.harness.now, min(self.now, self._due(each)))
        if due <= self.now:
            reader.harness.step()
        for each in self.readers:
            before = (each.consumer.notice, len(each.records), each.busy)
            each.act()
            if (not each.busy and before[0] is None) or each.consumer.notice is not before[0]:
                each.harness.turn()

    def run_until(self, done: Any, steps: int = 20_000) -> None:
        for _ in range(steps):
            if done():
                return
            self.step()
        states = [(each.places(), each.consumer.membership.phase) for each in self.readers]
        raise AssertionError(f"it did not happen: {states}")

    def run_for(self, nanos: int) -> None:
        end = self.now + nanos
        self.run_until(lambda: self.now >= end, steps=200_000)


def place(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))


ALL = ["t-0", "t-1", "t-2", "t-3"]
EAGER = {"partition_assignment_strategy": ("range",)}
COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}


def start(partitions=4, batches=3):
    """A world with a topic `t` of 3 records a batch."""
    world = World()
    for each in world.cluster.topic("t", partitions):
        fill(each, batches)
    return world


def commit(reader, offsets=None):
    """Commit as the user; returns the outcome."""
    number = next(reader.harness._numbers)
    reader.consumer.commit(number, offsets)
    reader.harness.turn()
    reader.harness.run_until(lambda: number in reader.harness.results)
    return reader.harness.results.pop(number)


def joined(world, *readers):
    """Until they have all partitions among them."""

    def done():
        owned = [each for reader in readers for each in reader.places()]
        stable = all(each.consumer.membership.phase is Phase.STABLE for each in readers)
        return stable and sorted(owned) == ALL and all(reader.places() for reader in readers)

    world.run_until(done)


def generation(world):
    return world.groups.groups["g"].generation
