"""A broker whose image is behind refuses no client by it: an answer to one holds for all."""

import pytest

from raftlog.base import probes
from raftlog.base.errors import DiskError
from raftlog.base.ids import METADATA_GROUP
from raftlog.base.units import Instant
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from raftlog.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from raftlog.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


def cluster_with_one_behind():
    """Three brokers; the last hears nothing from the controller until `heal`, and all others hear
    it: a topic `t` of two partitions is there, which it does not know."""
    cluster = Cluster(brokers=3, controllers=3).ready()
    nodes = cluster.world.running()
    controller = next(node for node in nodes if node.broker.controller.active)
    behind = next(node for node in reversed(nodes) if node is not controller)
    cluster.world.network.hold([(controller.number, behind.number)])
    cluster.create("t", 2, 2, at=controller.number)
    assert behind.broker.context.router.topic("t") is None
    probes.reset()
    return cluster, controller, behind


def grow(cluster, node, count, timeout_ms=10_000):
    topic = CreatePartitionsTopic("t", count, None)
    body = CreatePartitionsRequest([topic], timeout_ms, False)
    return cluster.client(node.number).request(ApiKey.CREATE_PARTITIONS, body)


def delete(cluster, node, timeout_ms=10_000):
    body = DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=timeout_ms)
    return cluster.client(node.number).request(ApiKey.DELETE_TOPICS, body)


def finished(cluster, pending):
    cluster.wait(lambda: pending.done, 20.0, "an answer")
    answer = pending.answer
    return (answer.results if hasattr(answer, "results") else answer.responses)[0].error_code


@pytest.mark.parametrize("ask", [lambda *known: grow(*known, 3), delete], ids=["grow", "delete"])
def test_what_is_unknown_here_is_looked_up_again_once_the_image_is_current(ask):
    cluster, _, behind = cluster_with_one_behind()
    pending = ask(cluster, behind)
    cluster.run(0.02)
    assert not pending.done
    cluster.world.network.heal()
    assert finished(cluster, pending) == ErrorCode.NONE


@pytest.mark.parametrize(
    "ask",
    [lambda *known: grow(*known, 2), lambda *known: grow(*known, 3), delete],
    ids=["grow to what it had", "grow", "delete"],
)
def test_a_topic_that_was_made_anew_is_found_by_its_name(ask):
    cluster, controller, behind = cluster_with_one_behind()
    cluster.world.network.heal()
    cluster.wait(lambda: behind.broker.context.router.topic("t") is not None, 5.0, "known")
    cluster.world.network.hold([(controller.number, behind.number)])
    assert finished(cluster, delete(cluster, controller)) == ErrorCode.NONE
    cluster.create("t", 1, 2, at=controller.number)
    pending = ask(cluster, behind)
    cluster.run(0.02)
    assert not pending.done
    cluster.world.network.heal()
    assert finished(cluster, pending) == ErrorCode.NONE
    named = controller.broker.context.router.topic("t")
    assert named is None or len(named.partitions) > 1


@pytest.mark.parametrize(
    "ask", [lambda *known: grow(*known, 3, 300), lambda *known: delete(*known, 300)]
)
def test_who_cannot_ask_the_controller_says_so(ask):
    cluster, _, behind = cluster_with_one_behind()
    others = [node.number for node in cluster.world.running() if node is not behind]
    cluster.world.network.hold((other, behind.number) for other in others)
    assert finished(cluster, ask(cluster, behind)) == ErrorCode.REQUEST_TIMED_OUT


def test_what_nobody_knows_is_unknown():
    cluster = Cluster(brokers=3, controllers=3).ready()
    for node in cluster.world.running():
        assert finished(cluster, grow(cluster, node, 3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert finished(cluster, delete(cluster, node)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deposed_controller_that_does_not_know_it_confirms_nothing():
    cluster, controller, _ = cluster_with_one_behind()
    cluster.world.network.heal()
    cluster.run(1)
    others = [node.number for node in cluster.world.running() if node is not controller]
    cluster.world.network.hold((other, controller.number) for other in others)
    assert controller.broker.controller.active
    topic = CreatePartitionsTopic("nowhere", 3, None)
    body = CreatePartitionsRequest([topic], 400, False)
    pending = cluster.client(controller.number).request(ApiKey.CREATE_PARTITIONS, body)
    assert finished(cluster, pending) == ErrorCode.REQUEST_TIMED_OUT


def test_a_controller_that_was_paused_refuses_nothing_by_its_old_image():
    """Seed 8104786: another controller had deleted a topic meanwhile, and said so; who then wanted
    it made, and asked the broker that had been paused, heard that it is there already."""
    cluster = Cluster(brokers=3, controllers=3).ready()
    nodes = cluster.world.running()
    paused = next(node for node in nodes if node.broker.controller.active)
    cluster.create("t", 2, 3)
    client = cluster.client(paused.number)
    others = [node for node in nodes if node is not paused]
    cluster.world.network.hold((other.number, paused.number) for other in others)
    paused.suspend()
    cluster.wait(lambda: any(n.broker.controller.active for n in others), 10.0, "a successor")
    assert finished(cluster, delete(cluster, others[0])) == ErrorCode.NONE
    body = CreateTopicsRequest([CreatableTopic("t", 1, 3)], 10_000, False)
    pending = client.request(ApiKey.CREATE_TOPICS, body)
    paused.resume()
    cluster.run(0.02)
    cluster.world.network.heal()
    cluster.wait(lambda: pending.done, 20.0, "an answer")
    assert pending.answer.topics[0].error_code == ErrorCode.NONE


def test_a_controller_whose_log_is_closed_confirms_nothing():
    """Its metadata log could not be written and is opened again; until the end of the turn it may
    believe itself to be in charge. The question for the version of now ended its process."""
    cluster = Cluster(brokers=3, controllers=3).ready()
    node = next(node for node in cluster.world.running() if node.broker.controller.active)
    context, told = node.broker.context, []
    replica = context.replicas[METADATA_GROUP]
    node.broker.manager.failed(METADATA_GROUP, replica, DiskError("a write failed"))
    assert node.broker.controller.active
    context.controller.when_current(Instant(2**62), told.append)
    context.run_soon()
    assert told == []
    assert not node.broker.controller.active
    cluster.wait(lambda: told == [True], 5.0, "asked elsewhere")
