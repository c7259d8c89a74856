"""Records that cannot be sent, or whose outcome is unknown: what is certain, and what comes
after."""

import pytest

from raftlog.base.errors import OperatingError
from raftlog.base.units import millis
from raftlog.client.core.calls import KnowTopic, Produce
from raftlog.client.core.errors import KafkaError, NotDone, OutcomeUnknown
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from raftlog.records.batch import read_header
from tests.client.fake_cluster import FakeCluster
from tests.client.harness import Harness
from tests.client.test_producer import options, send_all, small_batches, start, values


def test_nothing_sent_in_time_certainly_did_not_happen():
    harness, _ = start(delivery_timeout_ns=millis(3000), idempotent=False)
    for number in (1, 2, 3):
        harness.kill(number)
    sent = harness.send("t", b"x")
    harness.settle()
    with pytest.raises(NotDone):
        sent.position()


def test_a_broker_that_hears_nobody_is_not_asked_for_ever():
    """Regression (wide seeds, a deaf rest): its metadata named the leader of old, which refused; it
    was the only one that was connected, so it was asked again, and no other ever was."""
    cluster = FakeCluster()
    log = cluster.topic("t")
    cluster.move("t", 0, 2)
    harness = Harness(cluster, options())
    harness.ask(KnowTopic("t"))
    send_all(harness, values(1))
    harness.settle()
    assert {node for node, _, _ in harness.cluster.requests} == {2}, "the only one it knows"
    harness.cluster.deafen(2)
    harness.cluster.move("t", 0, 3)
    sent = harness.send("t", b"x")
    harness.run_for(millis(2_000))
    assert sent.position().offset == 1
    assert log[0].values()[-1] == b"x"
    asked = [node for node, key, _ in harness.cluster.requests if key == ApiKey.METADATA]
    assert set(asked) == {1, 2}
    assert asked.index(1) > 5, "a failover takes a while: who is asked is not left at once"


def test_two_brokers_that_hear_nobody_are_not_asked_by_turns_for_ever():
    """Regression (wide seed 14000018): two of five were deaf, and the client was connected to these
    two. It left each for the other, and asked none of the three that knew."""
    cluster = FakeCluster(nodes=5)
    log = cluster.topic("t", 2)
    cluster.move("t", 0, 2)
    cluster.move("t", 1, 3)
    harness = Harness(cluster, options())
    harness.ask(KnowTopic("t"))
    for partition in (0, 1):
        harness.send("t", b"0", partition=partition)
    harness.settle()
    assert {node for node, _, _ in harness.cluster.requests} == {2, 3}, "the only ones it knows"
    for node in (2, 3):
        harness.cluster.deafen(node)
    for partition in (0, 1):
        harness.cluster.move("t", partition, 5)
    sent = [harness.send("t", b"x", partition=partition) for partition in (0, 1)]
    harness.run_for(millis(4_000))
    assert [each.position().offset for each in sent] == [1, 1]
    assert [each.values() for each in log] == [[b"0", b"x"]] * 2


def test_the_only_broker_is_asked_on():
    harness, log = start(cluster=FakeCluster(nodes=1))
    harness.cluster.move("t", 0, -1)
    sent = harness.send("t", b"x")
    harness.run_for(millis(2_000))
    asked = harness.cluster.count(ApiKey.METADATA)
    harness.cluster.move("t", 0, 1)
    harness.settle()
    assert sent.position().offset == 0
    assert log[0].values() == [b"x"]
    assert asked > 5


def test_an_unanswered_batch_has_an_unknown_outcome():
    harness, log = start(delivery_timeout_ns=millis(3000))
    send_all(harness, values(1))
    harness.settle()
    harness.cluster.paused.add(1)
    sent = harness.send("t", b"x")
    harness.settle()
    with pytest.raises(OutcomeUnknown) as caught:
        sent.position()
    assert "may be in the log or not" in str(caught.value)
    harness.cluster.paused.clear()
    harness.run_for(millis(200))
    after = harness.send("t", b"y")
    harness.settle()
    assert after.position().offset == 2
    assert log[0].values()[-2:] == [b"x", b"y"]


def test_what_follows_an_unknown_outcome_begins_under_a_new_identity():
    harness, log = start(delivery_timeout_ns=millis(3000))
    send_all(harness, values(1))
    harness.settle()
    harness.cluster.refuse(ApiKey.PRODUCE, *[7] * 500)
    lost = harness.send("t", b"lost")
    harness.settle()
    with pytest.raises(OutcomeUnknown):
        lost.position()
    harness.cluster.refusals.clear()
    harness.send("t", b"next")
    harness.settle()
    ids = [read_header(batch).producer_id for batch in log[0].batches]
    assert ids[0] != ids[-1]
    assert read_header(log[0].batches[-1]).base_sequence == 0
    assert log[0].values()[-1] == b"next"


