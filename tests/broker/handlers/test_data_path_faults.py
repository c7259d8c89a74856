"""Real frames are answered rightly while brokers are killed and restarted under load.

* Acknowledged batches are there once, in order.
* Long polls see them in order without a gap.
* Every request is answered, or its connection ended.
* At rest no replica has a waiting request.
"""

import pytest
from raftlog_sim.world.client import ConnectionLostError, HeapClient
from raftlog_sim.world.world import seconds

from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import values_of
from tests.broker.handlers.data_path import batch_of, fetch_request, led_topic, produce_request
from tests.raft.cluster import SeededEntropy

RETRIED = (3, 5, 6, 7, 19, 20, 56, 78)


class Asker:
    """One client that asks the leader, one request at a time."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.client = None
        self.pending = None

    def leader(self):
        """The node that a client would be sent to by the nodes that are up."""
        found = None
        for node in self.cluster.world.running():
            replica = node.broker.context.router.replica("t", 0)
            if (
                not isinstance(replica, int)
                and replica.is_leader
                and (found is None or replica.term > found[0])
            ):
                found = (replica.term, node)
        return found and found[1]

    def step(self):
        if self.pending is not None:
            if not self.pending.done:
                return
            answer, self.pending = self.pending.answer, None
            if isinstance(answer, ConnectionLostError):
                self.client = None
            else:
                self.answered(answer)
        node = self.leader()
        if node is None:
            return
        if self.client is None or self.client.node is not node or self.client.connection is None:
            if self.client is not None and self.client.connection is not None:
                self.client.close()
            self.client = HeapClient(node).connect()
        self.pending = self.client.request(*self.question())


class Producer(Asker):
    def __init__(self, cluster, pid):
        super().__init__(cluster)
        self.pid = pid
        self.sequence = 0
        self.acked = []

    def value(self):
        return b"p%d-%d" % (self.pid, self.sequence)

    def question(self):
        batch = batch_of(self.value(), pid=self.pid, epoch=0, first=self.sequence)
        return ApiKey.PRODUCE, produce_request(batch, timeout_ms=2_000), 11

    def answered(self, answer):
        partition = answer.responses[0].partition_responses[0]
        if partition.error_code == ErrorCode.NONE:
            self.acked.append((partition.base_offset, self.value()))
            self.sequence += 1
        else:
            assert partition.error_code in RETRIED, partition


class Consumer(Asker):
    def __init__(self, cluster):
        super().__init__(cluster)
        self.seen = []

    def question(self):
        body = fetch_request(len(self.seen), max_wait_ms=700, min_bytes=300, max_bytes=500)
        return ApiKey.FETCH, body, 12

    def answered(self, answer):
        partition = answer.responses[0].partitions[0]
        if partition.error_code:
            assert partition.error_code in RETRIED, partition
            return
        for offset, value in values_of(partition.records):
            if offset >= len(self.seen):
                assert offset == len(self.seen), (offset, len(self.seen))
                self.seen.append(value)
        assert partition.high_watermark == -1 or len(self.seen) <= partition.high_watermark


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("consistency", ["committed", "linearizable"])
def test_data_paths_under_kills(seed, consistency):
    draw = SeededEntropy(seed * 7 + 3).below
    configs = (("raftlog.read.consistency", consistency), ("min.insync.replicas", "2"))
    cluster = led_topic(configs=configs, seed=seed + 1)
    producers = [Producer(cluster, pid) for pid in (1, 2)]
    consumer = Consumer(cluster)
    down = []
    for _ in range(160):
        for asker in (*producers, consumer):
            if draw(3):
                asker.step()
        what = draw(25)
        if what == 0 and not down:
            down.append(1 + draw(3))
            cluster.kill(down[0])
        elif what in (1, 2) and down:
            cluster.restart(down.pop())
        cluster.run((1 + draw(60)) / 1_000)
    for number in down:
        cluster.restart(number)
    cluster.ready(60.0)
    end = cluster.world.now + seconds(40)
    while cluster.world.now < end and len(consumer.seen) < total(cluster):
        consumer.step()
        cluster.run(0.02)
    cluster.run(5.0)
    check(cluster, producers, consumer)


def total(cluster):
    return cluster.leader("t").broker.context.router.replica("t", 0).high_watermark


def check(cluster, producers, consumer):
    records = cluster.read_all("t")
    assert [offset for offset, _ in records] == list(range(len(records)))
    for producer in producers:
        mine = [one for one in records if one[1].startswith(b"p%d-" % producer.pid)]
        assert len(producer.acked) > 5
        assert mine[: len(producer.acked)] == producer.acked
        assert [v for _, v in mine] == [b"p%d-%d" % (producer.pid, n) for n in range(len(mine))]
    assert consumer.seen == [value for _, value in records]
    for client in (consumer.client, *(producer.client for producer in producers)):
        if client is not None and client.connection is not None:
            client.close()
    cluster.run(3.0)
    for node in cluster.world.running():
        assert node.broker.context.router.replica("t", 0).waiting == 0
