"""Goal: Produce through real frames: several partitions, versions, acks 0, each error, the
hints."""

import attrs
import pytest
from raftlog_sim.world.client import ConnectionLostError

from raftlog.base import probes
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.broker.handlers.data_path import (
    batch_of,
    led_topic,
    produce,
    produce_request,
    topic_id,
    values,
)
from tests.records.making import changed

ONE = batch_of(b"one")


def only(answers):
    (answer,) = answers
    return answer


def test_a_batch_is_answered_with_its_offset():
    cluster = led_topic()
    leader = cluster.leader("t").number
    first = only(produce(cluster, leader, batch_of(b"a", b"b")))
    second = only(produce(cluster, leader, ONE))
    assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
    assert (first.log_append_time_ms, first.log_start_offset) == (-1, 0)
    assert [value for _, value in cluster.read_all("t")] == [b"a", b"b", b"one"]


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version(version):
    cluster = led_topic(brokers=1)
    topic = topic_id(cluster) if version >= 13 else None
    name = "" if version >= 13 else "t"
    answer = only(produce(cluster, 1, ONE, version=version, topic=topic, name=name))
    assert (answer.error_code, answer.base_offset) == (0, 0)


def test_several_partitions_are_answered_with_the_last_one():
    cluster = led_topic(brokers=1, partitions=3)
    answers = produce(cluster, 1, ONE, batch_of(b"x", b"y"), ONE)
    assert [(a.index, a.error_code, a.base_offset) for a in answers] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]


def test_one_bad_partition_does_not_spoil_the_others():
    cluster = led_topic(brokers=1, partitions=2)
    answers = produce(cluster, 1, ONE, ONE[:-1], ONE, partitions=(0, 1, 9))
    assert [a.error_code for a in answers] == [0, 2, 3]


def test_an_unknown_topic_by_name_and_by_id():
    cluster = led_topic(brokers=1)
    assert only(produce(cluster, 1, ONE, name="nope")).error_code == 3
    unknown = produce(cluster, 1, ONE, name="", topic=b"u" * 16, version=13)
    assert only(unknown).error_code == 100


def test_the_metadata_log_is_never_served():
    cluster = led_topic(brokers=1)
    assert only(produce(cluster, 1, ONE, name="__cluster_metadata")).error_code == 3


def test_a_follower_names_the_leader_and_where_it_is():
    cluster = led_topic()
    leader = cluster.leader("t").number
    other = next(n for n in (1, 2, 3) if n != leader)
    cluster.run(1.0)
    body = produce_request(ONE)
    answer = cluster.ask(other, ApiKey.PRODUCE, body, 10)
    partition = answer.responses[0].partition_responses[0]
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader.leader_id == leader
    assert partition.current_leader.leader_epoch >= 1
    assert [endpoint.node_id for endpoint in answer.node_endpoints] == [leader]


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(acks):
    cluster = led_topic(brokers=1)
    answer = only(produce(cluster, 1, ONE, acks=acks))
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert cluster.read_all("t") == []