@pytest.mark.parametrize("code", [10, 87, 29, 17])
def test_a_permanent_refusal_fails_its_batch_and_not_the_next(code):
    """The followers of a refused batch get 45, for its sequence is missing: they are sent again
    under a new identity, each exactly once."""
    harness, log = start(**small_batches())
    send_all(harness, values(1))
    harness.settle()
    harness.cluster.refuse(ApiKey.PRODUCE, 0, code)
    sent = send_all(harness, values(8, 1))
    harness.settle()
    failed = [each for each in sent if each.batch.error is not None]
    assert [each.batch.error.code for each in failed] == [code]
    kept = [value for value, each in zip(values(8, 1), sent, strict=True) if each not in failed]
    assert log[0].values() == values(1) + kept


@pytest.mark.parametrize("code", [45, 59, 47])
def test_a_broker_that_has_forgotten_the_producer_gets_a_new_one(code):
    harness, _ = start()
    send_all(harness, values(1))
    harness.settle()
    harness.cluster.refuse(ApiKey.PRODUCE, code)
    lost = harness.send("t", b"lost")
    harness.settle()
    assert isinstance(lost.batch.error, KafkaError)
    assert lost.batch.error.code == code
    after = harness.send("t", b"after")
    harness.settle()
    assert after.position().offset == 1
    assert harness.cluster.count(ApiKey.INIT_PRODUCER_ID) == 2


def test_a_duplicate_whose_place_is_forgotten_counts_as_acknowledged():
    harness, _ = start()
    harness.cluster.refuse(ApiKey.PRODUCE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    sent = harness.send("t", b"x")
    harness.settle()
    assert sent.position().offset == -1


def test_a_producer_id_that_is_refused_for_good_fails_the_records():
    cluster = FakeCluster()
    cluster.refuse(ApiKey.INIT_PRODUCER_ID, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    harness, _ = start(cluster=cluster)
    sent = harness.send("t", b"x")
    harness.settle()
    assert sent.batch.error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_producer_id_that_is_late_is_waited_for():
    cluster = FakeCluster()
    cluster.refuse(ApiKey.INIT_PRODUCER_ID, *[ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 3)
    harness, log = start(cluster=cluster)
    harness.send("t", b"x")
    harness.settle()
    assert log[0].values() == [b"x"]


def test_brokers_that_hear_nobody_are_not_asked_for_a_producer_id_for_ever():
    harness, log = start()
    for node in (1, 2):
        harness.cluster.deafen(node)
    harness.cluster.move("t", 0, 3)
    harness.send("t", b"x")
    harness.settle()
    assert log[0].values() == [b"x"]


def test_a_topic_created_again_takes_nothing_of_the_old_one_silently():
    harness, _ = start()
    send_all(harness, values(1))
    harness.settle()
    harness.cluster.paused.add(1)
    lost = harness.send("t", b"to the old topic")
    harness.turn()
    harness.run_for(millis(100))
    new = harness.cluster.topic("t", 1)
    harness.cluster.move("t", 0, 2)
    harness.settle()
    assert isinstance(lost.batch.error, OutcomeUnknown)
    harness.cluster.paused.clear()
    harness.run_for(millis(300))
    fresh = harness.send("t", b"to the new one")
    harness.settle()
    assert fresh.position().offset == 0
    assert new[0].values() == [b"to the new one"]


def test_closing_gives_up_what_is_not_acknowledged():
    harness, _ = start()
    unsent = harness.send("t", b"x")
    harness.perform(harness.core.close(harness.now))
    assert isinstance(unsent.batch.error, OperatingError)
    call = harness.call(Produce("t", b"y"))
    assert isinstance(harness.results[call], OperatingError)
    assert harness.core.handle([], harness.now).actions == []


def test_names_are_used_with_brokers_that_know_no_topic_ids():
    cluster = FakeCluster()
    cluster.versions = {ApiKey.PRODUCE: 9, ApiKey.METADATA: 9}
    harness, log = start(cluster=cluster)
    harness.send("t", b"x")
    harness.settle()
    assert log[0].values() == [b"x"]


def test_place_of_a_queue_is_readable():
    assert str(TopicPartition("t", 3)) == "t-3"
