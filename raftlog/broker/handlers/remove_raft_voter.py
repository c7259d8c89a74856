"""RemoveRaftVoter: a broker stops to be a controller, and stays a broker. See `raft_voters`."""

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.raft_voters import Voter, change
from raftlog.kafka.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: RemoveRaftVoterRequest = request.body
    voter = Voter(body.cluster_id, body.voter_id, body.voter_directory_id)
    change(context, request, voter, RemoveRaftVoterResponse, votes=False)
