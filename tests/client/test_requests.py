import pytest

from raftlog.base.errors import LocalMisuse, ProtocolError, RaftlogError, WrongType, WrongValue
from raftlog.base.units import millis
from raftlog.client.core.asks import (
    EARLIEST,
    LATEST,
    create_topics,
    delete_records,
    fetch,
    list_offsets,
    metadata,
    new_topic,
)
from raftlog.client.core.calls import KnowTopic
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.client.core.values import ClientOptions, TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.fake_cluster import HOST, FakeCluster
from tests.client.harness import Harness
from tests.client.test_fetcher import fill

PLACE = TopicPartition("t", 0)


def start(partitions=1, **more):
    cluster = FakeCluster()
    log = cluster.topic("t", partitions) if partitions else []
    for each in log:
        fill(each, 2)
    options = ClientOptions(bootstrap=((HOST, 9001), (HOST, 9002)), **more)
    return Harness(cluster, options)


def test_any_broker_answers_metadata():
    harness = start(2)
    answer = harness.ask(metadata())
    assert [topic.name for topic in answer.topics] == ["t"]
    assert len(answer.brokers) == 3


def test_the_leader_answers_for_its_partition():
    harness = start(3)
    for at in range(3):
        place = TopicPartition("t", at)
        assert harness.ask(list_offsets(place, LATEST)).offset == 6
        assert harness.ask(list_offsets(place, EARLIEST)).offset == 0
    nodes = [node for node, key, _ in harness.cluster.requests if key == ApiKey.LIST_OFFSETS]
    assert nodes == [1, 1, 2, 2, 3, 3]


def test_one_fetch_of_one_partition():
    harness = start()
    piece = harness.ask(fetch(PLACE, 4))
    assert [record.offset for record in piece.records()] == [4, 5]
    assert (piece.next_offset, piece.high_watermark) == (6, 6)
    assert harness.ask(fetch(PLACE, 6)).batches == ()
    with pytest.raises(KafkaError) as caught:
        harness.ask(fetch(PLACE, 7))
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("code", [5, 6, 7, 78])
def test_a_passing_refusal_is_asked_again(code):
    harness = start()
    harness.cluster.refuse(ApiKey.LIST_OFFSETS, code, code)
    assert harness.ask(list_offsets(PLACE, LATEST)).offset == 6


def test_a_lasting_refusal_is_the_result():
    harness = start()
    harness.cluster.refuse(ApiKey.LIST_OFFSETS, 29)
    with pytest.raises(KafkaError):
        harness.ask(list_offsets(PLACE, LATEST))


def test_a_moved_leader_is_followed():
    harness = start()
    harness.ask(list_offsets(PLACE, LATEST))
    harness.cluster.move("t", 0, 3)
    assert harness.ask(list_offsets(PLACE, LATEST)).leader_epoch == 2


def test_what_only_reads_survives_lost_answers():
    harness = start()
    harness.cluster.losses[ApiKey.LIST_OFFSETS] = 2
    harness.cluster.cuts[ApiKey.METADATA] = 2
    assert harness.ask(list_offsets(PLACE, LATEST)).offset == 6


def test_what_only_reads_is_asked_elsewhere_when_a_broker_is_silent():
    harness = start()
    harness.ask(metadata())
    harness.cluster.paused.add(1)
    began = harness.now
    assert len(harness.ask(metadata()).topics) == 1
    assert harness.now - began < millis(2500)


def test_a_change_is_not_asked_twice_when_its_answer_is_lost():
    harness = start(0)
    harness.cluster.losses[ApiKey.CREATE_TOPICS] = 1
    with pytest.raises(OutcomeUnknown):
        harness.ask(create_topics([new_topic("new", 1, 1)]))
    assert harness.cluster.count(ApiKey.CREATE_TOPICS) == 1
    assert "new" in harness.cluster.topics


def test_a_change_is_asked_again_when_it_certainly_did_not_leave():
    harness = start(0)
    harness.cluster.dead.add(1)
    harness.cluster.dead.add(2)
    call = harness.call(create_topics([new_topic("new", 1, 1)]))
    harness.run_for(millis(500))
    assert call not in harness.results
    harness.cluster.dead.clear()
    harness.run_until(lambda: call in harness.results)
    assert [result.error_code for result in harness.results[call]] == [0]


def test_a_silent_cluster_leaves_a_change_unknown_and_a_question_undone():
    harness = start()
    harness.ask(metadata())
    harness.cluster.paused |= {1, 2, 3}
    with pytest.raises(OutcomeUnknown):
        harness.ask(create_topics([new_topic("new", 1, 1)], timeout_ns=millis(2000)))
    with pytest.raises(NotDone):
        harness.ask(metadata(timeout_ns=millis(2000)))


