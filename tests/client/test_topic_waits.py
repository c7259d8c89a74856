"""Topics and partitions that are not known yet, or not at all."""

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.base.ids import Offset
from raftlog.base.units import millis
from raftlog.client.core.calls import KnowTopic, Produce
from raftlog.client.core.errors import KafkaError, NotDone
from raftlog.client.core.fetcher import Trouble
from raftlog.client.core.values import TopicPartition
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey
from tests.client.fake_cluster import FakeCluster
from tests.client.harness import Harness
from tests.client.test_producer import options, start

EVERYBODY = (1, 2, 3)


def refused(harness, asked):
    """Returns the error of a refused call, and the time that it took."""
    before = harness.now
    with pytest.raises(KafkaError) as caught:
        harness.ask(asked)
    return caught.value, harness.now - before


def test_a_topic_that_does_not_exist_is_an_error_after_a_while():
    harness = Harness(FakeCluster(), options())
    error, _ = refused(harness, Produce("missing", b"x"))
    assert error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_created_meanwhile_is_found():
    cluster = FakeCluster()
    harness = Harness(cluster, options())
    call = harness.call(Produce("late", b"x"))
    harness.run_for(millis(500))
    cluster.topic("late", 1)
    harness.run_until(lambda: call in harness.results)
    assert harness.results[call].offset == 0


def test_a_partition_that_was_made_meanwhile_is_found():
    """A client that knew the topic before it grew waits when its broker has not heard of the growth
    yet."""
    harness, log = start(2)
    for node in (1, 2, 3):
        harness.cluster.deafen(node)
    harness.cluster.grow("t")
    call = harness.call(Produce("t", b"x", partition=2))
    harness.run_for(millis(500))
    assert call not in harness.results
    harness.cluster.deaf.clear()
    harness.run_until(lambda: call in harness.results)
    assert harness.results[call][:3] == ("t", 2, 0)
    assert log[2].values() == [b"x"]


def test_a_partition_that_stays_unknown_is_an_error_after_a_while():
    harness, _ = start(3)
    error, waited = refused(harness, Produce("t", b"x", partition=3))
    assert (error.code, error.on) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-3")
    assert error.do == "t has 3 partitions, numbered from 0"
    assert millis(3000) <= waited < millis(4000)


def test_a_partition_is_not_unknown_while_nobody_answers():
    harness, log = start(3)
    harness.cluster.paused.update((1, 2, 3))
    harness.cluster.grow("t")
    call = harness.call(Produce("t", b"x", partition=3))
    harness.run_for(millis(5000))
    assert call not in harness.results
    harness.cluster.paused.clear()
    harness.run_until(lambda: call in harness.results)
    assert log[3].values() == [b"x"]


def test_an_impossible_name_is_an_error_at_once():
    harness = Harness(FakeCluster(), options())
    error, waited = refused(harness, Produce("a/b", b"x"))
    assert error.code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert waited < millis(1000)


@pytest.mark.parametrize("asked", [Produce("t", b"x", partition=3), KnowTopic("new")])
def test_old_news_refuses_nobody(asked):
    """An answer of the time before the partition was made, and then silence."""
    harness, _ = start(3)
    call = harness.call(asked)
    harness.run_for(millis(80))
    assert harness.cluster.count(ApiKey.METADATA) > 1
    harness.cluster.paused.update(EVERYBODY)
    harness.cluster.grow("t")
    harness.cluster.topic("new")
    harness.run_for(millis(5000))
    assert call not in harness.results
    harness.cluster.paused.clear()
    harness.run_until(lambda: call in harness.results)
    assert not isinstance(harness.results[call], KafkaError)


def test_silence_to_the_end_is_no_refusal():
    harness, _ = start(3)
    harness.cluster.paused.update(EVERYBODY)
    with pytest.raises(NotDone):
        harness.ask(Produce("t", b"x", partition=3))


def test_a_wait_that_ends_before_a_topic_is_waited_for_tells_what_it_was_told():
    harness, _ = start(3, call_timeout_ns=millis(1000))
    for asked in (Produce("t", b"x", partition=3), KnowTopic("missing")):
        with pytest.raises(KafkaError) as caught:
            harness.ask(asked)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_call_that_is_given_up_takes_no_topic_from_its_reader():
    """It was unfollowed for all: the reader heard nothing of the topic any more, and metadata was
    asked for again and again."""
    harness, _ = start(1)
    harness.core.assign({TopicPartition("t", 0): Offset(0)})
    harness.run_for(millis(100))
    harness.cluster.remove("t")
    for asked in (Produce("t", b"x", partition=5), Produce("missing", b"x")):
        with pytest.raises(KafkaError):
            harness.ask(asked)
    harness.cluster.topic("t", 1)
    harness.run_for(millis(2000))
    (trouble,) = harness.core.poll()
    assert isinstance(trouble, Trouble)
    assert list(harness.core.keeper.topics) == ["t"], "what is missing is forgotten"


def test_a_cancelled_wait_is_forgotten():
    harness, _ = start(1)
    first, second = harness.call(KnowTopic("late")), harness.call(KnowTopic("late"))
    harness.core.cancel(first)
    harness.cluster.topic("late")
    harness.run_until(lambda: second in harness.results)
    gone = harness.call(KnowTopic("missing"))
    harness.core.cancel(gone)
    harness.core.keeper.refresh()
    harness.run_for(millis(1000))
    asked = [each.name for each in harness.cluster.bodies(ApiKey.METADATA)[-1].topics]
    assert asked == ["t", "late"]
    assert gone not in harness.results


def test_a_partition_below_zero_is_misuse():
    harness, _ = start(3)
    for asked in (KnowTopic("t", -1), Produce("missing", b"x", partition=-1)):
        with pytest.raises(LocalMisuse):
            harness.ask(asked)


def test_a_topic_without_an_id_may_be_made_again_with_fewer_partitions():
    """Brokers of old tell no ids: another topic looks like the same one."""
    cluster = FakeCluster()
    cluster.versions = {ApiKey.METADATA: 9, ApiKey.PRODUCE: 9}
    harness, _ = start(4, cluster)
    assert harness.core.topic("t").count == 4
    log = cluster.topic("t", 1)
    harness.core.keeper.refresh()
    harness.run_for(millis(1000))
    harness.ask(Produce("t", b"x"))
    assert (harness.core.topic("t").count, log[0].values()) == (1, [b"x"])
