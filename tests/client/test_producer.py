import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.base.units import millis
from raftlog.client.core.calls import KnowTopic, Produce
from raftlog.client.core.errors import BufferFull
from raftlog.client.core.partitioner import partition_of
from raftlog.client.core.values import ClientOptions
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import read_header
from tests.client.fake_cluster import HOST, FakeCluster
from tests.client.harness import Harness


def options(**more):
    return ClientOptions(bootstrap=((HOST, 9001), (HOST, 9002)), **more)


def start(partitions=1, cluster=None, **more):
    """A harness that knows topic t."""
    cluster = cluster or FakeCluster()
    log = cluster.topic("t", partitions)
    harness = Harness(cluster, options(**more))
    harness.ask(KnowTopic("t"))
    return harness, log


def small_batches(**more):
    """Options under which each record of 100 bytes is a batch."""
    return {"batch_bytes": 150, **more}


def values(count, first=0):
    return [b"%05d" % number + b"." * 95 for number in range(first, first + count)]


def send_all(harness, items, **more):
    return [harness.send("t", value, **more) for value in items]


# --- calls ----------------------------------------------------------------------------------------


def test_a_call_produces_a_record_and_tells_its_place():
    cluster = FakeCluster()
    log = cluster.topic("t", 1)
    harness = Harness(cluster, options())
    first = harness.ask(Produce("t", b"one", timestamp_ms=7))
    second = harness.ask(Produce("t", b"two", timestamp_ms=8))
    assert first == ("t", 0, 0, 7)
    assert second == ("t", 0, 1, 8)
    assert log[0].values() == [b"one", b"two"]


def test_a_cancelled_call_completes_no_longer():
    harness, log = start()
    call = harness.call(Produce("t", b"x"))
    harness.core.cancel(call)
    harness.settle()
    assert call not in harness.results
    assert log[0].values() == [b"x"]


def test_a_partition_that_is_not_there_is_misuse():
    harness, _ = start(3)
    with pytest.raises(LocalMisuse):
        harness.send("t", b"x", partition=3)
    with pytest.raises(LocalMisuse):
        harness.ask(Produce("t", b"x", partition=-1))


# --- batching, order, partitions ------------------------------------------------------------------


def test_records_of_a_turn_share_a_batch_and_keep_order():
    harness, log = start()
    sent = send_all(harness, values(100))
    harness.settle()
    assert len(log[0].batches) == 1
    assert [each.position().offset for each in sent] == list(range(100))
    assert log[0].values() == values(100)


def test_a_full_batch_leaves_and_the_next_one_begins():
    harness, log = start(batch_bytes=1000)
    send_all(harness, values(20))
    harness.settle()
    assert len(log[0].batches) == 4
    assert all(len(batch) <= 1000 for batch in log[0].batches)
    assert log[0].values() == values(20)


def test_partitions_of_one_leader_share_a_request():
    harness, log = start(6)
    for number, value in enumerate(values(60)):
        harness.send("t", value, partition=number % 6)
    harness.settle()
    requests = harness.cluster.bodies(ApiKey.PRODUCE)
    assert len(requests) == 3
    assert all(len(request.topic_data[0].partition_data) == 2 for request in requests)
    assert all(len(partition.values()) == 10 for partition in log)


def test_a_request_stays_below_its_bound():
    harness, _ = start(6, request_bytes=2500, batch_bytes=1100)
    for number, value in enumerate(values(300)):
        harness.send("t", value, partition=number % 6)
    harness.settle()
    for request in harness.cluster.bodies(ApiKey.PRODUCE):
        data = request.topic_data[0].partition_data
        assert sum(len(each.records) for each in data) <= 2500


def test_keys_choose_by_murmur2_and_keyless_records_take_turns():
    harness, log = start(4)
    for number in range(40):
        harness.send("t", b"v", key=b"key-%d" % (number % 7))
    harness.settle()
    for number in range(7):
        key = b"key-%d" % number
        place = partition_of(key, 4)
        assert any(key in batch for batch in log[place].batches)
    harness, log = start(4)
    send_all(harness, values(400))
    harness.settle()
    assert [len(partition.values()) for partition in log] == [100] * 4


def test_headers_keys_and_nulls_arrive():
    harness, log = start()
    harness.send("t", None, key=b"k", headers=(("a", b"1"), ("b", None)))
    harness.settle()
    assert log[0].values() == [None]


def test_linger_waits_for_company():
    harness, log = start(linger_ns=millis(50))
    harness.send("t", b"one")
    harness.turn()
    harness.run_for(millis(20))
    harness.send("t", b"two")
    harness.turn()
    harness.run_for(millis(20))
    assert log[0].batches == []
    harness.settle()
    assert len(log[0].batches) == 1


def test_flush_does_not_linger():
    harness, log = start(linger_ns=millis(5000))
    harness.send("t", b"one")
    before = harness.now
    harness.core.flush()
    harness.settle()
    assert harness.now - before < millis(100)
    assert log[0].values() == [b"one"]


def test_a_busy_partition_gathers_and_at_most_five_batches_fly():
    harness, log = start(**small_batches())
    send_all(harness, values(1))
    harness.settle()
    send_all(harness, values(50, 1))
    harness.turn()
    produced = harness.cluster.count(ApiKey.PRODUCE)
    harness.run_for(harness.latency_ns)
    assert harness.cluster.count(ApiKey.PRODUCE) - produced == 5
    harness.settle()
    assert log[0].values() == values(51)


