"""Which brokers vote in the metadata group: one is added, one is taken away."""

import pytest

from raftlog.base.ids import DirectoryId, NodeId
from raftlog.broker.control.controller_requests import metadata_target
from raftlog.metadata import commands as c
from raftlog.metadata.refusals import Refusal, kafka_code
from raftlog.metadata.rules.apply import apply
from tests.metadata.clusters import cluster, do, fence


def change(image, node, votes, directory=None):
    held = image.brokers[node].directory if node in image.brokers else DirectoryId(node)
    return c.ChangeController(node=NodeId(node), directory=directory or held, votes=votes)


def nodes_of(image):
    return [replica.node for replica in image.controllers]


@pytest.fixture
def image():
    """Five brokers that are alive; the first three are controllers."""
    made = cluster(1, 2, 3, 4, 5)
    for node in (4, 5):
        if node in nodes_of(made):
            made = do(made, change(made, node, votes=False))
    assert nodes_of(made) == [1, 2, 3]
    return made


def refused(image, command):
    applied = apply(image, command)
    assert applied.image is image
    return applied.refusal, kafka_code(applied.refusal)


def test_one_is_added_and_another_taken_away(image):
    grown = do(image, change(image, 4, votes=True))
    assert nodes_of(grown) == [1, 2, 3, 4]
    assert grown.version == image.version + 1
    assert grown.controllers[3] == grown.brokers[4].metadata_replica
    replaced = do(grown, change(grown, 1, votes=False))
    assert nodes_of(replaced) == [2, 3, 4]
    target = metadata_target(replaced)
    assert [r.node for r in target.voters] == [2, 3, 4]
    assert [r.node for r in target.learners] == [1, 5], "who voted learns on"


def test_who_cannot_be_added(image):
    assert refused(image, change(image, 1, votes=True)) == (Refusal.DUPLICATE_VOTER, 126)
    assert refused(image, change(image, 9, votes=True)) == (Refusal.UNKNOWN_BROKER, 39)
    other = DirectoryId(77)
    assert refused(image, change(image, 4, True, other)) == (Refusal.STALE, 42)
    dead = do(image, fence(image, 4))
    assert refused(dead, change(dead, 4, votes=True)) == (Refusal.STALE, 42)


def test_who_cannot_be_taken_away(image):
    assert refused(image, change(image, 4, votes=False)) == (Refusal.VOTER_NOT_FOUND, 127)
    assert refused(image, change(image, 9, votes=False)) == (Refusal.VOTER_NOT_FOUND, 127)
    other = DirectoryId(77)
    assert refused(image, change(image, 1, False, other)) == (Refusal.VOTER_NOT_FOUND, 127)


def test_a_majority_of_those_who_are_left_must_be_alive(image):
    weak = do(image, fence(image, 3))
    assert refused(weak, change(weak, 2, votes=False)) == (Refusal.QUORUM_AT_RISK, 42)
    left = do(weak, change(weak, 3, votes=False))
    assert nodes_of(left) == [1, 2], "the dead one goes"
    alone = do(left, change(left, 1, votes=False))
    assert refused(alone, change(alone, 2, votes=False)) == (Refusal.QUORUM_AT_RISK, 42)


def test_a_broker_is_forgotten_when_it_votes_no_more(image):
    dead = do(image, fence(image, 1))
    forget = c.UnregisterBroker(node=NodeId(1))
    assert apply(dead, forget).refusal is Refusal.BROKER_IN_USE
    freed = do(dead, change(dead, 1, votes=False))
    assert 1 not in do(freed, forget).brokers
