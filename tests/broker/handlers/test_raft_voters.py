"""AddRaftVoter and RemoveRaftVoter over real frames: controllers come and go."""

import pytest

from raftlog.base.ids import METADATA_GROUP
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages.add_raft_voter import AddRaftVoterRequest
from raftlog.kafka.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from raftlog.kafka.messages.remove_raft_voter import RemoveRaftVoterRequest
from raftlog.kafka.messages.unregister_broker import UnregisterBrokerRequest
from raftlog.kafka.versions import ApiKey
from tests.broker.cluster import Cluster


@pytest.fixture
def four():
    """Controllers 1 to 3, and a broker 4."""
    return Cluster(brokers=4, controllers=3, encode=True).ready()


def quorum(cluster, at):
    """{node: (votes, directory id)}, as DescribeQuorum shows it."""
    asked = TopicDataRequest("__cluster_metadata", (PartitionDataRequest(0),))
    answer = cluster.ask(at, ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest((asked,)))
    (told,) = answer.topics[0].partitions
    voters = {each.replica_id: (True, each.replica_directory_id) for each in told.current_voters}
    return voters | {each.replica_id: (False, each.replica_directory_id) for each in told.observers}


def add(cluster, node, at=2, directory=None, cluster_id=None):
    held = directory or quorum(cluster, at)[node][1]
    body = AddRaftVoterRequest(cluster_id, 5_000, node, held, ())
    answer = cluster.ask(at, ApiKey.ADD_RAFT_VOTER, body)
    return answer.error_code, answer.error_message


def remove(cluster, node, at=2, directory=None, cluster_id=None):
    held = directory or quorum(cluster, at)[node][1]
    answer = cluster.ask(
        at, ApiKey.REMOVE_RAFT_VOTER, RemoveRaftVoterRequest(cluster_id, node, held)
    )
    return answer.error_code, answer.error_message


def voters(cluster, at=2):
    return sorted(node for node, (votes, _) in quorum(cluster, at).items() if votes)


def wait_for(cluster, *nodes, at=2):
    cluster.wait(lambda: voters(cluster, at) == list(nodes), 20.0, f"voters {nodes}")


def leader_of_metadata(cluster):
    for node in cluster.world.running():
        replica = node.broker.context.replicas.get(METADATA_GROUP)
        if replica is not None and replica.is_leader and replica.ready:
            return node.number
    return None


@pytest.mark.parametrize("replaced", ["the leader", "a follower"])
def test_a_controller_is_replaced(four, replaced):
    leader = leader_of_metadata(four)
    gone = leader if replaced == "the leader" else next(n for n in (1, 2, 3) if n != leader)
    at = next(n for n in (1, 2, 3) if n != gone)
    assert add(four, 4, at) == (0, None)
    wait_for(four, 1, 2, 3, 4, at=at)
    assert remove(four, gone, at) == (0, None)
    left = sorted({1, 2, 3, 4} - {gone})
    wait_for(four, *left, at=at)
    four.wait(lambda: leader_of_metadata(four) in left, 20.0, "a leader among those who vote")
    four.create("after", 1, 3, at=at)
    # The old controller may go for good: the others have a majority without it.
    four.kill(gone)
    four.run(3)
    body = UnregisterBrokerRequest(gone)
    four.wait(
        lambda: (
            four.ask(at, ApiKey.UNREGISTER_BROKER, body).error_code
            in (0, ErrorCode.INVALID_REQUEST)
        ),
        10.0,
        "asked",
    )
    four.create("later", 1, 3, at=at)
    four.put("later", ["x"])


def test_the_new_controllers_survive_a_restart_of_everything(four):
    assert add(four, 4) == (0, None)
    wait_for(four, 1, 2, 3, 4)
    assert remove(four, 1) == (0, None)
    wait_for(four, 2, 3, 4)
    for node in (1, 2, 3, 4):
        four.kill(node)
    for node in (2, 3, 4):
        four.restart(node)
    four.wait(lambda: leader_of_metadata(four) in (2, 3, 4), 20.0, "a leader")
    four.ready()
    wait_for(four, 2, 3, 4)
    four.create("t", 1, 3, at=2)
    four.restart(1)
    four.ready()
    assert voters(four) == [2, 3, 4]


def test_a_removal_that_would_lose_the_majority_is_refused(four):
    gone = next(n for n in (1, 2, 3) if n != leader_of_metadata(four))
    others = [n for n in (1, 2, 3) if n != gone]
    four.kill(gone)
    four.run(3)
    code, message = remove(four, others[0], at=others[0])
    assert (code, "2 must be" in message) == (ErrorCode.INVALID_REQUEST, True)
    assert remove(four, gone, at=others[0], directory=_directory(four, gone)) == (0, None)
    wait_for(four, *others, at=others[0])


def _directory(cluster, node):
    image = cluster.world.running()[0].broker.context.image
    return image.brokers[node].directory.to_bytes(16, "big")


def test_requests_that_name_no_voter(four):
    code, message = add(four, 1)
    assert (code, message) == (ErrorCode.DUPLICATE_VOTER, "broker 1 is a controller already")
    assert remove(four, 4)[0] == ErrorCode.VOTER_NOT_FOUND
    wrong = (123).to_bytes(16, "big")
    assert add(four, 4, directory=wrong)[0] == ErrorCode.INVALID_REQUEST
    assert remove(four, 1, directory=wrong)[0] == ErrorCode.VOTER_NOT_FOUND
    for each in (bytes(16), b"\xff" * 16):
        assert add(four, 4, directory=each)[0] == ErrorCode.INVALID_REQUEST
        assert remove(four, 1, directory=each)[0] == ErrorCode.INVALID_REQUEST
    for node in (-1, -(2**31)):
        assert add(four, node, directory=wrong)[0] == ErrorCode.INVALID_REQUEST
    assert add(four, 4, cluster_id="another")[0] == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert remove(four, 1, cluster_id="another")[0] == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert add(four, 77, directory=wrong)[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert voters(four) == [1, 2, 3]
