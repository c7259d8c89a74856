"""Each fault verb, in process and as processes, as a client of other people's sees it."""

import json
import time
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from raftlog.base.errors import LocalMisuse
from raftlog.embed.cluster import Cluster
from raftlog.embed.faults import FaultNotUsedError

pytestmark = pytest.mark.processes

PATIENT = {"linger.ms": 0, "log_level": 0, "retry.backoff.ms": 20, "reconnect.backoff.ms": 20}
QUICK = {"request.timeout.ms": 500, "socket.timeout.ms": 1000}
"""A client that does not wait long for a broker that says nothing."""
NO_RETRY = {"message.send.max.retries": 0}


@pytest.fixture(scope="module", params=["in process", "processes"])
def shared(request):
    with Cluster(brokers=3, processes=request.param == "processes") as cluster:
        yield cluster


@pytest.fixture
def cluster(shared):
    yield shared
    shared.heal()
    for node in shared.nodes:
        if node not in shared.alive:
            shared.restart(node)
        shared.resume(node)
    shared.wait_until_healthy()


@pytest.fixture
def topic(cluster, request):
    name = f"{request.node.originalname}-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(20)
    cluster.leader_of(name)
    return name


def client(cluster, topic, **settings):
    """A producer that has sent once, so that it is connected."""
    made = Producer({"bootstrap.servers": cluster.bootstrap_servers, **PATIENT, **settings})
    assert send(made, topic) is None
    return made


def send(producer, topic, value=b"v", seconds=30):
    """The error of one record, by name; None when it was acknowledged."""
    told = []
    producer.produce(topic, value, on_delivery=lambda error, _: told.append(error))
    assert producer.flush(seconds) == 0
    (error,) = told
    return error and error.name()


def values(cluster, topic):
    """All records of the topic."""
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
    )
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)[1]
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < end:
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


# --- requests -------------------------------------------------------------------------------------


def test_an_error_of_an_api(cluster, topic):
    once = client(cluster, topic, **NO_RETRY)
    with cluster.on("Produce", topic=topic).error("INVALID_RECORD", times=1) as fault:
        assert send(once, topic, b"refused") == "INVALID_RECORD"
        assert fault.used == 1
        assert send(once, topic, b"taken") is None
        fault.assert_used(times=1)
    assert values(cluster, topic) == [b"v", b"taken"]  # it was answered and not executed


def test_a_client_that_may_retry_does(cluster, topic):
    patient = client(cluster, topic)
    with cluster.on("Produce").error("NOT_LEADER_OR_FOLLOWER", times=3) as fault:
        assert send(patient, topic, b"taken") is None
        fault.assert_used(times=3)


def test_a_response_that_is_lost(cluster, topic):
    """The record is there, and the client cannot know. A test is there to show what it does then:
    without idempotence it sends again, and the record is there twice."""
    plain = client(cluster, topic, **QUICK)
    with cluster.on("Produce", topic=topic).drop_response(times=1):
        assert send(plain, topic, b"twice") is None
    careful = client(cluster, topic, **{"enable.idempotence": True, **QUICK})
    with cluster.on("Produce", topic=topic).drop_response(times=1):
        assert send(careful, topic, b"once") is None
    assert values(cluster, topic) == [b"v", b"twice", b"twice", b"v", b"once"]


@pytest.mark.parametrize(("executed", "left"), [(False, [b"v"]), (True, [b"v", b"x"])])
def test_a_connection_that_ends(cluster, topic, executed, left):
    once = client(cluster, topic, **NO_RETRY)
    with cluster.on("Produce", topic=topic).disconnect(executed=executed, times=1):
        assert send(once, topic, b"x") == "_TRANSPORT"
    assert values(cluster, topic) == left


def test_an_answer_that_is_late(cluster, topic):
    once = client(cluster, topic)
    began = time.monotonic()
    with cluster.on("Produce", topic=topic).delay(ms=700, times=1):
        assert send(once, topic) is None
    assert time.monotonic() - began >= 0.7


def test_nth_counts_over_all_brokers(cluster, topic):
    once = client(cluster, topic, **NO_RETRY)
    fault = cluster.on("Produce", topic=topic).error("INVALID_RECORD", nth=2)
    errors = []
    for _ in range(3):
        errors.append(send(once, topic))
        cluster.shut_down(leader := cluster.leader_of(topic))
        cluster.restart(leader)
        cluster.wait_until_healthy()
    assert errors == [None, "INVALID_RECORD", None]
    fault.assert_used(times=1)


