"""`raftlog.validate.records`: each record is looked at before its batch is stored, in order and off
the loop, a step at a time."""

import pytest
from raftlog_sim.world.client import HeapClient

from raftlog.broker.handlers.record_checks import RecordChecks
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from raftlog.records.compression import GZIP, compress
from raftlog.records.record_walk import RECORDS_STEP_MAX
from tests.broker.handlers.data_path import (
    WALL,
    batch_of,
    fetch,
    led_topic,
    produce,
    produce_request,
)
from tests.records.making import changed, with_body

ON = ("raftlog.validate.records", "true")


@pytest.fixture
def checked():
    return led_topic(brokers=1, configs=[ON])


def lying():
    return changed(batch_of(b"x" * 99), records_count=5, last_offset_delta=4)


def many(count):
    """A batch of so many smallest records."""
    body = bytearray()
    for at in range(count):
        delta, value = bytearray(), at << 1
        while value > 127:
            delta.append(value & 127 | 128)
            value >>= 7
        delta.append(value)
        inside = b"\0\0" + delta + b"\1\1\0"
        body += bytes([len(inside) << 1]) + inside
    return with_body(compress(GZIP, bytes(body)), count=count, codec=GZIP)


def test_good_batches_are_stored_and_lies_are_refused(checked):
    answers = [produce(checked, 1, each)[0] for each in (batch_of(b"a"), lying(), batch_of(b"b"))]
    assert [each.error_code for each in answers] == [0, ErrorCode.INVALID_RECORD, 0]
    assert [each.base_offset for each in answers] == [0, -1, 1]
    assert "record 1" in answers[1].error_message
    assert fetch(checked, 1, 0)[0].high_watermark == 2


def test_a_header_that_lies_is_refused_without_a_walk(checked):
    broken = changed(batch_of(b"a"), fix_crc=False, crc=7)
    assert produce(checked, 1, broken)[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert not checked.world.nodes[1].broker.context.kept(RecordChecks).queues


def test_timestamps_of_records_count_and_not_only_the_headers(checked):
    """The header says now, the record an hour and more ahead."""
    ahead = batch_of(b"a", timestamp_ms=WALL + 9_000_000)
    hidden = changed(ahead, max_timestamp=-1)
    assert produce(checked, 1, hidden)[0].error_code == ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_topic_takes_no_record_without_a_key():
    cluster = led_topic(brokers=1, configs=[ON, ("cleanup.policy", "compact")])
    assert produce(cluster, 1, batch_of(b"a"))[0].error_code == ErrorCode.INVALID_RECORD


def test_batches_of_a_partition_keep_their_order(checked):
    """A large one takes several steps; a small one behind it waits, also of another client."""
    sizes = [3 * RECORDS_STEP_MAX, 1, 2 * RECORDS_STEP_MAX, 2]
    clients = [HeapClient(checked.world.nodes[1]).connect() for _ in sizes]
    pending = [
        client.request(ApiKey.PRODUCE, produce_request(many(size)), 11)
        for client, size in zip(clients, sizes, strict=True)
    ]
    checked.wait(lambda: all(each.done for each in pending), what="produced")
    answers = [each.answer.responses[0].partition_responses[0] for each in pending]
    assert [each.error_code for each in answers] == [0] * 4
    expected = [sum(sizes[:at]) for at in range(4)]
    assert [each.base_offset for each in answers] == expected
    assert not checked.world.nodes[1].broker.context.kept(RecordChecks).queues


def test_an_idempotent_producer_in_flight_is_numbered_in_order(checked):
    client = HeapClient(checked.world.nodes[1]).connect()
    fields = {"producer_id": 77, "producer_epoch": 0}
    batches = [changed(batch_of(b"x"), base_sequence=at, **fields) for at in range(5)]
    pending = [client.request(ApiKey.PRODUCE, produce_request(each), 11) for each in batches]
    checked.wait(lambda: all(each.done for each in pending), what="produced")
    answers = [each.answer.responses[0].partition_responses[0] for each in pending]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, n) for n in range(5)]


def test_a_partition_that_is_not_led_any_more_says_so():
    cluster = led_topic(configs=[ON])
    leader = cluster.leader("t")
    client = HeapClient(leader).connect()
    pending = client.request(ApiKey.PRODUCE, produce_request(many(5 * RECORDS_STEP_MAX)), 11)
    replica = leader.broker.context.router.replica("t", 0)
    heir = next(each for each in replica.membership.voters if each != replica.me)
    replica.transfer(heir, leader.broker.context.now)
    leader.broker.context.touch(replica.group)
    cluster.wait(lambda: pending.done, what="an answer")
    answer = pending.answer.responses[0].partition_responses[0]
    assert answer.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_acks_0_is_checked_too(checked):
    client = HeapClient(checked.world.nodes[1]).connect()
    client.request(ApiKey.PRODUCE, produce_request(batch_of(b"a"), acks=0), 11)
    checked.run(1)
    assert fetch(checked, 1, 0)[0].high_watermark == 1
    client.request(ApiKey.PRODUCE, produce_request(lying(), acks=0), 11)
    checked.wait(lambda: client.connection is None, what="a hang-up")
    assert fetch(checked, 1, 0)[0].high_watermark == 1


def test_without_it_a_lie_is_stored():
    """The consequence that the troubleshooting page tells."""
    cluster = led_topic(brokers=1)
    assert produce(cluster, 1, lying())[0].error_code == 0
