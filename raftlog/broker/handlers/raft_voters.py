"""AddRaftVoter and RemoveRaftVoter: one broker begins or stops to vote as a controller.

Both go through the controller as one command. The answer says that the change is committed; the
group then moves by joint consensus, which DescribeQuorum shows. Listeners in the request are
ignored: brokers reach each other where they registered.
"""

from functools import partial
from typing import Any, NamedTuple, final

from raftlog.base.ids import DirectoryId, NodeId
from raftlog.broker.context import Context
from raftlog.broker.control.controller_calls import CallOutcome, ControllerCalls
from raftlog.broker.front.requests import KafkaRequest
from raftlog.broker.handlers.attempts import deadline_of
from raftlog.broker.handlers.cluster_view import cluster_text
from raftlog.kafka.error_codes import ErrorCode
from raftlog.metadata.commands import ChangeController
from raftlog.metadata.refusals import Refusal, kafka_code
from raftlog.metadata.requests import SubmitCommand

_UNSEEN_MS = 2**31 - 1
_DIRECTORY_MAX = 2**64 - 1


@final
class Voter(NamedTuple):
    """The common content of both requests."""

    cluster_id: str | None
    node: int
    directory_id: bytes
    timeout_ms: int = _UNSEEN_MS


def change(
    context: Context, request: KafkaRequest, voter: Voter, respond: Any, *, votes: bool
) -> None:
    """Ask the controller, and answer with `respond(0, code, message)`."""
    then = partial(_decided, request, respond)
    calls = ControllerCalls(context.controller, deadline_of(context, voter.timeout_ms), then)
    directory = int.from_bytes(voter.directory_id, "big")
    if voter.cluster_id is not None and voter.cluster_id != cluster_text(context.cluster):
        what = f"this is cluster {cluster_text(context.cluster)}"
        calls.known(ErrorCode.INCONSISTENT_CLUSTER_ID, what)
    elif voter.node < 0 or not 0 < directory <= _DIRECTORY_MAX:
        what = (
            "a voter is named by a broker's number and the directory id that DescribeQuorum shows"
        )
        calls.known(ErrorCode.INVALID_REQUEST, what)
    else:
        command = ChangeController(
            node=NodeId(voter.node), directory=DirectoryId(directory), votes=votes
        )
        calls.add(SubmitCommand(command=command))
    calls.begin()


def _decided(request: KafkaRequest, respond: Any, outcomes: list[CallOutcome]) -> None:
    if request.dead:
        return
    (outcome,) = outcomes
    error = outcome.error
    if error == kafka_code(Refusal.UNKNOWN_BROKER):
        error = ErrorCode.BROKER_ID_NOT_REGISTERED
    request.answer(respond(0, error, outcome.message or None))
