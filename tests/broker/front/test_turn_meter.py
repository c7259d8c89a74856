"""A frame has a budget, and so has a turn: what names more goes on in later turns.

The fault: 4 MiB of tagged fields, a Fetch of 100,000 partitions, or 64 such frames in one turn held
up heartbeats and all other clients for seconds. Counts are asserted, not times; the times stand in
the limits page.
"""

import random

import pytest
from raftlog_sim.world.client import ConnectionLostError, HeapClient

from raftlog.base.limits import (
    DECOMPRESSED_BYTES_MAX,
    DESCRIBED_RESOURCES_MAX,
    FRAME_ITEMS_MAX,
    TURN_ITEMS_MAX,
    TURN_SMALL_FRAME_BYTES,
)
from raftlog.base.units import KIB
from raftlog.broker.events import ConnectionClosed, ConnectionOpened, Request
from raftlog.broker.front.deferred import Deferred, TurnMeter
from raftlog.kafka.codec import encode_request
from raftlog.kafka.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from raftlog.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from raftlog.kafka.versions import ApiKey
from raftlog.records.compression import ZSTD, compress
from tests.broker.cluster import Cluster
from tests.records.making import with_body
from tests.records.test_codec_blocks import zstd_streamed

LARGE = TURN_ITEMS_MAX - 1
"""Topics of a request that leaves a turn room for one more, whatever that names."""
METADATA_VERSION = 12


@pytest.fixture
def one():
    cluster = Cluster(brokers=1).ready()
    cluster.create("orders", 1, 1)
    return cluster


def metadata(topics: int) -> bytes:
    names = [MetadataRequestTopic(name=f"t{at}") for at in range(topics)]
    body = MetadataRequest(names, False)
    parts = encode_request(ApiKey.METADATA, METADATA_VERSION, 0, "x", body)
    return b"".join(bytes(part) for part in parts)[4:]


class Turns:
    """Hands events to a broker, a turn at a time, and counts what each turn answers."""

    def __init__(self, cluster: Cluster) -> None:
        node = cluster.world.nodes[1]
        self.broker, self.world = node.broker, cluster.world
        self.now = self.broker.context.now
        self.left: list[int] = []

    def turn(self, *events):
        self.now += 1
        effects = self.broker.handle(list(events), self.now, self.broker.context.wall)
        self.left.append(self.broker.clients.meter.left)
        return [(reply.connection, reply.request_no) for reply in effects.replies], effects


def opened(*connections):
    return [ConnectionOpened(each, "PLAINTEXT", "User:ANONYMOUS", "x:1") for each in connections]


def test_a_turn_takes_so_much_and_later_turns_the_rest(one):
    """Three clients with a large request each, one of them with five: each turn takes two."""
    turns = Turns(one)
    turns.turn(*opened(901, 902, 903))
    large = metadata(LARGE)
    sent = [Request(901, number, large) for number in range(5)]
    sent += [Request(902, 0, large), Request(903, 0, large)]
    first, effects = turns.turn(*sent)
    assert first == [(901, 0), (901, 1)]
    assert effects.wake_at == turns.now, "the rest is due at once"
    following = [turns.turn()[0] for _ in range(4)]
    assert following == [[(901, 2), (902, 0)], [(903, 0), (901, 3)], [(901, 4)], []]
    assert not turns.broker.clients.deferred
    assert min(turns.left) > -FRAME_ITEMS_MAX, "one frame beyond the bound at most"


def test_small_requests_of_others_are_served_meanwhile(one):
    turns = Turns(one)
    turns.turn(*opened(901, 902))
    large, small = metadata(LARGE), metadata(1)
    assert len(small) <= TURN_SMALL_FRAME_BYTES < len(metadata(20))
    flood = [Request(901, number, large) for number in range(8)]
    replies, _ = turns.turn(*flood, Request(902, 0, small))
    assert replies == [(901, 0), (901, 1), (902, 0)]
    replies, _ = turns.turn(Request(902, 1, small), Request(901, 8, small))
    assert replies == [(901, 2), (901, 3), (902, 1)], "what follows waits behind what came before"


def test_what_waits_counts_as_unanswered_and_goes_with_its_connection(one):
    turns = Turns(one)
    turns.turn(*opened(901))
    ledger = turns.broker.context.ledger
    before = ledger.waiting_bytes
    large = metadata(LARGE)
    turns.turn(*[Request(901, number, large) for number in range(4)])
    assert ledger.waiting_bytes == before + 2 * len(large)
    replies, _ = turns.turn(ConnectionClosed(901))
    assert replies == [(901, 2), (901, 3)], "what came before the end comes first"
    turns.turn()
    assert 901 not in turns.broker.clients.connections
    assert (ledger.waiting_bytes, ledger.pinned_bytes) == (before, 0)


def test_a_hang_up_drops_what_waits(one):
    turns = Turns(one)
    turns.turn(*opened(901))
    ledger = turns.broker.context.ledger
    before = ledger.waiting_bytes
    large = metadata(LARGE)
    turns.turn(Request(901, 0, large), Request(901, 1, large), Request(901, 2, b"\xff" * 999))
    _, effects = turns.turn(Request(901, 3, large))
    assert [each.connection for each in effects.hangups] == [901]
    turns.turn()
    turns.turn(ConnectionClosed(901))
    assert not turns.broker.clients.deferred
    assert 901 not in turns.broker.clients.connections
    assert ledger.waiting_bytes == before


