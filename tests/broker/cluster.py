"""A cluster in virtual time, and the few things that tests do with it: topics, records, faults.

Every call that waits steps the world until what it waits for is there, or fails after a bounded
virtual time. Records go through real frames; nothing is looked up in memory that a client could
not see, except in the methods whose name begins with `see_`.
"""

from raftlog_sim.world.client import HeapClient
from raftlog_sim.world.world import World, seconds

from raftlog.base.errors import ProtocolError
from raftlog.base.trace import ListTracer
from raftlog.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import split
from raftlog.records.builder import RecordBatchBuilder
from raftlog.records.record import records_of
from raftlog.storage.directories.data_dir import DirectoryIdentity, format_directory

ACKS_ALL = -1
STAMP_MS = 1_700_000_000_000
RETRIABLE = (3, 5, 6, 7, 19, 20, 56, 100)


class Cluster:
    def __init__(
        self, brokers=3, controllers=1, seed=1, configure=None, encode=False, patient=False
    ) -> None:
        self.tracer = ListTracer()
        self.world = World(seed, tracer=self.tracer, configure=configure)
        self.world.patient = patient
        self.world.network.encode = encode
        self.world.found(brokers, controllers)
        self.clients = {}

    # --- waiting ---

    def wait(self, reached, limit=20.0, what=""):
        return self.world.run_until(reached, seconds(limit), what)

    def run(self, duration):
        self.world.run_for(seconds(duration))

    def ready(self, limit=20.0):
        """Every running broker is registered, unfenced, and says that it is ready."""
        self.wait(
            lambda: all(self.see_ready(node) for node in self.world.running()), limit, "ready"
        )
        return self

    def see_ready(self, node):
        return node.broker.admin.readyz()["ok"]

    # --- requests ---

    def client(self, number):
        found = self.clients.get(number)
        if found is None or found.connection is None:
            found = self.clients[number] = HeapClient(self.world.nodes[number]).connect()
        return found

    def ask(self, number, api_key, body, version=None, limit=20.0):
        pending = self.client(number).request(api_key, body, version)
        self.wait(lambda: pending.done, limit, f"answer of {api_key.name} from {number}")
        if isinstance(pending.answer, Exception):
            raise pending.answer
        return pending.answer

    def create(self, name, partitions=1, factor=3, at=None, configs=(), timeout_ms=5000):
        node = at or self.world.running()[0].number
        pairs = [CreatableTopicConfig(key, value) for key, value in configs]
        topic = CreatableTopic(name, partitions, factor, (), pairs)
        body = CreateTopicsRequest([topic], timeout_ms)
        answer = self.ask(node, ApiKey.CREATE_TOPICS, body).topics[0]
        assert answer.error_code == 0, answer
        return answer

    def metadata(self, *names, at=None, create=False):
        node = at or self.world.running()[0].number
        topics = [MetadataRequestTopic(name=name) for name in names] if names else None
        return self.ask(node, ApiKey.METADATA, MetadataRequest(topics, create), version=12)

    def partition(self, name, number=0, at=None):
        topic = self.metadata(name, at=at).topics[0]
        assert topic.error_code == 0, topic
        return topic.partitions[number]

    def leader(self, name, number=0, limit=20.0):
        """The node that leads, as clients are told; waits for one that is up."""
        found = []

        def led():
            found.clear()
            for node in self.world.running():
                replica = node.broker.context.router.replica(name, number)
                if not isinstance(replica, int) and replica.is_leader and replica.ready:
                    found.append((replica.term, node))
            return bool(found)

        self.wait(led, limit, f"leader of {name}-{number}")
        return max(found, key=lambda pair: pair[0])[1]

    # --- records ---

    def produce(
        self, name, values, number=0, at=None, acks=ACKS_ALL, timeout_ms=5000, stamp=STAMP_MS
    ):
        """One batch, its records of the timestamp `stamp`; the partition's answer."""
        node = at or self.leader(name, number).number
        body = self.produce_body(name, values, number, acks, timeout_ms, stamp)
        answer = self.ask(node, ApiKey.PRODUCE, body, version=11)
        return answer.responses[0].partition_responses[0]

    def produce_body(self, name, values, number=0, acks=ACKS_ALL, timeout_ms=5000, stamp=STAMP_MS):
        data = PartitionProduceData(number, batch(values, stamp))
        return ProduceRequest(
            None,
            acks,
            timeout_ms,
            [TopicProduceData(name, partition_data=[data])],
        )

    def put(self, name, values, number=0, limit=30.0, stamp=STAMP_MS):
        """Retry as a client does until the batch is acknowledged; its base offset."""
        end = self.world.now + seconds(limit)
        while self.world.now < end:
            try:
                answer = self.produce(name, values, number, stamp=stamp)
            except Exception as error:
                if type(error).__name__ != "ConnectionLostError":
                    raise
                continue
            if answer.error_code == 0:
                return answer.base_offset
            assert answer.error_code in RETRIABLE, answer
            self.run(0.05)
        raise AssertionError(f"not acknowledged within {limit} s")

    def fetch(
        self, name, offset=0, number=0, at=None, max_wait_ms=0, min_bytes=1, bytes_max=1 << 20
    ):
        """One fetch; the partition's answer."""
        node = at or self.leader(name, number).number
        partition = FetchPartition(
            partition=number, fetch_offset=offset, partition_max_bytes=bytes_max
        )
        body = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=bytes_max,
            topics=[FetchTopic(name, partitions=[partition])],
        )
        answer = self.ask(node, ApiKey.FETCH, body, version=12)
        assert answer.error_code == 0, answer
        return answer.responses[0].partitions[0]

    def read_all(self, name, number=0, at=None, offset=0):
        """Every committed value from `offset` on, in order, as (offset, value)."""
        found = []
        while True:
            answer = self.fetch(name, offset, number, at)
            assert answer.error_code == 0, answer
            records = values_of(answer.records)
            if not records:
                return found
            found += [record for record in records if record[0] >= offset]
            offset = records[-1][0] + 1

    # --- faults ---

    def kill(self, number):
        """kill -9: what was written stays in the page cache of a machine that lives on."""
        self.world.nodes[number].stop_process()

    def restart(self, number):
        self.world.nodes[number].start()

    def wipe(self, number):
        """The node comes back with an empty disk, formatted as a joiner."""
        node = self.world.nodes[number]
        assert not node.up, number
        other = self.world.running()[0]
        cluster = other.broker.context.cluster
        node.disk = self.world.new_disk(number)
        identity = DirectoryIdentity(
            cluster=cluster, node=number, directory=self.world.new_directory(number), controllers=()
        )
        format_directory(node.disk, identity)


def batch(values, stamp=STAMP_MS) -> bytes:
    builder = RecordBatchBuilder()
    for value in values:
        data = value.encode() if isinstance(value, str) else value
        builder.append(data, timestamp_ms=stamp)
    return bytes(builder.build())


def values_of(records) -> list[tuple[int, bytes]]:
    found = []
    for part in split(records or b"", ProtocolError, "fetched"):
        found += [(r.offset, bytes(r.value)) for r in records_of(part, ProtocolError, "fetched")]
    return found
