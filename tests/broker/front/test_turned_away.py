"""Requests wait for a booting broker; brokers that cannot serve hang up, for some clients go to
another one only when the one that they are connected to is gone."""

from itertools import pairwise

import pytest
from raftlog_sim.world.client import ConnectionLostError, HeapClient

from raftlog.base.errors import DiskError
from raftlog.base.ids import ConnectionId, NodeId
from raftlog.base.units import NANOS_PER_SECOND
from raftlog.broker.events import ConnectionOpened, Request, WriteFailed
from raftlog.broker.replicas.hosts import HostState
from raftlog.kafka.codec import encode_request
from raftlog.kafka.messages.api_versions import ApiVersionsRequest
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster

ORDERS = MetadataRequest([MetadataRequestTopic(name="orders")], False)


@pytest.fixture
def three():
    cluster = Cluster(3, 3).ready()
    cluster.create("orders", 1, 3)
    return cluster


def is_fenced(cluster, node, by):
    return by.broker.context.image.brokers[NodeId(node.number)].fenced


def frame_of(api_key, version, body):
    """A request as it comes to the broker: without its length."""
    return b"".join(bytes(part) for part in encode_request(api_key, version, 0, "c", body))[4:]


def fail_the_disk(node):
    """As the writer says it when a sync failed; no supervisor restarts the process."""
    node.deliver(WriteFailed(0, node.directory, None, DiskError("gone")))


def cut_off(cluster, number):
    """The node boots, and reaches no other node."""
    cluster.kill(number)
    cluster.world.network.partition([number])
    cluster.restart(number)
    return cluster.world.nodes[number]


class TestPoisoned:
    def test_it_is_dead_to_clients_and_to_the_cluster(self, three):
        """Its replica of the metadata has ended, so it knows for good what it knew: it named
        leaders that had moved, and the cluster held it for alive."""
        node = three.leader("orders")
        idle = HeapClient(node).connect()
        body = three.produce_body("orders", [b"lost?"], timeout_ms=1000)
        produced = three.client(node.number).request(ApiKey.PRODUCE, body, 11)
        fail_the_disk(node)
        three.wait(lambda: idle.connection is None and produced.done, what="the end of both")
        with pytest.raises(ConnectionLostError):
            three.metadata("orders", at=node.number)
        other = next(each for each in three.world.running() if each is not node)
        three.wait(lambda: is_fenced(three, node, by=other), what="the fence")
        assert node.broker.admin.readyz()["checks"]["registered"] == "this boot is over"
        told = three.metadata("orders", at=other.number)
        assert node.number not in [broker.node_id for broker in told.brokers]

    def test_a_restart_brings_it_back(self, three):
        node = three.world.nodes[2]
        fail_the_disk(node)
        three.run(0.1)
        three.kill(2)
        three.restart(2)
        three.ready()
        assert three.partition("orders", at=2).leader_id > 0

    def test_a_replica_that_was_being_opened_does_not_run(self, three):
        """It ran on a directory that could keep no promise."""
        three.kill(2)
        three.restart(2)
        node = three.world.nodes[2]
        hosts = node.broker.manager.hosts.values

        def opens():
            return any(host.state is HostState.OPENING for host in hosts())

        three.wait(opens, what="a replica that opens")
        fail_the_disk(node)
        three.run(3.0)
        assert {host.state for host in hosts()} == {HostState.POISONED}
        assert not node.broker.context.replicas


class TestRefused:
    def test_who_comes_with_a_request_in_its_first_turn_hears_nothing(self, three):
        node = three.world.nodes[2]
        node.broker.registration.evicted()
        three.run(0.1)
        frame = frame_of(ApiKey.METADATA, 12, ORDERS)
        opened = ConnectionOpened(ConnectionId(99), "PLAINTEXT", "User:ANONYMOUS", "here:1")
        events = [opened, Request(opened.connection, 0, frame)]
        effects = node.broker.handle(events, node.live.clock.now(three.world.now), 0)
        assert effects.replies == []
        assert [each.connection for each in effects.hangups] == [opened.connection]

    def test_it_is_dead_to_clients(self, three):
        """It never catches up, so it names no leader. A client that asked it first heard "leader
        not available" for ever and asked nobody else: librdkafka read nothing for a minute."""
        node = three.world.nodes[2]
        idle = HeapClient(node).connect()
        node.broker.registration.evicted()
        three.wait(lambda: idle.connection is None, what="the end of the connection")
        with pytest.raises(ConnectionLostError):
            three.metadata("orders", at=2)
        three.wait(lambda: is_fenced(three, node, by=three.world.nodes[1]), what="the fence")
        assert "CONDEMNED_DIRECTORY: the" in node.broker.admin.livez()["checks"]["registration"]