def test_a_frame_beyond_its_budget_is_refused(one):
    partitions = [FetchPartition(0, partition_max_bytes=1)] * (FRAME_ITEMS_MAX - 1)
    body = FetchRequest(max_wait_ms=0, topics=[FetchTopic("orders", partitions=partitions)])
    answer = one.ask(1, ApiKey.FETCH, body, version=12)
    assert len(answer.responses[0].partitions) == FRAME_ITEMS_MAX - 1
    body.topics[0].partitions.append(partitions[0])
    with pytest.raises(ConnectionLostError):
        one.ask(1, ApiKey.FETCH, body, version=12)


def test_a_flood_of_large_requests_keeps_no_producer_waiting(one):
    """Eight clients that always have a large request under way: a producer is answered in the turn
    in which its record is durable, and every turn stays within its bound."""
    flood = [HeapClient(one.world.nodes[1]).connect() for _ in range(8)]
    names = MetadataRequest([MetadataRequestTopic(name=f"t{at}") for at in range(LARGE)], False)
    for value in range(5):
        asked = [each.request(ApiKey.METADATA, names, METADATA_VERSION) for each in flood]
        answer = one.produce("orders", [f"v{value}"])
        assert answer.error_code == 0
        assert answer.base_offset == value
        one.wait(lambda asked=asked: all(each.done for each in asked), what="the flood")


def test_one_describe_names_so_many_resources(one):
    def described(count):
        resources = [DescribeConfigsResource(2, "orders", ["segment.bytes"])] * count
        body = DescribeConfigsRequest(resources)
        return one.ask(1, ApiKey.DESCRIBE_CONFIGS, body, version=4).results

    assert {each.error_code for each in described(DESCRIBED_RESOURCES_MAX)} == {0}
    refused = described(DESCRIBED_RESOURCES_MAX + 1)
    assert {each.error_code for each in refused} == {42}
    assert "1000 at a time" in refused[0].error_message


def test_the_meter_charges_by_the_work_of_an_api():
    meter = TurnMeter()
    meter.charge(int(ApiKey.METADATA), 10)
    assert meter.left == TURN_ITEMS_MAX - 10
    meter.charge(int(ApiKey.DESCRIBE_CONFIGS), TURN_ITEMS_MAX // 30 + 1)
    assert not meter.admits(TURN_SMALL_FRAME_BYTES + 1)
    assert meter.admits(TURN_SMALL_FRAME_BYTES)
    meter.begin_turn()
    assert meter.admits(1 << 20)


def test_deferred_takes_one_of_each_connection_in_turn():
    deferred = Deferred()
    for connection, number in ((1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (2, 1)):
        deferred.put(Request(connection, number, b""))
    taken = []
    while deferred:
        event = deferred.pop()
        taken.append((event.connection, event.request_no))
    assert taken == [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]
    assert not deferred.holds(1)


def test_a_produce_of_many_items_keeps_its_order(one):
    """A large frame that is deferred and a small one behind it, of one producer."""
    client = HeapClient(one.world.nodes[1]).connect()
    names = MetadataRequest([MetadataRequestTopic(name=f"t{at}") for at in range(LARGE)], False)
    for _ in range(4):
        client.request(ApiKey.METADATA, names, METADATA_VERSION)
    bodies = [one.produce_body("orders", ["x" * size]) for size in (5000, 1, 4000, 2)]
    pending = [client.request(ApiKey.PRODUCE, body, 11) for body in bodies]
    one.wait(lambda: all(each.done for each in pending), what="produced")
    offsets = [each.answer.responses[0].partition_responses[0].base_offset for each in pending]
    assert offsets == [0, 1, 2, 3]


def test_fields_that_are_costly_to_judge_are_charged(one):
    """A field whose heads leave open what it becomes is decompressed on the way in: 70 kB cost up
    to 60 ms, and thirty of them fit into a turn."""
    chooser = random.Random(7)
    blocks = [zstd_streamed(chooser.randbytes(60) * 4) for _ in range(1_200)]
    batch = with_body(b"".join(blocks), count=1, codec=ZSTD)
    turns = Turns(one)
    turns.turn(*opened(901))
    frame = produce_frame(batch)
    for number in range(4):
        turns.turn(Request(901, number, frame))
        charged = TURN_ITEMS_MAX - turns.left[-1]
        heads = DECOMPRESSED_BYTES_MAX // (128 * KIB)
        assert charged >= 2 + (1_200 * 240 // 8192) + heads // 16, "so many heads leave it open"
    cheap = produce_frame(with_body(compress(ZSTD, bytes(200_000)), count=1, codec=ZSTD))
    turns.turn(Request(901, 4, cheap))
    assert TURN_ITEMS_MAX - turns.left[-1] == 2


def produce_frame(batch: bytes) -> bytes:
    data = TopicProduceData("orders", b"", [PartitionProduceData(0, batch)])
    body = ProduceRequest(None, -1, 1000, [data])
    parts = encode_request(ApiKey.PRODUCE, 11, 0, "x", body)
    return b"".join(bytes(part) for part in parts)[4:]
