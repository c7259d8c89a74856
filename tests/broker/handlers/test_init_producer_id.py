"""Producer ids are unique, from any broker, across restarts."""

import pytest

from raftlog.broker.handlers.init_producer_id import BLOCK_IDS, ProducerIds
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.init_producer_id import InitProducerIdRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


def ask(cluster, node, transactional_id=None, version=4):
    body = InitProducerIdRequest(transactional_id=transactional_id)
    answer = cluster.ask(node, ApiKey.INIT_PRODUCER_ID, body, version, limit=60.0)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_version(version):
    error, producer_id, epoch = ask(Cluster(1).ready(), 1, version=version)
    assert (error, epoch) == (0, 0)
    assert producer_id >= 0


def test_ids_are_unique_over_brokers_blocks_and_restarts():
    cluster = Cluster(3).ready()
    seen = [ask(cluster, node)[1] for node in (1, 2, 3, 1, 2, 3)]
    cluster.kill(2)
    cluster.restart(2)
    cluster.ready()
    seen += [ask(cluster, 2)[1] for _ in range(3)]
    assert len(set(seen)) == len(seen)


def test_a_block_is_used_up_before_another_is_asked_for():
    cluster = Cluster(1).ready()
    first = ask(cluster, 1)[1]
    assert ask(cluster, 1)[1] == first + 1
    ids = cluster.world.nodes[1].broker.context.kept(ProducerIds)
    ids.next_id = first + BLOCK_IDS
    assert ask(cluster, 1)[1] >= first + BLOCK_IDS


def test_requests_that_wait_for_one_block_share_it():
    cluster = Cluster(1).ready()
    client = cluster.client(1)
    pending = [
        client.request(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(transactional_id=None), 4)
        for _ in range(5)
    ]
    cluster.wait(lambda: all(one.done for one in pending), 10.0, "ids")
    ids = [one.answer.producer_id for one in pending]
    assert ids == list(range(ids[0], ids[0] + 5))


def test_transactions_are_refused_for_good():
    error, producer_id, _ = ask(Cluster(1).ready(), 1, "tx")
    assert (error, producer_id) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)


def test_without_a_controller_the_client_may_ask_again():
    cluster = Cluster(3, controllers=1).ready()
    controller = next(
        n for n in (1, 2, 3) if cluster.world.nodes[n].broker.context.config.is_controller
    )
    other = next(n for n in (1, 2, 3) if n != controller)
    cluster.kill(controller)
    error, producer_id, _ = ask(cluster, other)
    assert (error, producer_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
