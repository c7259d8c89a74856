"""Goal: ListOffsets: ends, beginnings, timestamps, and nothing from a leader that may not know."""

import pytest

from raftlog.base import probes
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from raftlog.kafka.versions import ApiKey
from raftlog.storage.segments import time_plan
from raftlog.storage.segments.time_jobs import find_time
from tests.broker.handlers.data_path import (
    WALL,
    batch_of,
    led_topic,
    list_offsets,
    list_offsets_later,
    produce,
)
from tests.records.making import changed

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def filled(**options):
    """Offsets 0 to 5; batches of two records, 10 ms apart."""
    cluster = led_topic(brokers=1, **options)
    for number in range(3):
        produce(cluster, 1, batch_of(b"a", b"b", timestamp_ms=WALL + 10 * number))
    return cluster


def one(cluster, timestamp, **options):
    (answer,) = list_offsets(cluster, 1, timestamp, **options)
    return (answer.error_code, answer.offset, answer.timestamp)


@pytest.mark.parametrize("version", range(1, 12))
def test_the_end_is_the_high_watermark_in_every_version(version):
    assert one(filled(), LATEST, version=version) == (0, 6, -1)


def test_the_beginning_is_the_log_start():
    cluster = filled()
    assert one(cluster, EARLIEST) == (0, 0, -1)
    assert one(cluster, EARLIEST_LOCAL, version=8) == (0, 0, -1)


def test_the_epoch_of_the_beginning_is_that_of_its_record():
    """Kafka says it too; a consumer that begins there checks later whether its log was cut."""
    cluster = led_topic()
    first = cluster.leader("t")
    produce(cluster, first.number, batch_of(b"a", b"b"))
    old = first.broker.context.router.replica("t", 0).term
    cluster.kill(first.number)
    second = cluster.leader("t")
    produce(cluster, second.number, batch_of(b"c"))
    new = second.broker.context.router.replica("t", 0).term
    assert new > old
    for start, epoch in ((0, old), (1, old), (2, new), (3, new)):
        if start:
            trim(cluster, start)
        for beginning in (EARLIEST, EARLIEST_LOCAL):
            (answer,) = list_offsets(cluster, second.number, beginning)
            assert (answer.offset, answer.leader_epoch) == (start, epoch)


def test_the_epoch_of_the_end_is_the_leaders():
    cluster = filled()
    (answer,) = list_offsets(cluster, 1, LATEST)
    assert answer.leader_epoch == cluster.leader("t").broker.context.router.replica("t", 0).term


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [
        (0, 0, WALL),
        (WALL, 0, WALL),
        (WALL + 1, 2, WALL + 10),
        (WALL + 20, 4, WALL + 20),
        (WALL + 21, -1, -1),
    ],
)
def test_the_first_record_at_or_after_a_timestamp(timestamp, offset, found):
    assert one(filled(), timestamp) == (0, offset, found)


def test_the_largest_timestamp():
    assert one(filled(), MAX_TIMESTAMP) == (0, 4, WALL + 20)
    assert one(led_topic(brokers=1), MAX_TIMESTAMP) == (0, -1, -1)


def trim(cluster, offset):
    """Delete the records below the offset."""
    body = DeleteRecordsRequest(
        [DeleteRecordsTopic("t", [DeleteRecordsPartition(0, offset)])], 5_000
    )
    cluster.ask(cluster.leader("t").number, ApiKey.DELETE_RECORDS, body, 2)


def claiming(latest, *values, at):
    """A batch whose header claims another latest timestamp than its records have."""
    return changed(batch_of(*values, timestamp_ms=at), max_timestamp=latest)


def test_no_look_up_answers_below_the_log_start():
    """The story: offsets_for_times after DeleteRecords answered deleted offsets; consumers that
    went there read nothing, or failed with OFFSET_OUT_OF_RANGE."""
    cluster = filled()
    trim(cluster, 3)
    assert one(cluster, 0) == one(cluster, WALL + 10) == (0, 3, WALL + 10)
    assert one(cluster, MAX_TIMESTAMP) == (0, 4, WALL + 20)
    trim(cluster, 5)
    assert one(cluster, 0) == one(cluster, MAX_TIMESTAMP) == (0, 5, WALL + 20)
    trim(cluster, 6)
    assert one(cluster, 0) == one(cluster, MAX_TIMESTAMP) == (0, -1, -1)


def test_a_log_start_that_rises_under_a_look_up(monkeypatch):
    """A record was found below it: the look-up is planned again from the new log start."""
    cluster = filled()
    log = cluster.leader("t").broker.context.router.replica("t", 0).log

    def find_and_delete(disk, order):
        found = find_time(disk, order)
        log.set_log_start(3, log.last_index)
        return found

    monkeypatch.setattr(time_plan, "find_time", find_and_delete)
    probes.reset()
    assert one(cluster, 0) == (0, 3, WALL + 10)
    assert "log-start-rose-under-a-look-up" in probes.fired()