def test_the_first_batch_of_an_identity_flies_alone():
    """A broker that knows nothing of a producer accepts any sequence as its first, so a second
    batch could overtake a first one that was refused."""
    harness, log = start(**small_batches())
    harness.cluster.refuse(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)
    send_all(harness, values(10))
    harness.settle()
    assert log[0].values() == values(10)


def test_the_buffer_is_bounded():
    harness, _ = start(buffer_bytes=1000)
    with pytest.raises(BufferFull):
        send_all(harness, values(100))
    assert not harness.core.has_room()
    harness.settle()
    assert harness.core.has_room()
    assert harness.core.producer.unsettled_bytes == 0


def test_a_record_beyond_all_bounds_is_misuse():
    harness, _ = start()
    with pytest.raises(LocalMisuse):
        harness.send("t", bytes(65 << 20))


# --- acks -----------------------------------------------------------------------------------------


def test_acks_0_settles_without_an_answer():
    harness, log = start(acks=0, idempotent=False)
    sent = harness.send("t", b"x")
    harness.turn()
    harness.run_until(lambda: sent.settled)
    harness.run_for(millis(10))
    assert sent.position().offset == -1
    assert log[0].values() == [b"x"]
    assert harness.cluster.bodies(ApiKey.PRODUCE)[0].acks == 0


def test_acks_1_is_sent_as_such():
    harness, log = start(acks=1, idempotent=False)
    harness.send("t", b"x")
    harness.settle()
    assert harness.cluster.bodies(ApiKey.PRODUCE)[0].acks == 1
    assert read_header(log[0].batches[0]).producer_id == -1


# --- retries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("code", [5, 6, 7, 19, 20, 2, 56, 9])
def test_a_retriable_refusal_is_retried_in_order(code, idempotent):
    harness, log = start(**small_batches(idempotent=idempotent))
    send_all(harness, values(1))
    harness.settle()
    harness.cluster.refuse(ApiKey.PRODUCE, 0, code)
    send_all(harness, values(30, 1))
    harness.settle()
    seen = log[0].values()
    if idempotent:
        assert seen == values(31)
    else:
        assert sorted(set(seen)) == values(31)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_answer_makes_no_duplicate(lost):
    """The connection breaks after the batch was appended: the same sequences come again."""
    harness, log = start(**small_batches())
    send_all(harness, values(3))
    harness.settle()
    harness.cluster.losses[ApiKey.PRODUCE] = lost
    sent = send_all(harness, values(30, 3))
    harness.settle()
    assert log[0].values() == values(33)
    assert [each.position().offset for each in sent] == list(range(3, 33))


def test_a_connection_cut_before_the_request_loses_nothing():
    harness, log = start(**small_batches())
    harness.cluster.cuts[ApiKey.PRODUCE] = 3
    send_all(harness, values(20))
    harness.settle()
    assert log[0].values() == values(20)


@pytest.mark.parametrize("tell", [True, False])
def test_a_moved_leader_is_followed(tell):
    harness, log = start(**small_batches())
    harness.cluster.tell_leader = tell
    send_all(harness, values(5))
    harness.settle()
    harness.cluster.move("t", 0, 3)
    asked = harness.cluster.count(ApiKey.METADATA)
    send_all(harness, values(5, 5))
    harness.settle()
    assert log[0].values() == values(10)
    assert tell or harness.cluster.count(ApiKey.METADATA) > asked


def test_a_dead_leader_is_left_when_another_leads():
    harness, log = start(**small_batches())
    send_all(harness, values(5))
    harness.settle()
    send_all(harness, values(20, 5))
    harness.turn()
    harness.kill(1)
    harness.run_for(millis(400))
    harness.cluster.move("t", 0, 2)
    moved_at = harness.now
    harness.settle()
    assert log[0].values() == values(25)
    assert harness.now - moved_at < millis(200), "a new leader is found promptly"


def test_a_paused_leader_is_left_when_another_leads():
    """SIGSTOP leaves connections open: without suspicion, records would wait for the request
    timeout of 30 s although a new leader is there after one."""
    harness, log = start(**small_batches())
    send_all(harness, values(5))
    harness.settle()
    harness.cluster.paused.add(1)
    send_all(harness, values(20, 5))
    harness.turn()
    harness.run_for(millis(700))
    harness.cluster.move("t", 0, 2)
    began = harness.now
    harness.settle()
    assert harness.now - began < millis(2500)
    assert log[0].values() == values(25)
    assert 1 in harness.hangups


def test_a_paused_broker_that_still_leads_is_waited_for():
    harness, log = start()
    send_all(harness, values(5))
    harness.settle()
    harness.cluster.paused.add(1)
    send_all(harness, values(5, 5))
    harness.turn()
    harness.run_for(millis(5000))
    assert 1 not in harness.hangups
    harness.cluster.paused.clear()
    harness.settle()
    assert log[0].values() == values(10)


def test_a_leaderless_partition_is_waited_for():
    harness, log = start()
    harness.cluster.move("t", 0, -1)
    harness.cluster.refuse(ApiKey.PRODUCE, 5)
    sent = harness.send("t", b"x")
    harness.turn()
    harness.run_for(millis(2000))
    assert not sent.settled
    harness.cluster.move("t", 0, 2)
    harness.settle()
    assert sent.position().offset == 0
    assert log[0].values() == [b"x"]
