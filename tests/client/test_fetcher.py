import pytest

from raftlog.base.errors import CorruptData, LocalMisuse, ProtocolError
from raftlog.base.units import millis
from raftlog.client.core.calls import KnowTopic
from raftlog.client.core.errors import KafkaError
from raftlog.client.core.fetched import FetchedBatches
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import ClientOptions, TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import read_header
from raftlog.records.builder import RecordBatchBuilder
from tests.client.fake_cluster import HOST, FakeCluster
from tests.client.harness import Harness

PLACE = TopicPartition("t", 0)


def fill(partition, batches, records=3, size=10):
    """Append batches of `records` records to a fake log."""
    for number in range(batches):
        builder = RecordBatchBuilder()
        for at in range(records):
            value = b"%d." % (number * records + at)
            builder.append(value.ljust(size, b"."), timestamp_ms=1)
        partition.append(memoryview(builder.build()))


def start(partitions=1, batches=4, cluster=None, **more):
    cluster = cluster or FakeCluster()
    log = cluster.topic("t", partitions)
    for each in log:
        fill(each, batches)
    options = ClientOptions(bootstrap=((HOST, 9001), (HOST, 9002)), fetch_wait_ms=0, **more)
    harness = Harness(cluster, options)
    return harness, log


def read(harness, wanted, bytes_max=1 << 20):
    """Poll until `wanted` records came; the records, per partition in order."""
    found = {}
    harness.turn()
    for _ in range(10_000):
        for piece in harness.core.poll(bytes_max):
            assert isinstance(piece, FetchedBatches), piece
            found.setdefault(piece.place, []).extend(piece.records())
        if sum(map(len, found.values())) >= wanted:
            return found
        harness.turn()
        harness.step()
    raise AssertionError(found)


def trouble(harness):
    """Poll until something is wrong."""
    harness.turn()
    for _ in range(10_000):
        for piece in harness.core.poll():
            if isinstance(piece, Trouble):
                return piece
        harness.turn()
        harness.step()
    raise AssertionError("no trouble")


# --- reading --------------------------------------------------------------------------------------


def test_everything_is_read_once_in_order():
    harness, _ = start(6, 10)
    harness.core.assign({TopicPartition("t", at): 0 for at in range(6)})
    found = read(harness, 180)
    assert len(found) == 6
    for records in found.values():
        assert [record.offset for record in records] == list(range(30))


def test_an_offset_inside_a_batch_drops_its_front():
    harness, _ = start()
    harness.core.assign({PLACE: 4})
    assert [record.offset for record in read(harness, 8)[PLACE]] == list(range(4, 12))


def test_partitions_of_a_leader_share_a_request_and_only_one_is_under_way():
    harness, _ = start(6)
    harness.core.assign({TopicPartition("t", at): 0 for at in range(6)})
    read(harness, 72)
    first = [body for node, key, body in harness.cluster.requests if key == ApiKey.FETCH][:3]
    assert all(len(body.topics[0].partitions) == 2 for body in first)
    under_way = {}
    for node, key, _ in harness.cluster.requests:
        if key == ApiKey.FETCH:
            under_way[node] = under_way.get(node, 0) + 1
    assert len(under_way) == 3


def test_reading_ahead_is_bounded():
    harness, _ = start(1, 200, buffered_bytes=2000, fetch_partition_bytes=500)
    harness.core.assign({PLACE: 0})
    harness.turn()
    harness.run_for(millis(500))
    assert harness.core.fetcher.buffered_bytes <= 2500
    before = harness.cluster.count(ApiKey.FETCH)
    harness.run_for(millis(500))
    assert harness.cluster.count(ApiKey.FETCH) == before, "nothing is fetched without room"
    assert len(read(harness, 600)[PLACE]) == 600
    assert harness.core.fetcher.buffered_bytes == 0


def test_poll_keeps_to_its_bound_but_gives_at_least_one():
    harness, _ = start(3)
    harness.core.assign({TopicPartition("t", at): 0 for at in range(3)})
    harness.turn()
    harness.run_until(lambda: len(harness.core.fetcher._ready) == 3)
    assert len(harness.core.poll(1)) == 1
    assert len(harness.core.poll(1 << 20)) == 2
    assert harness.core.poll() == []


def test_new_records_arrive_while_waiting():
    harness, log = start(batches=0)
    harness.core.assign({PLACE: 0})
    harness.turn()
    harness.run_for(millis(20))
    fill(log[0], 1)
    assert len(read(harness, 3)[PLACE]) == 3


def test_seek_drops_what_was_read_ahead():
    harness, _ = start()
    harness.core.assign({PLACE: 0})
    harness.turn()
    harness.run_until(lambda: harness.core.fetcher.has_ready)
    harness.core.seek(PLACE, 6)
    assert harness.core.poll() == []
    assert harness.core.fetcher.buffered_bytes == 0
    assert [record.offset for record in read(harness, 6)[PLACE]] == list(range(6, 12))


def test_an_answer_to_an_older_position_counts_no_longer():
    harness, _ = start()
    harness.core.assign({PLACE: 0})
    harness.turn()
    harness.run_until(lambda: harness.cluster.count(ApiKey.FETCH) == 1)
    harness.core.seek(PLACE, 9)
    assert [record.offset for record in read(harness, 3)[PLACE]] == [9, 10, 11]