@pytest.mark.parametrize("claim", [-1, WALL - 1_000, WALL + 1_000_000])
def test_a_headers_timestamp_is_not_believed(claim):
    """The story: Sarama 1.45 leaves it unset, so nothing was found in what it had written."""
    cluster = led_topic(brokers=1)
    for number in range(3):
        produce(cluster, 1, claiming(claim, b"a", b"b", at=WALL + 10 * number))
    assert one(cluster, WALL) == (0, 0, WALL)
    assert one(cluster, WALL + 1) == (0, 2, WALL + 10)
    assert one(cluster, WALL + 21) == (0, -1, -1)
    assert one(cluster, MAX_TIMESTAMP) == (0, 4, WALL + 20)


def test_a_look_up_that_needs_many_jobs(monkeypatch):
    monkeypatch.setattr(time_plan, "TIMES_SCAN_BYTES", 1)
    cluster = led_topic(brokers=1, configs=(("segment.bytes", "65536"),))
    for number in range(60):
        produce(cluster, 1, claiming(-1, bytes(4000), at=WALL + number))
    assert len(cluster.leader("t").broker.context.router.replica("t", 0).log.segments) > 2
    assert one(cluster, WALL + 55) == (0, 55, WALL + 55)
    assert one(cluster, MAX_TIMESTAMP) == (0, 59, WALL + 59)


def test_the_largest_timestamp_of_what_is_committed():
    """The story: under writes the largest timestamp was that of a batch that was not committed
    yet; the answer was OFFSET_NOT_AVAILABLE or -1, for a partition full of records."""
    cluster = led_topic()
    leader = cluster.leader("t")
    produce(cluster, leader.number, batch_of(b"a", timestamp_ms=WALL + 5))
    for number in (1, 2, 3):
        if number != leader.number:
            cluster.kill(number)
    produce(cluster, leader.number, batch_of(b"b", timestamp_ms=WALL + 9), timeout_ms=50)
    replica = leader.broker.context.router.replica("t", 0)
    assert replica.is_leader
    assert (replica.high_watermark, replica.log.next_offset) == (1, 2)
    (answer,) = list_offsets(cluster, leader.number, MAX_TIMESTAMP)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, 0, WALL + 5)
    (answer,) = list_offsets(cluster, leader.number, WALL + 6)
    assert (answer.error_code, answer.offset) == (0, -1)


def test_tiered_offsets_do_not_exist():
    assert one(filled(), LATEST_TIERED, version=9) == (0, -1, -1)
    assert one(filled(), -6, version=11) == (0, -1, -1)


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10)])
def test_a_question_that_the_version_does_not_know(timestamp, version):
    assert one(filled(), timestamp, version=version)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_an_absurd_timestamp():
    assert one(filled(), -7)[0] == ErrorCode.INVALID_REQUEST


def test_unknown_partitions_and_epochs():
    cluster = filled()
    answers = list_offsets(cluster, 1, LATEST, LATEST)
    assert [answer.error_code for answer in answers] == [0, 3]
    assert one(cluster, LATEST, epoch=99)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("replica_id", [0, 1, 3, -2])
def test_any_replica_id_is_answered_as_a_consumer_is(replica_id):
    """The story: kafka-python 3.1 leaves it 0, was refused for ever, and read nothing."""
    cluster = filled()
    for timestamp in (LATEST, EARLIEST, MAX_TIMESTAMP, WALL + 1):
        as_a_consumer = list_offsets(cluster, 1, timestamp)
        assert list_offsets(cluster, 1, timestamp, replica_id=replica_id) == as_a_consumer
        assert as_a_consumer[0].error_code == 0


def test_a_follower_refuses():
    cluster = led_topic()
    leader = cluster.leader("t").number
    other = next(n for n in (1, 2, 3) if n != leader)
    (answer,) = list_offsets(cluster, other, LATEST)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("version", "error"), [(4, 5), (5, 78), (8, 78)])
def test_a_leader_that_has_not_committed_in_its_term_does_not_say(version, error):
    """KIP-207: it may know less than the leader before it."""
    cluster = led_topic()
    leader = cluster.leader("t")
    replica = leader.broker.context.router.replica("t", 0)
    serving = replica._serving
    serving._published_term, told = None, serving._published_term
    (answer,) = list_offsets(cluster, leader.number, LATEST, version=version)
    assert answer.error_code == error
    (answer,) = list_offsets(cluster, leader.number, EARLIEST, version=version)
    assert (answer.error_code, answer.offset) == (0, 0)
    serving._published_term = told


def test_a_linearizable_end_is_confirmed_first():
    configs = (("raftlog.read.consistency", "linearizable"),)
    cluster = led_topic(configs=configs)
    leader = cluster.leader("t").number
    produce(cluster, leader, batch_of(b"a"))
    (answer,) = list_offsets(cluster, leader, LATEST)
    assert (answer.error_code, answer.offset) == (0, 1)
    for number in (1, 2, 3):
        if number != leader:
            cluster.kill(number)
    pending = list_offsets_later(cluster, leader, LATEST)
    cluster.wait(lambda: pending.done, 40.0, "refused")
    (answer,) = pending.answer.topics[0].partitions
    assert answer.error_code in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    )
