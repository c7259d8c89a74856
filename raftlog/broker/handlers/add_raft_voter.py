"""AddRaftVoter: a broker becomes a controller. See `raft_voters`."""

from raftlog.broker.context import Context
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.raft_voters import Voter, change
from raftlog.kafka.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse


def handle(context: Context, request: KafkaRequest) -> None:
    """See the module."""
    body: AddRaftVoterRequest = request.body
    voter = Voter(body.cluster_id, body.voter_id, body.voter_directory_id, body.timeout_ms)
    change(context, request, voter, AddRaftVoterResponse, votes=True)