def test_unassign_ends_it():
    harness, _ = start(2)
    harness.core.assign({TopicPartition("t", at): 0 for at in range(2)})
    harness.core.unassign(TopicPartition("t", 1))
    assert harness.core.fetcher.assigned() == [PLACE]
    assert list(read(harness, 12)) == [PLACE]


def test_a_negative_offset_is_misuse():
    harness, _ = start()
    harness.core.assign({PLACE: 0})
    with pytest.raises(LocalMisuse, match="not -1"):
        harness.core.seek(PLACE, -1)
    with pytest.raises(LocalMisuse, match="not -1"):
        harness.core.assign({PLACE: -1})


def test_a_seek_of_what_is_not_assigned_is_misuse():
    """It was assigned quietly."""
    harness, _ = start(2)
    other = TopicPartition("t", 1)
    harness.core.assign({PLACE: 0})
    with pytest.raises(LocalMisuse, match="t-1 is not assigned"):
        harness.core.seek(other, 0)
    harness.core.unassign(PLACE)
    with pytest.raises(LocalMisuse, match="t-0 is not assigned"):
        harness.core.seek(PLACE, 0)
    assert harness.core.fetcher.assigned() == []


# --- what is not there ----------------------------------------------------------------------------


def pieces_of(harness, duration_ns):
    """Returns the pieces that polls bring in this time."""
    found, until = [], harness.now + duration_ns
    harness.turn()
    while harness.now < until:
        found.extend(harness.core.poll())
        harness.turn()
        harness.step()
    return found


@pytest.mark.parametrize(
    ("place", "on", "do"),
    [
        (TopicPartition("nope", 0), "topic nope", ""),
        (TopicPartition("t", 9), "t-9", "t has 2 partitions, numbered from 0"),
    ],
    ids=["topic", "partition"],
)
def test_what_does_not_exist_is_reported_once_after_a_while(place, on, do):
    """It was asked for without end, and nothing was told. A client may have stood idle before."""
    harness, _ = start(2)
    harness.ask(KnowTopic("t"))
    harness.run_for(millis(10_000))
    harness.core.assign({place: 5, PLACE: 0})
    before = harness.now
    assert len(read(harness, 12)[PLACE]) == 12
    assert pieces_of(harness, before + millis(2_900) - harness.now) == []
    (found,) = pieces_of(harness, millis(1_000))
    assert (found.place, found.offset) == (place, 5)
    assert found.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (found.error.on, found.error.do) == (on, do)
    assert pieces_of(harness, millis(5_000)) == []
    harness.core.seek(place, 5)
    (again,) = pieces_of(harness, millis(4_000))
    assert again == (place, 5, again.error)


def test_what_is_made_meanwhile_is_read():
    harness, _ = start()
    late = TopicPartition("late", 0)
    harness.core.assign({late: 0})
    assert pieces_of(harness, millis(2_000)) == []
    fill(harness.cluster.topic("late", 1)[0], 1)
    assert len(read(harness, 3)[late]) == 3


def test_nothing_is_unknown_while_no_broker_answers():
    harness, _ = start()
    harness.cluster.paused.update((1, 2, 3))
    harness.core.assign({PLACE: 0})
    assert pieces_of(harness, millis(10_000)) == []
    harness.cluster.paused.clear()
    assert len(read(harness, 12)[PLACE]) == 12


def test_a_partition_without_a_leader_is_waited_for():
    """However long: it exists, and no offset was skipped."""
    harness, log = start()
    harness.ask(KnowTopic("t"))
    leader, log[0].leader = log[0].leader, -1
    harness.core.cache.forget_leader(PLACE)
    harness.core.assign({PLACE: 0})
    assert pieces_of(harness, millis(10_000)) == []
    log[0].leader = leader
    log[0].epoch += 1
    assert len(read(harness, 12)[PLACE]) == 12


# --- leaders --------------------------------------------------------------------------------------


def test_a_moved_leader_is_followed():
    harness, log = start()
    harness.core.assign({PLACE: 0})
    read(harness, 12)
    harness.cluster.move("t", 0, 3)
    fill(log[0], 1)
    assert [record.offset for record in read(harness, 3)[PLACE]] == [12, 13, 14]


def test_a_dead_leader_is_left():
    harness, log = start()
    harness.core.assign({PLACE: 0})
    read(harness, 12)
    harness.kill(1)
    harness.run_for(millis(300))
    harness.cluster.move("t", 0, 2)
    fill(log[0], 1)
    assert [record.offset for record in read(harness, 3)[PLACE]] == [12, 13, 14]


def test_a_paused_leader_is_left_when_another_leads():
    harness, log = start()
    harness.core.assign({PLACE: 0})
    read(harness, 12)
    harness.turn()
    harness.cluster.paused.add(1)
    harness.run_for(millis(200))
    harness.cluster.move("t", 0, 2)
    fill(log[0], 1)
    began = harness.now
    read(harness, 3)
    assert harness.now - began < millis(2000)