def test_transactions_are_refused_for_good():
    cluster = led_topic(brokers=1)
    answer = only(produce(cluster, 1, ONE, transactional="tx"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    inside = only(produce(cluster, 1, changed(ONE, attributes=0x10)))
    assert inside.error_code == ErrorCode.INVALID_REQUEST


def test_a_null_batch_is_invalid():
    cluster = led_topic(brokers=1)
    assert only(produce(cluster, 1, None)).error_code == ErrorCode.INVALID_RECORD


def test_zstd_needs_version_7():
    cluster = led_topic(brokers=1)
    zstd = batch_of(b"x" * 100, codec=4)
    old = only(produce(cluster, 1, zstd, version=6))
    assert old.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert only(produce(cluster, 1, zstd, version=7)).error_code == 0


def test_the_topics_own_settings_count():
    configs = (("max.message.bytes", "200"), ("message.timestamp.type", "LogAppendTime"))
    cluster = led_topic(brokers=1, configs=configs)
    small = only(produce(cluster, 1, ONE))
    assert small.error_code == 0
    assert small.log_append_time_ms > 0
    large = only(produce(cluster, 1, batch_of(b"x" * 300)))
    assert large.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert large.error_message


def test_too_few_in_sync_replicas():
    cluster = led_topic(configs=(("min.insync.replicas", "3"),))
    leader = cluster.leader("t").number
    down = next(n for n in (1, 2, 3) if n != leader)
    cluster.kill(down)
    cluster.run(2.0)
    leader = cluster.leader("t").number
    answer = only(produce(cluster, leader, ONE))
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert only(produce(cluster, leader, ONE, acks=1)).error_code == 0


def test_without_a_majority_a_produce_times_out_or_hears_that_the_leader_is_gone():
    cluster = led_topic()
    leader = cluster.leader("t").number
    for number in (1, 2, 3):
        if number != leader:
            cluster.kill(number)
    answer = only(produce(cluster, leader, ONE, timeout_ms=100))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


# --- acks = 0 -------------------------------------------------------------------------------------


def test_acks_0_has_no_answer_but_keeps_its_place():
    cluster = led_topic(brokers=1)
    client = cluster.client(1)
    first = client.request(ApiKey.PRODUCE, produce_request(ONE, acks=0), 7)
    second = client.request(ApiKey.PRODUCE, produce_request(ONE, acks=1), 7)
    cluster.wait(lambda: second.done, 5.0, "the acknowledged one")
    assert (first.done, first.answer) == (True, None)
    assert second.answer.responses[0].partition_responses[0].base_offset == 1


@pytest.mark.parametrize(
    "body",
    [
        produce_request(ONE[:-1], acks=0),
        produce_request(ONE, acks=0, name="nope"),
        produce_request(ONE, acks=0, transactional="tx"),
    ],
)
def test_acks_0_that_failed_closes_the_connection(body):
    cluster = led_topic(brokers=1)
    client = cluster.client(1)
    later = client.request(ApiKey.PRODUCE, body, 7)
    cluster.wait(lambda: client.connection is None, 5.0, "hang-up")
    assert later.done
    assert later.answer is None or isinstance(later.answer, ConnectionLostError)
    assert cluster.see_ready(cluster.world.nodes[1])


# --- idempotence ----------------------------------------------------------------------------------


def test_a_retry_gets_the_first_offset_even_from_another_leader():
    cluster = led_topic()
    leader = cluster.leader("t").number
    probes.reset()
    batch = batch_of(b"once", pid=77, epoch=0, first=0)
    only(produce(cluster, leader, ONE))
    first = only(produce(cluster, leader, batch))
    only(produce(cluster, leader, batch))
    assert "duplicate-of-an-earlier-term" not in probes.fired()
    cluster.kill(leader)
    again = only(produce(cluster, cluster.leader("t").number, batch))
    assert probes.fired()["duplicate-of-an-earlier-term"] == 1
    assert (first.base_offset, again.base_offset, again.error_code) == (1, 1, 0)
    assert [value for _, value in cluster.read_all("t")] == [b"one", b"once"]


def test_a_gap_in_the_sequence():
    cluster = led_topic(brokers=1)
    only(produce(cluster, 1, batch_of(b"0", pid=77, epoch=0, first=0)))
    gap = only(produce(cluster, 1, batch_of(b"2", pid=77, epoch=0, first=2)))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_closed_connection_leaves_nothing_waiting():
    cluster = led_topic()
    leader = cluster.leader("t")
    for number in (1, 2, 3):
        if number != leader.number:
            cluster.kill(number)
    client = cluster.client(leader.number)
    client.request(ApiKey.PRODUCE, produce_request(ONE, timeout_ms=1_000), 11)
    cluster.run(0.05)
    client.close()
    cluster.run(3.0)
    replica = leader.broker.context.router.replica("t", 0)
    assert replica.waiting == 0


def test_pipelined_requests_append_in_order():
    cluster = led_topic(brokers=1)
    client = cluster.client(1)
    pending = [
        client.request(ApiKey.PRODUCE, produce_request(batch_of(b"%d" % n)), 11) for n in range(20)
    ]
    cluster.wait(lambda: all(one.done for one in pending), 10.0, "all")
    offsets = [one.answer.responses[0].partition_responses[0].base_offset for one in pending]
    assert offsets == list(range(20))
    assert values(cluster.fetch("t")) == [b"%d" % n for n in range(20)]


def test_a_client_cannot_write_into_an_internal_topic():
    cluster = led_topic(brokers=1)
    context = cluster.world.nodes[1].broker.context
    image = context.image
    topics = {key: attrs.evolve(topic, internal=True) for key, topic in image.topics.items()}
    context.image = attrs.evolve(image, topics=topics)
    answer = only(produce(cluster, 1, ONE))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    context.image = image
    assert only(produce(cluster, 1, ONE)).base_offset == 0