def test_a_change_that_never_left_is_not_done():
    harness = start(0)
    harness.cluster.dead |= {1, 2, 3}
    with pytest.raises(NotDone):
        harness.ask(create_topics([new_topic("new", 1, 1)], timeout_ns=millis(2000)))


def test_records_are_deleted_by_the_leader_and_an_offset_may_be_asked_for_again():
    harness = start()
    assert harness.ask(delete_records(PLACE, 3)) == 3
    harness.cluster.losses[ApiKey.DELETE_RECORDS] = 1
    harness.cluster.move("t", 0, 3)
    assert harness.ask(delete_records(PLACE, 4)) == 4


def test_everything_is_deleted_once():
    """When it was asked again, records that came meanwhile went, too."""
    harness = start()
    assert harness.ask(delete_records(PLACE)) == 6
    harness.cluster.losses[ApiKey.DELETE_RECORDS] = 1
    with pytest.raises(OutcomeUnknown):
        harness.ask(delete_records(PLACE))
    assert harness.cluster.count(ApiKey.DELETE_RECORDS) == 2


def test_a_change_that_the_wrong_leader_refused_goes_to_the_right_one_next_time():
    harness = start()
    harness.ask(delete_records(PLACE))
    harness.cluster.move("t", 0, 3)
    with pytest.raises(KafkaError) as caught:
        harness.ask(delete_records(PLACE))
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert harness.ask(delete_records(PLACE)) == 6


def test_results_of_topics_are_told_one_by_one():
    harness = start()
    made, there = harness.ask(create_topics([new_topic("new", 2, 1), new_topic("t")]))
    assert made.check() is made
    assert (there.name, there.error_code) == ("t", 36)
    with pytest.raises(KafkaError):
        there.check()


def test_an_unknown_topic_is_an_error_soon():
    harness = start()
    began = harness.now
    for ask in (list_offsets(TopicPartition("no", 0), LATEST), KnowTopic("no")):
        with pytest.raises(KafkaError) as caught:
            harness.ask(ask)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert harness.now - began < millis(8000)


def test_an_unknown_partition_is_an_error_soon():
    harness = start()
    with pytest.raises(KafkaError):
        harness.ask(list_offsets(TopicPartition("t", 9), LATEST))


def test_a_cancelled_call_never_completes():
    harness = start()
    call = harness.call(list_offsets(PLACE, LATEST))
    harness.core.cancel(call)
    harness.run_for(millis(1000))
    assert harness.results == {}


def test_an_answer_that_cannot_be_read_ends_the_connection_and_is_asked_again():
    harness = start()
    harness.ask(metadata())
    harness.cluster.garbled = 1
    assert len(harness.ask(metadata()).topics) == 1
    assert harness.hangups


def test_a_broker_without_the_api_is_an_error():
    harness = start()
    harness.cluster.versions = {ApiKey.LIST_OFFSETS: 0}
    with pytest.raises(RaftlogError):
        harness.ask(list_offsets(PLACE, LATEST))


def test_an_answer_about_something_else_is_an_error():
    harness = start()
    harness.cluster.changed[ApiKey.LIST_OFFSETS] = lambda body: body._replace(topics=())
    with pytest.raises(ProtocolError):
        harness.ask(list_offsets(PLACE, LATEST))


def test_a_call_number_is_used_once():
    harness = start()
    harness.core.call(1, metadata(), harness.now)
    with pytest.raises(AssertionError):
        harness.core.call(1, metadata(), harness.now)


def test_options_are_checked():
    for name, wrong, error in (
        ("acks", 2, WrongValue),
        ("acks", "all", WrongType),
        ("idempotent", 1, WrongType),
        ("in_flight_per_partition", 6, WrongValue),
        ("linger_ns", -1, WrongValue),
        ("call_timeout_ns", 1.5, WrongType),
        ("client_id", b"me", WrongType),
        ("bootstrap", (), WrongValue),
        ("bootstrap", "localhost:9092", WrongType),
    ):
        with pytest.raises(error, match=f"^{name}"):
            ClientOptions(**{"bootstrap": ((HOST, 1),), name: wrong})
    with pytest.raises(WrongValue, match=r"^idempotent"):
        ClientOptions(bootstrap=((HOST, 1),), acks=1)
    assert ClientOptions(bootstrap=((HOST, 1),), acks=1, idempotent=False).acks == 1
    with pytest.raises(LocalMisuse):
        Harness(FakeCluster()).core.send("t", b"", timestamp_ms=0, now=0)