@pytest.mark.parametrize("code", [6, 5, 3, 9, 56, 74, 75, 78, 100, 103, 13])
def test_a_passing_refusal_is_waited_out(code):
    harness, _ = start()
    harness.cluster.refuse(ApiKey.FETCH, code, code)
    harness.core.assign({PLACE: 0})
    assert len(read(harness, 12)[PLACE]) == 12


def test_a_lost_answer_is_asked_for_again():
    harness, _ = start()
    harness.cluster.losses[ApiKey.FETCH] = 2
    harness.cluster.cuts[ApiKey.FETCH] = 2
    harness.core.assign({PLACE: 0})
    assert [record.offset for record in read(harness, 12)[PLACE]] == list(range(12))


# --- trouble --------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [29, 42, 17])
def test_a_lasting_refusal_is_reported_once(code):
    harness, _ = start()
    harness.cluster.refuse(ApiKey.FETCH, code)
    harness.core.assign({PLACE: 0})
    found = trouble(harness)
    assert (found.place, found.offset, found.error.code) == (PLACE, 0, code)
    harness.run_for(millis(1000))
    assert harness.core.poll() == []


def test_out_of_range_is_reported_and_never_rewound():
    harness, _ = start()
    harness.core.assign({PLACE: 100})
    found = trouble(harness)
    assert found.error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert found.offset == 100
    asked = harness.cluster.count(ApiKey.FETCH)
    harness.run_for(millis(1000))
    assert harness.cluster.count(ApiKey.FETCH) == asked
    harness.core.seek(PLACE, 9)
    assert [record.offset for record in read(harness, 3)[PLACE]] == [9, 10, 11]


def test_a_topic_created_again_is_reported():
    harness, _ = start()
    harness.core.assign({PLACE: 0})
    read(harness, 12)
    fill(harness.cluster.topic("t", 1)[0], 1)
    harness.core.keeper.refresh()
    found = trouble(harness)
    assert isinstance(found.error, KafkaError)
    assert "created again" in str(found.error)


def flip(batches):
    """The last byte of the first batch, flipped."""
    if not batches:
        return batches
    head = bytearray(batches[0])
    head[-1] ^= 1
    return [bytes(head), *batches[1:]]


def test_a_corrupt_batch_is_fetched_again_and_then_reported():
    harness, _ = start()
    harness.cluster.mangle = flip
    harness.core.assign({PLACE: 0})
    found = trouble(harness)
    assert isinstance(found.error, CorruptData)
    assert harness.cluster.count(ApiKey.FETCH) == 4


def test_a_batch_that_was_corrupt_once_is_read():
    harness, _ = start()
    left = [flip, flip]
    harness.cluster.mangle = lambda batches: left.pop()(batches) if left else batches
    harness.core.assign({PLACE: 0})
    assert len(read(harness, 12)[PLACE]) == 12


@pytest.mark.parametrize(
    "mangle",
    [
        lambda batches: [batches[0][:16] + b"\x01" + batches[0][17:]],
        lambda batches: [b"\0" * 100],
        lambda batches: [batches[0][:30]] if batches else [],
        lambda batches: [batches[0][:-1]] if batches else [],
        lambda batches: [batches[0], batches[0]],
        lambda batches: [batches[1], batches[0]],
    ],
    ids=["magic", "zeros", "header cut", "batch cut", "twice", "backwards"],
)
def test_what_is_no_log_is_reported(mangle):
    harness, _ = start()
    harness.cluster.mangle = mangle
    harness.core.assign({PLACE: 0})
    assert isinstance(trouble(harness).error, ProtocolError)


def test_a_batch_cut_off_at_the_end_is_fetched_with_the_next():
    """Kafka's brokers cut at the byte limit."""
    harness, _ = start()
    harness.cluster.mangle = lambda batches: [*batches[:1], *[b[:50] for b in batches[1:2]]]
    harness.core.assign({PLACE: 0})
    assert [record.offset for record in read(harness, 12)[PLACE]] == list(range(12))


def test_a_compacted_log_has_holes():
    harness, log = start()
    del log[0].batches[1]
    harness.core.assign({PLACE: 0})
    offsets = [record.offset for record in read(harness, 9)[PLACE]]
    assert offsets == [0, 1, 2, *range(6, 12)]
    harness.core.seek(PLACE, 4)
    assert [record.offset for record in read(harness, 6)[PLACE]] == list(range(6, 12))
    assert read_header(log[0].batches[0]).base_offset == 0


def test_watermarks_are_told():
    harness, _ = start()
    harness.core.assign({PLACE: 0})
    assert harness.core.fetcher.high_watermark(PLACE) == -1
    read(harness, 12)
    assert harness.core.fetcher.high_watermark(PLACE) == 12


def test_names_are_used_with_brokers_that_know_no_topic_ids():
    cluster = FakeCluster()
    cluster.versions = {ApiKey.FETCH: 11, ApiKey.METADATA: 9}
    harness, _ = start(cluster=cluster)
    harness.ask(KnowTopic("t"))
    harness.core.assign({PLACE: 0})
    assert len(read(harness, 12)[PLACE]) == 12