def test_which_client_is_meant(cluster, topic):
    billing = client(cluster, topic, **{"client.id": "billing", **NO_RETRY})
    shop = client(cluster, topic, **{"client.id": "shop", **NO_RETRY})
    with cluster.on("Produce", client_id="billing").error("TOPIC_AUTHORIZATION_FAILED"):
        assert send(shop, topic) is None
        assert send(billing, topic) == "TOPIC_AUTHORIZATION_FAILED"


def test_a_consumer_sees_errors_of_fetch(cluster, topic):
    client(cluster, topic)
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic, "log_level": 0}
    )
    fault = cluster.on("Fetch", topic=topic).error("TOPIC_AUTHORIZATION_FAILED")
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(20)
    assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    fault.remove()
    while (message := consumer.poll(20)).error():
        assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert message.value() == b"v"
    consumer.close()
    fault.assert_used()


def test_a_fault_that_nothing_met_fails_the_test(cluster, topic):
    with (
        pytest.raises(FaultNotUsedError, match=r"was used 0 times: .*drop_response.*other"),
        cluster.on("Produce", topic="other").drop_response(),
    ):
        client(cluster, topic)
    with cluster.on("Produce", topic=topic).delay(ms=1) as fault:
        client(cluster, topic)
        with pytest.raises(FaultNotUsedError, match="used 1 time, not 2"):
            fault.assert_used(times=2)
    with pytest.raises(KeyError), cluster.on("Produce", topic="other").drop_response():
        raise KeyError("the test's own error is not hidden")
    assert all(not fault.active for fault in cluster._faults.handles)


# --- brokers --------------------------------------------------------------------------------------


def test_a_leader_that_is_isolated_loses_its_topic(cluster, topic):
    """The old leader acknowledges nothing more. A client that knows no other broker stays with it,
    for its metadata is old."""
    stays = client(cluster, topic, **{"message.timeout.ms": 1500})
    leader = cluster.leader_of(topic)
    others = ["{}:{}".format(*cluster.address_of(n)) for n in cluster.nodes if n != leader]
    with cluster.isolate(leader):
        deadline = time.monotonic() + 30
        while cluster.leader_of(topic) == leader:
            assert time.monotonic() < deadline
        goes = Producer({"bootstrap.servers": ",".join(others), **PATIENT})
        assert send(goes, topic, b"through the others") is None
        assert send(stays, topic, b"to the old leader") in (None, "_MSG_TIMED_OUT")
    cluster.wait_until_healthy()
    assert values(cluster, topic)[:2] == [b"v", b"through the others"]


def test_a_majority_that_is_parted_acknowledges_nothing(cluster, topic):
    producer = client(cluster, topic, **{"message.timeout.ms": 1500})
    with cluster.partition({1}, {2}, {3}) as cut:
        assert send(producer, topic, b"lost or not") == "_MSG_TIMED_OUT"
        cluster.heal()
        assert not cut.active
    cluster.wait_until_healthy()
    assert send(producer, topic, b"after") is None


def test_a_broker_that_stands_still_is_cut_off_before_it_goes_on(cluster, topic):
    """It must not hear of the new leader in the moment before it is told of the partition."""
    producer = client(cluster, topic, **QUICK)
    leader = cluster.leader_of(topic)
    others = [node for node in cluster.nodes if node != leader]
    cluster.pause(leader)
    with cluster.partition([leader], others):
        assert send(producer, topic, b"without it") is None
        cluster.resume(leader)
        term = terms(cluster, others[0], topic)
        assert terms(cluster, leader, topic) < term
        time.sleep(0.5)
        assert terms(cluster, leader, topic) < term


def test_a_broker_that_is_dead_comes_back_into_its_partition(cluster, topic):
    producer = client(cluster, topic, **QUICK)
    leader = cluster.leader_of(topic)
    cluster.kill(leader)
    with cluster.isolate(leader):
        cluster.restart(leader, wait=False)
        assert send(producer, topic, b"without it") is None
        assert status(cluster, leader)["registered"] is False
    cluster.wait_until_healthy()


def test_one_way(cluster, topic):
    """A leader that hears and is not heard is replaced."""
    leader = cluster.leader_of(topic)
    others = [node for node in cluster.nodes if node != leader]
    with cluster.partition([leader], others, one_way=True):
        deadline = time.monotonic() + 30
        while cluster.leader_of(topic) == leader:
            assert time.monotonic() < deadline
        assert terms(cluster, leader, topic) == terms(cluster, others[0], topic)  # it heard