class TestBooting:
    def test_a_lone_broker_names_itself(self):
        """It is fenced until its first heartbeat after the registration: who had waited was told
        that there is no broker."""
        alone = Cluster(1, 1).ready()
        alone.create("orders", 1, 1)
        alone.kill(1)
        alone.restart(1)
        told = alone.metadata("orders", at=1)
        assert [broker.node_id for broker in told.brokers] == [1]
        assert told.topics[0].error_code == 0

    def test_a_crowd_that_waited_is_answered_over_several_turns(self, three):
        three.kill(3)
        three.restart(3)
        node = three.world.nodes[3]
        clients = [HeapClient(node).connect() for _ in range(30)]
        asked = [each.request(ApiKey.METADATA, ORDERS) for each in clients for _ in range(20)]
        three.wait(lambda: node.broker.clients.serving, what="the opening")
        waiting = [len(node.broker.clients._held)]
        real = node.broker.handle

        def handle(*arguments):
            effects = real(*arguments)
            waiting.append(len(node.broker.clients._held))
            return effects

        node.broker.handle = handle
        three.wait(lambda: all(each.done for each in asked), what="the answers")
        assert waiting[0] == 600 - 128
        assert max(before - now for before, now in pairwise(waiting)) == 128
        assert {each.answer.topics[0].error_code for each in asked} == {0}

    def test_what_is_held_weighs_something_and_keeps_no_receive_memory(self, three):
        node = cut_off(three, 3)
        client = HeapClient(node).connect()
        three.run(0.01)
        body = three.produce_body("orders", [b"small"])
        frame = frame_of(ApiKey.PRODUCE, 11, body)
        slab = bytearray(frame)
        event = Request(client.connection, 0, memoryview(slab))
        node.broker.handle([event], node.live.clock.now(three.world.now), 0)
        del event
        (request,) = node.broker.clients._held
        assert request.weight > len(frame) + 512
        assert request.body.topic_data[0].partition_data[0].records
        slab.append(0)  # a BufferError as long as there is a view of it

    def test_what_is_asked_early_is_answered_out_of_an_image_as_new_as_the_boot(self, three):
        """The image on the disk is older than the topic. The broker said that there is no such
        topic."""
        three.kill(3)
        three.restart(3)
        client = HeapClient(three.world.nodes[3]).connect()
        versions = client.request(ApiKey.API_VERSIONS, ApiVersionsRequest("test", "1"))
        asked = [client.request(ApiKey.METADATA, ORDERS) for _ in range(3)]
        three.wait(lambda: versions.done, what="the versions")
        assert not three.world.nodes[3].broker.context.caught_up
        assert [each.done for each in asked] == [False] * 3
        three.wait(lambda: all(each.done for each in asked), what="the answers")
        for each in asked:
            (topic,) = each.answer.topics
            assert (topic.error_code, len(topic.partitions)) == (0, 1)
        assert client.order == [0, 1, 2, 3]

    def test_none_overtakes_one_that_was_held(self):
        """A producer's stream, begun before its leader had opened."""
        alone = Cluster(1, 1).ready()
        alone.create("orders", 1, 1)
        alone.kill(1)
        alone.restart(1)
        client = HeapClient(alone.world.nodes[1]).connect()
        values = [str(number).encode() for number in range(40)]
        pending = []
        for value in values:
            body = alone.produce_body("orders", [value])
            pending.append(client.request(ApiKey.PRODUCE, body, 11))
            alone.run(0.01)
        alone.wait(lambda: all(each.done for each in pending), what="the answers")
        codes = [each.answer.responses[0].partition_responses[0].error_code for each in pending]
        stored = [value for _, value in alone.read_all("orders")]
        assert stored == [value for value, code in zip(values, codes, strict=True) if code == 0]
        assert stored

    def test_who_left_is_not_worked_for(self, three):
        node = cut_off(three, 3)
        for _ in range(3):
            client = HeapClient(node).connect()
            client.request(ApiKey.METADATA, ORDERS)
            three.run(0.01)
            client.close()
        three.run(0.01)
        assert not node.broker.clients._held
        three.world.network.heal()
        three.ready()

    def test_after_a_session_it_hangs_up_until_it_has_opened(self, three):
        """And what was held is not performed behind the client's back."""
        node = cut_off(three, 3)
        idle = HeapClient(node).connect()
        topic = CreateTopicsRequest([CreatableTopic("late", 1, 3)], 20_000)
        create = three.client(3).request(ApiKey.CREATE_TOPICS, topic)
        session_ns = node.broker.context.config.session_ns
        three.run(session_ns / NANOS_PER_SECOND - 0.1)
        assert idle.connection is not None
        assert not create.done
        three.run(0.2)
        assert idle.connection is None
        assert isinstance(create.answer, ConnectionLostError)
        with pytest.raises(ConnectionLostError):
            three.metadata("orders", at=3)
        assert [event.name for event in three.tracer.events].count("opens-late") == 1
        three.world.network.heal()
        three.ready()
        three.run(1.0)
        assert three.partition("orders", at=3).leader_id > 0
        assert three.world.nodes[3].broker.context.image.topic("late") is None