def test_brokers_that_are_far_apart(cluster, topic):
    producer = client(cluster, topic)
    with cluster.delay(ms=60):
        began = time.monotonic()
        assert send(producer, topic) is None
        assert time.monotonic() - began >= 0.12  # to a follower and back
    with cluster.delay({1}, {2, 3}, ms=1):
        assert send(producer, topic) is None


# --- disks ----------------------------------------------------------------------------------------


def test_a_slow_disk(cluster, topic):
    producer = client(cluster, topic)
    faults = [cluster.slow_disk(node, ms=250) for node in cluster.nodes]
    # A broker heeds a fault in its next turn; a record that comes in the same moment may be ahead.
    assert send(producer, topic, b"perhaps ahead") is None
    began = time.monotonic()
    assert send(producer, topic) is None
    assert time.monotonic() - began >= 0.25
    assert sum(fault.used for fault in faults) >= 2


def test_a_full_disk_refuses_and_recovers(cluster, topic):
    producer = client(cluster, topic, **{"message.timeout.ms": 2000, "acks": "all"})
    faults = [cluster.full_disk(node) for node in cluster.nodes]
    assert send(producer, topic, b"no room") is not None
    assert sum(fault.used for fault in faults) >= 1
    cluster.heal()
    cluster.wait_until_healthy()
    assert send(producer, topic, b"room again") is None


def test_a_disk_whose_sync_fails_ends_its_broker(cluster, topic):
    producer = client(cluster, topic)
    leader = cluster.leader_of(topic)
    with cluster.fail_sync(leader):
        assert send(producer, topic, b"the others have it") is None
        deadline = time.monotonic() + 30
        while cluster.leader_of(topic) == leader:
            assert time.monotonic() < deadline
    cluster.restart(leader)
    cluster.wait_until_healthy()
    assert b"the others have it" in values(cluster, topic)


# --- the doors ------------------------------------------------------------------------------------


def status(cluster, node):
    port = cluster._running.place(node).admin_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=20) as answer:
        return json.load(answer)


def terms(cluster, node, topic):
    """The term of a topic's first partition, by one broker's word."""
    groups = status(cluster, node)["groups"]
    return next(each["term"] for each in groups if each["name"] == f"{topic}-0")


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda c: c.on("Prodduce"), "did you mean Produce"),
        (lambda c: c.on("Heartbeat", topic="t"), "topic cannot restrict Heartbeat"),
        (lambda c: c.on("Produce", node=9), "node must be one of 1, 2, 3"),
        (lambda c: c.on("Produce").error("NOT_LEADER"), "did you mean NOT_LEADER_OR_FOLLOWER"),
        (lambda c: c.on("Produce").delay(ms=0), "ms must be 1 to 600000"),
        (lambda c: c.on("Produce").drop_response(times=0), "times must be 1"),
        (lambda c: c.partition({1}, set()), "second must name at least one node"),
        (lambda c: c.partition({1}, {2}, {2}), "third must not hold node 2: second does"),
        (lambda c: c.partition({1}, {7}), "second must hold nodes of 1, 2, 3, not 7"),
        (lambda c: c.delay({1}, ms=5), "second must name at least one node"),
        (lambda c: c.slow_disk(9, ms=5), "node must be one of 1, 2, 3, not 9"),
        (lambda c: c.isolate(9), "node must be one of"),
    ],
)
def test_what_cannot_be_is_refused(cluster, call, why):
    with pytest.raises(LocalMisuse, match=why):
        call(cluster)


def test_counts_stay_when_the_cluster_has_stopped():
    with Cluster(brokers=1) as cluster:
        with pytest.raises(LocalMisuse, match="one broker has nothing to isolate"):
            cluster.isolate(1)
        fault = cluster.on("Metadata").delay(ms=1)
        AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=20)
    assert fault.used >= 1
    assert not fault.active
    with pytest.raises(LocalMisuse, match="not running"):
        cluster.heal()


def test_a_cluster_that_is_told_to_take_no_faults():
    with Cluster(brokers=1, settings={"raftlog.testing.faults": "false"}) as cluster:
        with pytest.raises(LocalMisuse, match="takes no faults"):
            cluster.full_disk(1)
        port = cluster._running.place(1).admin_port
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/faults", timeout=20)
